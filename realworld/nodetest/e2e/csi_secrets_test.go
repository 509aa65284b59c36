package e2e

import (
	"maps"
	"math"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// secretCalls are the calls of the driver that need a secret in testSecrets, with the parameter of
// a class that names it. Each call has a secret of its own.
var secretCalls = map[string]string{
	"CreateVolume":            "provisioner-secret",
	"ControllerPublishVolume": "controller-publish-secret",
	"ControllerExpandVolume":  "controller-expand-secret",
	"NodeStageVolume":         "node-stage-secret",
	"NodePublishVolume":       "node-publish-secret",
	"NodeExpandVolume":        "node-expand-secret",
}

// secretOf returns the name of the secret of a call, passphraseOf its right content.
func secretOf(call string) string { return "for-" + strings.ToLower(call) }

func passphraseOf(call string) string { return "sesame-" + call }

// testSecrets has a driver that needs a secret for each call, by a class and in a pod. A pod waits
// for a secret that is missing, and then for the right content.
func (c *csiSuite) testSecrets(t *testing.T) {
	args, parameters := c.driver.args, map[string]string{fileSystemKey: "xfs"}
	defer func() { c.driver.args = args }()
	const late = "NodeStageVolume"
	for call, parameter := range secretCalls {
		c.driver.args = append(slices.Clip(c.driver.args), "--secret="+call+"="+passphraseOf(call))
		parameters["csi.storage.k8s.io/"+parameter+"-name"] = secretOf(call)
		parameters["csi.storage.k8s.io/"+parameter+"-namespace"] = testNamespace
		if call != late {
			c.writeSecret(t, secretOf(call), passphraseOf(call))
		}
	}
	c.restartDriver(t)
	c.createClass(t, "loop-secret", storagev1.VolumeBindingWaitForFirstConsumer, parameters)
	c.createClaimOf(t, "guarded", claimOfClass("loop-secret", "320Mi"))
	pod, inline := c.claimPod("guarded-pod", "guarded"), c.inlinePod("guarded-inline")
	inline.Spec.Volumes[0].CSI.NodePublishSecretRef = &v1.LocalObjectReference{
		Name: secretOf("NodePublishVolume")}
	c.createPods(t, pod, inline)
	c.waitReady(t, inline)
	c.waitUntil(t, "an event says that the secret is missing", func() bool {
		return hasLine(c.eventText(t, pod.Name), "FailedMount: MountVolume.MountDevice failed",
			`"`+secretOf(late)+`" not found`)
	})
	if got := conditionStatus(c.apiPod(t, pod.Name), v1.PodReadyToStartContainers); got !=
		v1.ConditionFalse {
		t.Errorf("condition %s is %s while a secret is missing", v1.PodReadyToStartContainers, got)
	}
	c.writeSecret(t, secretOf(late), "wrong")
	c.waitUntil(t, "an event says that the driver refuses the secret", func() bool {
		return hasLine(c.eventText(t, pod.Name), "FailedMount: MountVolume.MountDevice failed",
			`code = Unauthenticated desc = NodeStageVolume needs the right secret`)
	})
	if shown := c.kubectl(t, "get", "pod", pod.Name); !strings.Contains(shown, "ContainerCreating") {
		t.Errorf("kubectl shows %s", shown)
	}
	c.writeSecret(t, secretOf(late), passphraseOf(late))
	c.waitReady(t, pod)
	c.requestSize(t, "guarded", "400Mi")
	c.waitControllerExpanded(t, "guarded")
	second := c.claimPod("guarded-second", "guarded") // the agent reads the claim for it
	c.createPods(t, second)
	c.waitReady(t, second)
	c.waitExpanded(t, "guarded", "400Mi")
	c.checkSize(t, pod, "/disk", "400Mi")
	c.deletePods(t, pod, second, inline)
	c.waitReleased(t)
	c.kubectl(t, "delete", "persistentvolumeclaim/guarded", patience)
	c.waitVolumesRemoved(t)
	if strings.Contains(c.agent.logTail(t, math.MaxInt), passphraseOf("")) {
		t.Error("the agent's log has the content of a secret")
	}
	for _, call := range slices.Sorted(maps.Keys(secretCalls)) {
		c.kubectl(t, "delete", "secret", secretOf(call))
	}
	c.driver.args = args
	c.restartDriver(t)
}

// writeSecret creates a secret for the driver, or gives it another content.
func (c *csiSuite) writeSecret(t *testing.T, name, content string) {
	t.Helper()
	secret := &v1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name},
		StringData: map[string]string{"passphrase": content}}
	secrets := c.api.CoreV1().Secrets(testNamespace)
	_, err := secrets.Update(t.Context(), secret, metav1.UpdateOptions{})
	if err != nil {
		_, err = secrets.Create(t.Context(), secret, metav1.CreateOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
}

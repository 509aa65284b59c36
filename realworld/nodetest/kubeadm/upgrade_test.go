package kubeadm

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// newMaxPods is the maxPods of the changed configuration; the default is 110.
const newMaxPods = 57

// testUpgradeNode changes the configuration of all kubelets in the cluster, and has the nodes take
// it. No container is started again.
func (s *suite) testUpgradeNode(t *testing.T) {
	maps := s.api.CoreV1().ConfigMaps("kube-system")
	m, err := maps.Get(t.Context(), "kubelet-config", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	m.Data["kubelet"] += fmt.Sprintf("\nmaxPods: %d\n", newMaxPods)
	if _, err := maps.Update(t.Context(), m, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, n := range []*node{s.worker, s.controlPlane} {
		before := n.allContainers(t)
		args := []string{"upgrade", "node", ignoreErrors()}
		if n == s.controlPlane {
			// The other phases are those of testControlPlaneUpgrade.
			args = []string{"upgrade", "node", "phase", "kubelet-config"}
		}
		s.kubeadm(t, n, args...)
		n.commandOutput(t, "systemctl", "restart", "kubelet")
		n.starts++
		s.waitUntil(t, fmt.Sprintf("%s can have %d pods and is ready", n.HostName, newMaxPods),
			func() error {
				object, err := s.readyNode(t.Context(), n)
				if err != nil {
					return err
				}
				capacity, allocatable := object.Status.Capacity.Pods().Value(),
					object.Status.Allocatable.Pods().Value()
				return missingUnless(capacity == newMaxPods && allocatable == newMaxPods,
					"of %d pods, %d can be allocated", capacity, allocatable)
			})
		s.checkConfigz(t, n)
		s.checkHealth(t, n)
		if after := n.allContainers(t); !slices.Equal(before, after) {
			t.Errorf("containers of %s before and after:\n%q\n%q", n.HostName, before, after)
		}
		s.say(t, "the %d containers of %s run on", len(before), n.HostName)
	}
}

// checkConfigz checks that the agent of a node works with the changed configuration.
func (s *suite) checkConfigz(t *testing.T, n *node) {
	t.Helper()
	var response struct {
		Config struct{ MaxPods int } `json:"kubeletconfig"`
	}
	out := s.output(t, s.controlPlane, "kubectl", "get", "--raw",
		"/api/v1/nodes/"+n.HostName+"/proxy/configz")
	if err := json.Unmarshal([]byte(out), &response); err != nil {
		t.Fatalf("/configz of %s: %v: %s", n.HostName, err, out)
	}
	if response.Config.MaxPods != newMaxPods {
		t.Errorf("by /configz of %s, maxPods is %d, want %d", n.HostName, response.Config.MaxPods,
			newMaxPods)
	}
	s.say(t, "by /configz of %s, maxPods is %d", n.HostName, response.Config.MaxPods)
}

// schedulerFlag is a flag of the scheduler that the upgrade of the control plane adds.
var schedulerFlag = map[string]any{"name": "v", "value": "3"}

// testControlPlaneUpgrade changes the configuration of the scheduler in the cluster, and has
// kubeadm replace its manifest. kubeadm waits until the annotation kubernetes.io/config.hash of the
// mirror pod has changed, and restores the old manifest if that takes too long. The other static
// pods run on.
func (s *suite) testControlPlaneUpgrade(t *testing.T) {
	maps := s.api.CoreV1().ConfigMaps("kube-system")
	m, err := maps.Get(t.Context(), "kubeadm-config", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var config map[string]any
	if err := yaml.Unmarshal([]byte(m.Data["ClusterConfiguration"]), &config); err != nil {
		t.Fatal(err)
	}
	config["scheduler"] = map[string]any{"extraArgs": []any{schedulerFlag}}
	data, err := yaml.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	m.Data["ClusterConfiguration"] = string(data)
	if _, err := maps.Update(t.Context(), m, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	n := s.controlPlane
	before := n.containers
	s.kubeadm(t, n, "upgrade", "node", skippedPhases, ignoreErrors())
	s.waitUntil(t, "the mirror pod of the scheduler has the new flag and is ready", func() error {
		pod, err := s.readyMirror(t.Context(), "kube-scheduler-"+n.HostName)
		if err != nil {
			return err
		}
		command := pod.Spec.Containers[0].Command
		return missingUnless(slices.Contains(command, "--v=3"), "its command is %q", command)
	})
	s.keepContainers(t, n)
	ended, added := without(before, n.containers), without(n.containers, before)
	want := []string{"kube-scheduler"}
	if !slices.Equal(ended, want) || !slices.Equal(added, want) {
		t.Errorf("the containers of %q were replaced by those of %q, want one of the scheduler", ended,
			added)
	}
	s.say(t, "the container of the scheduler was replaced, those of the others run on")
}

// without returns the names of the containers of a map that another does not have.
func without(of, other map[string]string) (names []string) {
	for id, name := range of {
		if other[id] == "" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

package kubeadm

import (
	"fmt"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
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
		before := s.containers(t, n)
		args := []string{"upgrade", "node", ignoreErrors()}
		if n == s.controlPlane {
			// The other phases are those of testControlPlaneUpgrade.
			args = []string{"upgrade", "node", "phase", "kubelet-config"}
		}
		s.kubeadm(t, n, args...)
		if out, err := n.Command(t.Context(), "systemctl", "restart", "kubelet").
			CombinedOutput(); err != nil {
			t.Fatalf("restarting the agent: %v: %s", err, out)
		}
		s.waitUntil(t, fmt.Sprintf("%s can have %d pods and is ready", n.HostName, newMaxPods),
			func() bool {
				status, _ := s.readyCondition(t, n)
				return s.getNode(t, n).Status.Allocatable.Pods().Value() == newMaxPods &&
					status == v1.ConditionTrue
			})
		s.checkHealth(t, n)
		if after := s.containers(t, n); !slices.Equal(before, after) {
			t.Errorf("containers of %s before and after:\n%q\n%q", n.HostName, before, after)
		}
		s.say(t, "the %d containers of %s run on", len(before), n.HostName)
	}
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
	before := s.runningByName(t, s.controlPlane)
	s.kubeadm(t, s.controlPlane, "upgrade", "node", skippedPhases, ignoreErrors())
	pods := s.api.CoreV1().Pods("kube-system")
	s.waitUntil(t, "the mirror pod of the scheduler has the new flag and is ready", func() bool {
		pod, err := pods.Get(t.Context(), "kube-scheduler-"+s.controlPlane.HostName,
			metav1.GetOptions{})
		return err == nil && isReady(pod) && slices.Contains(pod.Spec.Containers[0].Command, "--v=3")
	})
	for name, id := range s.runningByName(t, s.controlPlane) {
		if replaced := id != before[name]; replaced != (name == "kube-scheduler") {
			t.Errorf("container of %s: %s before, %s after the upgrade", name, before[name], id)
		}
	}
	s.say(t, "the container of the scheduler was replaced, those of the others run on")
}

// runningByName returns the IDs of the containers that run on a node, by their names.
func (s *suite) runningByName(t *testing.T, n *node) map[string]string {
	t.Helper()
	list, err := n.runtime.ListContainers(t.Context(), &runtimeapi.ListContainersRequest{
		Filter: &runtimeapi.ContainerFilter{State: &runtimeapi.ContainerStateValue{
			State: runtimeapi.ContainerState_CONTAINER_RUNNING}}})
	if err != nil {
		t.Fatal(err)
	}
	found := make(map[string]string, len(list.Containers))
	for _, c := range list.Containers {
		found[c.Metadata.Name] = c.Id
	}
	return found
}

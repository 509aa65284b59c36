package kubeadm

import (
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"sigs.k8s.io/yaml"
)

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

package kubeadm

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"sigs.k8s.io/yaml"
)

// testControlPlane checks that the static pods of the control plane run and are ready, by their
// mirror pods, and that the agent answers as kubeadm asks it.
func (s *suite) testControlPlane(t *testing.T) {
	n := s.controlPlane
	for _, name := range []string{"etcd", "kube-apiserver", "kube-controller-manager",
		"kube-scheduler"} {
		s.waitUntil(t, name+" is ready by its mirror pod", func() bool {
			pod, err := s.api.CoreV1().Pods("kube-system").Get(t.Context(), name+"-"+n.HostName,
				metav1.GetOptions{})
			return err == nil && isReady(pod)
		})
	}
	s.checkHealth(t, n)
}

func (s *suite) checkHealth(t *testing.T, n *node) {
	t.Helper()
	out, err := n.Command(t.Context(), "curl", "-sS", "http://127.0.0.1:10248/healthz").
		CombinedOutput()
	if err != nil || string(out) != "ok" {
		t.Errorf("/healthz of %s: %q, %v", n.HostName, out, err)
	}
	s.say(t, "/healthz of %s: %s", n.HostName, out)
}

func isReady(pod *v1.Pod) bool {
	return pod.Status.Phase == v1.PodRunning &&
		slices.ContainsFunc(pod.Status.Conditions, func(c v1.PodCondition) bool {
			return c.Type == v1.PodReady && c.Status == v1.ConditionTrue
		})
}

// getNode returns the Node of a machine.
func (s *suite) getNode(t *testing.T, n *node) *v1.Node {
	t.Helper()
	object, err := s.api.CoreV1().Nodes().Get(t.Context(), n.HostName, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return object
}

func (s *suite) readyCondition(t *testing.T, n *node) (status v1.ConditionStatus, message string) {
	t.Helper()
	for _, c := range s.getNode(t, n).Status.Conditions {
		if c.Type == v1.NodeReady {
			return c.Status, c.Message
		}
	}
	return v1.ConditionUnknown, "no condition"
}

// testNetwork installs the network of a node, which is not ready before and ready after it.
func (s *suite) testNetwork(t *testing.T, n *node) {
	var subnet string
	s.waitUntil(t, n.HostName+" has a podCIDR", func() bool {
		subnet = s.getNode(t, n).Spec.PodCIDR
		return subnet != ""
	})
	status, message := s.readyCondition(t, n)
	if status == v1.ConditionTrue || !strings.Contains(message, "cni plugin not initialized") {
		t.Errorf("without a network: Ready is %s: %s", status, message)
	}
	n.write(t, "/etc/cni/net.d/10-pods.conflist", networkConfig(subnet), 0o644)
	s.waitUntil(t, n.HostName+" is ready with the network "+subnet, func() bool {
		status, _ = s.readyCondition(t, n)
		return status == v1.ConditionTrue
	})
}

const deploymentManifest = `
metadata: {name: web}
spec:
  replicas: 3
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
      - name: main
        image: IMAGE
        args: [talk]
        volumeMounts: [{name: memory, mountPath: /memory}]
      volumes:
      - {name: memory, emptyDir: {medium: Memory}}
`

// testDeployment runs pods on the worker: the control plane has a taint.
func (s *suite) testDeployment(t *testing.T) {
	var d appsv1.Deployment
	manifest := strings.ReplaceAll(deploymentManifest, "IMAGE", s.images.registry.Images.Sample)
	if err := yaml.UnmarshalStrict([]byte(manifest), &d); err != nil {
		t.Fatal(err)
	}
	_, err := s.api.AppsV1().Deployments("default").Create(t.Context(), &d, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	s.waitUntil(t, "three pods of the deployment run and are ready on the worker", func() bool {
		pods := s.webPods(t)
		return len(pods) == 3 && !slices.ContainsFunc(pods, func(p v1.Pod) bool {
			return !isReady(&p) || p.Spec.NodeName != s.worker.HostName
		})
	})
	for _, p := range s.webPods(t) {
		s.say(t, "%s on %s has %s", p.Name, p.Spec.NodeName, p.Status.PodIP)
	}
}

func (s *suite) webPods(t *testing.T) []v1.Pod {
	t.Helper()
	list, err := s.api.CoreV1().Pods("default").List(t.Context(),
		metav1.ListOptions{LabelSelector: "app=web"})
	if err != nil {
		t.Fatal(err)
	}
	return list.Items
}

// containers returns a line for each container of a node, whatever its state.
func (s *suite) containers(t *testing.T, n *node) []string {
	t.Helper()
	list, err := n.runtime.ListContainers(t.Context(), &runtimeapi.ListContainersRequest{})
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, c := range list.Containers {
		lines = append(lines, fmt.Sprintf("%s attempt %d: %s %s", c.Metadata.Name,
			c.Metadata.Attempt, c.Id[:12], c.State))
	}
	slices.Sort(lines)
	return lines
}

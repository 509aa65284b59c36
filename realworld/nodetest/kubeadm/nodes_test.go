package kubeadm

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"seedlet.dev/realworld/porttest"
)

// testControlPlane checks that the static pods of the control plane run and are ready, by their
// mirror pods, and that the agent answers as kubeadm asks it.
func (s *suite) testControlPlane(t *testing.T) {
	n := s.controlPlane
	for _, name := range []string{"etcd", "kube-apiserver", "kube-controller-manager",
		"kube-scheduler"} {
		s.waitUntil(t, name+" is ready by its mirror pod", func() error {
			_, err := s.readyMirror(t.Context(), name+"-"+n.HostName)
			return err
		})
	}
	s.checkHealth(t, n)
}

// readyMirror returns the mirror pod of a static pod of the control plane, if it is ready.
func (s *suite) readyMirror(ctx context.Context, name string) (*v1.Pod, error) {
	pod, err := s.api.CoreV1().Pods("kube-system").Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	return pod, missingUnless(isReady(pod), "%s is %s and not ready", name, pod.Status.Phase)
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
func (s *suite) getNode(ctx context.Context, n *node) (*v1.Node, error) {
	return s.api.CoreV1().Nodes().Get(ctx, n.HostName, metav1.GetOptions{})
}

// readyNode returns the Node of a machine, and an error with the reason if it is not ready.
func (s *suite) readyNode(ctx context.Context, n *node) (*v1.Node, error) {
	object, err := s.getNode(ctx, n)
	if err != nil {
		return nil, err
	}
	err = errors.New("the Node has no condition Ready")
	for _, c := range object.Status.Conditions {
		if c.Type == v1.NodeReady {
			err = missingUnless(c.Status == v1.ConditionTrue, "Ready is %s: %s", c.Status, c.Message)
		}
	}
	return object, err
}

// testNetwork installs the network of a node, which is not ready before and ready after it.
func (s *suite) testNetwork(t *testing.T, n *node) {
	s.waitUntil(t, n.HostName+" is not ready without a network", func() error {
		_, err := s.readyNode(t.Context(), n)
		return missingUnless(err != nil && strings.Contains(err.Error(), "cni plugin not initialized"),
			"the Node: %v", err)
	})
	s.installNetwork(t, n)
}

// installNetwork installs the network of a node once the cluster has given it a part, and waits
// until the node is ready.
func (s *suite) installNetwork(t *testing.T, n *node) {
	t.Helper()
	var subnet string
	s.waitUntil(t, n.HostName+" has a podCIDR", func() error {
		object, err := s.getNode(t.Context(), n)
		if err != nil {
			return err
		}
		subnet = object.Spec.PodCIDR
		return missingUnless(subnet != "", "it is empty")
	})
	n.write(t, "/etc/cni/net.d/10-pods.conflist", networkConfig(subnet), 0o644)
	s.waitUntil(t, n.HostName+" is ready with the network "+subnet, func() error {
		_, err := s.readyNode(t.Context(), n)
		return err
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
        volumeMounts:
        - {name: memory, mountPath: /memory}
        - {name: settings, mountPath: /settings}
      volumes:
      - {name: memory, emptyDir: {medium: Memory}}
      - {name: settings, configMap: {name: settings}}
`

// replicas are the pods of the deployment at first.
const replicas = 3

// testDeployment runs pods on the worker: the control plane has a taint.
func (s *suite) testDeployment(t *testing.T) {
	settings := v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "settings"},
		Data: map[string]string{"first": "1"}}
	_, err := s.api.CoreV1().ConfigMaps("default").Create(t.Context(), &settings,
		metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var d appsv1.Deployment
	manifest := strings.ReplaceAll(deploymentManifest, "IMAGE", s.images.registry.Images.Sample)
	if err := yaml.UnmarshalStrict([]byte(manifest), &d); err != nil {
		t.Fatal(err)
	}
	_, err = s.api.AppsV1().Deployments("default").Create(t.Context(), &d, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	s.waitForDeployment(t, replicas)
}

// waitForDeployment waits until the pods of the deployment run on the worker and are ready, each
// with a container that the runtime has. The next steps expect these containers.
func (s *suite) waitForDeployment(t *testing.T, count int) {
	t.Helper()
	var pods []v1.Pod
	s.waitUntil(t, fmt.Sprintf("%d pods run and are ready on the worker", count), func() (err error) {
		if pods, err = s.webPods(t.Context()); err != nil {
			return err
		}
		running, err := s.worker.runningContainers(t.Context())
		if err != nil {
			return err
		}
		if len(pods) != count || len(running) != count {
			return fmt.Errorf("there are %d pods, and %d containers run", len(pods), len(running))
		}
		for _, p := range pods {
			if !isReady(&p) || p.Spec.NodeName != s.worker.HostName {
				return fmt.Errorf("%s on %q is %s", p.Name, p.Spec.NodeName, p.Status.Phase)
			}
			_, id, _ := strings.Cut(p.Status.ContainerStatuses[0].ContainerID, "://")
			if running[id] == "" {
				return fmt.Errorf("%s is ready by container %s, which does not run", p.Name, id)
			}
		}
		return nil
	})
	for _, p := range pods {
		s.say(t, "%s on %s has %s", p.Name, p.Spec.NodeName, p.Status.PodIP)
	}
	s.keepContainers(t, s.worker)
}

func (s *suite) webPods(ctx context.Context) ([]v1.Pod, error) {
	list, err := s.api.CoreV1().Pods("default").List(ctx,
		metav1.ListOptions{LabelSelector: "app=web"})
	if err != nil {
		return nil, err
	}
	return list.Items, nil
}

// webPod returns the name of the oldest pod of the deployment.
func (s *suite) webPod(t *testing.T) string {
	t.Helper()
	pods, err := s.webPods(t.Context())
	if err != nil || len(pods) == 0 {
		t.Fatalf("pods of the deployment: %d, %v", len(pods), err)
	}
	return slices.MinFunc(pods, func(a, b v1.Pod) int {
		return a.CreationTimestamp.Compare(b.CreationTimestamp.Time)
	}).Name
}

// testWatches changes what the agent of the worker watches: the deployment gets another pod, and a
// ConfigMap that a running pod mounts gets another key, whose file the pod waits for.
func (s *suite) testWatches(t *testing.T) {
	t.Helper()
	_, err := s.api.AppsV1().Deployments("default").Patch(t.Context(), "web",
		types.MergePatchType, fmt.Appendf(nil, `{"spec": {"replicas": %d}}`, replicas+1),
		metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	pod := s.webPod(t)
	s.waitForDeployment(t, replicas+1)
	_, err = s.api.CoreV1().ConfigMaps("default").Patch(t.Context(), "settings",
		types.MergePatchType, []byte(`{"data": {"second": "2"}}`), metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), porttest.Patience)
	defer cancel()
	start := time.Now()
	out, err := s.controlPlane.program(ctx, t, "kubectl", "exec", pod, "--", "/sample", "exit",
		"--when=/settings/second").CombinedOutput()
	if err != nil {
		t.Fatalf("%s does not see the change of the ConfigMap: %v: %s", pod, err, out)
	}
	s.say(t, "%s sees the change of the ConfigMap after %v", pod,
		time.Since(start).Round(time.Millisecond))
}

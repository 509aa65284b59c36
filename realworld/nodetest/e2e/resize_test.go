package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const resizedPod = `
apiVersion: v1
kind: Pod
metadata: {name: resized, namespace: town}
spec:
  terminationGracePeriodSeconds: 5
  containers:
  - name: calm
    image: IMAGE
    args: [sleep]
    resources: {requests: {cpu: 50m, memory: 32Mi}, limits: {cpu: 200m, memory: 64Mi}}
  - name: strict
    image: IMAGE
    args: [sleep]
    resizePolicy: [{resourceName: memory, restartPolicy: RestartContainer}]
    resources: {requests: {cpu: 50m, memory: 32Mi}, limits: {cpu: 100m, memory: 64Mi}}
`

const rivalPod = `
apiVersion: v1
kind: Pod
metadata: {name: rival, namespace: town}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - {name: main, image: IMAGE, args: [sleep], resources: {requests: {cpu: %dm}}}
`

// testResize resizes the containers of a pod, and reads what they have from their cgroups: without
// and with a restart, up and down, beyond what the node has, and while the agent is killed.
func (c *clusterSuite) testResize(t *testing.T) {
	c.apply(t, resizedPod)
	c.waitUntil(t, "the pod is ready", func() bool { return isPodReady(c.apiPod(t, "resized")) })
	before := c.apiPod(t, "resized")
	c.checkCgroups(t, before, "calm", 64, 20_000, 128, 30_000)

	c.resize(t, "calm", "300m", "96Mi")
	after := c.waitResized(t)
	c.checkCgroups(t, after, "calm", 96, 30_000, 160, 40_000)
	c.resize(t, "calm", "100m", "48Mi")
	after = c.waitResized(t)
	c.checkCgroups(t, after, "calm", 48, 10_000, 112, 20_000)
	if s := containerStatus(after, "calm"); s.RestartCount != 0 ||
		s.ContainerID != containerStatus(before, "calm").ContainerID {
		t.Errorf("the container has restarted: %+v", s)
	}

	c.resize(t, "strict", "100m", "80Mi")
	c.waitUntil(t, "the container has restarted", func() bool {
		s := containerStatus(c.apiPod(t, "resized"), "strict")
		return s.RestartCount == 1 && s.Ready
	})
	after = c.waitResized(t)
	c.checkCgroups(t, after, "strict", 80, 10_000, 128, 20_000)

	c.testDeferredResize(t)
	c.testResizeUnderKills(t)
	c.kubectl(t, "delete", "pod", "resized", patience)
}

// testDeferredResize asks for more than is left on the node until another pod ends.
func (c *clusterSuite) testDeferredResize(t *testing.T) {
	nodes, err := c.api.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	if err != nil || len(nodes.Items) != 1 {
		t.Fatalf("the nodes: %v, %v", nodes, err)
	}
	cpu := nodes.Items[0].Status.Allocatable.Cpu().MilliValue() * 3 / 5
	c.apply(t, fmt.Sprintf(rivalPod, cpu))
	c.waitUntil(t, "the other pod is ready", func() bool { return isPodReady(c.apiPod(t, "rival")) })
	c.patchResources(t, "calm",
		fmt.Sprintf(`{"requests":{"cpu":"%dm"},"limits":{"cpu":"%dm"}}`, cpu, cpu))
	c.waitUntil(t, "the resize is deferred", func() bool {
		p := c.apiPod(t, "resized")
		for i := range p.Status.Conditions {
			if d := &p.Status.Conditions[i]; d.Type == v1.PodResizePending {
				return d.Reason == v1.PodReasonDeferred && d.ObservedGeneration == p.Generation
			}
		}
		return false
	})
	c.checkCgroups(t, c.apiPod(t, "resized"), "calm", 48, 10_000, 128, 20_000)
	c.kubectl(t, "delete", "pod", "rival", patience)
	c.checkCgroups(t, c.waitResized(t), "calm", 48, int(100*cpu), 128, int(100*cpu)+10_000)
	c.patchResources(t, "calm", `{"requests":{"cpu":"50m"},"limits":{"cpu":"100m"}}`)
	c.waitResized(t)
}

// testResizeUnderKills kills the agent after a resize was asked for, each time a little later.
func (c *clusterSuite) testResizeUnderKills(t *testing.T) {
	random, id := newRandom(t), containerStatus(c.apiPod(t, "resized"), "calm").ContainerID
	for i := range 8 {
		cpu, memory := 100+50*(i%3), 64+16*(i%2)
		c.resize(t, "calm", fmt.Sprintf("%dm", cpu), fmt.Sprintf("%dMi", memory))
		time.Sleep(time.Duration(random.ExpFloat64() * float64(30*time.Millisecond)))
		c.agent.signalAndWait(t, syscall.SIGKILL)
		c.agent.startProcess(t)
		p := c.waitResized(t)
		c.checkCgroups(t, p, "calm", memory, 100*cpu, memory+80, 100*cpu+10_000)
		if s := containerStatus(p, "calm"); s.ContainerID != id {
			t.Fatalf("the container has restarted: %+v", s)
		}
	}
	c.agent.waitHealthy(t)
}

// resize asks for other limits of a container; its requests stay.
func (c *clusterSuite) resize(t *testing.T, container, cpu, memory string) {
	t.Helper()
	c.patchResources(t, container, fmt.Sprintf(`{"limits":{"cpu":%q,"memory":%q}}`, cpu, memory))
}

func (c *clusterSuite) patchResources(t *testing.T, container, resources string) {
	t.Helper()
	c.kubectl(t, "patch", "pod", "resized", "--subresource=resize", "--patch",
		fmt.Sprintf(`{"spec":{"containers":[{"name":%q,"resources":%s}]}}`, container, resources))
}

// waitResized waits until the status of the pod says that its resources are those of its spec.
func (c *clusterSuite) waitResized(t *testing.T) *v1.Pod {
	t.Helper()
	var p *v1.Pod
	c.waitUntil(t, "the resize is complete", func() bool {
		p = c.apiPod(t, "resized")
		if p.Status.ObservedGeneration != p.Generation ||
			conditionStatus(p, v1.PodResizePending) != v1.ConditionUnknown ||
			conditionStatus(p, v1.PodResizeInProgress) != v1.ConditionUnknown {
			return false
		}
		for i := range p.Spec.Containers {
			container := &p.Spec.Containers[i]
			has := containerStatus(p, container.Name).Resources
			if has == nil || has.Limits.Cpu().Cmp(*container.Resources.Limits.Cpu()) != 0 ||
				has.Limits.Memory().Cmp(*container.Resources.Limits.Memory()) != 0 {
				return false
			}
		}
		return true
	})
	return p
}

func containerStatus(p *v1.Pod, name string) v1.ContainerStatus {
	for _, s := range p.Status.ContainerStatuses {
		if s.Name == name {
			return s
		}
	}
	return v1.ContainerStatus{}
}

// checkCgroups checks the limits of a container and of its pod: memory in mebibytes, CPU in
// microseconds of each 100 ms.
func (c *clusterSuite) checkCgroups(t *testing.T, p *v1.Pod, container string,
	memory, quota, podMemory, podQuota int) {
	t.Helper()
	id := containerStatus(p, container).ContainerID
	id = id[strings.LastIndex(id, "/")+1:]
	for _, check := range []struct {
		in, legacy, unified, want string
	}{
		{id, "memory.limit_in_bytes", "memory.max", fmt.Sprint(memory << 20)},
		{id, "cpu.cfs_quota_us", "cpu.max", fmt.Sprint(quota)},
		{"", "memory.limit_in_bytes", "memory.max", fmt.Sprint(podMemory << 20)},
		{"", "cpu.cfs_quota_us", "cpu.max", fmt.Sprint(podQuota)},
	} {
		got := podCgroupValue(t, string(p.UID), check.in, check.legacy, check.unified)
		if got != check.want && got != check.want+" 100000" {
			t.Errorf("%s of %q is %s, want %s", check.legacy, check.in, got, check.want)
		}
	}
}

// podCgroupValue reads a file of the cgroup of a pod, or of a container in it, wherever that is and
// whichever cgroup driver has named it.
func podCgroupValue(t *testing.T, uid, in, legacy, unified string) string {
	t.Helper()
	value, slice := "", "-pod"+strings.ReplaceAll(uid, "-", "_")+".slice"
	err := filepath.WalkDir("/sys/fs/cgroup", func(path string, d os.DirEntry, err error) error {
		if err != nil || !d.IsDir() || d.Name() != "pod"+uid && !strings.HasSuffix(d.Name(), slice) {
			return nil // a cgroup may be removed meanwhile
		}
		for _, child := range []string{in, "cri-containerd-" + in + ".scope"} {
			for _, file := range []string{legacy, unified} {
				if data, err := os.ReadFile(filepath.Join(path, child, file)); err == nil {
					value = strings.TrimSpace(string(data))
				}
			}
		}
		return filepath.SkipDir
	})
	if err != nil || value == "" {
		t.Fatalf("%s of %q in the cgroup of pod %s: %q, %v", legacy, in, uid, value, err)
	}
	return value
}

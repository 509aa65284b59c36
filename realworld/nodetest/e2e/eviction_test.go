package e2e

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/realworld/cluster"
	"seedlet.dev/realworld/nodetest"
	"seedlet.dev/realworld/porttest"
)

// The disk of TestEviction and what is on it, in MiB. An image takes its size twice: packed in the
// store of contents, and as a snapshot.
const (
	smallDiskMiB   = 400
	unusedImageMiB = 30 // of each of three
	fillerFileMiB  = 220
	podsMemoryMiB  = 900 // that all pods may use
	hogMemoryMiB   = 830 // less than they may use, and more than the threshold leaves
	pressureForMiB = 100 // of the threshold of memory
	// machineLeftMiB is how far the machine is from its threshold, half of what a pod then takes.
	// Other tests may take and give back as much meanwhile.
	machineLeftMiB  = 1500
	pressureLongest = 15 * time.Second
)

// evictionConfig has one image fewer than all unused ones removed at the start of the agent, a
// third of the disk as the threshold of eviction, and all memory but that of the pods reserved.
func evictionConfig(memoryMiB int) string {
	return fmt.Sprintf(`syncFrequency: 10s
imageMinimumGCAge: 1ms
imageGCHighThresholdPercent: 45
imageGCLowThresholdPercent: 38
evictionHard:
  memory.available: %dMi
  nodefs.available: "45%%"
evictionPressureTransitionPeriod: %v
kubeReserved: {memory: %dMi}
`, pressureForMiB, pressureLongest, memoryMiB-podsMemoryMiB)
}

const evictedManifests = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: NAME, namespace: town}
spec:
  selector: {matchLabels: {app: NAME}}
  template:
    metadata: {labels: {app: NAME}}
    spec:
      terminationGracePeriodSeconds: 2
      volumes: [{name: disk, emptyDir: {}}]
      containers:
      - name: main
        image: IMAGE
        args: [burn, --share=0, --memory-mib=1, --after=3s, --file=PATH, --file-mib=FILE]
        volumeMounts: [{name: disk, mountPath: /disk}]
---
apiVersion: v1
kind: Pod
metadata: {name: calm, namespace: town}
spec:
  containers:
  - name: main
    image: IMAGE
    args: [sleep]
    resources: {requests: {memory: 32Mi, ephemeral-storage: 32Mi}}
`

const hogManifest = `
apiVersion: v1
kind: Pod
metadata: {name: NAME, namespace: town}
spec:
  terminationGracePeriodSeconds: 2
  containers:
  - name: main
    image: IMAGE
    args: [burn, --share=0, --memory-mib=MEMORY, --after=3s]
`

// TestEviction runs a node on a small disk of its own until it runs out of space, and then until
// its pods have no memory left.
func TestEviction(t *testing.T) {
	cluster.Require(t)
	c := newClusterOn(t, nodetest.Options{Version: nodetest.V2,
		Dir: filepath.Join(mountSmallDisk(t), "node")}, cluster.Options{})
	c.history, c.connections = newWatchHistory(t, c.api), newConnectionRecorder(t)
	images := c.pullUnusedImages(t, 3)
	c.joinNode(t, evictionConfig(machineMemoryMiB(t)))
	c.kubectl(t, "wait", "--for=condition=Ready", patience, "node/"+nodeName)
	for _, part := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"unused images are removed above the high threshold", func(t *testing.T) {
			c.testImageGC(t, images)
		}},
		{"a full disk costs unused images, then the pod that fills it", func(t *testing.T) {
			c.kubectl(t, "create", "namespace", testNamespace)
			c.kubectl(t, "wait", "--for=create", patience, "serviceaccount/default")
			c.testDiskPressure(t, images, "filler", "/disk/file")
		}},
		{"a full disk costs the pod whose writable layer fills it", func(t *testing.T) {
			// The statistics of containerd have a layer as it was ten seconds ago, so that a smaller volume
			// may count for more.
			c.kubectl(t, "delete", "deployment", "filler")
			c.testDiskPressure(t, images, "layer", "/file")
		}},
		{"memory costs the pod that takes it", c.testMemoryPressure},
		{"memory of the machine costs the pod that takes it", c.testMachineMemory},
	} {
		start := time.Now()
		if !t.Run(part.name, part.run) {
			t.Fatalf("the end of the agent's log:\n%s", c.agent.logTail(t, 100))
		}
		t.Logf("%5.1f s: %s", time.Since(start).Seconds(), part.name)
	}
}

// mountSmallDisk mounts a new file system until the test ends, and returns where.
func mountSmallDisk(t *testing.T) string {
	t.Helper()
	if testing.Short() || os.Geteuid() != 0 {
		t.Skip("a file system is mounted by root, and not with -short")
	}
	file := filepath.Join(t.TempDir(), "disk")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(file, smallDiskMiB<<20); err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "seedlet-disk-") // short, for sockets in it
	if err != nil {
		t.Fatal(err)
	}
	run := func(command ...string) {
		if out, err := exec.Command(command[0], command[1:]...).CombinedOutput(); err != nil {
			t.Errorf("%v: %v\n%s", command, err, out)
		}
	}
	t.Cleanup(func() {
		run("umount", dir)
		if err := os.Remove(dir); err != nil {
			t.Error(err)
		}
	})
	run("mkfs.ext4", "-q", "-m", "0", file)
	run("mount", "-o", "loop", file, dir)
	if err := os.Chmod(dir, 0o711); err != nil {
		t.Fatal(err)
	}
	return dir
}

// machineMemoryMiB returns the memory of the machine.
func machineMemoryMiB(t *testing.T) int {
	t.Helper()
	data, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		t.Fatal(err)
	}
	kib := 0
	if _, err := fmt.Sscanf(string(data), "MemTotal: %d kB", &kib); err != nil {
		t.Fatalf("/proc/meminfo: %v", err)
	}
	return kib >> 10
}

// pullUnusedImages pulls images that no pod uses, before the agent starts, and returns them.
func (c *clusterSuite) pullUnusedImages(t *testing.T, count int) []string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), porttest.Patience)
	defer cancel()
	var refs []string
	for i := range count {
		content := make([]byte, unusedImageMiB<<20)
		rand.Read(content) // which cannot be compressed
		ref, err := c.node.Registry().PublishProgram(ctx, fmt.Sprint("unused", i), content)
		if err != nil {
			t.Fatal(err)
		}
		_, err = c.node.ImageService().PullImage(ctx,
			&runtimeapi.PullImageRequest{Image: &runtimeapi.ImageSpec{Image: ref}})
		if err != nil {
			t.Fatal(err)
		}
		refs = append(refs, ref)
	}
	return refs
}

// countImages returns how many of some images the runtime has.
func (c *clusterSuite) countImages(t *testing.T, refs []string) (count int) {
	t.Helper()
	list, err := c.node.ImageService().ListImages(t.Context(), &runtimeapi.ListImagesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for _, image := range list.Images {
		for _, tag := range image.RepoTags {
			if slices.Contains(refs, tag) {
				count++
			}
		}
	}
	return count
}

func (c *clusterSuite) testImageGC(t *testing.T, images []string) {
	c.waitUntil(t, "two of three unused images are removed", func() bool {
		return c.countImages(t, images) == 1
	})
}

// testDiskPressure has a pod fill the disk by a file: the last unused image is removed, which is
// not enough, and then the pod is evicted. Its replacement waits for the end of the pressure.
func (c *clusterSuite) testDiskPressure(t *testing.T, images []string, name, path string) {
	manifests := func(fileMiB int) string {
		return strings.NewReplacer("NAME", name, "PATH", path, "FILE", fmt.Sprint(fileMiB)).
			Replace(evictedManifests)
	}
	c.apply(t, manifests(fillerFileMiB))
	c.waitUntil(t, "the pod is evicted", func() bool { return c.evicted(t, name) != nil })
	c.expectPressure(t, v1.NodeDiskPressure, v1.TaintNodeDiskPressure)
	if n := c.countImages(t, images); n != 0 {
		t.Errorf("%d unused images are left, although a pod was evicted", n)
	}
	c.expectEviction(t, c.evicted(t, name), "ephemeral-storage", "")
	c.waitUntil(t, "the replacement waits", func() bool {
		return slices.ContainsFunc(c.apiPods(t, name), func(p v1.Pod) bool {
			return p.Status.Phase == v1.PodPending && p.Spec.NodeName == ""
		})
	})
	c.apply(t, manifests(1))
	c.kubectl(t, "rollout", "status", "deployment/"+name, patience)
	c.expectNoPressure(t, v1.NodeDiskPressure, v1.TaintNodeDiskPressure)
}

// testMemoryPressure has a pod take nearly all that the pods of the node may use.
func (c *clusterSuite) testMemoryPressure(t *testing.T) {
	c.expectMemoryEviction(t, "hog", hogMemoryMiB)
}

// testMachineMemory has a pod take memory of the machine until less is available than a threshold
// allows, although the pods may use all of it.
func (c *clusterSuite) testMachineMemory(t *testing.T) {
	var summary struct {
		Node struct {
			Memory struct{ AvailableBytes int64 }
		}
	}
	out := c.kubectl(t, "get", "--raw", nodeProxyPath("/stats/summary"))
	if err := json.Unmarshal([]byte(out), &summary); err != nil {
		t.Fatalf("the statistics of the node: %v", err)
	}
	available := int(summary.Node.Memory.AvailableBytes >> 20)
	c.agent.signalAndWait(t, syscall.SIGTERM)
	c.agent.replaceInConfig(t, fmt.Sprintf("memory.available: %dMi", pressureForMiB),
		fmt.Sprintf("memory.available: %dMi", available-machineLeftMiB))
	c.agent.replaceInConfig(t, fmt.Sprintf("kubeReserved: {memory: %dMi}",
		machineMemoryMiB(t)-podsMemoryMiB), "")
	c.agent.start(t)
	c.expectMemoryEviction(t, "giant", 2*machineLeftMiB)
}

// expectMemoryEviction runs a pod that takes some memory, and is evicted for it.
func (c *clusterSuite) expectMemoryEviction(t *testing.T, name string, takenMiB int) {
	t.Helper()
	c.apply(t, strings.NewReplacer("NAME", name, "MEMORY", fmt.Sprint(takenMiB)).
		Replace(hogManifest))
	c.waitUntil(t, "the pod is evicted", func() bool {
		return c.apiPod(t, name).Status.Phase == v1.PodFailed
	})
	c.expectPressure(t, v1.NodeMemoryPressure, v1.TaintNodeMemoryPressure)
	c.expectEviction(t, c.apiPod(t, name), "memory", "Container main was using ") // it may still grow
	c.expectNoPressure(t, v1.NodeMemoryPressure, v1.TaintNodeMemoryPressure)
}

// evicted returns a pod with a label that has failed; nil if none has.
func (c *clusterSuite) evicted(t *testing.T, app string) *v1.Pod {
	t.Helper()
	for _, p := range c.apiPods(t, app) {
		if p.Status.Phase == v1.PodFailed {
			return &p
		}
	}
	return nil
}

// expectEviction checks what a pod says of its eviction for a resource, with a further part of the
// message, and that no other pod has gone for that.
func (c *clusterSuite) expectEviction(t *testing.T, p *v1.Pod, resource v1.ResourceName,
	more string) {
	t.Helper()
	want := fmt.Sprintf("The node was low on resource: %s. Threshold quantity: ", resource)
	if p.Status.Reason != "Evicted" || !strings.HasPrefix(p.Status.Message, want) ||
		!strings.Contains(p.Status.Message, more) ||
		conditionStatus(p, v1.DisruptionTarget) != v1.ConditionTrue {
		t.Errorf("%s: %s: %s; conditions %+v", p.Name, p.Status.Reason, p.Status.Message,
			p.Status.Conditions)
	}
	if calm := c.apiPod(t, "calm"); !isPodReady(calm) ||
		containerStatus(calm, "main").RestartCount != 0 {
		t.Errorf("the pod that stays within its requests: %+v", calm.Status)
	}
	t.Logf("%s: %s", p.Name, p.Status.Message)
}

// expectPressure waits until the Node has a condition, and the taint that follows from it.
func (c *clusterSuite) expectPressure(t *testing.T, kind v1.NodeConditionType, taint string) {
	t.Helper()
	c.waitUntil(t, string(kind)+" and its taint", func() bool {
		return c.hasPressure(t, kind) && c.hasTaint(t, taint)
	})
}

func (c *clusterSuite) expectNoPressure(t *testing.T, kind v1.NodeConditionType, taint string) {
	t.Helper()
	c.waitUntil(t, "the end of "+string(kind), func() bool {
		return !c.hasPressure(t, kind) && !c.hasTaint(t, taint)
	})
}

func (c *clusterSuite) hasPressure(t *testing.T, kind v1.NodeConditionType) bool {
	t.Helper()
	return slices.ContainsFunc(c.apiNode(t).Status.Conditions, func(n v1.NodeCondition) bool {
		return n.Type == kind && n.Status == v1.ConditionTrue
	})
}

func (c *clusterSuite) hasTaint(t *testing.T, key string) bool {
	t.Helper()
	return slices.ContainsFunc(c.apiNode(t).Spec.Taints, func(n v1.Taint) bool {
		return n.Key == key
	})
}

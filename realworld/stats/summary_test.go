package stats

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// summaryOf returns the summary that a client gets.
func summaryOf(t *testing.T, b *bench, query string) *statsapi.Summary {
	t.Helper()
	w := b.get("/stats/summary" + query)
	if w.Code != http.StatusOK || w.Header().Get("Content-Type") != "application/json" {
		t.Fatalf("%d %s %s", w.Code, w.Header(), w.Body)
	}
	summary := &statsapi.Summary{}
	if err := json.Unmarshal(w.Body.Bytes(), summary); err != nil {
		t.Fatal(err)
	}
	return summary
}

const onlyCPUAndMemory = `{
 "node": {
  "nodeName": "n",
  "systemContainers": [
   {
    "name": "pods",
    "startTime": "2026-01-02T11:00:00Z",
    "cpu": {
     "time": "2026-01-02T12:00:00Z",
     "usageCoreNanoSeconds": 20000000000
    },
    "memory": {
     "time": "2026-01-02T12:00:00Z",
     "usageBytes": 2000000,
     "workingSetBytes": 2000000,
     "rssBytes": 0,
     "pageFaults": 0,
     "majorPageFaults": 0
    },
    "swap": {
     "time": "2026-01-02T12:00:00Z",
     "swapUsageBytes": 0
    }
   }
  ],
  "startTime": "2026-01-01T20:40:00Z",
  "cpu": {
   "time": "2026-01-02T12:00:00Z",
   "usageCoreNanoSeconds": 50000000000
  },
  "memory": {
   "time": "2026-01-02T12:00:00Z",
   "availableBytes": 5242880,
   "usageBytes": 4194304,
   "workingSetBytes": 3145728,
   "rssBytes": 5,
   "pageFaults": 3,
   "majorPageFaults": 0
  },
  "swap": {
   "time": "2026-01-02T12:00:00Z",
   "swapAvailableBytes": 0,
   "swapUsageBytes": 0
  }
 },
 "pods": [
  {
   "podRef": {
    "name": "web",
    "namespace": "ns",
    "uid": "u-1"
   },
   "startTime": "2026-01-02T11:00:00Z",
   "containers": [
    {
     "name": "main",
     "startTime": "2026-01-02T11:00:00Z",
     "cpu": {
      "time": "2026-01-02T12:00:00Z",
      "usageCoreNanoSeconds": 1500000000
     },
     "memory": {
      "time": "2026-01-02T12:00:00Z",
      "availableBytes": 7,
      "usageBytes": 123461,
      "workingSetBytes": 123456
     },
     "swap": {
      "time": "2026-01-02T12:00:00Z",
      "swapUsageBytes": 0
     }
    }
   ],
   "cpu": {
    "time": "2026-01-02T12:00:00Z",
    "usageCoreNanoSeconds": 1500000010
   },
   "memory": {
    "time": "2026-01-02T12:00:00Z",
    "usageBytes": 123476,
    "workingSetBytes": 123466
   },
   "swap": {
    "time": "2026-01-02T12:00:00Z",
    "swapUsageBytes": 0
   }
  }
 ]
}
`

// busy is a bench with one pod that the runtime reports.
func busy(t *testing.T, change ...func(*Options)) *bench {
	b := newBench(t, change...)
	b.pods = []*v1.Pod{podOf("u-1", "web", "main", "c1")}
	b.runtime.sandboxes = func(context.Context) ([]*runtimeapi.PodSandboxStats, error) {
		return []*runtimeapi.PodSandboxStats{
			sandboxStats("u-1", "c1", b.time(), 1_500_000_000, 123456)}, nil
	}
	procs := filepath.Join(b.root, "cgroup/kubepods/cgroup.procs")
	b.lay(map[string]string{"cgroup/kubepods/cgroup.procs": "", "kubelet/empty": ""})
	if err := os.Chtimes(procs, noon, noon.Add(-time.Hour)); err != nil {
		t.Fatal(err)
	}
	return b
}

func TestSummaryOnlyCPUAndMemory(t *testing.T) {
	w := busy(t).get("/stats/summary?only_cpu_and_memory=true")
	if diff := cmp.Diff(onlyCPUAndMemory, w.Body.String()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestSummaryOfTheRest(t *testing.T) {
	b := busy(t)
	b.runtime.images = []*runtimeapi.FilesystemUsage{{Timestamp: noon.UnixNano(),
		FsId:      &runtimeapi.FilesystemIdentifier{Mountpoint: b.root},
		UsedBytes: n(77), InodesUsed: n(7)}}
	for _, query := range []string{"", "?only_cpu_and_memory=false",
		"?only_cpu_and_memory=true&only_cpu_and_memory=true"} {
		s := summaryOf(t, b, query)
		node, pod := s.Node, s.Pods[0]
		if *node.Rlimit.MaxPID != 1000 || *node.Rlimit.NumOfRunningProcesses != 80 {
			t.Errorf("processes %+v", node.Rlimit)
		}
		if node.Network.Name != "eth0" || *node.Network.RxBytes != 10 ||
			*node.Network.TxErrors != 7 || len(node.Network.Interfaces) != 1 {
			t.Errorf("network of the node %+v", node.Network)
		}
		if fs := node.Runtime.ImageFs; *fs.UsedBytes != 77 || *fs.InodesUsed != 7 ||
			*fs.CapacityBytes == 0 || *node.Runtime.ContainerFs.UsedBytes != 77 {
			t.Errorf("file system of images %+v", fs)
		}
		if fs := node.Fs; *fs.UsedBytes == 0 || *fs.UsedBytes > *fs.CapacityBytes ||
			*fs.InodesUsed+*fs.InodesFree != *fs.Inodes {
			t.Errorf("file system of the node %+v", fs)
		}
		if *pod.Network.TxBytes != 3 || *pod.ProcessStats.ProcessCount != 3 {
			t.Errorf("network %+v, processes %+v", pod.Network, pod.ProcessStats)
		}
		if c := pod.Containers[0]; *c.Rootfs.UsedBytes != 4096 || *c.Rootfs.InodesUsed != 2 ||
			*c.Rootfs.CapacityBytes != *node.Fs.CapacityBytes || c.Logs != nil {
			t.Errorf("container's files %+v, logs %+v", c.Rootfs, c.Logs)
		}
		if *pod.EphemeralStorage.UsedBytes != 4096 {
			t.Errorf("ephemeral storage %+v", pod.EphemeralStorage)
		}
	}
}

// What the runtime does not report of a pod is read from its processes.
func TestSummaryWithoutRuntime(t *testing.T) {
	b := newBench(t)
	b.pods = []*v1.Pod{podOf("u-1", "web", "main", "c1")}
	b.lay(map[string]string{"cgroup/kubepods/burstable/podu-1/c1/cgroup.procs": "77\n77"})
	pod := summaryOf(t, b, "").Pods[0]
	if pod.Network.Name != "eth0" || *pod.Network.RxBytes != 100 || *pod.Network.TxBytes != 500 ||
		*pod.ProcessStats.ProcessCount != 3 || *pod.Containers[0].Memory.AvailableBytes != 800000 {
		t.Errorf("%+v, %+v", pod.Network, pod.ProcessStats)
	}
	b.pods[0].Spec.HostNetwork = true
	b.pass(sampleAgeMax)
	if pod := summaryOf(t, b, "").Pods[0]; pod.Network != nil {
		t.Errorf("a pod of the host's network has its own: %+v", pod.Network)
	}
}

// A pod that creates thousands of network interfaces has some of them in the statistics, and the
// default one. The host may have any number.
func TestManyInterfaces(t *testing.T) {
	b := newBench(t)
	var lines strings.Builder
	for i := range 5000 {
		fmt.Fprintf(&lines, "  x%d: 1 2 0 0 0 0 0 0 3 4 0 0 0 0 0 0\n", i)
	}
	lines.WriteString("  eth0: 100 20 0 0 0 0 0 0 500 60 0 0 0 0 0 0\n")
	b.lay(map[string]string{"proc/5/net/dev": lines.String(), "proc/1/net/dev": lines.String()})
	proc := b.opts.Roots.Proc
	n := networkOfProcess(proc, 5, noon)
	if len(n.Interfaces) != podInterfacesMax+1 || n.Name != "eth0" || *n.TxBytes != 500 {
		t.Errorf("%d interfaces, the first is %s", len(n.Interfaces), n.Name)
	}
	if n := networkOfProcess(proc, hostPID, noon); len(n.Interfaces) != 5001 {
		t.Errorf("the host has %d interfaces", len(n.Interfaces))
	}
}

// A machine without eth0 has no default interface.
func TestNoDefaultInterface(t *testing.T) {
	b := newBench(t)
	b.lay(map[string]string{"proc/1/net/dev": "  ens3: 1 2 0 0 0 0 0 0 3 4 0 0 0 0 0 0\n"})
	n := networkOfProcess(b.opts.Roots.Proc, hostPID, noon)
	if len(n.Interfaces) != 1 || n.Name != "" || n.RxBytes != nil {
		t.Errorf("got %+v, want no default interface", n)
	}
}

// A rate exists from the second sample on, the runtime's own at once.
func TestSummaryRates(t *testing.T) {
	b := busy(t)
	first := summaryOf(t, b, "")
	if c := first.Pods[0].Containers[0].CPU; c.UsageNanoCores != nil {
		t.Errorf("a rate out of one sample: %d", *c.UsageNanoCores)
	}
	b.pass(20 * time.Second)
	b.lay(map[string]string{"cgroup/cpu.stat": "usage_usec 60000000"})
	b.runtime.sandboxes = func(context.Context) ([]*runtimeapi.PodSandboxStats, error) {
		s := sandboxStats("u-1", "c1", b.time(), 4_500_000_000, 123456)
		s.Linux.Cpu.UsageNanoCores = n(123)
		return []*runtimeapi.PodSandboxStats{s}, nil
	}
	second := summaryOf(t, b, "")
	node, pod := second.Node.CPU.UsageNanoCores, second.Pods[0]
	if *node != 500_000_000 || *pod.CPU.UsageNanoCores != 123 ||
		*pod.Containers[0].CPU.UsageNanoCores != 150_000_000 {
		t.Errorf("%d, %d, %d", *node, *pod.CPU.UsageNanoCores,
			*pod.Containers[0].CPU.UsageNanoCores)
	}
}

// The volumes and logs of pods are measured in the background and carry the time of their
// measurement.
func TestSummaryVolumesAndLogs(t *testing.T) {
	b := busy(t, func(o *Options) { o.VolumeAge = time.Minute })
	b.pods[0].Spec.Volumes = []v1.Volume{
		{Name: "data", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}},
		{Name: "conf", VolumeSource: v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{}}},
		{Name: "keys", VolumeSource: v1.VolumeSource{Secret: &v1.SecretVolumeSource{}}},
	}
	const volumes = "kubelet/pods/u-1/volumes/kubernetes.io~"
	b.lay(map[string]string{
		volumes + "empty-dir/data/a": strings.Repeat("x", 10000), volumes + "empty-dir/data/b/c": "x",
		volumes + "configmap/conf/a": "x", volumes + "secret/keys/a": "x",
		volumes + "csi/pv/mount/a": "x", "logs/ns_web_u-1/main/0.log": strings.Repeat("x", 5000),
		"logs/ns_web_u-1/init/0.log": "x",
	})
	pod := summaryOf(t, b, "").Pods[0]
	if len(pod.VolumeStats) != 3 {
		t.Fatalf("volumes %+v", pod.VolumeStats)
	}
	data := pod.VolumeStats[0]
	if data.Name != "data" || *data.InodesUsed != 4 || *data.UsedBytes < 10000 ||
		*data.CapacityBytes == 0 || !data.Time.Time.Equal(noon) {
		t.Errorf("volume %+v", data)
	}
	logs := pod.Containers[0].Logs
	if *logs.UsedBytes < 5000 || *logs.InodesUsed != 2 || *logs.AvailableBytes == 0 {
		t.Errorf("logs %+v", logs)
	}
	sum := *pod.Containers[0].Rootfs.UsedBytes + *logs.UsedBytes + *data.UsedBytes +
		*pod.VolumeStats[1].UsedBytes
	if pod.VolumeStats[1].Name != "conf" || *pod.EphemeralStorage.UsedBytes < sum+1 ||
		*pod.EphemeralStorage.UsedBytes > sum+16<<10 { // the logs of the init container
		t.Errorf("ephemeral storage %d, want %d and a little", *pod.EphemeralStorage.UsedBytes, sum)
	}

	b.lay(map[string]string{volumes + "empty-dir/data/d": "x"})
	b.pass(59 * time.Second)
	if v := summaryOf(t, b, "").Pods[0].VolumeStats[0]; *v.InodesUsed != 4 ||
		!v.Time.Time.Equal(noon) {
		t.Errorf("measured again too soon: %+v", v)
	}
	b.pass(time.Second)
	if v := summaryOf(t, b, "").Pods[0].VolumeStats[0]; *v.InodesUsed != 5 ||
		!v.Time.Time.Equal(noon.Add(time.Minute)) {
		t.Errorf("not measured again: %+v", v)
	}
}

// A UID that is not a plain name does not lead to another directory.
func TestTreesOfOddNames(t *testing.T) {
	b := newBench(t)
	b.lay(map[string]string{"kubelet/volumes/kubernetes.io~empty-dir/data/a": "x",
		"logs/main/0.log": "x", "logs/ns_web_u/main/0.log": "x"})
	for _, uid := range []string{"..", "", ".", "/..", "u/..", "u/../ns_web_u"} {
		pod := podOf(uid, "web", "main", "c1")
		found := b.podTrees(t.Context(), pod, map[string]*treeUsage{})
		if len(found.volumes)+len(found.logs) > 0 {
			t.Errorf("%q has %+v", uid, found)
		}
	}
	found := b.podTrees(t.Context(), podOf("u", "web", "main", "c1"), map[string]*treeUsage{})
	if len(found.logs) != 1 {
		t.Errorf("%+v", found)
	}
}

// With a negative volumeStatsAggPeriod no tree is measured.
func TestSummaryWithoutTrees(t *testing.T) {
	b := busy(t)
	b.lay(map[string]string{"kubelet/pods/u-1/volumes/kubernetes.io~empty-dir/data/a": "x"})
	if pod := summaryOf(t, b, "").Pods[0]; pod.VolumeStats != nil {
		t.Errorf("volumes %+v", pod.VolumeStats)
	}
}

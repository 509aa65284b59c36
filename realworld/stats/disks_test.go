package stats

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"seedlet.dev/realworld/disk"
	"seedlet.dev/realworld/porttest"
	"seedlet.dev/world"
)

// treesBench is a bench whose pods u-0, u-1 and so on have one volume each, data. slow measures the
// trees of u-0.
func treesBench(t *testing.T, pods int,
	slow func(context.Context, string) (*world.TreeMeasured, error)) *bench {
	b := newBench(t, func(o *Options) { o.VolumeAge = time.Minute })
	for i := range pods {
		uid := fmt.Sprint("u-", i)
		b.pods = append(b.pods, podOf(uid, fmt.Sprint("p", i), "main", fmt.Sprint("c", i)))
		b.lay(map[string]string{
			"kubelet/pods/" + uid + "/volumes/kubernetes.io~empty-dir/data/a": "x",
			"cgroup/kubepods/burstable/pod" + uid + "/cpu.stat":               "usage_usec 3000000",
		})
	}
	b.measureTree = func(ctx context.Context, path string) (*world.TreeMeasured, error) {
		if strings.Contains(path, "/u-0/") {
			return slow(ctx, path)
		}
		return disk.Measure(ctx, path)
	}
	return b
}

// volumesOf returns the volumes of a pod in the summary.
func (b *bench) volumesOf(t *testing.T, pod string) []statsapi.VolumeStats {
	t.Helper()
	for _, p := range summaryOf(t, b, "").Pods {
		if p.PodRef.Name == pod {
			return p.VolumeStats
		}
	}
	t.Fatalf("no pod %s", pod)
	return nil
}

// A pod whose disk hangs does not keep the measurements of the others old. It is measured once at a
// time, and again when its disk responds.
func TestHangingTreeOfOnePod(t *testing.T) {
	release, calls := make(chan struct{}), atomic.Int64{}
	b := treesBench(t, 3, func(_ context.Context, path string) (*world.TreeMeasured, error) {
		calls.Add(1)
		<-release
		return &world.TreeMeasured{Inodes: 1}, nil
	})
	for round := range 3 {
		at := noon.Add(time.Duration(round) * time.Minute)
		porttest.Eventually(t, "the other pods are measured", func() bool {
			one, two := b.volumesOf(t, "p1"), b.volumesOf(t, "p2")
			return len(one) == 1 && len(two) == 1 && one[0].Time.Time.Equal(at) &&
				two[0].Time.Time.Equal(at)
		})
		b.pass(time.Minute)
	}
	if n := calls.Load(); n != 1 {
		t.Errorf("%d calls hang", n)
	}
	if v := b.volumesOf(t, "p0"); len(v) > 0 {
		t.Errorf("measured: %+v", v)
	}
	close(release)
	porttest.Eventually(t, "the pod is measured", func() bool {
		b.pass(time.Minute)
		return len(b.volumesOf(t, "p0")) == 1
	})
}

// A slow tree takes the time of its pod only, and not each time that of the pod's other trees. What
// was measured before stays, with its time.
func TestSlowTreeOfOnePod(t *testing.T) {
	var endTime context.CancelFunc
	b := treesBench(t, 1, func(ctx context.Context, path string) (*world.TreeMeasured, error) {
		if strings.HasSuffix(path, "/data") {
			endTime()
			return nil, ctx.Err()
		}
		return disk.Measure(ctx, path)
	})
	b.lay(map[string]string{"kubelet/pods/u-0/volumes/kubernetes.io~secret/keys/a": "x",
		"kubelet/pods/u-0/etc-hosts": "x"})
	known := map[string]*treeUsage{}
	measure := func() podTrees {
		var ctx context.Context
		ctx, endTime = context.WithCancel(t.Context())
		defer endTime()
		b.pass(time.Minute)
		return b.podTrees(ctx, b.pods[0], known)
	}
	if found := measure(); len(found.volumes) > 0 || found.hosts == nil {
		t.Errorf("first: %+v", found)
	}
	found := measure()
	if len(found.volumes) != 1 || found.volumes[0].Name != "keys" ||
		!found.volumes[0].Time.Time.Equal(noon.Add(2*time.Minute)) {
		t.Errorf("second: %+v", found)
	}
	if len(known) != 3 || found.hosts == nil {
		t.Errorf("known: %v, /etc/hosts %+v", known, found.hosts)
	}
}

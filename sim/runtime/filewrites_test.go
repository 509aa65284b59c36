package runtime

import (
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func TestNodePath(t *testing.T) {
	c := &container{config: &runtimeapi.ContainerConfig{Mounts: []*runtimeapi.Mount{
		{ContainerPath: "/data", HostPath: "/v/data"},
		{ContainerPath: "/data/deep", HostPath: "/v/deep"},
		{ContainerPath: "/image"},
	}}}
	for inside, want := range map[string]string{
		"/data/a": "/v/data/a", "/data/deep/a/b": "/v/deep/a/b", "/data/deeper": "/v/data/deeper",
		"/database": "", "/image/a": "", "/a": "",
	} {
		if got, _ := c.nodePath(inside); got != want {
			t.Errorf("%s is at %q, want %q", inside, got, want)
		}
	}
}

// A process writes its files at the scheduled times, as long as it runs.
func TestScheduledWrites(t *testing.T) {
	file := &memoryFile{}
	w := newWorld(1, func(o *Options) {
		o.OpenFile = func(string) File { return file }
		o.Behaviour = func(Instance) Script {
			return Script{RunsFor: 5 * time.Second, Writes: []FileWrite{
				{Path: "/data/a", At: time.Second, Bytes: 100},
				{Path: "/data/a", At: 3 * time.Second, Bytes: 10},
				{Path: "/elsewhere", At: 4 * time.Second, Bytes: 1000},
				{Path: "/data/a", At: 7 * time.Second, Bytes: 1000},
			}}
		}
	})
	c := w.mustCreate(t, w.mustRun(t, "u1"), "u1", "app", 0)
	w.runtime.containers[c].config.Mounts = []*runtimeapi.Mount{
		{ContainerPath: "/data", HostPath: "/v"}}
	w.mustStart(t, c)
	for _, want := range []int64{0, 100, 100, 10, 10, 10, 10, 10} {
		w.Sleep(500 * time.Millisecond)
		if file.size != want {
			t.Fatalf("the file has %d bytes, want %d", file.size, want)
		}
		w.Sleep(500 * time.Millisecond)
	}
}

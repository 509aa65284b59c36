package stats

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/realworld/porttest"
)

// A runtime may report a path on a file system whose server is gone. The summary is served without
// its capacity, no path is asked for twice at once, and there is a bound on the calls that hang.
func TestFileSystemThatHangs(t *testing.T) {
	b := newBench(t)
	release := make(chan struct{})
	var mu sync.Mutex
	asked := map[string]int{}
	b.statfs.statfs = func(path string, stat *unix.Statfs_t) error {
		mu.Lock()
		asked[path]++
		mu.Unlock()
		if strings.HasPrefix(path, "/dead") {
			<-release
		}
		*stat = unix.Statfs_t{Blocks: 10, Bsize: 1, Bfree: 4, Bavail: 3}
		return nil
	}
	b.runtime.images = []*runtimeapi.FilesystemUsage{{
		FsId:      &runtimeapi.FilesystemIdentifier{Mountpoint: "/dead/images"},
		UsedBytes: &runtimeapi.UInt64Value{Value: 5}}}
	for range 2 { // the second waits for the call of the first
		found := b.measureStorage(t.Context())
		if found.err != nil || *found.node.CapacityBytes != 10 || *found.images.UsedBytes != 5 ||
			found.images.CapacityBytes != nil {
			t.Errorf("found %+v, images %+v", found, found.images)
		}
	}
	for i := range statfsCallsMax + 1 {
		_, err := b.statfs.get(fmt.Sprint("/dead/", i), 0)
		want := "no answer within"
		if i >= statfsCallsMax-1 {
			want = fmt.Sprint(statfsCallsMax, " calls for other paths have not returned")
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("path %d: %v, want %s", i, err, want)
		}
	}
	porttest.Eventually(t, "each path was asked for once", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return asked["/dead/images"] == 1 && len(asked) == statfsCallsMax+1 // and the root directory
	})
	close(release)
	porttest.Eventually(t, "the calls have returned", func() bool {
		stat, err := b.statfs.get("/dead/images", porttest.Patience)
		return err == nil && stat.Blocks == 10
	})
}

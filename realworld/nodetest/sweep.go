package nodetest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/moby/sys/mountinfo"

	"seedlet.dev/realworld/owned"
)

// remains are what exists of a node outside and inside its directory.
type remains struct {
	owner   // with the sandboxes and containers that it has, or had as its log tells
	procs   []owned.Process
	mounts  []string // innermost last
	bridge  string   // empty when there is none
	files   []string // sockets, cgroups and CNI results made elsewhere in the node's name
	present bool     // whether the directory is there
}

// Leftovers lists what of a node at dir still exists: one line per process, mount, bridge, file
// and directory. An empty list is what a closed node leaves.
func Leftovers(dir string) ([]string, error) {
	r, err := find(dir)
	if err != nil {
		return nil, err
	}
	return r.Lines(), nil
}

// sweep removes whatever a node at dir left, whether or not it was closed, and dir itself.
func sweep(dir string) error {
	return owned.Sweep(func() (owned.Remains, error) { return find(dir) })
}

// find looks for everything that belongs to the node at dir.
func find(dir string) (remains, error) {
	r := remains{owner: owner{dir, containerIDs(dir)}}
	var err error
	if r.procs, err = owned.Processes(r.owns); err != nil {
		return r, err
	}
	mounts, err := mountinfo.GetMounts(mountinfo.PrefixFilter(dir))
	if err != nil {
		return r, fmt.Errorf("listing mounts: %w", err)
	}
	for _, m := range mounts {
		r.mounts = append(r.mounts, m.Mountpoint)
	}
	if owned.HasBridge(dir) {
		r.bridge = owned.BridgeName(dir)
	}
	r.files = findFiles(dir, r.ids)
	if _, err := os.Lstat(dir); err == nil {
		r.present = true
	}
	return r, nil
}

// idForm is how containerd names sandboxes and containers. Digests have the form as well, which
// does no harm: nothing else bears their name.
var idForm = regexp.MustCompile(`\b[0-9a-f]{64}\b`)

// containerIDs are the ids of the sandboxes and containers that have a bundle or a runc state, or
// that containerd's log tells of: it forgets some whose start was interrupted, and leaves their
// cgroups and shims.
func containerIDs(dir string) []string {
	log, _ := os.ReadFile(logPath(dir)) // one that is not there tells of none
	ids := idForm.FindAllString(string(log), -1)
	for _, parent := range []string{"io.containerd.runtime.v2.task/k8s.io", "runc/k8s.io"} {
		// A directory that is not there holds no containers.
		entries, _ := os.ReadDir(filepath.Join(statePath(dir), parent))
		for _, e := range entries {
			ids = append(ids, e.Name())
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// findFiles are what containerd, runc and CNI keep in fixed places of the machine.
func findFiles(dir string, ids []string) []string {
	// The patterns fail only if they are malformed.
	files, _ := filepath.Glob("/var/lib/cni/results/" + owned.BridgeName(dir) + "-*")
	for _, pattern := range []string{"/sys/fs/cgroup/k8s.io/*", "/sys/fs/cgroup/*/k8s.io/*"} {
		found, _ := filepath.Glob(pattern)
		for _, path := range found {
			if _, is := slices.BinarySearch(ids, filepath.Base(path)); is {
				files = append(files, path)
			}
		}
	}
	files = append(files, cgroupDirs(dir)...)
	results, _ := filepath.Glob("/var/lib/cni/results/*")
	for _, path := range results {
		if id := idForm.FindString(path); slices.Contains(files, path) || id == "" {
			continue
		} else if _, is := slices.BinarySearch(ids, id); is {
			files = append(files, path)
		}
	}
	for _, id := range ids {
		socket := shimSocket(filepath.Join(statePath(dir), "io.containerd.runtime.v2.task/k8s.io", id))
		if _, err := os.Lstat(socket); socket != "" && err == nil {
			files = append(files, socket)
		}
	}
	return files
}

// shimSocket is the socket of a shim, as its bundle records it: "address" holds a URL, in newer
// versions "bootstrap.json" holds one among other things. Empty when there is none.
func shimSocket(bundle string) string {
	for _, name := range []string{"address", "bootstrap.json"} {
		data, err := os.ReadFile(filepath.Join(bundle, name))
		if err != nil {
			continue
		}
		_, path, ok := strings.Cut(string(data), "unix://")
		end := strings.IndexAny(path+"\"", "\"\n")
		if ok && filepath.Dir(path[:end]) == "/run/containerd/s" {
			return path[:end]
		}
	}
	return ""
}

// Lines are what remains, a line for each.
func (r remains) Lines() []string {
	var lines []string
	for _, p := range r.procs {
		lines = append(lines, strings.TrimSpace(fmt.Sprintf("process %d (%s) %s",
			p.PID, p.Name, r.of(p))))
	}
	for _, m := range r.mounts {
		lines = append(lines, "mount "+m)
	}
	if r.bridge != "" {
		lines = append(lines, "bridge "+r.bridge)
	}
	for _, f := range r.files {
		lines = append(lines, "file "+f)
	}
	if r.present {
		lines = append(lines, "directory "+r.dir)
	}
	return lines
}

// Remove takes away as much as can be in one round. The directory goes last, and only when no
// mount is left below it: removing through a mount would empty what is mounted.
func (r remains) Remove() error {
	var problems []error
	for _, p := range r.procs {
		problems = append(problems, p.Kill(r.owns))
	}
	if len(r.procs) > 0 {
		return errors.Join(problems...) // the rest is in use until they have ended
	}
	for _, m := range slices.Backward(r.mounts) {
		problems = append(problems, detach(m))
	}
	if r.bridge != "" {
		problems = append(problems, owned.RemoveBridge(r.dir))
	}
	for _, f := range r.files {
		problems = append(problems, os.Remove(f))
	}
	if r.present && len(r.mounts) == 0 {
		problems = append(problems, os.RemoveAll(r.dir))
	}
	return errors.Join(problems...)
}

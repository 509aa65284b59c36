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

	"seedlet.dev/realworld/cleanup"
)

// leftovers are the parts of a node that exist outside and inside its directory.
type leftovers struct {
	nodeProcesses // with existing containers and sandboxes, and those in containerd's log
	procs         []cleanup.Process
	mounts        []string // innermost last
	bridge        string   // empty when there is none
	files         []string // sockets, cgroups and CNI results outside the directory
	dirExists     bool     // whether the directory exists
}

// Leftovers lists what still exists of a node at dir, a line for each process, mount, bridge, file
// and directory. The list of a closed node is empty.
func Leftovers(dir string) ([]string, error) {
	r, err := findLeftovers(dir)
	if err != nil {
		return nil, err
	}
	return r.Lines(), nil
}

// sweep removes everything that a node at dir left, whether or not it was closed, and dir itself.
func sweep(dir string) error {
	return cleanup.Sweep(func() (cleanup.Leftovers, error) { return findLeftovers(dir) })
}

// findLeftovers finds everything that belongs to the node at dir.
func findLeftovers(dir string) (leftovers, error) {
	r := leftovers{nodeProcesses: nodeProcesses{dir, containerIDs(dir)}}
	var err error
	if r.procs, err = cleanup.Processes(r.owns); err != nil {
		return r, err
	}
	mounts, err := mountinfo.GetMounts(mountinfo.PrefixFilter(dir))
	if err != nil {
		return r, fmt.Errorf("listing mounts: %w", err)
	}
	for _, m := range mounts {
		r.mounts = append(r.mounts, m.Mountpoint)
	}
	if cleanup.HasBridge(dir) {
		r.bridge = cleanup.BridgeName(dir)
	}
	r.files = findFiles(dir, r.containerIDs)
	if _, err := os.Lstat(dir); err == nil {
		r.dirExists = true
	}
	return r, nil
}

// idPattern matches containerd's ids of sandboxes and containers. Digests match as well, which does
// no harm: nothing else has their name.
var idPattern = regexp.MustCompile(`\b[0-9a-f]{64}\b`)

// containerIDs returns the ids of sandboxes and containers that have a bundle or a runc state, or
// are in containerd's log: containerd forgets some whose start was interrupted, and leaves their
// cgroups and shims.
func containerIDs(dir string) []string {
	log, _ := os.ReadFile(logPath(dir)) // without a log there are none in it
	ids := idPattern.FindAllString(string(log), -1)
	for _, parent := range []string{"io.containerd.runtime.v2.task/k8s.io", "runc/k8s.io"} {
		// A directory that does not exist has no containers.
		entries, _ := os.ReadDir(filepath.Join(statePath(dir), parent))
		for _, e := range entries {
			ids = append(ids, e.Name())
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// findFiles returns the files that containerd, runc and CNI keep in fixed places of the machine.
func findFiles(dir string, ids []string) []string {
	// Glob fails only for malformed patterns.
	files, _ := filepath.Glob("/var/lib/cni/results/" + cleanup.BridgeName(dir) + "-*")
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
		if id := idPattern.FindString(path); slices.Contains(files, path) || id == "" {
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

// shimSocket returns the socket of a shim as recorded in its bundle: the URL in "address" or, in
// newer versions, in "bootstrap.json". Empty if there is none.
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

// Lines describes the leftovers, a line for each.
func (r leftovers) Lines() []string {
	var lines []string
	for _, p := range r.procs {
		lines = append(lines, strings.TrimSpace(fmt.Sprintf("process %d (%s) %s",
			p.PID, p.Name, r.containerOf(p))))
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
	if r.dirExists {
		lines = append(lines, "directory "+r.dir)
	}
	return lines
}

// Remove removes as much as possible in one round. The directory is removed last, and only if no
// mount is left below it: a removal through a mount would delete the mounted content.
func (r leftovers) Remove() error {
	var problems []error
	for _, p := range r.procs {
		problems = append(problems, p.Kill(r.owns))
	}
	if len(r.procs) > 0 {
		return errors.Join(problems...) // the rest is in use until these processes have ended
	}
	for _, m := range slices.Backward(r.mounts) {
		problems = append(problems, Unmount(m))
	}
	if r.bridge != "" {
		problems = append(problems, cleanup.RemoveBridge(r.dir))
	}
	for _, f := range r.files {
		problems = append(problems, os.Remove(f))
	}
	if r.dirExists && len(r.mounts) == 0 {
		problems = append(problems, os.RemoveAll(r.dir))
	}
	return errors.Join(problems...)
}

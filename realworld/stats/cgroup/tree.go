package cgroup

import (
	"bufio"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
)

// Children returns the names of the child cgroups; none if the cgroup does not exist.
func (r *Reader) Children(of string) []string {
	for _, controller := range controllers {
		entries, err := os.ReadDir(r.dirOf(controller, of))
		if err != nil {
			continue
		}
		var names []string
		for _, e := range entries {
			if e.IsDir() {
				names = append(names, e.Name())
			}
		}
		return names
	}
	return nil
}

// Kubepods returns the cgroup of all pods below a root: of "kubepods" and "kubepods.slice" the one
// that has children, or else the one that exists, or else "kubepods".
func (r *Reader) Kubepods(root string) string {
	plain := path.Clean("/" + root + "/kubepods")
	slice, prefix := "", ""
	for _, name := range strings.Split(plain[1:], "/") {
		prefix += strings.ReplaceAll(name, "-", "_")
		slice += "/" + prefix + ".slice"
		prefix += "-"
	}
	found := plain
	for _, at := range []string{slice, plain} {
		if pods, _ := r.Pods(at); len(pods) > 0 {
			return at
		}
		if len(r.Children(at)) > 0 {
			found = at
		}
	}
	return found
}

// Pods returns the cgroups of pods below the given one, by PodKey, for both drivers:
// "burstable/podUID" and "kubepods-burstable.slice/kubepods-burstable-podUID.slice". groups are the
// cgroups above them, the given one first.
func (r *Reader) Pods(of string) (pods map[string]string, groups []string) {
	pods, groups = map[string]string{}, []string{of}
	for _, name := range r.Children(of) {
		at := path.Join(of, name)
		switch last := nameSuffix(name); {
		case strings.HasPrefix(last, podPrefix):
			pods[PodKey(last[len(podPrefix):])] = at
		case last == "burstable" || last == "besteffort":
			groups = append(groups, at)
			for _, below := range r.Children(at) {
				if uid, is := strings.CutPrefix(nameSuffix(below), podPrefix); is {
					pods[PodKey(uid)] = path.Join(at, below)
				}
			}
		}
	}
	return pods, groups
}

const podPrefix = "pod"

// PodKey returns the key of a UID in the result of Pods: in systemd's names a dash of the UID is an
// underscore.
func PodKey(uid string) string { return strings.ReplaceAll(uid, "_", "-") }

// Containers returns the cgroups in a pod's cgroup by the id of the container or sandbox: "ID",
// "cri-containerd-ID.scope" or "crio-ID.scope". Cgroups of cri-o's monitors are left out.
func (r *Reader) Containers(of string) map[string]string {
	found := map[string]string{}
	for _, name := range r.Children(of) {
		if !strings.Contains(name, "conmon") {
			found[nameSuffix(strings.TrimSuffix(name, ".scope"))] = path.Join(of, name)
		}
	}
	return found
}

// nameSuffix returns the part of a slice's or scope's name after its last dash. Names of the
// cgroupfs driver are returned whole: their UIDs have dashes, their prefixes have none.
func nameSuffix(name string) string {
	name, slice := strings.CutSuffix(name, ".slice")
	if !slice && strings.HasPrefix(name, podPrefix) {
		return name
	}
	return name[strings.LastIndexByte(name, '-')+1:]
}

// CgroupOfProcess returns the cgroup of a process; empty for the root, or if it cannot be read.
// With v1 it is the cgroup of the memory or the cpu controller, whichever is deeper.
func (r *Reader) CgroupOfProcess(pid int) string {
	f, err := os.Open(filepath.Join(r.roots.Proc, strconv.Itoa(pid), "cgroup"))
	if err != nil {
		return ""
	}
	defer func() { _ = f.Close() }()
	found := ""
	for lines := bufio.NewScanner(f); lines.Scan(); {
		parts := strings.SplitN(lines.Text(), ":", 3) // "4:memory:/system.slice", "0::/"
		if len(parts) != 3 || r.unified != (parts[0] == "0") {
			continue
		}
		for _, controller := range strings.Split(parts[1], ",") {
			wanted := r.unified || controller == memory || controller == cpuacct
			if wanted && len(parts[2]) > len(found) {
				found = parts[2]
			}
		}
	}
	if isRoot(found) {
		return ""
	}
	return found
}

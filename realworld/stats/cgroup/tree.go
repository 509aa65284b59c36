package cgroup

import (
	"bufio"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
)

// Children are the names of the cgroups directly below one; none if it does not exist.
func (r *Reader) Children(of string) []string {
	for _, controller := range controllers {
		entries, err := os.ReadDir(r.in(controller, of))
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

// Kubepods is the cgroup of all pods below a root: "kubepods" or "kubepods.slice", whichever has
// any, or is there, or else the former.
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

// Pods finds the cgroups of pods below that of all pods, by UID, whichever driver made them:
// "burstable/podUID" or "kubepods-burstable.slice/kubepods-burstable-podUID.slice". Groups are the
// cgroups above them, the one that was asked for first.
func (r *Reader) Pods(of string) (pods map[string]string, groups []string) {
	pods, groups = map[string]string{}, []string{of}
	for _, name := range r.Children(of) {
		at := path.Join(of, name)
		switch last := lastWord(name); {
		case strings.HasPrefix(last, podPrefix):
			pods[PodKey(last[len(podPrefix):])] = at
		case last == "burstable" || last == "besteffort":
			groups = append(groups, at)
			for _, below := range r.Children(at) {
				if uid, is := strings.CutPrefix(lastWord(below), podPrefix); is {
					pods[PodKey(uid)] = path.Join(at, below)
				}
			}
		}
	}
	return pods, groups
}

const podPrefix = "pod"

// PodKey is a UID as Pods has it: systemd's names cannot tell a dash from an underscore.
func PodKey(uid string) string { return strings.ReplaceAll(uid, "_", "-") }

// Containers finds the cgroups in that of a pod, by the id of the container or the sandbox: "ID",
// "cri-containerd-ID.scope" or "crio-ID.scope". Those of cri-o's monitors are none.
func (r *Reader) Containers(of string) map[string]string {
	found := map[string]string{}
	for _, name := range r.Children(of) {
		if !strings.Contains(name, "conmon") {
			found[lastWord(strings.TrimSuffix(name, ".scope"))] = path.Join(of, name)
		}
	}
	return found
}

// lastWord is what follows the last dash of a slice's or a scope's name. Plain names, as the
// cgroupfs driver gives them, are UIDs with dashes and prefixes without.
func lastWord(name string) string {
	name, slice := strings.CutSuffix(name, ".slice")
	if !slice && strings.HasPrefix(name, podPrefix) {
		return name
	}
	return name[strings.LastIndexByte(name, '-')+1:]
}

// Of is the cgroup that a process is in; empty if that cannot be seen, or if it is the root. With
// version 1 it is that of the controller of memory or processors, whichever is further down.
func (r *Reader) Of(pid int) string {
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

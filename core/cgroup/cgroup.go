// Package cgroup says where the cgroup of a pod is and what its limits are.
//
// It keeps nothing: everything here is a function of the pod and of the node's layout. What has
// been made of it, and what is still to be made or removed, is the pod's business (package pod);
// what nobody owns any more is found by package housekeeping. Start reading at Layout, then
// Limits in limits.go.
package cgroup

import (
	"path"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
)

// Layout is where the cgroups of a node's pods are.
type Layout struct {
	PerPod  bool   `json:"perPod"`         // cgroupsPerQOS: without it the runtime does as it likes
	Root    string `json:"root,omitempty"` // above kubepods; empty: the root of the hierarchy
	Systemd bool   `json:"systemd"`        // the driver; else it is cgroupfs
	// Settled says that the driver is that of the runtime, or that the runtime does not tell its
	// own. Nothing is made or removed before.
	Settled bool  `json:"settled"`
	PidsMax int64 `json:"pidsMax,omitempty"` // in each pod; zero: unlimited
}

// LayoutOf is the layout as it is configured.
func LayoutOf(c *kubeletconfig.KubeletConfiguration) Layout {
	l := Layout{
		PerPod: c.CgroupsPerQOS == nil || *c.CgroupsPerQOS, Systemd: c.CgroupDriver == "systemd",
		Root: strings.Trim(path.Clean("/"+c.CgroupRoot), "/"),
	}
	if c.PodPidsLimit != nil && *c.PodPidsLimit > 0 {
		l.PidsMax = *c.PodPidsLimit
	}
	return l
}

// Settle takes the driver that the runtime has; empty if it does not say. It reports whether that
// is news.
func (l *Layout) Settle(driver string) bool {
	if l.Settled {
		return false
	}
	l.Settled = true
	if driver != "" {
		l.Systemd = strings.EqualFold(driver, "systemd")
	}
	return true
}

// The names of cgroups, as every kubelet has them.
const (
	kubepods  = "kubepods"
	podPrefix = "pod"
)

// Parents are where the cgroups of pods are, by their quality of service.
func (l *Layout) Parents() []string {
	return []string{
		l.parent(v1.PodQOSGuaranteed), l.parent(v1.PodQOSBurstable), l.parent(v1.PodQOSBestEffort),
	}
}

func (l *Layout) parent(class v1.PodQOSClass) string {
	parent := kubepods
	switch class {
	case v1.PodQOSBurstable:
		parent = kubepods + "/burstable"
	case v1.PodQOSBestEffort:
		parent = kubepods + "/besteffort"
	}
	if l.Root == "" {
		return parent
	}
	return l.Root + "/" + parent
}

// Path is the cgroup of a pod, from the root of the hierarchy.
func (l *Layout) Path(uid string, class v1.PodQOSClass) string {
	return l.parent(class) + "/" + podPrefix + uid
}

// Paths are all cgroups that a pod may have, whatever its quality of service.
func (l *Layout) Paths(uid string) []string {
	paths := l.Parents()
	for i := range paths {
		paths[i] += "/" + podPrefix + uid
	}
	return paths
}

// Has says whether a cgroup is one of Paths.
func (l *Layout) Has(cgroup, uid string) bool {
	above, is := strings.CutSuffix(cgroup, uid)
	if !is {
		return false
	}
	above, is = strings.CutSuffix(above, "/"+podPrefix)
	return is && slices.Contains(l.Parents(), above)
}

// UIDOf is whose cgroup has a name; false if it is no pod's.
func UIDOf(name string) (string, bool) {
	uid, is := strings.CutPrefix(name, podPrefix)
	return uid, is && uid != ""
}

// Same says whether the cgroup of one pod may be called by the UID of another: systemd's names
// cannot tell a dash from an underscore.
func (l *Layout) Same(uid, other string) bool {
	if l.Systemd {
		uid, other = strings.ReplaceAll(uid, "_", "-"), strings.ReplaceAll(other, "_", "-")
	}
	return uid == other
}

// Parent is a cgroup as the runtime is told of it. With systemd it is the directory of a slice,
// below those of its parents.
func (l *Layout) Parent(cgroup string) string {
	if !l.Systemd {
		return "/" + cgroup
	}
	parent, slice := "", ""
	for _, name := range strings.Split(cgroup, "/") {
		if slice != "" {
			slice += "-"
		}
		slice += strings.ReplaceAll(name, "-", "_")
		parent += "/" + slice + ".slice"
	}
	return parent
}

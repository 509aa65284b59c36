// Package cgroup has the paths and limits of the pods' cgroups.
//
// It has no state: everything is a function of the pod and of the node's layout. Package pod
// creates and removes the cgroup of a pod; package housekeeping removes orphaned ones. Start
// reading at Layout, then at Limits in limits.go.
package cgroup

import (
	"path"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"seedlet.dev/world"
)

// Layout is where the cgroups of the node's pods are.
type Layout struct {
	PerPod  bool   `json:"perPod"`         // cgroupsPerQOS; if not, the runtime decides
	Root    string `json:"root,omitempty"` // the parent of kubepods; empty: the root of the hierarchy
	Systemd bool   `json:"systemd"`        // the cgroup driver; else cgroupfs
	// DriverKnown holds once the runtime has reported its driver, or that it does not report one. No
	// cgroup is created or removed before.
	DriverKnown bool  `json:"driverKnown"`
	PidsMax     int64 `json:"pidsMax,omitempty"` // for each pod; zero: unlimited
	// PageSizes are the sizes of huge pages that the kernel supports, in bytes, smallest first.
	PageSizes []int64 `json:"pageSizes,omitempty"`
	Policy    Policy  `json:"policy"`
}

// LayoutFromConfig returns the layout of a configuration.
func LayoutFromConfig(c *kubeletconfig.KubeletConfiguration) Layout {
	l := Layout{
		PerPod: c.CgroupsPerQOS == nil || *c.CgroupsPerQOS, Systemd: c.CgroupDriver == "systemd",
		Root: strings.Trim(path.Clean("/"+c.CgroupRoot), "/"), Policy: PolicyFromConfig(c),
	}
	if c.PodPidsLimit != nil && *c.PodPidsLimit > 0 {
		l.PidsMax = *c.PodPidsLimit
	}
	return l
}

// SetDriver sets the driver that the runtime reported; empty if it reports none. It returns true
// the first time. The driver never changes after that.
func (l *Layout) SetDriver(driver string) bool {
	if l.DriverKnown {
		return false
	}
	l.DriverKnown = true
	if driver != "" {
		l.Systemd = strings.EqualFold(driver, "systemd")
	}
	return true
}

// RootDirectories returns the directories that the parent of kubepods may have, relative to the
// root of a hierarchy: the driver is not known when the agent starts.
func (l *Layout) RootDirectories() []string {
	if l.Root == "" {
		return []string{"."}
	}
	systemd := Layout{Systemd: true}
	return []string{l.Root, strings.Trim(systemd.CgroupParent(l.Root), "/")}
}

// The names of cgroups, the same as with the kubelet.
const (
	kubepods  = "kubepods"
	podPrefix = "pod"
)

// SetMachine sets what follows from the machine.
func (l *Layout) SetMachine(m *world.Machine) {
	l.Policy.SetMachine(m)
	l.PageSizes = nil
	for _, pages := range m.HugePages {
		l.PageSizes = append(l.PageSizes, pages.SizeBytes)
	}
}

// QOSParents returns the parents of the pods' cgroups, one for each QoS class.
func (l *Layout) QOSParents() []string {
	return []string{
		l.QOSParent(v1.PodQOSGuaranteed), l.QOSParent(v1.PodQOSBurstable),
		l.QOSParent(v1.PodQOSBestEffort),
	}
}

// QOSParent returns the parent of the cgroups of the pods of a QoS class.
func (l *Layout) QOSParent(class v1.PodQOSClass) string {
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

// ClassOf returns the QoS class of the pods beside a pod's cgroup.
func (l *Layout) ClassOf(pod string) v1.PodQOSClass {
	switch path.Dir(pod) {
	case l.QOSParent(v1.PodQOSGuaranteed):
		return v1.PodQOSGuaranteed
	case l.QOSParent(v1.PodQOSBurstable):
		return v1.PodQOSBurstable
	}
	return v1.PodQOSBestEffort
}

// PodPath returns the cgroup of a pod, relative to the root of the hierarchy.
func (l *Layout) PodPath(uid string, class v1.PodQOSClass) string {
	return l.QOSParent(class) + "/" + podPrefix + uid
}

// PodPaths returns all cgroups that a pod may have, one for each QoS class.
func (l *Layout) PodPaths(uid string) []string {
	paths := l.QOSParents()
	for i := range paths {
		paths[i] += "/" + podPrefix + uid
	}
	return paths
}

// IsPodPath reports whether a cgroup is one of the pod's.
func (l *Layout) IsPodPath(cgroup, uid string) bool {
	parent, hasSuffix := strings.CutSuffix(cgroup, uid)
	if !hasSuffix {
		return false
	}
	parent, hasSuffix = strings.CutSuffix(parent, "/"+podPrefix)
	return hasSuffix && slices.Contains(l.QOSParents(), parent)
}

// UIDOf returns the UID of the pod that a cgroup is named for; false if it is not a pod's.
func UIDOf(name string) (string, bool) {
	uid, isPod := strings.CutPrefix(name, podPrefix)
	return uid, isPod && uid != ""
}

// MayShareCgroup reports whether two pods may have the same cgroup.
func (l *Layout) MayShareCgroup(uid, other string) bool {
	return l.CanonicalUID(uid) == l.CanonicalUID(other)
}

// CanonicalUID returns a UID in the form that all UIDs have whose pods may have the same cgroup:
// with systemd a dash and an underscore lead to the same name.
func (l *Layout) CanonicalUID(uid string) string {
	if l.Systemd {
		return strings.ReplaceAll(uid, "_", "-")
	}
	return uid
}

// CgroupParent returns a cgroup in the form of the CRI's cgroup_parent. With systemd it is the path
// of a slice, below the slices of its parents.
func (l *Layout) CgroupParent(cgroup string) string {
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

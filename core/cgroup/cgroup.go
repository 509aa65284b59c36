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
}

// LayoutFromConfig returns the layout of a configuration.
func LayoutFromConfig(c *kubeletconfig.KubeletConfiguration) Layout {
	l := Layout{
		PerPod: c.CgroupsPerQOS == nil || *c.CgroupsPerQOS, Systemd: c.CgroupDriver == "systemd",
		Root: strings.Trim(path.Clean("/"+c.CgroupRoot), "/"),
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

// The names of cgroups, the same as with the kubelet.
const (
	kubepods  = "kubepods"
	podPrefix = "pod"
)

// QOSParents returns the parents of the pods' cgroups, one for each QoS class.
func (l *Layout) QOSParents() []string {
	return []string{
		l.qosParent(v1.PodQOSGuaranteed), l.qosParent(v1.PodQOSBurstable),
		l.qosParent(v1.PodQOSBestEffort),
	}
}

func (l *Layout) qosParent(class v1.PodQOSClass) string {
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

// PodPath returns the cgroup of a pod, relative to the root of the hierarchy.
func (l *Layout) PodPath(uid string, class v1.PodQOSClass) string {
	return l.qosParent(class) + "/" + podPrefix + uid
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

// MayShareCgroup reports whether two pods may have the same cgroup. With systemd a dash and an
// underscore in a UID lead to the same name.
func (l *Layout) MayShareCgroup(uid, other string) bool {
	if l.Systemd {
		uid, other = strings.ReplaceAll(uid, "_", "-"), strings.ReplaceAll(other, "_", "-")
	}
	return uid == other
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

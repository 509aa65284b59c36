package qos

import (
	"path"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"seedlet.dev/core/cgroup"
	"seedlet.dev/core/config"
	"seedlet.dev/core/document"
	"seedlet.dev/world"
)

// Reserved is a cgroup of the system or of Kubernetes, which is limited to what is reserved for it.
// Others make the cgroup; the agent only sets its limits.
type Reserved struct {
	Field        string `json:"field"` // that names the cgroup
	Name         string `json:"name"`  // as in the configuration
	Kind         string `json:"kind"`  // "system reserved" or "kube reserved", for Events
	Compressible bool   `json:"compressible,omitempty"`
	CPUShares    uint64 `json:"cpuShares,omitempty"`
	MemoryBytes  int64  `json:"memoryBytes,omitempty"`
	PidsMax      int64  `json:"pidsMax,omitempty"`
}

// ReservedFromConfig returns the cgroups that enforceNodeAllocatable has besides that of pods, in
// the order in which the kubelet limits them.
func ReservedFromConfig(c *kubeletconfig.KubeletConfiguration) []Reserved {
	var all []Reserved
	for _, entry := range []struct {
		whole, compressible, field, name, kind string
		amounts                                map[string]string
	}{
		{config.EnforceSystem, config.EnforceSystemCompressible, "systemReservedCgroup",
			c.SystemReservedCgroup, "system reserved", c.SystemReserved},
		{config.EnforceKube, config.EnforceKubeCompressible, "kubeReservedCgroup",
			c.KubeReservedCgroup, "kube reserved", c.KubeReserved},
	} {
		compressible := config.Enforces(c, entry.compressible)
		if !compressible && !config.Enforces(c, entry.whole) {
			continue
		}
		r := Reserved{Field: entry.field, Name: entry.name, Kind: entry.kind,
			Compressible: compressible}
		if q, err := document.ParseQuantity(entry.amounts["cpu"]); err == nil {
			r.CPUShares = uint64(cgroup.MilliCPUToShares(q.MilliValue()))
		}
		if q, err := document.ParseQuantity(entry.amounts["memory"]); err == nil && !compressible {
			r.MemoryBytes = q.Value()
		}
		if q, err := document.ParseQuantity(entry.amounts[world.ResourcePIDs]); err == nil &&
			!compressible {
			r.PidsMax = q.Value()
		}
		all = append(all, r)
	}
	if len(all) == 2 && all[0].Compressible && !all[1].Compressible {
		slices.Reverse(all)
	}
	return all
}

// path returns the path of the cgroup. With systemd the name is that of a slice, whose dashes
// separate it from its parents (ParseSystemdToCgroupName in
// pkg/kubelet/cm/cgroup_manager_linux.go).
func (r *Reserved) path(systemd bool) string {
	name := strings.Trim(path.Clean("/"+r.Name), "/")
	if !systemd {
		return name
	}
	return strings.ReplaceAll(strings.TrimSuffix(path.Base(name), ".slice"), "-", "/")
}

// Directories returns the directories that the cgroup may have, relative to the root of a
// hierarchy: the driver is not known when the agent starts.
func (r *Reserved) Directories() []string {
	systemd := cgroup.Layout{Systemd: true}
	return []string{r.path(false), strings.Trim(systemd.CgroupParent(r.path(true)), "/")}
}

// Controllers returns the controllers that the limits need.
func (r *Reserved) Controllers() []string {
	var needed []string
	for _, limit := range []struct {
		controller string
		isSet      bool
	}{{"cpu", r.CPUShares > 0}, {"memory", r.MemoryBytes > 0}, {"pids", r.PidsMax > 0}} {
		if limit.isSet {
			needed = append(needed, limit.controller)
		}
	}
	return needed
}

// desired returns the desired limits. What is reserved of memory is protected from reclaim, if
// MemoryQoS is on. The limit of memory is never below the usage: the kernel would end processes
// that the machine or Kubernetes depends on.
func (r *Reserved) desired(l *cgroup.Layout) world.SetCgroup {
	set := world.SetCgroup{Path: r.path(l.Systemd), Systemd: l.Systemd, Existing: true,
		CPUShares: r.CPUShares, MemoryBytes: r.MemoryBytes, PidsMax: r.PidsMax, AboveUsage: true}
	if l.Policy.ProtectsMemory() {
		set.MemoryMin = r.MemoryBytes
	}
	return set
}

// withReserved adds the limits of a reserved cgroup to settings. If the cgroup is in them already,
// its limits replace those: two settings of one cgroup would be written in turns for ever.
func withReserved(all []world.SetCgroup, set world.SetCgroup) []world.SetCgroup {
	at := slices.IndexFunc(all, func(s world.SetCgroup) bool { return s.Path == set.Path })
	if at < 0 {
		return append(all, set)
	}
	same := &all[at]
	if set.CPUShares > 0 {
		same.CPUShares = set.CPUShares
	}
	if set.MemoryBytes > 0 {
		same.MemoryBytes, same.MemoryMin = set.MemoryBytes, set.MemoryMin
	}
	if set.PidsMax > 0 {
		same.PidsMax = set.PidsMax
	}
	return all
}

// enforcement returns what Events say of the limits of a cgroup; empty for a tier, of which they
// say nothing.
func (c *Cgroups) enforcement(set *world.SetCgroup, l *cgroup.Layout) (enforced, failed string) {
	if set.Path == l.QOSParent(v1.PodQOSGuaranteed) {
		return "Updated Node Allocatable limit across pods",
			"Failed to update Node Allocatable Limits"
	}
	for i := range c.Reserved {
		r := &c.Reserved[i]
		if r.path(l.Systemd) != set.Path || !set.Existing {
			continue
		}
		what := "System Reserved"
		if r.Field == "kubeReservedCgroup" {
			what = "Kube Reserved"
		}
		if r.Compressible {
			what += " Compressible"
		}
		return "Updated limits on " + r.Kind + " cgroup " + r.Name,
			"Failed to enforce " + what + " Cgroup Limits on"
	}
	return "", ""
}

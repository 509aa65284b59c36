package world

import (
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The host port: the machine and its cgroups. As in the file system port, a cgroup operation has no
// effect after its completion. With the systemd driver, systemd itself orders the jobs of a unit.

// Boot is the first event of every incarnation of the agent (one run of its process).
type Boot struct {
	Seed   uint64 `json:"seed"`   // the only source of randomness of this incarnation
	BootID string `json:"bootID"` // changes when the machine reboots, not when the agent restarts
	// Uptime is for how long the machine has been up; zero if it cannot be determined.
	Uptime   time.Duration `json:"uptime,omitempty"`
	Hostname string        `json:"hostname"` // the machine's own host name
	// CPUs and MemoryBytes are the capacity of the machine, from which the resources of containers
	// are computed.
	CPUs        int   `json:"cpus"`
	MemoryBytes int64 `json:"memoryBytes"`
	// Addresses are the machine's IPs that are reachable from outside, at most one of each family.
	// The first is the primary address.
	Addresses []string `json:"addresses,omitempty"`
	// NameAddresses are the machine's IPs that the name of the node resolves to.
	NameAddresses []string `json:"nameAddresses,omitempty"`
	Machine       Machine  `json:"machine"`
	// SetAside are the pods over which earlier incarnations have panicked of late.
	SetAside []PodSetAside `json:"setAside,omitempty"`
	// HasSCSIVolumes is set if an agent, or a kubelet, has ever set up a volume of the kind iscsi or
	// fc on the machine, so that some may be left.
	HasSCSIVolumes bool `json:"hasSCSIVolumes,omitempty"`
}

// PodSetAside is a pod over which earlier incarnations have panicked. The agent does nothing for it
// until the time has passed.
type PodSetAside struct {
	UID       string        `json:"uid"`
	Panics    int           `json:"panics"`           // in a row
	Remaining time.Duration `json:"remaining"`        // of its back-off; zero if it has passed
	Silent    bool          `json:"silent,omitempty"` // the last one was while the pod was set aside
}

// ReadMachine observes what Boot said about the machine again. It completes with MachineRead. Name
// is the node's name, if it is to be resolved.
type ReadMachine struct {
	Name string `json:"name,omitempty"`
}

// MachineRead is the completion of ReadMachine. The fields are those of Boot; a fact that cannot be
// determined is empty.
type MachineRead struct {
	CPUs          int      `json:"cpus"`
	MemoryBytes   int64    `json:"memoryBytes"`
	Addresses     []string `json:"addresses,omitempty"`
	NameAddresses []string `json:"nameAddresses,omitempty"`
	NameUnknown   bool     `json:"nameUnknown,omitempty"` // no name server has answered, or was asked
	Machine       Machine  `json:"machine"`
	// Certificates are the node's own that are in use, at most one of each usage. Boot has none.
	Certificates []Certificate `json:"certificates,omitempty"`
}

// CertificateUsage is what a certificate of the node is for.
type CertificateUsage string

// The usages of the node's certificates: for requests to the API server, and for the secure port.
const (
	ClientCertificate  CertificateUsage = "client"
	ServingCertificate CertificateUsage = "serving"
)

// Certificate is a certificate of the node's own. NotAfter is a date.
type Certificate struct {
	Usage    CertificateUsage `json:"usage"`
	NotAfter time.Time        `json:"notAfter"`
}

// Machine holds the facts about the machine that the Node object reports. A fact that cannot be
// determined is empty.
type Machine struct {
	MachineID       string `json:"machineID,omitempty"`  // of the installation, not of the hardware
	SystemUUID      string `json:"systemUUID,omitempty"` // of the hardware
	KernelVersion   string `json:"kernelVersion,omitempty"`
	OSImage         string `json:"osImage,omitempty"`      // as "Debian GNU/Linux 12 (bookworm)"
	OperatingSystem string `json:"operatingSystem"`        // as "linux"
	Architecture    string `json:"architecture"`           // as "amd64"
	SwapBytes       int64  `json:"swapBytes,omitempty"`    // total, not free
	RootDirBytes    int64  `json:"rootDirBytes,omitempty"` // size of the root directory's file system
	AppArmor        bool   `json:"appArmor,omitempty"`     // the kernel enforces AppArmor profiles
	SELinux         bool   `json:"selinux,omitempty"`      // SELinux is enabled, enforcing or not
	// SELinuxFileLabel is the label of the files of containers, before they have a level of their own,
	// as it was at the start of the agent.
	SELinuxFileLabel string `json:"selinuxFileLabel,omitempty"`
	CgroupV1         bool   `json:"cgroupV1,omitempty"`   // cgroups have one hierarchy per controller
	SwapLimits       bool   `json:"swapLimits,omitempty"` // cgroups can limit swap
	SwapsTmpfs       bool   `json:"swapsTmpfs,omitempty"` // there is swap, and tmpfs has no noswap
	PIDsMax          int64  `json:"pidsMax,omitempty"`    // processes and threads of the machine
	PageBytes        int64  `json:"pageBytes,omitempty"`  // size of a page of memory
	// ThermalThrottleCPUs are the CPUs whose temperature counters are in /sys.
	ThermalThrottleCPUs []int `json:"thermalThrottleCPUs,omitempty"`
	// HugePages lists the page sizes that the kernel supports, smallest first, including sizes with
	// no pages in their pool.
	HugePages []HugePages `json:"hugePages,omitempty"`
}

// ResourcePIDs is the name of process IDs as a resource, which can be reserved (pidlimit.PIDs in
// pkg/kubelet/stats/pidlimit).
const ResourcePIDs = "pid"

// HugePages is the size of the kernel's pool of huge pages of one size (nr_hugepages).
type HugePages struct {
	SizeBytes int64 `json:"sizeBytes"`
	Count     int64 `json:"count"`
}

// ClockStepped reports that the machine's date was changed while the agent was running: the event
// times go on as if it had not been.
type ClockStepped struct {
	Offset time.Duration `json:"offset"` // from event times to the date, since now
}

// SystemOOM reports that the kernel has ended a process because the machine was out of memory. A
// process that was ended because of the limit of a cgroup is not reported.
type SystemOOM struct {
	Process string `json:"process"` // its command name
	PID     int64  `json:"pid"`
	// Omitted are the processes that were ended before it and are not reported one by one: more were
	// ended than the port reports in a time, or the agent was too busy.
	Omitted uint64 `json:"omitted,omitempty"`
}

// Shutdown reports that the agent's process is about to be terminated. It stops no pod.
type Shutdown struct {
	Reason string `json:"reason"`
}

// DelayShutdown takes the lock that delays a shutdown of the machine until PermitShutdown, or until
// the machine has waited long enough. If it would wait for less than AtLeast, it is configured to
// wait that long. The effect completes with ShutdownDelayed, with KindConflict if the machine shuts
// down already, and with KindUnsupported if it has nothing that could be asked. The lock is this
// process's and ends with it. From then on, also after KindConflict, shutdowns and their
// cancellations are announced with MachineShutdown.
type DelayShutdown struct {
	AtLeast time.Duration `json:"atLeast"`
}

// ShutdownDelayed is the completion of DelayShutdown.
type ShutdownDelayed struct {
	Max time.Duration `json:"max"` // how long the machine waits at most
	// Problem is why it could not be made to wait for AtLeast; empty: it waits, or nothing failed.
	Problem string `json:"problem,omitempty"`
}

// PermitShutdown releases the lock of DelayShutdown. It completes with Done, also without a lock.
type PermitShutdown struct{}

// MachineShutdown reports that the machine is about to shut down, or that it does not any more.
type MachineShutdown struct {
	Cancelled bool `json:"cancelled,omitempty"`
}

// ShutdownUnwatched reports that the agent may miss a shutdown or a cancellation: the connection
// has been lost, or logind has been restarted, which forgets a shutdown under way. The lock stays.
// DelayShutdown asks again.
type ShutdownUnwatched struct {
	Reason string `json:"reason"`
}

// SetCgroup creates a cgroup with its missing parents, or updates it, and sets its limits. It
// completes with Done or CgroupAboveLimit.
//
// Path is relative to the root of the hierarchy and has the form of the cgroupfs driver, as in
// "kubepods/burstable/podUID". The systemd driver converts it to slices by systemd's naming rule.
type SetCgroup struct {
	Path      string `json:"path"`
	Systemd   bool   `json:"systemd,omitempty"` // use the systemd driver
	CPUShares uint64 `json:"cpuShares,omitempty"`
	// CPUQuota is in microseconds per CPUPeriod; zero is unlimited.
	CPUQuota    int64  `json:"cpuQuota,omitempty"`
	CPUPeriod   uint64 `json:"cpuPeriod,omitempty"`   // microseconds
	MemoryBytes int64  `json:"memoryBytes,omitempty"` // limit; zero: unlimited
	PidsMax     int64  `json:"pidsMax,omitempty"`     // zero: unlimited
	// MemoryMin is never reclaimed from the cgroup, MemoryLow only if no other cgroup has memory to
	// reclaim. Both are in bytes, and cgroup v1 has neither.
	MemoryMin int64           `json:"memoryMin,omitempty"`
	MemoryLow int64           `json:"memoryLow,omitempty"`
	HugePages []HugePageLimit `json:"hugePages,omitempty"` // other sizes stay as they are
	// AboveUsage keeps the memory limit from killing processes: while the cgroup uses more than
	// MemoryBytes its usage is the limit. The operation then completes with CgroupAboveLimit.
	AboveUsage bool `json:"aboveUsage,omitempty"`
	// NotBelowUsage leaves the memory limit as it is if MemoryBytes would lower it to the usage of
	// the cgroup, or below: a limit of just the usage kills the process that asks for the next page.
	// The operation then completes with CgroupAboveLimit.
	NotBelowUsage bool `json:"notBelowUsage,omitempty"`
	// Existing is set for a cgroup that another program has made: it is not created, KindNotFound
	// says that it does not exist, and limits that are zero stay as they are.
	Existing bool `json:"existing,omitempty"`
}

// Raise raises the limits so that those of another request for the same cgroup, or for one in it,
// are within them.
func (m *SetCgroup) Raise(other *SetCgroup) {
	m.CPUShares = max(m.CPUShares, other.CPUShares)
	m.MemoryMin, m.MemoryLow = max(m.MemoryMin, other.MemoryMin), max(m.MemoryLow, other.MemoryLow)
	if m.MemoryBytes != 0 && other.MemoryBytes != 0 {
		m.MemoryBytes = max(m.MemoryBytes, other.MemoryBytes)
	} else {
		m.MemoryBytes = 0
	}
	switch {
	case m.CPUQuota == 0:
	case other.CPUQuota == 0:
		m.CPUQuota, m.CPUPeriod = 0, 0
	case other.CPUQuota > m.CPUQuota: // the period is the same on the whole node
		m.CPUQuota, m.CPUPeriod = other.CPUQuota, other.CPUPeriod
	}
}

// CgroupAboveLimit is the completion of SetCgroup if the cgroup uses too much memory for the limit
// that it was to have. Everything else is set.
type CgroupAboveLimit struct {
	UsageBytes int64 `json:"usageBytes"`
	LimitBytes int64 `json:"limitBytes,omitempty"` // that the cgroup has; zero: unlimited
}

// HugePageLimit is the limit of a cgroup for huge pages of one size.
type HugePageLimit struct {
	SizeBytes int64 `json:"sizeBytes"`
	MaxBytes  int64 `json:"maxBytes"` // below zero: unlimited
}

// Equal reports whether two requests ask for the same.
func (m *SetCgroup) Equal(other *SetCgroup) bool {
	x, y := *m, *other
	x.HugePages, y.HugePages = nil, nil
	return reflect.DeepEqual(x, y) && slices.Equal(m.HugePages, other.HugePages)
}

// HugePageSizeName returns a size as the kernel and the CRI name it: 2MB, 1GB.
func HugePageSizeName(sizeBytes int64) string {
	units := []string{"B", "KB", "MB", "GB", "TB", "PB"}
	unit := 0
	for sizeBytes >= 1024 && sizeBytes%1024 == 0 && unit < len(units)-1 {
		sizeBytes /= 1024
		unit++
	}
	return strconv.FormatInt(sizeBytes, 10) + units[unit]
}

// RemoveCgroup removes a cgroup and its descendants and kills the processes in them. It succeeds if
// the cgroup does not exist. It completes with Done.
type RemoveCgroup struct {
	Path    string `json:"path"`
	Systemd bool   `json:"systemd,omitempty"`
}

// ListCgroups lists the direct children of a cgroup. It completes with CgroupsListed, which is
// empty if the cgroup does not exist.
type ListCgroups struct {
	Path    string `json:"path"`
	Systemd bool   `json:"systemd,omitempty"`
}

// CgroupsListed is the completion of ListCgroups. It holds the sorted last elements of the paths,
// in cgroupfs form.
type CgroupsListed struct {
	Names []string `json:"names"`
}

// MakeKey makes a private key, which is kept nowhere but in the completion: KeyMade. A type that is
// not known is KindInvalid.
type MakeKey struct {
	// Type is a keyType of v1.PodCertificateProjection, such as ECDSAP256.
	Type string `json:"type"`
}

// IsSlow reports whether the key takes up to seconds of computation: an RSA key does. All others
// take milliseconds.
func (m *MakeKey) IsSlow() bool { return strings.HasPrefix(m.Type, "RSA") }

// KeyMade is the completion of MakeKey.
type KeyMade struct {
	PrivateKey string `json:"privateKey"` // secret; PKCS#8 in PEM
	// Request is a PKCS#10 request in DER that only proves the possession of the key: all its fields
	// are empty but for the public key.
	Request []byte `json:"request"`
}

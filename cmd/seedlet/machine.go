package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	utilversion "k8s.io/apimachinery/pkg/util/version"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/klog/v2"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
	"k8s.io/utils/cpuset"

	"seedlet.dev/core/cgroup"
	"seedlet.dev/core/config"
	"seedlet.dev/core/qos"
	"seedlet.dev/core/userns"
	"seedlet.dev/realworld/host"
	"seedlet.dev/realworld/iptables"
	"seedlet.dev/world"
)

// What the agent sets up on the machine when it starts: settings of the kernel, directories, and
// chains of iptables.

// machineFlags are the flags about the machine.
type machineFlags struct {
	// kernelSettingsRoot has no flag in the kubelet: a second agent on a machine, as in tests, leaves
	// the kernel alone.
	kernelSettingsRoot string
	ids                host.IDFiles
}

func (f *machineFlags) addTo(fs *pflag.FlagSet) {
	fs.StringVar(&f.kernelSettingsRoot, "kernel-settings-root", "/proc/sys",
		"directory of the sysctls that the node needs; empty: they are left as they are")
	fs.StringVar(&f.ids.Machine, "machine-id-file", host.DefaultIDFiles.Machine,
		"files that may have the machine's ID: the first one that exists counts")
	fs.StringVar(&f.ids.Boot, "boot-id-file", host.DefaultIDFiles.Boot,
		"files that may have the ID of the machine's boot: the first one that exists counts")
	for _, name := range []string{"machine-id-file", "boot-id-file"} {
		fs.Lookup(name).Deprecated = "it is a flag of cAdvisor, and a later release will not know it"
	}
}

// cgroupMounts is where the hierarchies of cgroups are mounted.
const cgroupMounts = "/sys/fs/cgroup"

// checkMachine returns an error if the agent must not run on the machine: what the kubelet refuses
// in validateKubeletOSConfiguration and in NewContainerManager.
func checkMachine(c *kubeletconfig.KubeletConfiguration, m *world.Machine, mounts string) error {
	single := c.SingleProcessOOMKill
	switch {
	case *c.FailCgroupV1 && m.CgroupV1:
		return errors.New("failCgroupV1 is true, and the machine has cgroup v1")
	case single != nil && !*single && m.CgroupV1:
		return errors.New("singleProcessOOMKill is false, and the machine has cgroup v1, " +
			"which cannot end all processes of a container together")
	case *c.FailSwapOn && m.SwapBytes > 0:
		return errors.New("failSwapOn is true, and the machine has swap: " +
			"switch it off, or set failSwapOn to false")
	case c.MemorySwap.SwapBehavior == "LimitedSwap" && m.CgroupV1:
		return errors.New("memorySwap.swapBehavior is LimitedSwap, and the machine has cgroup v1, " +
			"where no container may have swap")
	case !*c.CgroupsPerQOS:
		return nil
	}
	if err := host.CheckControllers(mounts); err != nil {
		return err
	}
	exists := func(dir string) bool { return host.HasCgroup(mounts, dir) }
	if root := cgroup.LayoutFromConfig(c); !slices.ContainsFunc(root.RootDirectories(), exists) {
		return fmt.Errorf("cgroupRoot: cgroup %q does not exist below %s", c.CgroupRoot, mounts)
	}
	for _, r := range qos.ReservedFromConfig(c) {
		dirs := r.Directories()
		at := slices.IndexFunc(dirs, exists)
		if at < 0 {
			return fmt.Errorf("%s: cgroup %q does not exist below %s", r.Field, r.Name, mounts)
		}
		if lacking := host.LackingControllers(mounts, dirs[at], r.Controllers()); len(lacking) > 0 {
			return fmt.Errorf("%s: cgroup %q below %s does not have the controllers %s", r.Field, r.Name,
				mounts, strings.Join(lacking, ", "))
		}
	}
	return nil
}

// machineWarnings returns what of the configuration has another effect on the machine than it says,
// a line each. The kubelet logs the same.
func machineWarnings(c *kubeletconfig.KubeletConfiguration, m *world.Machine) []string {
	var warnings []string
	switch kernel, err := utilversion.ParseGeneric(m.KernelVersion); {
	case !config.MemoryQoSEnabled(c):
	case m.CgroupV1:
		warnings = append(warnings, "the feature gate MemoryQoS has no effect: the machine has cgroup v1")
	case err != nil || kernel.LessThan(memoryQoSKernel):
		warnings = append(warnings, fmt.Sprintf("the feature gate MemoryQoS: the kernel is %q, and in "+
			"one older than %s memory.high can keep processes from going on", m.KernelVersion,
			memoryQoSKernel))
	}
	if c.MemorySwap.SwapBehavior == "" && m.SwapBytes > 0 {
		warnings = append(warnings,
			"memorySwap.swapBehavior is not set: containers have no swap, as with NoSwap")
	}
	return warnings
}

// memoryQoSKernel is the first kernel in which memory.high is safe (MemoryQoSMinKernelVersion in
// pkg/util/kernel of Kubernetes).
var memoryQoSKernel = utilversion.MustParseGeneric("5.9")

// tlsWarnings returns what of the settings of the secure port is unsafe or has no effect, as the
// kubelet logs it (InitializeTLS in cmd/kubelet/app/server.go).
func tlsWarnings(c *kubeletconfig.KubeletConfiguration) []string {
	var warnings []string
	minimum, err := cliflag.TLSVersion(c.TLSMinVersion)
	if err == nil && minimum == tls.VersionTLS13 && len(c.TLSCipherSuites) > 0 {
		warnings = append(warnings,
			"tlsCipherSuites has no effect: the cipher suites of TLS 1.3 cannot be chosen")
	}
	for _, suite := range c.TLSCipherSuites {
		if _, isInsecure := cliflag.InsecureTLSCiphers()[suite]; isInsecure {
			warnings = append(warnings, "tlsCipherSuites: "+suite+" is insecure")
		}
	}
	return warnings
}

// checkReservedCPUs returns an error if CPUs are reserved that are not online: fewer CPUs would be
// left for the system than the configuration says (getReservedCPUs in cmd/kubelet/app/server.go).
// Online is empty if it is not known which are.
func checkReservedCPUs(c *kubeletconfig.KubeletConfiguration, online cpuset.CPUSet) error {
	reserved, err := cpuset.Parse(c.ReservedSystemCPUs)
	if err != nil {
		return fmt.Errorf("reservedSystemCPUs: %w", err)
	}
	if missing := reserved.Difference(online); !online.IsEmpty() && !missing.IsEmpty() {
		return fmt.Errorf("reservedSystemCPUs: the CPUs %s of %s are not online: those are %s", missing,
			reserved, online)
	}
	return nil
}

// setUpProcess sets what the agent's process needs. Without it the agent runs, as the kubelet does.
func setUpProcess(c *kubeletconfig.KubeletConfiguration) {
	if uid := os.Getuid(); uid != 0 {
		klog.ErrorS(nil, "the agent has to run as root", "uid", uid)
	}
	if err := host.SetOOMScoreAdj("/proc", *c.OOMScoreAdj); err != nil {
		klog.InfoS("oomScoreAdj has no effect", "severity", "warning", "err", err)
	}
	if err := host.SetOpenFiles(c.MaxOpenFiles); err != nil {
		klog.InfoS("maxOpenFiles has no effect", "severity", "warning", "err", err)
	}
}

// setUpMachine sets the kernel's settings and makes the agent's directories. Without them the agent
// does not start, as the kubelet does not.
func setUpMachine(s settings) error {
	if root := s.machine.kernelSettingsRoot; root != "" {
		err := host.SetKernelSettings(root, s.config.ProtectKernelDefaults,
			func(name string, from, to int64) {
				klog.InfoS("changed a setting of the kernel", "name", name, "from", from, "to", to)
			})
		if err != nil {
			return err
		}
	}
	return host.MakeDataDirs(s.rootDir, s.config.PodLogsDir)
}

// podIDs returns the IDs of the host that the administrator has set apart for the user namespaces
// of pods; an empty range if none are.
func podIDs(ctx context.Context, c *kubeletconfig.KubeletConfiguration) (userns.Range, error) {
	first, length, err := host.SubordinateIDs(ctx)
	if err != nil || length == 0 {
		return userns.Range{}, err
	}
	ids := userns.Range{First: first, Length: length}
	if err := userns.CheckSetApart(c, ids); err != nil {
		return userns.Range{}, fmt.Errorf("the subordinate IDs of the user kubelet: %w", err)
	}
	return ids, nil
}

// keepIPTables starts keeping the chains. It returns nil if makeIPTablesUtilChains is false.
func keepIPTables(c *kubeletconfig.KubeletConfiguration) *iptables.Rules {
	if !*c.MakeIPTablesUtilChains {
		return nil
	}
	return iptables.Keep(iptables.Options{Report: func(program string, err error) {
		if err != nil { // other programs need the chains, and a machine with nftables alone has none
			klog.InfoS("the chains of iptables are not there", "program", program, "err", err)
			return
		}
		klog.InfoS("the chains of iptables are there", "program", program)
	}})
}

// watchOOM starts reporting processes that the kernel ends because the machine is out of memory. It
// returns nil if the kernel's log cannot be read, as in some containers: only Events are lost.
func watchOOM(offer func(world.Event) bool) *host.OOMWatch {
	warn := func(err error) {
		klog.InfoS("no Event will tell that the machine was out of memory", "severity", "warning",
			"err", err)
	}
	w, err := host.WatchOOM(host.KernelLog, func(oom *world.SystemOOM) bool {
		return offer(world.Event{Body: oom})
	}, warn)
	if err != nil {
		warn(err)
	}
	return w
}

package stats

import (
	"bufio"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/google/cadvisor/lib/model"
	"golang.org/x/sys/unix"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"seedlet.dev/realworld/stats/cgroup"
)

// hasPressure reports whether the kernel keeps pressure stall information.
func hasPressure(proc string) bool {
	// With psi=0 the file exists but cannot be read.
	_, err := os.ReadFile(filepath.Join(proc, "pressure/cpu"))
	return err == nil
}

// hostPID is the process that is in the host's network namespace.
const hostPID = 1

// defaultInterface is the interface whose counters the summary repeats at its top level. Without it
// there are none, as upstream (cadvisorInfoToNetworkStats in pkg/kubelet/stats/helper.go).
const defaultInterface = "eth0"

// networkOfProcess returns the counters of the network interfaces in the network namespace of a
// process; nil if they cannot be read.
func networkOfProcess(proc string, pid int, at time.Time) *statsapi.NetworkStats {
	all := interfaces(proc, pid)
	if len(all) == 0 {
		return nil
	}
	n := &statsapi.NetworkStats{Time: metav1.NewTime(at)}
	for _, i := range all {
		stats := statsapi.InterfaceStats{Name: i.Name, RxBytes: &i.RxBytes, RxErrors: &i.RxErrors,
			TxBytes: &i.TxBytes, TxErrors: &i.TxErrors}
		n.Interfaces = append(n.Interfaces, stats)
		if i.Name == defaultInterface {
			n.InterfaceStats = stats
		}
	}
	return n
}

// podInterfacesMax bounds the interfaces of one pod besides the default one. A container that may
// configure its network can create any number of them, with any names, each of which is several
// series of /metrics/cadvisor.
const podInterfacesMax = 64

// interfaces reads PROC/PID/net/dev. It leaves out loopback and the host's ends of pod networks, as
// cAdvisor does, and those of a pod that exceed their bound.
func interfaces(proc string, pid int) []model.InterfaceStats {
	f, err := os.Open(filepath.Join(proc, strconv.Itoa(pid), "net/dev"))
	if err != nil {
		return nil
	}
	defer func() { _ = f.Close() }()
	var all []model.InterfaceStats
	for lines := bufio.NewScanner(f); lines.Scan(); {
		name, numbers, ok := strings.Cut(lines.Text(), ":")
		fields := strings.Fields(numbers)
		name = strings.TrimSpace(name)
		isOver := pid != hostPID && len(all) >= podInterfacesMax && name != defaultInterface
		if !ok || len(fields) < 12 || isIgnoredInterface(name) || isOver {
			continue
		}
		i := model.InterfaceStats{Name: name}
		for k, to := range map[int]*uint64{ //ordered: each has a place of its own
			0: &i.RxBytes, 1: &i.RxPackets, 2: &i.RxErrors, 3: &i.RxDropped,
			8: &i.TxBytes, 9: &i.TxPackets, 10: &i.TxErrors, 11: &i.TxDropped,
		} {
			*to, _ = strconv.ParseUint(fields[k], 10, 64)
		}
		all = append(all, i)
	}
	return all
}

func isIgnoredInterface(name string) bool {
	for _, prefix := range []string{"lo", "veth", "docker", "nerdctl"} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}

// processLimit returns how many processes and threads the machine may have, and how many it has.
func processLimit(proc string, at time.Time) *statsapi.RlimitStats {
	r := &statsapi.RlimitStats{Time: metav1.NewTime(at)}
	for _, name := range []string{"pid_max", "threads-max"} {
		text, err := os.ReadFile(filepath.Join(proc, "sys/kernel", name))
		n, bad := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
		if err == nil && bad == nil && (r.MaxPID == nil || n < *r.MaxPID) {
			r.MaxPID = &n
		}
	}
	text, _ := os.ReadFile(filepath.Join(proc, "loadavg")) // "0.20 0.18 0.12 1/80 11206"
	if fields := strings.Fields(string(text)); len(fields) > 3 {
		_, all, _ := strings.Cut(fields[3], "/")
		if n, err := strconv.ParseInt(all, 10, 64); err == nil {
			r.NumOfRunningProcesses = &n
		}
	}
	if r.MaxPID == nil && r.NumOfRunningProcesses == nil {
		return nil
	}
	return r
}

// systemCgroup is a cgroup of the system and its name in the summary.
type systemCgroup struct{ name, path string }

// systemCgroups returns the existing cgroups of the system: of all pods, the agent, the runtime and
// other system daemons. The root cgroup stands for the node and is not among them.
func (s *Source) systemCgroups(r *cgroup.Reader) []systemCgroup {
	if r == nil {
		return nil
	}
	c := s.opts.Cgroups
	if c.Kubelet == "" {
		c.Kubelet = r.CgroupOfProcess(os.Getpid())
	}
	if c.Runtime == "" {
		c.Runtime = r.CgroupOfProcess(listenerPID(c.RuntimeEndpoint))
	}
	var all []systemCgroup
	for _, one := range []systemCgroup{
		{statsapi.SystemContainerPods, r.Kubepods(c.Root)}, {statsapi.SystemContainerKubelet, c.Kubelet},
		{statsapi.SystemContainerRuntime, c.Runtime}, {statsapi.SystemContainerMisc, c.System},
	} {
		if strings.Trim(one.path, "/") != "" {
			all = append(all, one)
		}
	}
	return all
}

// listenerPID returns the process that listens on a socket; zero if it cannot be determined.
func listenerPID(endpoint string) int {
	path, ok := strings.CutPrefix(endpoint, "unix://")
	if !ok {
		return 0
	}
	conn, err := net.DialTimeout("unix", path, time.Second)
	if err != nil {
		return 0
	}
	defer func() { _ = conn.Close() }() // nothing was sent
	raw, err := conn.(*net.UnixConn).SyscallConn()
	if err != nil {
		return 0
	}
	pid := 0
	_ = raw.Control(func(fd uintptr) { // fails only on a closed connection
		if peer, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
			pid = int(peer.Pid)
		}
	})
	return pid
}

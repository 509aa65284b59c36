package host

import (
	"bufio"
	"cmp"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"k8s.io/utils/cpuset"

	"seedlet.dev/world"
)

// IDFiles are the files with IDs of the machine and of its boot, separated by commas: of each the
// first that exists counts. An empty text stands for that of DefaultIDFiles.
type IDFiles struct{ Machine, Boot string }

// DefaultIDFiles are the files of cAdvisor.
var DefaultIDFiles = IDFiles{Machine: "/etc/machine-id,/var/lib/dbus/machine-id",
	Boot: "/proc/sys/kernel/random/boot_id"}

// firstFile returns the text of the first of some files that can be read.
func firstFile(root, paths string) (string, error) {
	var failure error
	for path := range strings.SplitSeq(paths, ",") {
		data, err := os.ReadFile(filepath.Join(root, path))
		if err == nil {
			return strings.TrimSpace(string(data)), nil
		}
		failure = cmp.Or(failure, err)
	}
	return "", failure
}

// Boot reads the facts of the first event from the running machine. root is the root of its files
// ("/" except in tests), rootDir the agent's root directory. The seed comes from the system's
// random source: it is the only randomness of the agent's run, and it is in the recording.
func Boot(root, rootDir string, ids IDFiles) (*world.Boot, error) {
	var seed [8]byte
	if _, err := rand.Read(seed[:]); err != nil {
		return nil, fmt.Errorf("drawing the seed: %w", err)
	}
	bootID, err := firstFile(root, cmp.Or(ids.Boot, DefaultIDFiles.Boot))
	if err != nil {
		return nil, fmt.Errorf("reading the boot id: %w", err)
	}
	hostname, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("reading the host name: %w", err)
	}
	read, err := observe(root, rootDir, ids, addresses())
	if err != nil {
		return nil, err
	}
	return &world.Boot{
		Seed:        binary.LittleEndian.Uint64(seed[:]),
		BootID:      bootID,
		Uptime:      uptime(root),
		Hostname:    hostname,
		CPUs:        read.CPUs,
		MemoryBytes: read.MemoryBytes,
		Addresses:   read.Addresses,
		Machine:     read.Machine,

		HasSCSIVolumes: hasSCSIVolumes(rootDir),
	}, nil
}

// hasSCSIVolumes reports whether an agent or a kubelet may have set up volumes of the kinds iscsi
// and fc.
func hasSCSIVolumes(rootDir string) bool {
	at := filepath.Join(rootDir, "plugins/kubernetes.io")
	_, err := os.Lstat(filepath.Join(at, "iscsi"))
	if errors.Is(err, fs.ErrNotExist) {
		_, err = os.Lstat(filepath.Join(at, "fc"))
	}
	return !errors.Is(err, fs.ErrNotExist)
}

// uptime returns for how long the machine has been up; zero if that cannot be determined.
func uptime(root string) time.Duration {
	up, _, _ := strings.Cut(firstLine(root, "proc/uptime"), " ")
	read, err := time.ParseDuration(up + "s")
	if err != nil {
		return 0 // only a metric depends on it
	}
	return max(read, 0)
}

// observe reads the facts about the machine with some addresses that may change while the agent
// runs, without the addresses of a name.
func observe(root, rootDir string, ids IDFiles, addresses []string) (*world.MachineRead, error) {
	memory, err := readMeminfo(filepath.Join(root, "proc/meminfo"), "MemTotal:")
	switch {
	case err != nil:
		return nil, fmt.Errorf("reading the machine's memory: %w", err)
	case memory == 0:
		return nil, fmt.Errorf("reading the machine's memory: it has none")
	}
	return &world.MachineRead{CPUs: countCPUs(root), MemoryBytes: memory, Addresses: addresses,
		Machine: readMachine(root, rootDir, ids)}, nil
}

// countCPUs returns how many CPUs are online. Those that the agent itself may run on can be fewer:
// units of systemd with CPUAffinity= or AllowedCPUs= are usual where CPUs are reserved for the
// system, and pods get the others. The kubelet counts the CPUs of cAdvisor's topology, which skips
// those that are offline.
func countCPUs(root string) int {
	if online := OnlineCPUs(root); !online.IsEmpty() {
		return online.Size()
	}
	return runtime.NumCPU()
}

// OnlineCPUs returns the CPUs that are online; none on a machine without sysfs, as some sandboxes.
// root is the root of its files, "/" except in tests.
func OnlineCPUs(root string) cpuset.CPUSet {
	online, err := cpuset.Parse(firstLine(root, "sys/devices/system/cpu/online"))
	if err != nil {
		return cpuset.New()
	}
	return online
}

// readMeminfo returns an amount in bytes, such as that of the line "MemTotal:  16303428 kB".
func readMeminfo(path, name string) (int64, error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	lines := bufio.NewScanner(io.LimitReader(f, 1<<20))
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) != 3 || fields[0] != name || fields[2] != "kB" {
			continue
		}
		kib, err := strconv.ParseInt(fields[1], 10, 53)
		if err != nil || kib < 0 {
			return 0, fmt.Errorf("%s says %q", path, lines.Text())
		}
		return kib << 10, nil
	}
	if err := lines.Err(); err != nil {
		return 0, err
	}
	return 0, fmt.Errorf("%s has no %s", path, strings.TrimSuffix(name, ":"))
}

package host

import (
	"bufio"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"seedlet.dev/world"
)

// Boot reads the facts of the first event from the running machine. root is the root of its
// files, "/" but for tests, and rootDir where the agent keeps its own. The seed is drawn from the
// system's random source: it is the only randomness in the agent's life, and it is in the
// recording.
func Boot(root, rootDir string) (*world.Boot, error) {
	var seed [8]byte
	if _, err := rand.Read(seed[:]); err != nil {
		return nil, fmt.Errorf("drawing the seed: %w", err)
	}
	bootID, err := os.ReadFile(filepath.Join(root, "proc/sys/kernel/random/boot_id"))
	if err != nil {
		return nil, fmt.Errorf("reading the boot id: %w", err)
	}
	hostname, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("reading the host name: %w", err)
	}
	memory, err := meminfo(filepath.Join(root, "proc/meminfo"), "MemTotal:")
	switch {
	case err != nil:
		return nil, fmt.Errorf("reading the machine's memory: %w", err)
	case memory == 0:
		return nil, fmt.Errorf("reading the machine's memory: it has none")
	}
	return &world.Boot{
		Seed:        binary.LittleEndian.Uint64(seed[:]),
		BootID:      strings.TrimSpace(string(bootID)),
		Hostname:    hostname,
		CPUs:        runtime.NumCPU(),
		MemoryBytes: memory,
		Addresses:   addresses(),
		Machine:     machineOf(root, rootDir),
	}, nil
}

// meminfo reads an amount, as of the line "MemTotal:  16303428 kB".
func meminfo(path, name string) (int64, error) {
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

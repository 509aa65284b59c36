package nodetest

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// daemons are the programs that a node's directory may appear in the arguments of. Others (a
// pager on a log, an editor) are not the node's.
var daemons = []string{"containerd", "containerd-shim-runc-v2", "runc", "seedlet"}

// process is one process that belongs to a node, and why.
type process struct {
	pid  int
	name string
	dir  string   // the node's directory
	ids  []string // the node's containers
	of   string   // the container that it is in, or of a shim, that it was started for
}

// findProcesses finds the daemons that were started on a node's directory, and everything in
// the cgroups of its containers.
func findProcesses(dir string, ids []string) ([]process, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("listing processes: %w", err)
	}
	var found []process
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		p := process{pid: pid, dir: dir, ids: ids}
		if p.belongs() {
			found = append(found, p)
		}
	}
	return found, nil
}

// belongs reports whether the process with this pid is, now, one of the node's; it also learns
// its name. A process that has ended but is not collected yet counts as gone.
func (p *process) belongs() bool {
	proc := filepath.Join("/proc", strconv.Itoa(p.pid))
	stat, err := os.ReadFile(filepath.Join(proc, "stat"))
	if err != nil {
		return false
	}
	// As in "123 (name) S …"; the name may itself hold brackets.
	name, state, ok := strings.Cut(string(stat[:bytes.LastIndexByte(stat, ')')+3]), ") ")
	if !ok || state == "Z" || state == "X" {
		return false
	}
	_, p.name, _ = strings.Cut(name, " (")
	return p.onDir(proc) || p.inContainer(proc)
}

func (p *process) onDir(proc string) bool {
	data, err := os.ReadFile(filepath.Join(proc, "cmdline"))
	if err != nil {
		return false
	}
	args := strings.Split(string(data), "\x00")
	if !slices.Contains(daemons, filepath.Base(args[0])) {
		return false
	}
	if i := slices.Index(args, "-id"); i > 0 && i+1 < len(args) {
		p.of = args[i+1]
	}
	return slices.ContainsFunc(args[1:], func(arg string) bool {
		return strings.Contains(arg, p.dir+"/")
	})
}

func (p *process) inContainer(proc string) bool {
	data, err := os.ReadFile(filepath.Join(proc, "cgroup"))
	if err != nil {
		return false
	}
	i := slices.IndexFunc(p.ids, func(id string) bool {
		return strings.Contains(string(data), "/"+id)
	})
	if i >= 0 {
		p.of = p.ids[i]
	}
	return i >= 0
}

// kill ends the process. The handle is taken before the last look at whose it is, so that a pid
// used again meanwhile is never hit.
func (p *process) kill() error {
	handle, err := os.FindProcess(p.pid)
	if err != nil {
		return fmt.Errorf("finding process %d: %w", p.pid, err)
	}
	defer func() { _ = handle.Release() }() // it has nothing to lose
	if !p.belongs() {
		return nil
	}
	if err := handle.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("killing process %d: %w", p.pid, err)
	}
	return nil
}

package owned

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

// Process is what /proc says of a process that runs.
type Process struct {
	PID    int
	Name   string
	Args   []string // the program's name first
	Cgroup string   // its cgroups, as /proc/PID/cgroup has them
}

// Processes lists the processes that are ours, but for this one.
func Processes(ours func(Process) bool) ([]Process, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("listing processes: %w", err)
	}
	var found []Process
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		if p, runs := look(pid); runs && ours(p) {
			found = append(found, p)
		}
	}
	return found, nil
}

// look reads what there is to know of a process. One that has ended but is not collected yet
// counts as gone.
func look(pid int) (p Process, runs bool) {
	proc := filepath.Join("/proc", strconv.Itoa(pid))
	stat, err := os.ReadFile(filepath.Join(proc, "stat"))
	if err != nil {
		return p, false
	}
	// As in "123 (name) S …"; the name may itself hold brackets.
	name, state, ok := strings.Cut(string(stat[:bytes.LastIndexByte(stat, ')')+3]), ") ")
	if !ok || state == "Z" || state == "X" {
		return p, false
	}
	p.PID = pid
	_, p.Name, _ = strings.Cut(name, " (")
	args, err := os.ReadFile(filepath.Join(proc, "cmdline"))
	if err != nil {
		return p, false
	}
	p.Args = strings.Split(strings.TrimSuffix(string(args), "\x00"), "\x00")
	cgroup, err := os.ReadFile(filepath.Join(proc, "cgroup"))
	if err != nil {
		return p, false
	}
	p.Cgroup = string(cgroup)
	return p, true
}

// On reports whether the process is one of the programs and was started on the directory. Others
// that name it (a pager on a log, an editor) are not the directory's.
func (p Process) On(dir string, programs []string) bool {
	return slices.Contains(programs, filepath.Base(p.Args[0])) &&
		slices.ContainsFunc(p.Args[1:], func(arg string) bool {
			return strings.Contains(arg, dir+"/")
		})
}

// Kill ends a process that is ours. The handle is taken before the last look at whose it is, so
// that a pid used again meanwhile is never hit.
func (p Process) Kill(ours func(Process) bool) error {
	handle, err := os.FindProcess(p.PID)
	if err != nil {
		return fmt.Errorf("finding process %d: %w", p.PID, err)
	}
	defer func() { _ = handle.Release() }() // it has nothing to lose
	if now, runs := look(p.PID); !runs || !ours(now) {
		return nil
	}
	if err := handle.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("killing process %d: %w", p.PID, err)
	}
	return nil
}

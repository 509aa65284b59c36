package cleanup

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

// Process is a running process as /proc describes it.
type Process struct {
	PID    int
	Name   string
	Args   []string // the program's name first
	Cgroup string   // the content of /proc/PID/cgroup
}

// Processes returns the processes that a function selects, except this one.
func Processes(selected func(Process) bool) ([]Process, error) {
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
		if p, runs := readProcess(pid); runs && selected(p) {
			found = append(found, p)
		}
	}
	return found, nil
}

// readProcess reads a process from /proc. A zombie does not count as running.
func readProcess(pid int) (p Process, runs bool) {
	proc := filepath.Join("/proc", strconv.Itoa(pid))
	stat, err := os.ReadFile(filepath.Join(proc, "stat"))
	if err != nil {
		return p, false
	}
	// As in "123 (name) S …"; the name may contain parentheses.
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

// BelongsTo reports whether the process runs one of the programs with the directory in its
// arguments. Other programs with the directory in theirs (a pager on a log, an editor) do not
// belong to it.
func (p Process) BelongsTo(dir string, programs []string) bool {
	return slices.Contains(programs, filepath.Base(p.Args[0])) &&
		slices.ContainsFunc(p.Args[1:], func(arg string) bool {
			return strings.Contains(arg, dir+"/")
		})
}

// Kill kills a process if a function still selects it. The handle is opened before the check, so
// that a reused pid is never killed.
func (p Process) Kill(selected func(Process) bool) error {
	handle, err := os.FindProcess(p.PID)
	if err != nil {
		return fmt.Errorf("finding process %d: %w", p.PID, err)
	}
	defer func() { _ = handle.Release() }() // nothing to flush
	if now, runs := readProcess(p.PID); !runs || !selected(now) {
		return nil
	}
	if err := handle.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("killing process %d: %w", p.PID, err)
	}
	return nil
}

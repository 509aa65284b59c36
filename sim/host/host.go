// Package host is the simulated host port: a tree of cgroups, as a kernel keeps it and as systemd
// names it.
//
// Contract: what the agent does to a cgroup is done by its own process, so it ends with it.
// Removing one kills what is in it (Options.Kill). The runtime makes the cgroup that it is to run
// something in if there is none, as runc does (Enter); that one has no limits. Whatever is made,
// set or removed is in the truth log, by the directory that it has below the root of the
// hierarchy. Start reading at serve.
package host

import (
	"maps"
	"slices"
	"strings"

	"seedlet.dev/sim/agenda"
	"seedlet.dev/sim/truth"
	"seedlet.dev/sim/wire"
	"seedlet.dev/world"
)

// Options are what a host is made of.
type Options struct {
	Agenda *agenda.Agenda
	Truth  *truth.Log
	Seed   uint64
	Faults wire.FaultSource  // nil: nothing goes wrong
	Answer func(world.Event) // takes the answers of the first life

	// Kill ends all processes in a cgroup and in those below it. Nil: there are none.
	Kill func(dir string)
}

// Host is a machine with cgroups. It is for one goroutine.
type Host struct {
	opts    Options
	wire    *wire.Wire
	cgroups map[string]truth.Limits // by directory
}

// New makes a host without any cgroup.
func New(opts Options) *Host {
	return &Host{opts: opts, cgroups: map[string]truth.Limits{}, wire: wire.New(wire.Options{
		Agenda: opts.Agenda, Faults: opts.Faults, Answer: opts.Answer, Seed: opts.Seed,
		Local: true,
	})}
}

// Do implements world.Port.
func (h *Host) Do(eff world.Effect) { h.wire.Send(eff, h.serve) }

// Connect begins a life of the agent: answers go to it from now on.
func (h *Host) Connect(answer func(world.Event)) { h.wire.Connect(answer) }

// Disconnect ends a life of the agent, and with it all that it was doing here.
func (h *Host) Disconnect() {
	h.wire.Disconnect()
	h.wire.Break(0)
}

// serve takes a call that has arrived.
func (h *Host) serve(call *wire.Call) {
	if call.Fate.Before != nil {
		call.Fail(call.Fate.Before)
		return
	}
	call.Begin(func() {
		switch m := call.Effect.Body.(type) {
		case *world.SetCgroup:
			h.set(call, m)
		case *world.RemoveCgroup:
			h.remove(call, m)
		case *world.ListCgroups:
			h.list(call, m)
		default:
			panic("host: no such call: " + call.Name)
		}
	})
}

func (h *Host) set(call *wire.Call, m *world.SetCgroup) {
	dir := directory(m.Path, m.Systemd)
	switch {
	case dir == "":
		call.Fail(world.Errorf(world.KindInvalid, call.Name, "%q is no cgroup", m.Path))
		return
	case m.CPUQuota < 0 || m.MemoryBytes < 0 || m.PidsMax < 0:
		call.Fail(world.Errorf(world.KindInvalid, call.Name, "a limit below zero: %+v", *m))
		return
	}
	h.makeParents(dir)
	h.cgroups[dir] = truth.Limits{CPUShares: m.CPUShares, CPUQuota: m.CPUQuota,
		CPUPeriod: m.CPUPeriod, MemoryBytes: m.MemoryBytes, PidsMax: m.PidsMax}
	h.tell(truth.CgroupMade, dir, "")
	call.Reply(&world.Done{})
}

func (h *Host) remove(call *wire.Call, m *world.RemoveCgroup) {
	dir := directory(m.Path, m.Systemd)
	if dir == "" {
		call.Fail(world.Errorf(world.KindInvalid, call.Name, "%q is no cgroup", m.Path))
		return
	}
	if _, is := h.cgroups[dir]; !is {
		call.Reply(&world.Done{})
		return
	}
	h.tell(truth.CgroupRemoved, dir, "")
	if h.opts.Kill != nil {
		h.opts.Kill(dir)
	}
	for _, below := range h.Directories() {
		if below == dir || strings.HasPrefix(below, dir+"/") {
			delete(h.cgroups, below)
		}
	}
	call.Reply(&world.Done{})
}

func (h *Host) list(call *wire.Call, m *world.ListCgroups) {
	parent := directory(m.Path, m.Systemd)
	if parent == "" {
		call.Fail(world.Errorf(world.KindInvalid, call.Name, "%q is no cgroup", m.Path))
		return
	}
	listed := &world.CgroupsListed{Names: []string{}}
	for _, dir := range h.Directories() {
		name, below := strings.CutPrefix(dir, parent+"/")
		if !below || strings.Contains(name, "/") {
			continue
		}
		if m.Systemd {
			slice, _ := strings.CutSuffix(name, ".slice")
			slice = strings.TrimPrefix(slice, sliceOf(m.Path)+"-")
			name = strings.ReplaceAll(slice, "_", "-")
		}
		listed.Names = append(listed.Names, name)
	}
	slices.Sort(listed.Names)
	call.Reply(listed)
}

// Enter has the runtime run something below a directory, which it makes if it is not there.
func (h *Host) Enter(dir string) {
	dir = strings.Trim(dir, "/")
	if _, is := h.cgroups[dir]; is || dir == "" {
		return
	}
	h.makeParents(dir)
	h.cgroups[dir] = truth.Limits{}
	h.tell(truth.CgroupMade, dir, truth.CauseRuntime)
}

// Reboot is a machine that comes up anew: no cgroup outlives its kernel.
func (h *Host) Reboot() {
	for _, dir := range h.Directories() {
		delete(h.cgroups, dir)
		h.tell(truth.CgroupRemoved, dir, truth.CauseReboot)
	}
}

// Directories are all cgroups that there are, sorted.
func (h *Host) Directories() []string { return slices.Sorted(maps.Keys(h.cgroups)) }

func (h *Host) makeParents(dir string) {
	for i, c := range dir {
		if _, is := h.cgroups[dir[:i]]; c == '/' && !is {
			h.cgroups[dir[:i]] = truth.Limits{}
		}
	}
}

func (h *Host) tell(kind truth.Kind, dir, cause string) {
	h.opts.Truth.Add(truth.Fact{Time: h.opts.Agenda.Now(), Kind: kind, Path: dir, Cause: cause,
		Limits: h.cgroups[dir]})
}

// directory is where a cgroup is, by the rules of its driver; empty if the path makes no sense.
func directory(path string, systemd bool) string {
	names := strings.Split(path, "/")
	if slices.Contains(names, "") || slices.Contains(names, ".") || slices.Contains(names, "..") {
		return ""
	}
	if !systemd {
		return path
	}
	dirs := make([]string, len(names))
	for i := range names {
		dirs[i] = sliceOf(strings.Join(names[:i+1], "/")) + ".slice"
	}
	return strings.Join(dirs, "/")
}

// sliceOf is the name of systemd's unit for a path, but for its ending: a dash leads to a parent.
func sliceOf(path string) string {
	return strings.ReplaceAll(strings.ReplaceAll(path, "-", "_"), "/", "-")
}

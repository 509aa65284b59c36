// Package host is the simulated host port: a tree of cgroups, named by the cgroupfs or the systemd
// driver, and a logind, which shuts the machine down (shutdown.go).
//
// Contract: cgroup operations of the agent are work of its own process and end with it. Removing a
// cgroup kills the processes in it (Options.KillCgroup). As runc does, the runtime creates a
// missing cgroup before it runs a process in it (EnterCgroup); such a cgroup has no limits. Every
// creation, change and removal is recorded in the truth log, with the directory below the root of
// the hierarchy.
//
// Start reading at serve.
package host

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"seedlet.dev/sim/agenda"
	"seedlet.dev/sim/truth"
	"seedlet.dev/sim/wire"
	"seedlet.dev/world"
)

// Options configure a host.
type Options struct {
	Agenda  *agenda.Agenda
	Truth   *truth.Log
	Seed    uint64
	Faults  wire.FaultSource  // nil: no faults
	Deliver func(world.Event) // receives the events of the first incarnation

	// KillCgroup kills all processes in a cgroup and its descendants. Nil: there are no processes.
	KillCgroup func(dir string)
	// SystemCgroups are the directories of cgroups that other programs make when the machine boots.
	SystemCgroups []string
	// InhibitDelayMax is how long logind waits for locks. Zero: as long as the agent asks.
	InhibitDelayMax time.Duration
	// Machine returns what ReadMachine observes.
	Machine func() world.MachineRead
	// PodsUsage returns what the processes of pods use. Nil: nothing.
	PodsUsage func() (memoryBytes, processes int64)
	// CgroupMemory returns what the processes in a cgroup and its descendants use of memory. Nil:
	// nothing.
	CgroupMemory func(dir string) int64
	// KillForMemory ends the process of a pod that the kernel would end on a machine with so much
	// memory, and returns its name; empty if there was none. Nil: none is ended.
	KillForMemory func(capacity int64) string
}

// Host is a simulated machine with cgroups. It is for use by one goroutine.
type Host struct {
	opts    Options
	wire    *wire.Wire
	cgroups map[string]truth.Limits // by directory
	logind  logind

	besidePods Usage
	alerts     world.MeasureNode // what the last one has asked to report
	systemOOMs int64             // processes that were ended because the machine was out of memory
}

// New returns a host that has the cgroups of other programs.
func New(opts Options) *Host {
	h := &Host{opts: opts, cgroups: map[string]truth.Limits{}, wire: wire.New(wire.Options{
		Agenda: opts.Agenda, Faults: opts.Faults, Deliver: opts.Deliver, Seed: opts.Seed,
		Local: true,
	})}
	h.addSystemCgroups()
	return h
}

func (h *Host) addSystemCgroups() {
	for _, dir := range h.opts.SystemCgroups {
		h.cgroups[dir] = truth.Limits{}
	}
}

// InFlight returns the calls that the agent waits for, as wire.InFlight does.
func (h *Host) InFlight() []*wire.Call { return h.wire.InFlight() }

// Reseed makes every later call draw from another seed.
func (h *Host) Reseed(seed uint64) { h.wire.Reseed(seed) }

// Do implements world.Port.
func (h *Host) Do(eff world.Effect) { h.wire.Send(eff, h.serve) }

// Connect starts an incarnation of the agent, which receives all completions from now on.
func (h *Host) Connect(deliver func(world.Event)) { h.wire.Connect(deliver) }

// Disconnect ends an incarnation of the agent, with its operations in flight.
func (h *Host) Disconnect() {
	h.wire.Disconnect()
	h.wire.Crash(0)
	h.loseAgent()
}

// serve handles a call that has arrived.
func (h *Host) serve(call *wire.Call) {
	if call.Outcome.ErrorBefore != nil {
		call.Fail(call.Outcome.ErrorBefore)
		return
	}
	call.Execute(func() {
		switch m := call.Effect.Body.(type) {
		case *world.SetCgroup:
			h.set(call, m)
		case *world.RemoveCgroup:
			h.remove(call, m)
		case *world.ListCgroups:
			h.list(call, m)
		case *world.MeasureNode:
			h.measureNode(call, m)
		case *world.ReadMachine:
			read := h.opts.Machine()
			read.NameUnknown = m.Name == ""
			call.Reply(&read)
		case *world.MakeKey:
			h.makeKey(call, m)
		case *world.DelayShutdown:
			h.delay(call, m)
		case *world.PermitShutdown:
			h.permit(call)
		default:
			panic("host: unknown call: " + call.Name)
		}
	})
}

func (h *Host) set(call *wire.Call, m *world.SetCgroup) {
	dir := cgroupDir(m.Path, m.Systemd)
	switch {
	case dir == "":
		call.Fail(world.Errorf(world.KindInvalid, call.Name, "%q is no cgroup", m.Path))
		return
	case m.CPUQuota < 0 || m.MemoryBytes < 0 || m.PidsMax < 0:
		call.Fail(world.Errorf(world.KindInvalid, call.Name, "a limit below zero: %+v", *m))
		return
	}
	if _, exists := h.cgroups[dir]; m.Existing && !exists {
		call.Fail(world.Errorf(world.KindNotFound, call.Name, "cgroup %q does not exist", m.Path))
		return
	}
	h.makeParents(dir)
	limits := truth.Limits{CPUShares: m.CPUShares, CPUQuota: m.CPUQuota,
		CPUPeriod: m.CPUPeriod, MemoryBytes: m.MemoryBytes, PidsMax: m.PidsMax,
		MemoryMin: m.MemoryMin, MemoryLow: m.MemoryLow, HugePages: hugePages(m.HugePages)}
	if m.Existing {
		limits = withOwn(h.cgroups[dir], limits)
	}
	above := h.keepLimit(m, dir, &limits)
	if have, exists := h.cgroups[dir]; exists && have == limits && above == nil {
		h.recordFact(truth.WroteNothing, dir, "")
	}
	h.cgroups[dir] = limits
	h.recordFact(truth.CgroupCreated, dir, "")
	if above != nil {
		call.Reply(above)
		return
	}
	call.Reply(&world.Done{})
}

// keepLimit carries out SetCgroup.NotBelowUsage: if the processes of the cgroup use as much as the
// lower memory limit, or more, the limit that the cgroup has stays. It returns the answer that says
// so; nil if the limit is lowered. AboveUsage, which only the cgroups above those of pods have, is
// not simulated.
func (h *Host) keepLimit(m *world.SetCgroup, dir string,
	limits *truth.Limits) *world.CgroupAboveLimit {
	have, exists := h.cgroups[dir]
	lowers := exists && (have.MemoryBytes == 0 || m.MemoryBytes < have.MemoryBytes)
	if !m.NotBelowUsage || m.MemoryBytes == 0 || !lowers || h.opts.CgroupMemory == nil {
		return nil
	}
	usage := h.opts.CgroupMemory(dir)
	if usage < m.MemoryBytes {
		return nil
	}
	limits.MemoryBytes = have.MemoryBytes
	return &world.CgroupAboveLimit{UsageBytes: usage, LimitBytes: have.MemoryBytes}
}

// withOwn returns the limits of a cgroup of another program after some were set: those that were
// not named stay.
func withOwn(have, set truth.Limits) truth.Limits {
	set.CPUShares = cmp.Or(set.CPUShares, have.CPUShares)
	set.MemoryBytes = cmp.Or(set.MemoryBytes, have.MemoryBytes)
	set.MemoryMin = cmp.Or(set.MemoryMin, have.MemoryMin)
	set.PidsMax = cmp.Or(set.PidsMax, have.PidsMax)
	return set
}

func hugePages(limits []world.HugePageLimit) string {
	var all []string
	for _, l := range limits {
		all = append(all, fmt.Sprintf("%s %d", world.HugePageSizeName(l.SizeBytes), l.MaxBytes))
	}
	return strings.Join(all, ", ")
}

func (h *Host) remove(call *wire.Call, m *world.RemoveCgroup) {
	dir := cgroupDir(m.Path, m.Systemd)
	if dir == "" {
		call.Fail(world.Errorf(world.KindInvalid, call.Name, "%q is no cgroup", m.Path))
		return
	}
	if _, exists := h.cgroups[dir]; !exists {
		call.Reply(&world.Done{})
		return
	}
	h.recordFact(truth.CgroupRemoved, dir, "")
	if h.opts.KillCgroup != nil {
		h.opts.KillCgroup(dir)
	}
	for _, below := range h.CgroupDirs() {
		if below == dir || strings.HasPrefix(below, dir+"/") {
			delete(h.cgroups, below)
		}
	}
	call.Reply(&world.Done{})
}

func (h *Host) list(call *wire.Call, m *world.ListCgroups) {
	parent := cgroupDir(m.Path, m.Systemd)
	if parent == "" {
		call.Fail(world.Errorf(world.KindInvalid, call.Name, "%q is no cgroup", m.Path))
		return
	}
	listed := &world.CgroupsListed{Names: []string{}}
	for _, dir := range h.CgroupDirs() {
		name, below := strings.CutPrefix(dir, parent+"/")
		if !below || strings.Contains(name, "/") {
			continue
		}
		if m.Systemd {
			slice, _ := strings.CutSuffix(name, ".slice")
			slice = strings.TrimPrefix(slice, sliceName(m.Path)+"-")
			name = strings.ReplaceAll(slice, "_", "-")
		}
		listed.Names = append(listed.Names, name)
	}
	slices.Sort(listed.Names)
	call.Reply(listed)
}

// EnterCgroup is called when the runtime runs a process in a cgroup. It creates the cgroup if it
// does not exist.
func (h *Host) EnterCgroup(dir string) {
	dir = strings.Trim(dir, "/")
	if _, exists := h.cgroups[dir]; exists || dir == "" {
		return
	}
	h.makeParents(dir)
	h.cgroups[dir] = truth.Limits{}
	h.recordFact(truth.CgroupCreated, dir, truth.CauseRuntime)
}

// Reboot removes all cgroups, as a reboot of the machine does. Other programs make theirs again. A
// shutdown that is under way has ended.
func (h *Host) Reboot() {
	h.logind, h.alerts = logind{}, world.MeasureNode{}
	for _, dir := range h.CgroupDirs() {
		delete(h.cgroups, dir)
		h.recordFact(truth.CgroupRemoved, dir, truth.CauseReboot)
	}
	h.addSystemCgroups()
}

// CgroupDirs returns the sorted directories of all cgroups.
func (h *Host) CgroupDirs() []string { return slices.Sorted(maps.Keys(h.cgroups)) }

func (h *Host) makeParents(dir string) {
	for i, c := range dir {
		if _, exists := h.cgroups[dir[:i]]; c == '/' && !exists {
			h.cgroups[dir[:i]] = truth.Limits{}
		}
	}
}

func (h *Host) recordFact(kind truth.Kind, dir, cause string) {
	h.opts.Truth.Add(truth.Fact{Time: h.opts.Agenda.Now(), Kind: kind, Path: dir, Cause: cause,
		Limits: h.cgroups[dir]})
}

// cgroupDir returns the directory of a cgroup by the naming rule of its driver, and the empty
// string for an invalid path.
func cgroupDir(path string, systemd bool) string {
	names := strings.Split(path, "/")
	if slices.Contains(names, "") || slices.Contains(names, ".") || slices.Contains(names, "..") {
		return ""
	}
	if !systemd {
		return path
	}
	dirs := make([]string, len(names))
	for i := range names {
		dirs[i] = sliceName(strings.Join(names[:i+1], "/")) + ".slice"
	}
	return strings.Join(dirs, "/")
}

// sliceName returns the name of systemd's unit for a path, without the suffix ".slice". In unit
// names a dash separates the levels of the hierarchy.
func sliceName(path string) string {
	return strings.ReplaceAll(strings.ReplaceAll(path, "-", "_"), "/", "-")
}

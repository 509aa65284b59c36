package pod

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"time"

	"seedlet.dev/core/op"
	"seedlet.dev/core/probe"
	"seedlet.dev/core/shutdown"
	"seedlet.dev/core/userns"
	"seedlet.dev/world"
)

// The record of a pod: a file in the pod's directory with facts that the runtime cannot keep for
// the agent. A new value is reported only once it is durable, so that a restart of the agent takes
// nothing back that was reported (upstream #100277, #135795).

// Record holds the facts about the pod's record on the disk, as far as this agent knows it.
type Record struct {
	Loaded bool `json:"loaded"` // read, or known not to exist
	// LookedFor reports that the file was looked for on the disk: an earlier agent may have run the
	// pod. A pod that is new to the node has no earlier runs.
	LookedFor bool `json:"lookedFor,omitempty"`
	// The content of the file, as this agent last read or wrote it:
	Written     time.Time         `json:"written,omitzero"`
	StartTime   time.Time         `json:"startTime"`
	Containers  []ContainerRecord `json:"containers,omitempty"`
	Termination *Termination      `json:"termination,omitempty"`
	Round       int               `json:"round,omitempty"`

	// IDs is the range in the file of the pod's user namespace, as this agent knows it. WritingIDs is
	// that of a write whose success is not known: the file may have it.
	IDs          userns.Range `json:"ids,omitzero"`
	WritingIDs   userns.Range `json:"writingIDs,omitzero"`
	IDsRead      bool         `json:"idsRead,omitempty"`     // the file of an earlier agent
	IDsFailures  int          `json:"idsFailures,omitempty"` // failed operations on the file in a row
	IDsNotBefore time.Time    `json:"idsNotBefore,omitzero"` // of the next after a failure

	Op      world.OpID     `json:"op,omitempty"`      // a read or write in flight
	Writing *recordContent `json:"writing,omitempty"` // the content of the write in flight
	// WritesReported is set if Writing was made after Pod.Reported, which its record then has.
	WritesReported bool `json:"writesReported,omitempty"`

	DirMissing bool      `json:"dirMissing,omitempty"` // the pod's directory did not exist
	Failures   int       `json:"failures,omitempty"`
	NotBefore  time.Time `json:"notBefore"`
}

// ContainerRecord is the part of the record about one container.
type ContainerRecord struct {
	ID          string `json:"id"`
	PostStarted bool   `json:"postStarted,omitempty"` // the postStart hook has succeeded
	Started     bool   `json:"started,omitempty"`     // the startup probe has succeeded
	Ready       bool   `json:"ready,omitempty"`
}

// recordContent is the content of the file. Its names are the format of the file.
type recordContent struct {
	Written    time.Time         `json:"written,omitzero"` // by the machine's clock
	Start      time.Time         `json:"start"`
	Containers []ContainerRecord `json:"containers,omitempty"`
	End        *Termination      `json:"end,omitempty"`
	Round      int               `json:"round,omitempty"`
}

const (
	recordSubject         = "the record" // the ID of a container cannot have a space
	idsSubject            = "the host IDs"
	recordBytesMax        = 1 << 20
	recordReadFailuresMax = 3 // failed reads after which the record counts as empty
	recordName            = "seedlet.json"
	recordPermission      = 0o600
	dirPermission         = 0o750
)

func (p *Pod) recordPath(node *Node) string { return p.dir(node) + "/" + recordName }

// AwaitsRecord reports whether the record of the pod, which may be older than this agent, is still
// to be read.
func (p *Pod) AwaitsRecord() bool {
	return p.Spec != nil && !p.NoLongerDesired && !p.Record.Loaded
}

// loadRecord reads the record of a pod that may be older than this agent, and reports whether its
// content is known.
func (p *Pod) loadRecord(env *Env, w *wakeTimer) bool {
	r := &p.Record
	if r.Loaded || r.Op != 0 || w.waitUntil(r.NotBefore) {
		return r.Loaded
	}
	r.Op = env.Effects.Issue(p.Key(), recordSubject, fsTimeout, &world.ReadFiles{
		Path: p.recordPath(env.Node), FilesMax: 1, BytesMax: recordBytesMax,
	})
	return false
}

// persistRecord writes the record if its content is not current. A pod that was terminal or marked
// for deletion when this agent started has not loaded its record yet.
func (p *Pod) persistRecord(env *Env, w *wakeTimer) {
	r := &p.Record
	if !p.NoLongerDesired && p.Spec != nil && !p.loadRecord(env, w) {
		return
	}
	if !r.Loaded || r.Op != 0 || p.NoLongerDesired || w.waitUntil(r.NotBefore) {
		return
	}
	current := recordContent{Written: env.Node.Wall.Date(env.Effects.Now()),
		Start: env.Node.Wall.Date(p.StartTime), Containers: p.containerRecords(),
		Round: p.Round.Number}
	if p.Termination.Phase != "" {
		end := p.Termination
		end.Since = env.Node.Wall.Date(end.Since)
		current.End = &end
	}
	if !p.hasDir() && !r.DirMissing && current.End == nil {
		return // nothing was created yet
	}
	isCurrent := current.Start.Equal(r.StartTime) && slices.Equal(current.Containers, r.Containers) &&
		current.End.isRecordedAs(r.Termination) && current.Round == r.Round
	if isCurrent && r.Failures == 0 { // after a failed write the content of the file is not known
		p.Reported.forget()
		p.recordIDs(env, w)
		return
	}
	if !p.hasDir() {
		if !env.CleanupInProgress {
			r.Op = env.Effects.Issue(p.Key(), recordSubject, fsTimeout,
				&world.MakeDir{Path: p.dir(env.Node), Mode: dirPermission})
		}
		return
	}
	data, err := json.Marshal(&current)
	if err != nil {
		panic("pod: the record of " + p.FullName() + " cannot be encoded: " + err.Error())
	}
	r.Writing, r.WritesReported = &current, true
	r.Op = env.Effects.Issue(p.Key(), recordSubject, fsTimeout, &world.WriteFile{
		Path: p.recordPath(env.Node), Data: data, Mode: recordPermission,
	})
}

// isRecordedAs reports whether the record of an end has what matters of it. An end may become an
// eviction, which takes less time.
func (t *Termination) isRecordedAs(recorded *Termination) bool {
	if t == nil || recorded == nil {
		return t == recorded
	}
	return t.Reason == recorded.Reason && t.UnderPressure == recorded.UnderPressure &&
		t.shortestGrace() >= recorded.shortestGrace()
}

// hasDir reports whether the pod has, or had, a directory for the record.
func (p *Pod) hasDir() bool { return p.DirCreated || len(p.Containers) > 0 && !p.Record.DirMissing }

// handleRecordCompletion handles the completion of a read or a write of the record.
func (p *Pod) handleRecordCompletion(r op.Record, ev world.Event, env *Env) {
	p.Record.Op = 0
	switch {
	case r.Call == "MakeDir" && ev.Err == nil:
		p.DirCreated, p.Record.DirMissing = true, false
		return
	case r.Call != "ReadFiles":
		p.handleRecordWritten(ev, env)
		return
	}
	content, failed := recordContent{}, ev.Err
	if body, ok := ev.Body.(*world.FilesRead); ok && failed == nil && len(body.Files) == 1 {
		if failed = body.Files[0].Err; failed == nil {
			if err := content.decode(body.Files[0].Data); err != nil {
				env.Effects.Log(world.LevelWarning, "the record of a pod is damaged and counts as empty",
					"pod", p.FullName(), "path", p.recordPath(env.Node), "err", err.Error())
				content = recordContent{}
			}
		}
	}
	if failed != nil && !failed.Has(world.KindNotFound) {
		p.Record.Failures++
		if p.Record.Failures < recordReadFailuresMax {
			p.Record.NotBefore = ev.Time.Add(failureBackoff(p.Record.Failures))
			return
		}
		env.Effects.Log(world.LevelWarning, "the record of a pod cannot be read and counts as empty",
			"pod", p.FullName(), "path", p.recordPath(env.Node), "err", failed.Error())
	}
	p.Record.Loaded, p.Record.LookedFor = true, true
	p.Record.Failures, p.Record.NotBefore = 0, time.Time{}
	p.Record.setContent(&content)
	if !content.Start.IsZero() {
		p.StartTime = earlier(p.StartTime, content.Start)
	}
	p.applyRecord(env)
}

// decode parses the content of the file. Numbers that no agent writes mean that the file is
// damaged.
func (c *recordContent) decode(data []byte) error {
	err := json.Unmarshal(data, c)
	switch end := c.End; {
	case err != nil:
		return err
	case c.Round < 0 || c.Round > math.MaxInt32:
		return fmt.Errorf("round: %d", c.Round)
	case end != nil && !IsTerminal(end.Phase):
		return fmt.Errorf("end.phase: %q", end.Phase)
	case end != nil && (end.Grace < 0 || end.Grace > graceMaxSeconds*time.Second):
		return fmt.Errorf("end.grace: %d", end.Grace)
	case end != nil && end.Hastened < 0:
		return fmt.Errorf("end.hastened: %d", end.Hastened)
	}
	return nil
}

func (p *Pod) handleRecordWritten(ev world.Event, env *Env) {
	written := p.Record.Writing
	p.Record.Writing = nil
	if ev.Err != nil {
		if ev.Err.Has(world.KindNotFound) {
			p.DirCreated, p.Record.DirMissing = false, true // another process has removed it
			p.Record.forgetIDs()
		}
		p.Record.Failures++
		p.Record.NotBefore = ev.Time.Add(failureBackoff(p.Record.Failures))
		if p.Record.Failures == 1 {
			env.Effects.Log(world.LevelWarning, "the record of a pod cannot be written: its readiness "+
				"or termination may be lost when the agent restarts", "pod", p.FullName(), "err",
				ev.Err.Error())
		}
		return
	}
	p.Record.Failures, p.Record.NotBefore = 0, time.Time{}
	p.Record.setContent(written)
	if p.Record.WritesReported {
		p.Reported.forget() // it has become a part of the record
	}
}

func (r *Record) setContent(c *recordContent) {
	r.Written, r.StartTime = c.Written, c.Start
	r.Containers, r.Termination, r.Round = c.Containers, c.End, c.Round
}

// applyRecord restores the facts of the record about running containers, and the termination of the
// pod. A static pod that a shutdown of the machine has ended runs again, as no controller would
// replace it. The postStart hook of a container that another agent has created counts as run, and
// its probes have come as far as was reported.
func (p *Pod) applyRecord(env *Env) {
	if !p.IsStatic() {
		p.Reported = reportedHealth(&p.Spec.Status)
	}
	p.keepNewerReports()
	for i := range p.Containers {
		c := &p.Containers[i]
		container := p.specContainer(c.Name)
		if c.State == Exited || container == nil {
			continue
		}
		record := p.persistedContainer(c.ID)
		c.PostStart.Done, c.PostStart.Skip = record.PostStarted, c.FromOtherAgent
		for _, kind := range []probe.Kind{probe.Startup, probe.Liveness, probe.Readiness} {
			if spec := probe.SpecOf(container, kind); spec != nil {
				delay := hashedDelay(env.Node.Seed, c.ID, spec.PeriodSeconds)
				if kind == probe.Readiness && !p.Reported.LostAt.IsZero() {
					delay = 0 // the container may be ready
				}
				c.prober(kind).NextAt = env.Effects.Now().Add(delay)
			}
		}
		p.adoptHealth(c, record)
	}
	end := p.Record.Termination
	switch {
	case end == nil:
	case p.IsStatic() && end.Reason == shutdown.Reason:
		// The machine is up again, or is still going down, which package shutdown then knows.
	case p.Stage == Syncing:
		p.startTermination(*end, env.Effects.Now())
	default: // the pod is marked for deletion as well
		t := &p.Termination
		t.Reason, t.Message, t.Phase = end.Reason, end.Message, end.Phase
		t.UnderPressure, t.PressureMessage = end.UnderPressure, end.PressureMessage
		t.Grace = min(t.Grace, end.shortestGrace())
	}
	t := &p.Termination
	p.OverLimit = end != nil && t.Reason == ReasonEvicted && !t.UnderPressure
}

// hashedDelay returns a delay of less than a period that follows from the seed and the ID. The
// first probes after a restart of the agent are delayed by it, and tokens are renewed earlier by
// it, so that they are not all issued at once.
func hashedDelay(seed uint64, id string, periodSeconds int32) time.Duration {
	const prime = 1099511628211 // FNV-1a
	h := seed ^ 14695981039346656037
	for i := range len(id) {
		h = (h ^ uint64(id[i])) * prime
	}
	return time.Duration(h % uint64(time.Duration(max(periodSeconds, 1))*time.Second))
}

// persistedContainer returns the durable record of a container: that of the file, with what was
// reported since it was written.
func (p *Pod) persistedContainer(id string) ContainerRecord {
	record := ContainerRecord{ID: id}
	if i := indexOfRecord(p.Record.Containers, id); i >= 0 {
		record = p.Record.Containers[i]
	}
	if i := indexOfRecord(p.Reported.Containers, id); i >= 0 {
		reported := &p.Reported.Containers[i]
		record.PostStarted = record.PostStarted || reported.PostStarted
		record.Started, record.Ready = reported.Started, reported.Ready
	}
	record.Ready = record.Ready && p.Reported.LostAt.IsZero()
	return record
}

func indexOfRecord(records []ContainerRecord, id string) int {
	return slices.IndexFunc(records, func(r ContainerRecord) bool { return r.ID == id })
}

// containerRecords returns the current records of the running containers, without empty ones.
func (p *Pod) containerRecords() []ContainerRecord {
	var records []ContainerRecord
	for i := range p.Containers {
		c := &p.Containers[i]
		if record := p.containerRecord(c); c.State == Running && record != (ContainerRecord{ID: c.ID}) {
			records = append(records, record)
		}
	}
	return records
}

// containerRecord returns the current record of a container. It has no facts that follow from the
// state Running alone.
func (p *Pod) containerRecord(c *Container) ContainerRecord {
	record, container := ContainerRecord{ID: c.ID}, p.specContainer(c.Name)
	if container == nil {
		return record
	}
	record.PostStarted = hasPostStart(container) && (c.PostStart.Done || c.PostStart.Skip)
	record.Started = container.StartupProbe != nil && c.probeResult(probe.Startup) == probe.Success
	record.Ready = container.ReadinessProbe != nil && c.probeResult(probe.Readiness) == probe.Success
	return record
}

// ReportableHealth returns the health of a container as far as it is durable, so that a restart of
// the agent takes nothing back that was reported. The current health is reported all the same if
// the record cannot be written, or is not written any more because no source has the pod.
func (p *Pod) ReportableHealth(c *Container) Health {
	if p.Record.Failures > 0 || p.NoLongerDesired {
		return p.health(c, p.containerRecord(c))
	}
	return p.health(c, p.persistedContainer(c.ID))
}

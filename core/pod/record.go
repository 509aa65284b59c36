package pod

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"time"

	"seedlet.dev/core/op"
	"seedlet.dev/core/probe"
	"seedlet.dev/world"
)

// What is known of a pod and of its containers that the runtime cannot keep for the agent: it is
// in a file in the pod's directory. A new value is shown only once it is there, so that nothing
// that was shown is taken back because the agent was restarted (upstream #100277, #135795).

// Record is the file, as far as this agent knows it.
type Record struct {
	Read  bool      `json:"read"`            // it has been read, or there was none to read
	Start time.Time `json:"start"`           // what is in it: when the pod began
	Marks []Mark    `json:"marks,omitempty"` // how far its containers are
	End   *Kill     `json:"end,omitempty"`   // why the pod was ended for good
	Round int       `json:"round,omitempty"` // the newest that had to begin

	Op        world.OpID `json:"op,omitempty"`      // a read or write of it in flight
	Writing   *content   `json:"writing,omitempty"` // what the write in flight writes
	NoDir     bool       `json:"noDir,omitempty"`   // its directory was not there
	Failures  int        `json:"failures,omitempty"`
	NotBefore time.Time  `json:"notBefore"`
}

// Mark is how far a container is.
type Mark struct {
	ID          string `json:"id"`
	PostStarted bool   `json:"postStarted,omitempty"` // its postStart hook has ended well
	Started     bool   `json:"started,omitempty"`     // its startup probe has
	Ready       bool   `json:"ready,omitempty"`
}

// content is the file.
type content struct {
	Start      time.Time `json:"start"`
	Containers []Mark    `json:"containers,omitempty"`
	End        *Kill     `json:"end,omitempty"`
	Round      int       `json:"round,omitempty"`
}

const (
	recordSubject    = "the record" // no container can be called so
	recordBytesMax   = 1 << 20
	recordReadsMax   = 3 // failures after which it is given up
	recordName       = "seedlet.json"
	recordPermission = 0o600
	dirPermission    = 0o750
)

func (p *Pod) recordPath(node *Node) string { return p.dir(node) + "/" + recordName }

// recall reads the file of a pod that was there before this agent, and reports whether what is in
// it is known.
func (p *Pod) recall(env *Env, w *waits) bool {
	r := &p.Record
	if r.Read || r.Op != 0 || w.pending(r.NotBefore) {
		return r.Read
	}
	r.Op = env.Out.Ask(p.Key(), recordSubject, fsTimeout, &world.ReadFiles{
		Path: p.recordPath(env.Node), FilesMax: 1, BytesMax: recordBytesMax,
	})
	return false
}

// keep writes the file if it does not say what is so. Of a pod that was over, or to be deleted,
// when this agent began, it has not been read yet.
func (p *Pod) keep(env *Env, w *waits) {
	r := &p.Record
	if !p.Gone && p.Spec != nil && !p.recall(env, w) {
		return
	}
	if !r.Read || r.Op != 0 || p.Gone || w.pending(r.NotBefore) {
		return
	}
	is := content{Start: p.Seen, Containers: p.marks(), Round: p.Round.Number}
	if p.Kill.Phase != "" {
		end := p.Kill
		is.End = &end
	}
	if !p.hasDir() && !r.NoDir && is.End == nil {
		return // nothing was made yet
	}
	same := is.Start.Equal(r.Start) && slices.Equal(is.Containers, r.Marks) &&
		(is.End == nil) == (r.End == nil) && is.Round == r.Round
	if same && r.Failures == 0 { // after a failure it is not known what the file says
		return
	}
	if !p.hasDir() {
		if !env.DirTaken {
			r.Op = env.Out.Ask(p.Key(), recordSubject, fsTimeout,
				&world.MakeDir{Path: p.dir(env.Node), Mode: dirPermission})
		}
		return
	}
	data, err := json.Marshal(&is)
	if err != nil {
		panic("pod: the record of " + p.FullName() + " cannot be written: " + err.Error())
	}
	r.Writing = &is
	r.Op = env.Out.Ask(p.Key(), recordSubject, fsTimeout, &world.WriteFile{
		Path: p.recordPath(env.Node), Data: data, Mode: recordPermission,
	})
}

// hasDir says whether there is, or was, a directory of the pod for the file to be in.
func (p *Pod) hasDir() bool { return p.Dir || len(p.Containers) > 0 && !p.Record.NoDir }

// recorded takes the answer to a read or a write of the file.
func (p *Pod) recorded(r op.Record, ev world.Event, env *Env) {
	p.Record.Op = 0
	switch {
	case r.Call == "MakeDir" && ev.Err == nil:
		p.Dir, p.Record.NoDir = true, false
		return
	case r.Call != "ReadFiles":
		p.recordWritten(ev, env)
		return
	}
	is, failed := content{}, ev.Err
	if body, ok := ev.Body.(*world.FilesRead); ok && failed == nil && len(body.Files) == 1 {
		if failed = body.Files[0].Err; failed == nil {
			if err := is.read(body.Files[0].Data); err != nil {
				env.Out.Log(world.LevelWarning, "the record of a pod is damaged: taken for empty",
					"pod", p.FullName(), "path", p.recordPath(env.Node), "error", err.Error())
				is = content{}
			}
		}
	}
	if failed != nil && !failed.Has(world.KindNotFound) {
		p.Record.Failures++
		if p.Record.Failures < recordReadsMax {
			p.Record.NotBefore = ev.Time.Add(waitAfter(p.Record.Failures))
			return
		}
		env.Out.Log(world.LevelWarning, "the record of a pod cannot be read: taken for empty",
			"pod", p.FullName(), "path", p.recordPath(env.Node), "error", failed.Error())
	}
	p.Record.Read, p.Record.Failures, p.Record.NotBefore = true, 0, time.Time{}
	p.Record.Start, p.Record.Marks, p.Record.End = is.Start, is.Containers, is.End
	p.Record.Round = is.Round
	if !is.Start.IsZero() {
		p.Seen = earlierOf(p.Seen, is.Start)
	}
	p.restore(env)
}

// read takes the text of a file. Numbers that no agent writes are of a file that is damaged.
func (c *content) read(data []byte) error {
	err := json.Unmarshal(data, c)
	switch end := c.End; {
	case err != nil:
		return err
	case c.Round < 0 || c.Round > math.MaxInt32:
		return fmt.Errorf("round: %d", c.Round)
	case end != nil && !terminal(end.Phase):
		return fmt.Errorf("end.phase: %q", end.Phase)
	case end != nil && (end.Grace < 0 || end.Grace > graceMaxSeconds*time.Second):
		return fmt.Errorf("end.grace: %d", end.Grace)
	}
	return nil
}

func (p *Pod) recordWritten(ev world.Event, env *Env) {
	written := p.Record.Writing
	p.Record.Writing = nil
	if ev.Err != nil {
		if ev.Err.Has(world.KindNotFound) {
			p.Dir, p.Record.NoDir = false, true // somebody has removed it
		}
		p.Record.Failures++
		p.Record.NotBefore = ev.Time.Add(waitAfter(p.Record.Failures))
		if p.Record.Failures == 1 {
			env.Out.Log(world.LevelWarning, "the record of a pod cannot be written: a restart of "+
				"the agent may forget how ready it is, or that it has ended", "pod", p.FullName(), "error",
				ev.Err.Error())
		}
		return
	}
	p.Record.Failures, p.Record.NotBefore = 0, time.Time{}
	p.Record.Start, p.Record.Marks, p.Record.End = written.Start, written.Containers, written.End
	p.Record.Round = written.Round
}

// restore makes what the file says of the containers that run known of them again. Of a container
// that another agent has made nothing is known, but that it has been started as it should be.
func (p *Pod) restore(env *Env) {
	for i := range p.Containers {
		c := &p.Containers[i]
		want := p.want(c.Name)
		if c.State == Exited || want == nil {
			continue
		}
		mark := p.saved(c.ID)
		c.PostStart.Done, c.PostStart.Void = mark.PostStarted, c.Foreign
		for _, kind := range []probe.Kind{probe.Startup, probe.Liveness, probe.Readiness} {
			spec := probe.Of(want, kind)
			if spec == nil {
				continue
			}
			pr := c.prober(kind)
			pr.NextAt = env.Out.Now().Add(spread(env.Node.Seed, c.ID, spec.PeriodSeconds))
			if mark.Started && kind == probe.Startup || mark.Ready && kind == probe.Readiness {
				pr.Result = probe.Good
			}
		}
	}
	if end := p.Record.End; end != nil && p.Stage == Syncing {
		p.end(*end, env.Out.Now())
	} else if end != nil { // it is to be deleted as well
		p.Kill.Reason, p.Kill.Message, p.Kill.Phase = end.Reason, end.Message, end.Phase
	}
}

// spread is how long the first question to a container that runs already is put off, so that not
// all are asked at once after the agent was restarted.
func spread(seed uint64, id string, periodSeconds int32) time.Duration {
	const prime = 1099511628211 // FNV-1a
	h := seed ^ 14695981039346656037
	for i := range len(id) {
		h = (h ^ uint64(id[i])) * prime
	}
	return time.Duration(h % uint64(time.Duration(max(periodSeconds, 1))*time.Second))
}

// saved is what the file says of a container.
func (p *Pod) saved(id string) Mark {
	for _, m := range p.Record.Marks {
		if m.ID == id {
			return m
		}
	}
	return Mark{ID: id}
}

// marks is how far every container is that runs and of which there is something to keep.
func (p *Pod) marks() []Mark {
	var marks []Mark
	for i := range p.Containers {
		c := &p.Containers[i]
		if mark := p.mark(c); c.State == Running && mark != (Mark{ID: c.ID}) {
			marks = append(marks, mark)
		}
	}
	return marks
}

// mark is what is to be kept of a container: nothing that follows from its running alone.
func (p *Pod) mark(c *Container) Mark {
	mark, want := Mark{ID: c.ID}, p.want(c.Name)
	if want == nil {
		return mark
	}
	mark.PostStarted = hasPostStart(want) && (c.PostStart.Done || c.PostStart.Void)
	mark.Started = want.StartupProbe != nil && c.result(probe.Startup) == probe.Good
	mark.Ready = want.ReadinessProbe != nil && c.result(probe.Readiness) == probe.Good
	return mark
}

// shown is how far a container is as far as may be told: what would be forgotten if the agent were
// restarted now is not. If it cannot be kept, it is told all the same.
func (p *Pod) shown(c *Container) Health {
	if p.Record.Failures > 0 {
		return p.health(c, p.mark(c))
	}
	return p.health(c, p.saved(c.ID))
}

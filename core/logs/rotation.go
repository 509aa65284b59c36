// Package logs rotates the logs of running containers, removes dangling links to logs, and reads
// the end of a log.
//
// Facts: how far the current pass over the running containers is, which of their logs are full, and
// for each log that is being rotated the content of its directory. Plan: measures the logs, lists
// the directories of those that are full or missing one after the other, and compresses, renames
// and removes files until the log is below its size limit and the number of files is within its
// limit. What to do follows from the content of the directory alone, since the agent may have been
// killed between any two operations: the first pass lists all directories. Events: the completions
// of these operations. Start reading at Rotation.Plan, then Job.nextOperation in job.go.
package logs

import (
	"path"
	"slices"
	"strings"
	"time"

	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"seedlet.dev/core/document"
	"seedlet.dev/core/op"
	"seedlet.dev/core/timer"
	"seedlet.dev/world"
)

// Owner is the owner of the operations of Rotation.
var Owner = timer.Key{Component: "logs", Name: "rotation"}

// measuredMax is the number of logs that are measured at a time.
const measuredMax = 128

// fsTimeout is long enough to compress a log of a gigabyte on a slow disk.
const fsTimeout = 2 * time.Minute

// Cursor is a position in the order of all running containers: by pod UID, then by container name.
type Cursor struct {
	UID       string `json:"uid,omitempty"`
	Container string `json:"container,omitempty"`
}

// Target is the log of a running container.
type Target struct {
	Cursor
	ID   string `json:"id"`   // of the container
	Path string `json:"path"` // of its log
}

// RunningContainers are the containers that run, as far as the agent knows.
type RunningContainers interface {
	// NextLog returns the log of the first running container after a position; false without one.
	NextLog(after Cursor) (Target, bool)
	// IsRunning reports whether the container of a log still runs.
	IsRunning(Target) bool
}

// Rotation is the rotation of the logs of running containers.
type Rotation struct {
	LogsDir        string        `json:"logsDir"`  // the directory of all logs
	BytesMax       int64         `json:"bytesMax"` // a log of this size is rotated
	FilesMax       int           `json:"filesMax"` // per run of a container, including the log itself
	JobsMax        int           `json:"jobsMax"`  // logs at a time
	Period         time.Duration `json:"period"`
	RuntimeTimeout time.Duration `json:"runtimeTimeout"`

	PassStarted  time.Time `json:"passStarted"`  // when the current pass started
	PassCursor   Cursor    `json:"passCursor"`   // the pass is done up to here
	PassComplete bool      `json:"passComplete"` // no container is left in the pass
	// ListsAll reports that the current pass lists the directory of each log: the first one does, for
	// what an earlier agent has left.
	ListsAll  bool       `json:"listsAll"`
	MeasureOp world.OpID `json:"measureOp,omitempty"`
	Measured  []Target   `json:"measured,omitempty"` // by MeasureOp
	Due       []Target   `json:"due,omitempty"`      // full or missing, without a job yet
	Jobs      []Job      `json:"jobs,omitempty"`
	NextAt    time.Time  `json:"nextAt"`
	Rotated   uint64     `json:"rotated"`           // number of logs
	Problem   string     `json:"problem,omitempty"` // of the last operation that failed
}

// LinksDirDefault is the kubelet's directory of links to logs.
const LinksDirDefault = "/var/log/containers"

// NewRotation returns the rotation for a validated configuration.
func NewRotation(c *kubeletconfig.KubeletConfiguration) Rotation {
	size, err := document.ParseQuantity(c.ContainerLogMaxSize)
	if err != nil {
		panic("logs: containerLogMaxSize: " + err.Error())
	}
	return Rotation{
		LogsDir: c.PodLogsDir, BytesMax: size.Value(), FilesMax: int(*c.ContainerLogMaxFiles),
		JobsMax: int(*c.ContainerLogMaxWorkers), Period: c.ContainerLogMonitorInterval.Duration,
		RuntimeTimeout: c.RuntimeRequestTimeout.Duration,
	}
}

// Plan continues the current pass or starts the next one, and returns when to plan again. A pass
// measures measuredMax logs at a time and works on JobsMax, so that the duration of a step does not
// grow with the number of pods.
func (r *Rotation) Plan(running RunningContainers, effects *op.Effects) time.Time {
	if effects.Now().Before(r.NextAt) {
		return r.NextAt
	}
	if r.PassStarted.Before(r.NextAt) || r.PassStarted.IsZero() {
		r.ListsAll = r.PassStarted.IsZero()
		r.PassStarted, r.PassCursor, r.PassComplete = effects.Now(), Cursor{}, false
	}
	for i := 0; i < len(r.Jobs); i++ {
		if !r.issueNext(&r.Jobs[i], running, effects) {
			r.Jobs = slices.Delete(r.Jobs, i, i+1)
			i--
		}
	}
	for r.begin(running, effects) {
	}
	if !r.PassComplete || r.MeasureOp != 0 || len(r.Due) > 0 || len(r.Jobs) > 0 {
		return time.Time{}
	}
	r.NextAt = effects.Now().Add(r.Period)
	return r.NextAt
}

// begin measures the next logs of the pass, or begins to work on the next one that is due. It
// reports whether there may be more to begin.
func (r *Rotation) begin(running RunningContainers, effects *op.Effects) bool {
	switch {
	case len(r.Due) == 0 && r.MeasureOp == 0 && !r.PassComplete && !r.ListsAll:
		r.measureNext(running, effects)
		return false
	case len(r.Jobs) >= r.JobsMax:
		return false
	}
	target, ok := r.nextDue(running)
	if !ok {
		return false
	}
	if job := (Job{Target: target}); r.issueNext(&job, running, effects) {
		r.Jobs = append(r.Jobs, job)
	}
	return true
}

// measureNext measures the next logs of the pass.
func (r *Rotation) measureNext(running RunningContainers, effects *op.Effects) {
	request := &world.MeasureFiles{Dir: r.LogsDir}
	for len(r.Measured) < measuredMax {
		target, ok := r.nextLog(running)
		if !ok {
			break
		}
		r.Measured = append(r.Measured, target)
		request.Paths = append(request.Paths, strings.TrimPrefix(target.Path, r.LogsDir+"/"))
	}
	if len(r.Measured) > 0 {
		r.MeasureOp = effects.Issue(Owner, "", fsTimeout, request)
	}
}

// nextDue returns the next log whose directory is to be listed; false without one at present.
func (r *Rotation) nextDue(running RunningContainers) (Target, bool) {
	if r.ListsAll {
		return r.nextLog(running)
	}
	if len(r.Due) == 0 {
		return Target{}, false
	}
	target := r.Due[0]
	r.Due = slices.Delete(r.Due, 0, 1)
	return target, true
}

// nextLog returns the next log of the pass; false if there is none.
func (r *Rotation) nextLog(running RunningContainers) (Target, bool) {
	if r.PassComplete {
		return Target{}, false
	}
	target, ok := running.NextLog(r.PassCursor)
	r.PassComplete = !ok
	if ok {
		r.PassCursor = target.Cursor
	}
	return target, ok
}

// issueNext issues the next operation of a job, if none is in flight, and reports whether the job
// goes on. If the container has terminated meanwhile, only the name of its log is restored.
func (r *Rotation) issueNext(j *Job, running RunningContainers, effects *op.Effects) bool {
	if j.Op != 0 {
		return true
	}
	previous := effects.WorkOn(j.UID)
	var body any
	if running.IsRunning(j.Target) {
		body = j.nextOperation(r.BytesMax, r.FilesMax, effects.Date())
	} else {
		body = j.restoreName()
	}
	if body == nil {
		effects.WorkOn(previous)
		return false
	}
	timeout := fsTimeout
	if world.PortOf(body) == world.PortCRI {
		timeout = r.RuntimeTimeout
	}
	j.Op = effects.IssueFor(j.UID, Owner, fileName(body), timeout, body)
	effects.WorkOn(previous)
	return true
}

// HandleCompletion applies the completion of an operation.
func (r *Rotation) HandleCompletion(id world.OpID, rec op.Record, ev world.Event,
	effects *op.Effects) {
	if id == r.MeasureOp {
		r.noteMeasured(ev, effects)
		return
	}
	i := slices.IndexFunc(r.Jobs, func(j Job) bool { return j.Op == id })
	if i < 0 {
		panic("logs: completion of an operation that was not issued: " + rec.Call)
	}
	j := &r.Jobs[i]
	effects.WorkOn(j.UID)
	j.Op = 0
	if ev.Err != nil {
		if rec.Call != "ListDir" || !ev.Err.Has(world.KindNotFound) {
			r.Problem = rec.Call + " " + j.Path + ": " + ev.Err.Error()
			effects.Log(world.LevelWarning, "log rotation failed", "path", j.Path, "call", rec.Call,
				"err", ev.Err.Error())
		}
		if !j.recordFailure(rec.Call, ev.Err) {
			r.Jobs = slices.Delete(r.Jobs, i, i+1) // the next pass finds the log full or missing
		}
		return
	}
	if rec.Call == "ReopenContainerLog" {
		r.Rotated++
	}
	j.recordSuccess(rec, ev.Body)
}

// noteMeasured applies the completion of the measurement of logs. After a failure the next pass
// measures them.
func (r *Rotation) noteMeasured(ev world.Event, effects *op.Effects) {
	measured := r.Measured
	r.MeasureOp, r.Measured = 0, nil
	result, ok := ev.Body.(*world.FilesMeasured)
	if ev.Err == nil && (!ok || len(result.Sizes) != len(measured)) {
		ev.Err = world.Errorf(world.KindInternal, "MeasureFiles", "answered with another message")
	}
	if ev.Err != nil {
		r.Problem = "MeasureFiles: " + ev.Err.Error()
		effects.Log(world.LevelWarning, "logs were not measured", "err", ev.Err.Error())
		return
	}
	for i, size := range result.Sizes {
		if size == world.NotMeasured || size > 0 && size >= r.BytesMax {
			r.Due = append(r.Due, measured[i])
		}
	}
}

// fileName returns the name of the file that an operation is about.
func fileName(body any) string {
	switch body := body.(type) {
	case *world.RemoveTree:
		return path.Base(body.Path)
	case *world.Compress:
		return path.Base(body.Path)
	case *world.Rename:
		return path.Base(body.To)
	}
	return ""
}

// Package logs looks after the log files of containers: it rotates those that have grown too
// large, finds links to logs that have gone, and reads what a log says last.
//
// It keeps: how far the round over the running containers has come, and of each log that is being
// looked at what its directory had. It plans: to look at one directory after the other, and
// whatever it takes there until the log is small and no more files are kept than may be. What is
// to be done follows from what is in the directory, whoever left it so: the agent may have been
// killed between any two operations. It takes: the answers. Start reading at Rotation.Plan, then
// Job.next in job.go.
package logs

import (
	"path"
	"slices"
	"time"

	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"seedlet.dev/core/document"
	"seedlet.dev/core/op"
	"seedlet.dev/core/timer"
	"seedlet.dev/world"
)

// Owner is who the operations of the rotation belong to.
var Owner = timer.Key{Component: "logs", Name: "rotation"}

// fsTimeout is long enough to compress a log of a gigabyte on a slow disk.
const fsTimeout = 2 * time.Minute

// Cursor is a place in the order of all running containers: by UID, then by name.
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

// Containers are what runs, as the agent knows it now.
type Containers interface {
	// NextLog is the log of the first running container after a place; false if there is none.
	NextLog(after Cursor) (Target, bool)
	// Writes says whether the container still runs whose log it is.
	Writes(Target) bool
}

// Rotation is the rotation of the logs of running containers.
type Rotation struct {
	BytesMax       int64         `json:"bytesMax"` // a log that has so many is rotated
	FilesMax       int           `json:"filesMax"` // of one run of a container, the log included
	JobsMax        int           `json:"jobsMax"`  // logs that are looked at at once
	Period         time.Duration `json:"period"`
	RuntimeTimeout time.Duration `json:"runtimeTimeout"`

	Began   time.Time `json:"began"` // the round
	At      Cursor    `json:"at"`    // everything up to here has been looked at in this round
	Ended   bool      `json:"ended"` // the round has come to its end
	Jobs    []Job     `json:"jobs,omitempty"`
	NextAt  time.Time `json:"nextAt"`
	Rotated uint64    `json:"rotated"`           // logs
	Problem string    `json:"problem,omitempty"` // of the last operation that failed
}

// LinksDirDefault is where the kubelet makes links to logs.
const LinksDirDefault = "/var/log/containers"

// NewRotation is the rotation that a configuration asks for, which has been validated.
func NewRotation(c *kubeletconfig.KubeletConfiguration) Rotation {
	size, err := document.ParseQuantity(c.ContainerLogMaxSize)
	if err != nil {
		panic("logs: containerLogMaxSize: " + err.Error())
	}
	return Rotation{
		BytesMax: size.Value(), FilesMax: int(*c.ContainerLogMaxFiles),
		JobsMax: int(*c.ContainerLogMaxWorkers), Period: c.ContainerLogMonitorInterval.Duration,
		RuntimeTimeout: c.RuntimeRequestTimeout.Duration,
	}
}

// Plan goes on with the round, or begins the next one, and says when to be called again. A round
// looks at a few logs at a time, so that no step is the longer the more pods there are.
func (r *Rotation) Plan(running Containers, out *op.Out) time.Time {
	if out.Now().Before(r.NextAt) {
		return r.NextAt
	}
	if r.Began.Before(r.NextAt) || r.Began.IsZero() {
		r.Began, r.At, r.Ended = out.Now(), Cursor{}, false
	}
	for i := 0; i < len(r.Jobs); i++ {
		if !r.advance(&r.Jobs[i], running, out) {
			r.Jobs = slices.Delete(r.Jobs, i, i+1)
			i--
		}
	}
	for len(r.Jobs) < r.JobsMax && !r.Ended {
		target, ok := running.NextLog(r.At)
		if !ok {
			r.Ended = true
			break
		}
		r.At = target.Cursor
		r.Jobs = append(r.Jobs, Job{Target: target})
		r.advance(&r.Jobs[len(r.Jobs)-1], running, out)
	}
	if !r.Ended || len(r.Jobs) > 0 {
		return time.Time{}
	}
	r.NextAt = out.Now().Add(r.Period)
	return r.NextAt
}

// advance begins the next operation of a job, if none is in flight, and reports whether there is
// still something to do. A log whose container has ended meanwhile is left as it is, but for its
// name.
func (r *Rotation) advance(j *Job, running Containers, out *op.Out) bool {
	if j.Op != 0 {
		return true
	}
	var body any
	if running.Writes(j.Target) {
		body = j.next(r.BytesMax, r.FilesMax, out.Now())
	} else {
		body = j.nameBack()
	}
	if body == nil {
		return false
	}
	timeout := fsTimeout
	if world.PortOf(body) == world.PortCRI {
		timeout = r.RuntimeTimeout
	}
	j.Op = out.Ask(Owner, subject(body), timeout, body)
	return true
}

// Answered takes the answer to one of the operations.
func (r *Rotation) Answered(id world.OpID, rec op.Record, ev world.Event, out *op.Out) {
	i := slices.IndexFunc(r.Jobs, func(j Job) bool { return j.Op == id })
	if i < 0 {
		panic("logs: told of an operation that was not begun: " + rec.Call)
	}
	j := &r.Jobs[i]
	j.Op = 0
	if ev.Err != nil {
		if rec.Call != "ListDir" || !ev.Err.Has(world.KindNotFound) {
			r.Problem = rec.Call + " " + j.Path + ": " + ev.Err.Error()
			out.Log(world.LevelWarning, "rotating a log failed", "path", j.Path, "call", rec.Call,
				"error", ev.Err.Error())
		}
		if !j.failed(rec.Call, ev.Err) {
			r.Jobs = slices.Delete(r.Jobs, i, i+1) // the next round begins by looking
		}
		return
	}
	if rec.Call == "ReopenContainerLog" {
		r.Rotated++
	}
	j.done(rec, ev.Body)
}

// subject is the name of the file that an operation is about.
func subject(body any) string {
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

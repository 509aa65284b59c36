package imagegc

import (
	"fmt"
	"math"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/core/budget"
	"seedlet.dev/core/imagename"
	"seedlet.dev/core/op"
	"seedlet.dev/core/runtime"
	"seedlet.dev/core/timer"
	"seedlet.dev/world"
)

// Events of the Node (pkg/kubelet/events).
const (
	reasonFreeFailed      = "FreeDiskSpaceFailed"
	reasonFailed          = "ImageGCFailed"
	reasonInvalidCapacity = "InvalidDiskCapacity"
)

// Round is one collection.
type Round struct {
	All      bool      `json:"all,omitempty"` // all unused images of the least age are removed
	WantedAt time.Time `json:"wantedAt"`      // the request that this round satisfies
	// DetectsOnly is set if nothing may be removed yet: the images are detected, so that an eviction
	// can remove them once they were known for the minimum age.
	DetectsOnly bool `json:"detectsOnly,omitempty"`

	Op   world.OpID `json:"op,omitempty"` // the operation in flight
	Step Step       `json:"step,omitempty"`
	// InUse are the images of the containers, as the runtime has listed them after the images, each
	// once and in full.
	InUse []string `json:"inUse,omitempty"`

	Mountpoint string                   `json:"mountpoint,omitempty"` // of the images
	Filesystem world.FilesystemMeasured `json:"filesystem"`
	Over       bool                     `json:"over,omitempty"` // the high threshold was reached
	ToFree     int64                    `json:"toFree"`
	Freed      int64                    `json:"freed"`
	Removing   string                   `json:"removing,omitempty"` // in flight
	Tried      map[string]bool          `json:"tried,omitempty"`    // removals of this round
	Errors     []string                 `json:"errors,omitempty"`
}

// Step is what a round does next.
type Step string

// The steps of a round, in their order.
const (
	StepImages     Step = ""
	StepContainers Step = "containers"
	StepAge        Step = "age"
	StepInfo       Step = "info"
	StepMeasure    Step = "measure"
	StepSpace      Step = "space"
)

// planRound issues the next operation of a round, or finishes the round.
func (c *Collector) planRound(r *Round, env *Env) {
	if r.Op != 0 {
		return
	}
	issue := func(timeout time.Duration, body any) {
		r.Op = env.Effects.Issue(Owner, "", timeout, body)
	}
	switch r.Step {
	case StepImages:
		issue(callTimeout, &runtimeapi.ListImagesRequest{})
		return
	case StepContainers:
		issue(callTimeout, &runtimeapi.ListContainersRequest{})
		return
	case StepAge:
		switch {
		case r.All:
			r.Step, r.ToFree = StepSpace, math.MaxInt64
			c.planSpace(r, env)
			return
		case r.DetectsOnly, c.Settings.isOff():
			c.finish(r, env, "")
			return
		case c.planRemoval(r, env, c.oldImages(r, env)):
			return
		case len(r.Errors) > 0:
			c.finish(r, env, fmt.Sprintf("wanted to free images older than %v, encountered errors in "+
				"image deletion: %v", c.Settings.AgeMax, r.Errors))
			return
		}
		r.Step = StepInfo
		fallthrough
	case StepInfo:
		issue(callTimeout, &runtimeapi.ImageFsInfoRequest{})
	case StepMeasure:
		issue(measureTimeout, &world.MeasureFilesystem{Path: r.Mountpoint})
	case StepSpace:
		c.planSpace(r, env)
	}
}

// oldImages returns the unused images over the maximum age, if all pods are known. It returns none
// before the agent has run for that age, since when images were used before its start is not known.
// The age of an image that was never used counts from its detection; the kubelet removes such an
// image at once.
func (c *Collector) oldImages(r *Round, env *Env) []string {
	age, now := c.Settings.AgeMax, env.Effects.Now()
	if age == 0 || now.Sub(c.BeganAt) <= age || !env.KnowsPods {
		return nil
	}
	var old []string
	for _, id := range c.candidates(c.noteUses(r, env, now), r.Tried) {
		record := c.Records[id]
		unused := now.Sub(timer.Later(record.LastUsed, record.FirstDetected))
		if unused > age && unused >= c.Settings.AgeMin {
			old = append(old, id)
		}
	}
	return old
}

// freeableImages returns the unused images that are not so new that a pod may be about to use them.
func (c *Collector) freeableImages(r *Round, env *Env) []string {
	now := env.Effects.Now()
	var free []string
	for _, id := range c.candidates(c.noteUses(r, env, now), r.Tried) {
		if now.Sub(c.Records[id].FirstDetected) >= c.Settings.AgeMin {
			free = append(free, id)
		}
	}
	return free
}

// planRemoval removes the first of some images, and reports whether there is one.
func (c *Collector) planRemoval(r *Round, env *Env, ids []string) bool {
	if len(ids) == 0 {
		return false
	}
	if r.Tried == nil {
		r.Tried = map[string]bool{}
	}
	r.Removing, r.Tried[ids[0]] = ids[0], true
	env.Effects.Log(world.LevelInfo, "Removing an unused image", "image", r.Removing, "size",
		fmt.Sprint(c.Records[r.Removing].Bytes))
	r.Op = env.Effects.Issue(Owner, r.Removing, callTimeout, &runtimeapi.RemoveImageRequest{
		Image: &runtimeapi.ImageSpec{Image: r.Removing}})
	return true
}

// planSpace removes images until enough is freed.
func (c *Collector) planSpace(r *Round, env *Env) {
	if r.ToFree <= 0 {
		c.finish(r, env, "")
		return
	}
	if r.Freed < r.ToFree && c.planRemoval(r, env, c.freeableImages(r, env)) {
		return
	}
	switch {
	case len(r.Errors) > 0:
		c.finish(r, env, fmt.Sprintf("wanted to free %d bytes, but freed %d bytes space with errors in "+
			"image deletion: %v", r.ToFree, r.Freed, r.Errors))
	case r.Freed < r.ToFree && !r.All:
		message := fmt.Sprintf("Insufficient free disk space on the node's image filesystem (%d%% of %s "+
			"used). Failed to free sufficient space by deleting unused images (freed %d bytes). "+
			"Investigate disk usage, as it could be used by active images, logs, volumes, or other data.",
			usedPercent(&r.Filesystem), formatBytes(r.Filesystem.CapacityBytes), r.Freed)
		env.Warn(reasonFreeFailed, message)
		c.finish(r, env, message)
	default:
		c.finish(r, env, "")
	}
}

// decide computes how much is to be freed from the state of the file system. A file system that
// reports more free space than it has counts as empty. Upstream: GarbageCollect.
func (c *Collector) decide(r *Round, env *Env) {
	fs := &r.Filesystem
	if fs.CapacityBytes <= 0 {
		const message = "invalid capacity 0 on image filesystem"
		env.Warn(reasonInvalidCapacity, message)
		c.finish(r, env, message)
		return
	}
	fs.AvailableBytes = max(0, min(fs.AvailableBytes, fs.CapacityBytes))
	r.Step = StepSpace
	r.ToFree, r.Freed = 0, 0
	if r.Over = r.Over || usedPercent(fs) >= c.Settings.HighPercent; r.Over {
		free := float64(fs.CapacityBytes) * float64(100-c.Settings.LowPercent) / 100
		r.ToFree = int64(free) - fs.AvailableBytes
	}
}

func usedPercent(fs *world.FilesystemMeasured) int {
	if fs.AvailableBytes > math.MaxInt64/100 {
		return 100 - int(fs.AvailableBytes/max(1, fs.CapacityBytes/100))
	}
	return 100 - int(fs.AvailableBytes*100/fs.CapacityBytes)
}

// finish ends a round. As in the kubelet, only the second failure in a row is an event: the first
// may be that of a runtime that has just started. A round that only detects images counts neither
// as a success nor as a failure. A round for an eviction does not replace the next periodic one,
// whose event says how much space cannot be freed.
func (c *Collector) finish(r *Round, env *Env, problem string) {
	c.Round = nil
	if problem != "" {
		env.Effects.Log(world.LevelError, "Image garbage collection failed", "err", problem)
	}
	if r.DetectsOnly {
		return
	}
	if r.All {
		c.UnusedRemovedAt = r.WantedAt
		return
	}
	c.NextAt = env.Effects.Now().Add(period)
	if problem == "" {
		c.Failures = 0
		return
	}
	if c.Failures++; c.Failures > 1 && !c.Settings.isOff() {
		env.Warn(reasonFailed, problem)
	}
}

// HandleCompletion applies the completion of an operation.
func (c *Collector) HandleCompletion(rec op.Record, ev world.Event, env *Env) {
	r := c.Round
	if r == nil {
		return
	}
	r.Op = 0
	if rec.Call == "RemoveImage" {
		c.handleRemoval(r, ev)
		return
	}
	if ev.Err != nil {
		c.finish(r, env, ev.Err.Error())
		return
	}
	switch body := ev.Body.(type) {
	case *runtimeapi.ListImagesResponse:
		c.detect(body.Images, rec.IssuedAt)
		r.Step = StepContainers
	case *runtimeapi.ListContainersResponse:
		var refs []string
		for _, container := range body.Containers {
			refs = append(refs, container.ImageId, container.ImageRef, container.GetImage().GetImage())
		}
		r.InUse = imagename.WithFullNames(refs)
		c.noteUses(r, env, ev.Time)
		r.Step = StepAge
	case *runtimeapi.ImageFsInfoResponse:
		if r.Mountpoint = runtime.Mountpoint(body.ImageFilesystems); r.Mountpoint == "" {
			c.finish(r, env, "the runtime does not say where its images are")
			return
		}
		r.Step = StepMeasure
	case *world.FilesystemMeasured:
		r.Filesystem = *body
		c.decide(r, env)
	}
}

// handleRemoval applies the completion of a removal. After a failure the image stays known: it may
// have been removed, which the next list tells. The file system is measured before another image is
// removed for space, which may not be needed any more.
func (c *Collector) handleRemoval(r *Round, ev world.Event) {
	id := r.Removing
	r.Removing = ""
	if ev.Err != nil {
		r.Errors = append(r.Errors, budget.CutMessage(ev.Err.Message))
		if r.Step == StepSpace && !r.All {
			r.Step = StepMeasure
		}
		return
	}
	if record := c.Records[id]; record != nil {
		r.Freed += record.Bytes
		delete(c.Records, id)
	}
	if r.Step == StepAge {
		c.RemovedByAge++
	} else {
		c.RemovedBySpace++
	}
}

// formatBytes returns a size for a message.
func formatBytes(bytes int64) string {
	const units = "KMGT"
	size, unit := float64(bytes), -1
	for size >= 1024 && unit < len(units)-1 {
		size, unit = size/1024, unit+1
	}
	if unit < 0 {
		return fmt.Sprintf("%d B", bytes)
	}
	return fmt.Sprintf("%.1f %ciB", size, units[unit])
}

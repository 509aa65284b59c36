// Package qos maintains the cgroups above those of the pods: kubepods, and in it one cgroup for the
// Burstable and one for the BestEffort pods, the tiers. Guaranteed pods are in kubepods itself.
//
// Facts: the share of each pod, the sums of the shares, what was written to each cgroup last, and
// the write in flight. Plan: one write at a time, of a cgroup whose desired settings are not those
// that were written last. Events: a share that changes (Count, Drop), and completions of writes.
//
// The sums follow the shares one by one, so the cost of a change does not grow with the number of
// pods, and a change leads to one write of each cgroup that it affects. A pod is counted before its
// own cgroup is made and until that is removed, and it waits until its tier has been written: so
// the pods of a tier never weigh more than the tier. Nothing is written before the runtime was
// listed, since pods that an earlier agent started would be missing in the sums.
//
// Upstream writes all three each minute and before each new pod
// (pkg/kubelet/cm/qos_container_manager_linux.go). Start reading at Cgroups.Plan.
package qos

import (
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"seedlet.dev/core/cgroup"
	"seedlet.dev/core/config"
	"seedlet.dev/core/op"
	"seedlet.dev/core/timer"
	"seedlet.dev/world"
)

const (
	timeout    = 2 * time.Minute
	retryFirst = time.Second
	retryMax   = time.Minute // the kubelet's period of retries
)

// Owner is the owner of the operations and the timer.
var Owner = timer.Key{Component: "qos"}

// Cgroups is the state of the cgroups above those of the pods.
type Cgroups struct {
	Settings
	Limits NodeLimits       `json:"limits"`           // of kubepods
	Shares map[string]Share `json:"shares,omitempty"` // of pods, by UID
	Sums   Sums             `json:"sums"`

	Written  map[string]*world.SetCgroup `json:"written,omitempty"` // what was written last, by path
	Writing  *world.SetCgroup            `json:"writing,omitempty"`
	Op       world.OpID                  `json:"op,omitempty"`
	Failures map[string]Failure          `json:"failures,omitempty"` // by path
	Waiting  []string                    `json:"waiting,omitempty"`  // UIDs of pods, sorted
	// Reported holds, by path, the limits that the last Event was about.
	Reported map[string]Enforced `json:"reported,omitempty"`
}

// Enforced are the limits of a cgroup that an Event was about.
type Enforced struct {
	CPUShares   uint64 `json:"cpuShares,omitempty"`
	MemoryBytes int64  `json:"memoryBytes,omitempty"`
	PidsMax     int64  `json:"pidsMax,omitempty"`
}

// Settings are the configuration. They do not change while the agent runs.
type Settings struct {
	Reserved []Reserved `json:"reserved,omitempty"`
	// MemoryPercent is the share of the memory requested by the pods of a class that the classes below
	// it cannot have (qosReserved); zero: they have the limits of their pods alone.
	MemoryPercent int64 `json:"memoryPercent,omitempty"`
}

// SettingsFromConfig returns the settings of a configuration with defaults.
func SettingsFromConfig(c *kubeletconfig.KubeletConfiguration) Settings {
	return Settings{Reserved: ReservedFromConfig(c), MemoryPercent: config.ReservedMemoryPercent(c)}
}

// Failure is that the last writes of a cgroup have failed.
type Failure struct {
	Count   int       `json:"count"`
	Message string    `json:"message"`
	RetryAt time.Time `json:"retryAt"`
}

// Env is the state of the rest of the agent that the cgroups depend on.
type Env struct {
	Layout  *cgroup.Layout
	Listed  bool // the runtime was listed, so the pods of earlier agents are counted
	Effects *op.Effects
	Enqueue func(uid string)   // enqueues a pod
	Node    v1.ObjectReference // for Events
}

// Plan issues the next write, and returns when to plan again.
func (c *Cgroups) Plan(env *Env) time.Time {
	l := env.Layout
	if !l.PerPod || !l.DriverKnown || !env.Listed || c.Op != 0 {
		return time.Time{}
	}
	var wake time.Time
	for _, set := range c.inOrder(c.desired(l)) {
		if written := c.Written[set.Path]; written != nil && written.Equal(&set) {
			continue
		}
		if at := c.Failures[set.Path].RetryAt; env.Effects.Now().Before(at) {
			wake = timer.Soonest(wake, at)
			continue
		}
		c.Writing = &set
		c.Op = env.Effects.Issue(Owner, set.Path, timeout, &set)
		return time.Time{}
	}
	return wake
}

// inOrder returns settings in the order in which they are written: a parent grows before its
// children, and shrinks after them.
func (c *Cgroups) inOrder(desired []world.SetCgroup) []world.SetCgroup {
	var growing, others []world.SetCgroup
	for _, set := range desired {
		if !covers(c.Written[set.Path], &set) {
			growing = append(growing, set)
		} else {
			others = append(others, set)
		}
	}
	slices.Reverse(others)
	return append(growing, others...)
}

// MustWait reports whether a pod that is about to make its cgroup has to wait until the cgroups
// above it are written. A write that has failed holds up no pod while it waits for its retry: the
// limits of pods do not depend on it.
func (c *Cgroups) MustWait(uid string, class v1.PodQOSClass, env *Env) bool {
	for _, set := range c.desired(env.Layout) {
		isAbove := set.Path == env.Layout.QOSParent(class) ||
			set.Path == env.Layout.QOSParent(v1.PodQOSGuaranteed)
		if !isAbove || covers(c.Written[set.Path], &set) && !c.isShrinkingBelow(&set) ||
			env.Effects.Now().Before(c.Failures[set.Path].RetryAt) {
			continue
		}
		if at, found := slices.BinarySearch(c.Waiting, uid); !found {
			c.Waiting = slices.Insert(c.Waiting, at, uid)
		}
		return true
	}
	return false
}

// isShrinkingBelow reports whether a write is in flight that gives a cgroup less than what is
// desired for its pods now: it was to shrink, and may do so at any moment.
func (c *Cgroups) isShrinkingBelow(desired *world.SetCgroup) bool {
	return c.Writing != nil && c.Writing.Path == desired.Path && !covers(c.Writing, desired)
}

// covers reports whether a cgroup was written with at least what is desired for its pods.
func covers(written, desired *world.SetCgroup) bool {
	return written != nil && written.CPUShares >= desired.CPUShares &&
		written.MemoryMin >= desired.MemoryMin && written.MemoryLow >= desired.MemoryLow
}

// HandleCompletion handles the completion of a write. After a failure the cgroup may have any
// settings.
func (c *Cgroups) HandleCompletion(ev world.Event, env *Env) {
	set := c.Writing
	c.Op, c.Writing = 0, nil
	delete(c.Written, set.Path)
	above, isAbove := ev.Body.(*world.CgroupAboveLimit)
	switch {
	case ev.Err != nil:
		c.noteFailure(set, ev.Err.Error(), ev.Time, env)
	case isAbove:
		higher := *set
		higher.MemoryBytes = above.UsageBytes // the rest need not be written again
		c.keep(&higher)
		c.noteFailure(set, fmt.Sprintf("%d bytes of memory are in use, more than the limit of %d",
			above.UsageBytes, set.MemoryBytes), ev.Time, env)
	default:
		c.keep(set)
		delete(c.Failures, set.Path)
		c.reportEnforced(set, env)
	}
	for _, uid := range c.Waiting {
		env.Enqueue(uid)
	}
	c.Waiting = nil
}

func (c *Cgroups) keep(set *world.SetCgroup) {
	if c.Written == nil {
		c.Written = map[string]*world.SetCgroup{}
	}
	c.Written[set.Path] = set
}

// reportEnforced records an Event that limits are enforced, if the last one was about others.
func (c *Cgroups) reportEnforced(set *world.SetCgroup, env *Env) {
	enforced, _ := c.enforcement(set, env.Layout)
	limits := Enforced{set.CPUShares, set.MemoryBytes, set.PidsMax}
	if enforced == "" || c.Reported[set.Path] == limits {
		return
	}
	if c.Reported == nil {
		c.Reported = map[string]Enforced{}
	}
	c.Reported[set.Path] = limits
	env.Effects.RecordEvent(env.Node, v1.EventTypeNormal, "NodeAllocatableEnforced", "%s", enforced)
}

// noteFailure records that a cgroup does not have its desired settings. It is written again later.
func (c *Cgroups) noteFailure(set *world.SetCgroup, message string, now time.Time, env *Env) {
	f := c.Failures[set.Path]
	if f.Message != message {
		env.Effects.Log(world.LevelWarning, "Failed to set a cgroup above those of the pods", "path",
			set.Path, "err", message)
	}
	if _, failed := c.enforcement(set, env.Layout); failed != "" && f.Count == 0 {
		env.Effects.RecordEvent(env.Node, v1.EventTypeWarning, "FailedNodeAllocatableEnforcement",
			"%s %q: %s", failed, set.Path, message)
		delete(c.Reported, set.Path)
	}
	if c.Failures == nil {
		c.Failures = map[string]Failure{}
	}
	c.Failures[set.Path] = Failure{Count: f.Count + 1, Message: message,
		RetryAt: now.Add(timer.Backoff(f.Count+1, retryFirst, retryMax))}
}

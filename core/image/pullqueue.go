package image

import (
	"maps"
	"slices"
	"time"

	kubeletconfig "k8s.io/kubelet/config/v1beta1"
)

// Limits are the limits of all pulls together.
type Limits struct {
	ParallelMax int           `json:"parallelMax"` // concurrent pulls; zero: no limit
	Interval    time.Duration `json:"interval"`    // average interval between pulls; zero: no limit
	Burst       int           `json:"burst"`       // pulls that may start at once after an idle time
}

// LimitsFromConfig returns the limits of a configuration with defaults: serializeImagePulls,
// maxParallelImagePulls, registryPullQPS and registryBurst.
func LimitsFromConfig(c *kubeletconfig.KubeletConfiguration) Limits {
	limits := Limits{Burst: int(c.RegistryBurst)}
	switch {
	case c.SerializeImagePulls == nil || *c.SerializeImagePulls:
		limits.ParallelMax = 1
	case c.MaxParallelImagePulls != nil:
		limits.ParallelMax = int(*c.MaxParallelImagePulls)
	}
	if qps := c.RegistryPullQPS; qps != nil && *qps > 0 {
		limits.Interval = time.Second / time.Duration(*qps)
		limits.Burst = max(limits.Burst, 1)
	}
	return limits
}

// PullQueue decides which pull may start. Pods take turns, so that one of many images does not
// delay the others; the images of one pod are pulled in the order in which they were requested. A
// pull that has to wait is not a failure and causes no back-off; with the kubelet it does.
type PullQueue struct {
	// Waiting are images in the order of their pulls: by turn, then first come, first served.
	Waiting []QueuedPull `json:"waiting,omitempty"`
	Turn    int          `json:"turn,omitempty"` // of the newest pull
	// Next has the first turn of the next image of a tenant, if that is after the current one: without
	// it, a tenant that needs the same image again and again would have every turn.
	Next     map[string]int `json:"next,omitempty"`
	InFlight int            `json:"inFlight"` // running pulls
	// AllowanceSpentUntil is until when the rate allowance is used up, but for Burst.
	AllowanceSpentUntil time.Time `json:"allowanceSpentUntil"`
}

// QueuedPull is an image whose pull waits. Turn numbers begin with the current one, and are
// consecutive for the images of one tenant (start-time fair queueing).
type QueuedPull struct {
	Name   string `json:"name"`
	Tenant string `json:"tenant"`
	Turn   int    `json:"turn"`
	// Ready is set once the intent to pull the image is recorded: only then its pull may start, and
	// one without does not delay those behind it.
	Ready bool `json:"ready,omitempty"`
}

// The first images of the queue are prepared: their intents are recorded, so that their pulls can
// start. An image that others come before keeps its intent for a while, as far as intentsKept from
// the front. So there are a few files, and not as many as pods wait for images.
const (
	preparedMax = 16
	intentsKept = 64
)

// prepared returns how many images are prepared: as many as may start now, and one more.
func (q *PullQueue) prepared(limits Limits) int {
	most := preparedMax
	if limits.ParallelMax > 0 {
		most = min(max(limits.ParallelMax-q.InFlight, 0)+1, preparedMax)
	}
	return min(most, len(q.Waiting))
}

// Head is what the next starts depend on: the names of the images that are prepared, and the first
// of those that may start.
type Head struct {
	Names []string
	Ready string
}

func (q *PullQueue) head(limits Limits) (h Head) {
	for i := range q.Waiting[:q.prepared(limits)] {
		h.Names = append(h.Names, q.Waiting[i].Name)
	}
	if at := q.firstReady(); at >= 0 {
		h.Ready = q.Waiting[at].Name
	}
	return h
}

// firstReady returns the index of the first image whose intent is recorded; -1 if there is none.
func (q *PullQueue) firstReady() int {
	return slices.IndexFunc(q.Waiting[:min(intentsKept, len(q.Waiting))],
		func(queued QueuedPull) bool { return queued.Ready })
}

// add adds an image to the queue, unless the queue has it, and returns its index.
func (q *PullQueue) add(name, tenant string) int {
	turn, at := max(q.Turn, q.Next[tenant]), 0
	for i := range q.Waiting {
		switch queued := &q.Waiting[i]; {
		case queued.Name == name:
			return i
		case queued.Tenant == tenant:
			turn = max(turn, queued.Turn+1)
		}
	}
	for at < len(q.Waiting) && q.Waiting[at].Turn <= turn {
		at++
	}
	q.Waiting = slices.Insert(q.Waiting, at, QueuedPull{Name: name, Tenant: tenant, Turn: turn})
	return at
}

// tryStart reports whether the pull of the image at an index may start now, and counts it as
// running if so. Otherwise the time is when the rate limit allows the pull. The time is zero if the
// image has to wait for other pulls: the owner plans the images of Head when one of them completes.
func (q *PullQueue) tryStart(at int, limits Limits, now time.Time) (bool, time.Time) {
	if q.firstReady() != at || limits.ParallelMax > 0 && q.InFlight >= limits.ParallelMax {
		return false, time.Time{}
	}
	if limits.Interval > 0 {
		due := q.AllowanceSpentUntil.Add(-limits.Interval * time.Duration(limits.Burst-1))
		if now.Before(due) {
			return false, due
		}
		if q.AllowanceSpentUntil.Before(now) {
			q.AllowanceSpentUntil = now
		}
		q.AllowanceSpentUntil = q.AllowanceSpentUntil.Add(limits.Interval)
	}
	q.startTurn(q.Waiting[at])
	q.Waiting = slices.Delete(q.Waiting, at, at+1)
	q.InFlight++
	return true, time.Time{}
}

// startTurn makes the turn of a pull that starts the current one, unless the pull was not ready in
// its turn, which has passed.
func (q *PullQueue) startTurn(pull QueuedPull) {
	q.Turn = max(q.Turn, pull.Turn)
	maps.DeleteFunc(q.Next, func(_ string, turn int) bool { return turn <= q.Turn })
	if q.Next == nil {
		q.Next = map[string]int{}
	}
	q.Next[pull.Tenant] = pull.Turn + 1
}

// remove removes an image that no longer needs a pull from the queue.
func (q *PullQueue) remove(name string) {
	q.Waiting = slices.DeleteFunc(q.Waiting, func(queued QueuedPull) bool {
		return queued.Name == name
	})
}

// Package imagegc removes images that no pod uses: those that were not used for too long, and, when
// the file system of the images is nearly full, those that were not used for the longest time.
//
// Facts: the images that the runtime has, with when each was first seen and last used; the round
// under way, with its lists, the image file system's state, and the removal in flight. Plan: every
// five minutes a round, which lists images and containers, removes images over the maximum age,
// measures the file system, and removes others one after another until enough is freed. While the
// pods are not known, a round lists only: images grow old meanwhile. Events: the completions of its
// operations, and the request of an eviction to remove everything unused.
//
// The times are those of this agent, as in the kubelet: after a restart every image is new. An
// image that a desired pod names is used, also before it has a container. Upstream:
// pkg/kubelet/images/image_gc_manager.go. Start reading at Collector.Plan.
package imagegc

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"seedlet.dev/core/imagename"
	"seedlet.dev/core/op"
	"seedlet.dev/core/timer"
)

// Owner is the key of the operations and the timer.
var Owner = timer.Key{Component: "imagegc"}

const (
	period         = 5 * time.Minute // ImageGCPeriod of the kubelet
	retryDelay     = 10 * time.Second
	callTimeout    = 2 * time.Minute // runtimeRequestTimeout of the kubelet, by default
	measureTimeout = 30 * time.Second
)

// Settings are the configuration of the collection.
type Settings struct {
	HighPercent int           `json:"highPercent"` // of the capacity that is used
	LowPercent  int           `json:"lowPercent"`
	AgeMin      time.Duration `json:"ageMin"`
	AgeMax      time.Duration `json:"ageMax"` // zero: images have no maximum age
}

// SettingsFromConfig returns the settings of a configuration with defaults.
func SettingsFromConfig(c *kubeletconfig.KubeletConfiguration) Settings {
	s := Settings{HighPercent: 100, LowPercent: 100, AgeMin: c.ImageMinimumGCAge.Duration,
		AgeMax: c.ImageMaximumGCAge.Duration}
	if c.ImageGCHighThresholdPercent != nil {
		s.HighPercent = int(*c.ImageGCHighThresholdPercent)
	}
	if c.ImageGCLowThresholdPercent != nil {
		s.LowPercent = int(*c.ImageGCLowThresholdPercent)
	}
	return s
}

// isOff reports whether nothing is collected without a request. Images are detected all the same:
// an eviction finds those that are older than the minimum age. Upstream: StartGarbageCollection,
// and realImageGCManager.Start.
func (s Settings) isOff() bool { return s.HighPercent == 100 && s.AgeMax == 0 }

// Collector is the state of the collection.
type Collector struct {
	Settings Settings           `json:"settings"`
	BeganAt  time.Time          `json:"beganAt"` // when this agent began to see images
	Records  map[string]*Record `json:"records,omitempty"`
	Round    *Round             `json:"round,omitempty"` // the one under way; nil: none
	NextAt   time.Time          `json:"nextAt"`          // of the next round
	DetectAt time.Time          `json:"detectAt"`        // of the next one that detects only
	Failures int                `json:"failures"`        // failed rounds in a row
	// UnusedWantedAt is when everything unused was requested to be removed, and UnusedRemovedAt is the
	// newest request that a round has satisfied as far as it could.
	UnusedWantedAt  time.Time `json:"unusedWantedAt"`
	UnusedRemovedAt time.Time `json:"unusedRemovedAt"`
	RemovedByAge    uint64    `json:"removedByAge"`
	RemovedBySpace  uint64    `json:"removedBySpace"`
}

// Record is an image that the runtime has.
type Record struct {
	FirstDetected time.Time `json:"firstDetected"`
	LastUsed      time.Time `json:"lastUsed"` // zero: never by this agent
	Bytes         int64     `json:"bytes"`
	Pinned        bool      `json:"pinned,omitempty"`
	Names         []string  `json:"names,omitempty"` // tags and digests, also in full
}

// Env is what the plan depends on besides the facts.
type Env struct {
	Effects *op.Effects
	// KnowsPods reports whether all sources of pods and the runtime have been listed: a pod that is
	// not known yet may name an image. Ready reports whether a round may remove images: the pods are
	// known, or were waited for in vain. Without them no image is removed for its age.
	KnowsPods, Ready bool
	// References returns the images that pods use or are about to use, by full name or by ID. In a
	// round for an eviction those of pods that are not being started do not count.
	References func(forEviction bool) []string
	Warn       func(reason, message string) // records a warning event of the Node
}

// RequestRemovalOfUnused has all unused images removed, by a round that begins now or later.
func (c *Collector) RequestRemovalOfUnused(now time.Time) { c.UnusedWantedAt = now }

// HasRemovedUnused reports whether the unused images were removed, as far as the runtime did, after
// a request of a time.
func (c *Collector) HasRemovedUnused(since time.Time) bool {
	return !c.UnusedRemovedAt.Before(since)
}

func (c *Collector) isUnusedWanted() bool { return c.UnusedWantedAt.After(c.UnusedRemovedAt) }

// IsRemovingUnused reports whether a round is under way that an eviction waits for: it removes all
// unused images, or the one that does begins after it.
func (c *Collector) IsRemovingUnused() bool {
	return c.Round != nil && (c.Round.All || c.isUnusedWanted())
}

// Plan starts a round if one is due, or takes its next step, and returns when to plan again.
func (c *Collector) Plan(env *Env) time.Time {
	now := env.Effects.Now()
	if c.BeganAt.IsZero() {
		c.BeganAt, c.DetectAt = now, now
	}
	if c.Round == nil {
		switch {
		case !c.isUnusedWanted() && now.Before(c.NextAt):
			return c.NextAt
		case !env.Ready && now.Before(c.DetectAt):
			return timer.Soonest(c.DetectAt, now.Add(retryDelay))
		}
		c.Round = &Round{WantedAt: c.UnusedWantedAt, DetectsOnly: !env.Ready,
			All: env.Ready && c.isUnusedWanted()}
		c.DetectAt = now.Add(retryDelay)
	}
	c.planRound(c.Round, env)
	switch {
	case c.Round != nil:
		return time.Time{}
	case c.isUnusedWanted():
		return now // requested during the round that has just ended
	}
	return timer.Later(now, c.NextAt) // a round for an eviction may have delayed one that was due
}

// detect records the images of a round's list.
func (c *Collector) detect(images []*runtimeapi.Image, since time.Time) {
	if c.Records == nil {
		c.Records = map[string]*Record{}
	}
	c.DetectAt = since.Add(period)
	present := map[string]bool{}
	for _, image := range images {
		if image.GetId() == "" {
			continue
		}
		present[image.Id] = true
		r := c.Records[image.Id]
		if r == nil {
			r = &Record{FirstDetected: since}
			c.Records[image.Id] = r
		}
		r.Bytes = int64(min(image.Size, math.MaxInt64))
		r.Pinned = image.Pinned
		r.Names = imagename.WithFullNames(slices.Concat(image.RepoTags, image.RepoDigests))
	}
	maps.DeleteFunc(c.Records, func(id string, _ *Record) bool { return !present[id] })
}

// noteUses records which images are used now, by the containers that the round has listed and by
// pods, and returns them. All are named in full.
func (c *Collector) noteUses(r *Round, env *Env, now time.Time) map[string]bool {
	pods := env.References(r.All)
	names := make(map[string]bool, len(r.InUse)+len(pods))
	for _, refs := range [...][]string{r.InUse, pods} {
		for _, ref := range refs {
			names[ref] = true
		}
	}
	used := map[string]bool{}
	for id, record := range c.Records { //ordered: a set
		if names[id] || slices.ContainsFunc(record.Names, func(n string) bool { return names[n] }) {
			used[id], record.LastUsed = true, now
		}
	}
	return used
}

// NoteUse records that a container which is created now uses the image with an ID: it may have been
// removed before a round lists the containers.
func (c *Collector) NoteUse(id string, now time.Time) {
	if r := c.Records[id]; r != nil {
		r.LastUsed = now
	}
}

// candidates returns the unused images in the order of their removal: that which was not used for
// the longest time first, of the same age that which was detected first.
func (c *Collector) candidates(used, tried map[string]bool) []string {
	var ids []string
	for id, r := range c.Records { //ordered: sorted below
		if !used[id] && !r.Pinned && !tried[id] {
			ids = append(ids, id)
		}
	}
	slices.SortFunc(ids, func(x, y string) int {
		a, b := c.Records[x], c.Records[y]
		return cmp.Or(a.LastUsed.Compare(b.LastUsed), a.FirstDetected.Compare(b.FirstDetected),
			cmp.Compare(x, y))
	})
	return ids
}

// IsRemoving reports whether the removal of the image with a name or ID is in flight.
func (c *Collector) IsRemoving(ref string) bool {
	if c.Round == nil || c.Round.Removing == "" {
		return false
	}
	r := c.Records[c.Round.Removing]
	return c.Round.Removing == ref || r != nil && slices.ContainsFunc(r.Names, func(n string) bool {
		return imagename.Split(n).Full() == imagename.Split(ref).Full()
	})
}

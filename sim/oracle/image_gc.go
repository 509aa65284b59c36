package oracle

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/sim/truth"
)

// imageGC fires when an image is removed that a container uses or that is pinned; when one is
// removed that is too new, or, without a request of an eviction, that is not too old while the
// images take less than the low threshold; and when nothing is removed although something has to
// be. A removal takes effect a moment after its request, so a container that was created in between
// is excused. Only images that no pod ever uses have to be removed: which others are unused is only
// seen by the agent's rounds.
type imageGC struct {
	uses map[string]truth.Fact // the creation of each container, by ID
	// usedAt is when the last container of an image was removed, and pulledAt when an image appeared
	// that had been absent.
	usedAt, pulledAt map[string]time.Time
	// fullSince is since when the images take more than the high threshold, and nothing was removed;
	// zero: they do not.
	fullSince time.Time
}

// ImageGC is how the agent has to collect images.
type ImageGC struct {
	// Filesystem returns what is used of the file system of the images, and its capacity. Nil: the
	// thresholds are not checked.
	Filesystem func() (used, capacity int64)
	// HighPercent is from how much of the capacity on images are removed, until less than LowPercent
	// is used.
	HighPercent, LowPercent int64
	AgeMin, AgeMax          time.Duration // AgeMax is zero if images have no maximum age
}

const (
	imageGCPeriod = 5 * time.Minute
	// imageGCBound is how long a round may take, besides its period.
	imageGCBound = 2 * time.Minute
)

func (*imageGC) describe() Entry {
	return Entry{"image-gc", "No image is removed that a container uses or that is pinned, none " +
		"before its minimum age, and none before its maximum age while the images take less than the " +
		"low threshold. An unused image is removed after its maximum age; if the images take more " +
		"than the high threshold for long, some unused one is."}
}

func (o *imageGC) checkFact(m *model, f *truth.Fact) *finding {
	switch f.Kind {
	case truth.ContainerCreated:
		if o.uses == nil {
			o.uses = map[string]truth.Fact{}
		}
		o.uses[f.ContainerID] = *f
	case truth.ContainerRemoved:
		c := o.uses[f.ContainerID]
		o.noteTime(&o.usedAt, c.Image, f.Time)
		o.noteTime(&o.usedAt, c.ContainerConfig.GetImage().GetUserSpecifiedImage(), f.Time)
		delete(o.uses, f.ContainerID)
	case truth.ImagePulled:
		if m.imagesRemoved[f.Image] {
			o.noteTime(&o.pulledAt, f.Image, f.Time)
		}
	case truth.ImageRemoved:
		return o.checkRemoval(m, f)
	}
	if !o.fullSince.IsZero() && isFreed(f.Kind) && !m.isImageDiskFull() {
		o.fullSince = time.Time{}
	}
	return nil
}

func (o *imageGC) noteTime(of *map[string]time.Time, image string, at time.Time) {
	if *of == nil {
		*of = map[string]time.Time{}
	}
	(*of)[image] = at
}

// isFreed reports whether facts of a kind may free space.
func isFreed(kind truth.Kind) bool {
	return kind == truth.ContainerRemoved || kind == truth.LayerResized ||
		kind == truth.PathRemoved || kind == truth.PathWritten || kind == truth.FileResized
}

func (o *imageGC) checkRemoval(m *model, f *truth.Fact) *finding {
	o.fullSince = time.Time{}
	for _, c := range o.uses { //ordered: whether there is one
		image := c.ContainerConfig.GetImage().GetUserSpecifiedImage()
		if (c.Image == f.Image || image == f.Image) && f.Time.Sub(c.Time) > callBound {
			return findingf("image %s was removed while a container uses it", f.Image)
		}
	}
	if f.IsPinned {
		return findingf("the pinned image %s was removed", f.Image)
	}
	return o.findEarlyRemoval(m, f)
}

// findEarlyRemoval returns why an image should not have been removed yet. The agent that runs now
// has seen it for as long as it has run, at most. If it has not asked for a removal, or one of
// before may have been late, an earlier agent may have.
func (o *imageGC) findEarlyRemoval(m *model, f *truth.Fact) *finding {
	gc, started := &m.opts.ImageGC, m.agentStartedAt
	if m.imageRemovalAskedAt.Before(started) || m.agentDown ||
		m.faultPossible("RemoveImage", started.Add(-callBound), f.Time) {
		started = time.Time{}
	}
	known := later(started, o.pulledAt[f.Image])
	if age := f.Time.Sub(known); age < gc.AgeMin {
		return findingf("image %s was removed %v after the agent can have seen it first, before %v",
			f.Image, age.Round(time.Second), gc.AgeMin)
	}
	if gc.Filesystem == nil || !m.opts.ImagesApart {
		return nil
	}
	used, capacity := gc.Filesystem()
	// The agent sees uses by its rounds.
	lastUsed := o.usedAt[f.Image].Add(-imageGCPeriod - imageGCBound)
	if unused := f.Time.Sub(later(known, lastUsed)); used+f.Bytes <= capacity*gc.LowPercent/100 &&
		(gc.AgeMax == 0 || unused < gc.AgeMax) {
		return findingf("image %s was removed while %d of %d bytes were used, which is less than %d%%",
			f.Image, used+f.Bytes, capacity, gc.LowPercent)
	}
	return nil
}

// isImageDiskFull reports whether the images take more than the high threshold.
func (m *model) isImageDiskFull() bool {
	gc := &m.opts.ImageGC
	if gc.Filesystem == nil || gc.HighPercent >= 100 {
		return false
	}
	used, capacity := gc.Filesystem()
	return used*100 >= capacity*gc.HighPercent
}

// checkServed finds images that should have been removed: an agent that runs has seen them in one
// round, and removes them in a later one that has no fault.
func (o *imageGC) checkServed(m *model, now time.Time, _ []*v1.Pod) *finding {
	gc := &m.opts.ImageGC
	switch isFull := m.isImageDiskFull(); {
	case !isFull:
		o.fullSince = time.Time{}
	case o.fullSince.IsZero():
		o.fullSince = now
	}
	if m.agentDown || gc.Filesystem == nil || o.fullSince.IsZero() && gc.AgeMax == 0 {
		return nil
	}
	image := m.unusedImage()
	if image == "" {
		return nil
	}
	since := later(later(m.agentStartedAt, o.pulledAt[image]), m.lastFault(now))
	due := since.Add(gc.AgeMin + 2*imageGCPeriod + imageGCBound)
	if !o.fullSince.IsZero() && now.After(later(due, o.fullSince.Add(imageGCPeriod+imageGCBound))) {
		return findingf("the images take more than %d%% since %s, but no image is removed, not even %s",
			gc.HighPercent, o.fullSince.Format(time.TimeOnly), image)
	}
	if gc.AgeMax > 0 && now.After(due.Add(gc.AgeMax)) {
		return findingf("image %s, which no pod uses, was not removed since %s, although its maximum "+
			"age is %v", image, since.Format(time.TimeOnly), gc.AgeMax)
	}
	return nil
}

// unusedImage returns an image that is present and that no pod ever uses; empty if there is none.
func (m *model) unusedImage() string {
	i := slices.IndexFunc(m.opts.UnusedImages, func(image string) bool {
		return !m.imagesRemoved[image]
	})
	if i < 0 {
		return ""
	}
	return m.opts.UnusedImages[i]
}

// unsettledImages returns which image has to be removed in the end, from a file system of images
// alone: on that of the root, pods may end up using less.
func (m *model) unsettledImages() []string {
	image := m.unusedImage()
	if image == "" || !m.opts.ImagesApart || m.opts.ImageGC.AgeMax == 0 && !m.isImageDiskFull() {
		return nil
	}
	return []string{"image " + image + ", which no pod uses, is not removed"}
}

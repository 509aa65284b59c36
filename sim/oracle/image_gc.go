package oracle

import (
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/sim/truth"
)

// imageGC fires when an image is removed that a container uses, that a pod is about to use, or that
// is pinned; when one is removed that is too new, or, without a request of an eviction, that is not
// too old while the images take less than the low threshold; when nothing is removed although
// something has to be; and when no Event says that nothing can be. A removal takes effect a moment
// after its request, so a container that was created in between is excused.
type imageGC struct {
	uses map[string]truth.Fact // the creation of each container, by ID; it has its image volumes
	// usedAt is when the last container of an image was removed, and pulledAt when an image appeared
	// that had been absent.
	usedAt, pulledAt map[string]time.Time
	// idleSince is since when each image that is present has not been used by any container, nor
	// named by any pod that is desired.
	idleSince map[string]time.Time
	// fullSince is since when the images take more than the high threshold, and nothing was removed;
	// zero: they do not.
	fullSince time.Time
	// freeFailedAt is when an Event last said that too little can be freed, and freeFailures in how
	// many rounds of one agent that was so, one after the other. gcFailedAt is when an Event last said
	// that a round has failed.
	freeFailedAt, gcFailedAt time.Time
	freeFailures             int
	// reclaimedAt is when an image was last removed before an eviction.
	reclaimedAt time.Time
	// round is the last round that has removed an image for the space, and servedUsed what was used
	// when statuses were served the last two times.
	round      imageRound
	servedUsed [2]int64
}

// imageRound is a round that removes images for the space.
type imageRound struct {
	began        time.Time // when it removed the first one; zero: there was no round, or it is judged
	needs, freed int64     // bytes
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
	// imageReclaimBound is how long after an observation that leads to an eviction, or after another
	// image, an image may be removed for it: containers go before, and each removal may take the two
	// minutes of its call.
	imageReclaimBound = 3 * time.Minute
)

func (*imageGC) describe() Entry {
	return Entry{"image-gc", "No image is removed that a container uses or that is pinned, none " +
		"that a pod that is served names, none before its minimum age, and none before its maximum age " +
		"while the images take less than the low threshold, but for an eviction. An unused image is " +
		"removed after its maximum age, also if a pod used it before; if the images take more than the " +
		"high threshold for long, some unused one is, and then others until they take less than the " +
		"low one, or an event says that too little can be removed. " +
		"The second such round in a row has an event of its own."}
}

func (o *imageGC) checkFact(m *model, f *truth.Fact) *finding {
	switch f.Kind {
	case truth.ContainerCreated:
		if o.uses == nil {
			o.uses = map[string]truth.Fact{}
		}
		o.uses[f.ContainerID] = *f
		for _, image := range usedImages(f) {
			o.noteTime(&o.idleSince, image, f.Time)
			m.imagesFreeSince[image] = f.Time
		}
	case truth.ContainerRemoved:
		c := o.uses[f.ContainerID]
		o.noteTime(&o.usedAt, c.Image, f.Time)
		for _, image := range usedImages(&c) {
			o.noteTime(&o.usedAt, image, f.Time)
		}
		delete(o.uses, f.ContainerID)
	case truth.ImagePulled:
		if m.imagesAbsent[f.Image] {
			o.noteTime(&o.pulledAt, f.Image, f.Time)
		}
		o.noteTime(&o.idleSince, f.Image, f.Time)
	case truth.ImageRemoved:
		delete(o.idleSince, f.Image)
		if f.Cause != truth.CauseAdministrator {
			return o.checkRemoval(m, f)
		}
	case truth.EventRecorded:
		o.noteEvent(m, f)
	}
	if !o.fullSince.IsZero() && isFreed(f.Kind) && !m.isImageDiskFull() {
		o.fullSince = time.Time{}
	}
	return nil
}

// usedImages returns the names of the images that a container uses: its own, and those of its image
// volumes.
func usedImages(created *truth.Fact) []string {
	return append([]string{created.ContainerConfig.GetImage().GetUserSpecifiedImage()},
		created.ImageMounts...)
}

func (o *imageGC) noteTime(of *map[string]time.Time, image string, at time.Time) {
	if *of == nil {
		*of = map[string]time.Time{}
	}
	(*of)[image] = at
}

// isFreed reports whether facts of a kind may free space.
func isFreed(kind truth.Kind) bool {
	return kind == truth.ContainerRemoved || kind == truth.LayerResized || kind == truth.LayerFreed ||
		kind == truth.PathRemoved || kind == truth.PathWritten || kind == truth.FileResized
}

// noteEvent notes an Event about a round.
func (o *imageGC) noteEvent(m *model, f *truth.Fact) {
	switch f.Reason {
	case "FreeDiskSpaceFailed":
		isNext := !o.freeFailedAt.Before(m.agentStartedAt) &&
			f.Time.Sub(o.freeFailedAt) < imageGCPeriod+imageGCBound &&
			f.Time.Sub(o.freeFailedAt) >= imageGCPeriod
		if o.freeFailures++; !isNext {
			o.freeFailures = 1
		}
		o.freeFailedAt = f.Time
	case "ImageGCFailed":
		o.gcFailedAt = f.Time
	}
}

func (o *imageGC) checkRemoval(m *model, f *truth.Fact) *finding {
	o.fullSince = time.Time{}
	for _, c := range o.uses { //ordered: whether there is one
		isUsed := c.Image == f.Image || slices.Contains(usedImages(&c), f.Image)
		if isUsed && f.Time.Sub(c.Time) > callBound {
			return findingf("image %s was removed while a container uses it", f.Image)
		}
	}
	for _, p := range m.podsInOrder {
		if p.isServed && p.isAboutToUse(f.Image) && f.Time.Sub(p.firstDesiredAt) > callBound {
			return findingf("image %s was removed, which pod %s is about to use", f.Image, p)
		}
	}
	if f.IsPinned {
		return findingf("the pinned image %s was removed", f.Image)
	}
	return o.findEarlyRemoval(m, f)
}

// isAboutToUse reports whether a container of the pod may need an image at any moment.
func (p *pod) isAboutToUse(image string) bool {
	return p.names(image) && len(p.specs) == 1 && !p.wasRemoved() && !p.rejected &&
		p.servedTerminal == "" && p.terminalAt.IsZero() && !p.mayBeKilled(p.model.now) &&
		!p.hasExitedForGood()
}

// names reports whether a container or a volume of a pod that is desired names an image.
func (p *pod) names(image string) bool {
	has := func(c v1.Container) bool { return c.Image == image }
	return p.spec != nil && (slices.ContainsFunc(p.spec.Spec.Containers, has) ||
		slices.ContainsFunc(p.spec.Spec.InitContainers, has) ||
		slices.ContainsFunc(p.spec.Spec.EphemeralContainers, func(c v1.EphemeralContainer) bool {
			return c.Image == image
		}) ||
		slices.ContainsFunc(p.spec.Spec.Volumes, func(v v1.Volume) bool {
			return v.Image != nil && v.Image.Reference == image
		}))
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
	asked := later(m.pressure.lastStarved(m.hasImages), o.reclaimedAt)
	if f.Time.Sub(asked) <= imageReclaimBound {
		o.reclaimedAt = f.Time
		return nil
	}
	o.noteRound(m, f)
	used, capacity := gc.Filesystem()
	// The agent sees uses by its rounds, of which those that fail see none.
	lastUsed := o.usedAt[f.Image].Add(-imageGCPeriod - imageGCBound)
	if m.anyFaultPossible(lastUsed, o.usedAt[f.Image], "ListImages", "ListContainers") {
		lastUsed = time.Time{}
	}
	if unused := f.Time.Sub(later(known, lastUsed)); used+f.Bytes <= capacity*gc.LowPercent/100 &&
		(gc.AgeMax == 0 || unused < gc.AgeMax) {
		return findingf("image %s was removed while %d of %d bytes were used, which is less than %d%%",
			f.Image, used+f.Bytes, capacity, gc.LowPercent)
	}
	return nil
}

// noteRound notes a removal for the space. The file system may have been measured before something
// else was written.
func (o *imageGC) noteRound(m *model, f *truth.Fact) {
	r, gc := &o.round, &m.opts.ImageGC
	if used, capacity := gc.Filesystem(); r.began.IsZero() {
		used = min(used+f.Bytes, o.servedUsed[0], o.servedUsed[1])
		if used*100 < capacity*gc.HighPercent || o.mayBeTooOld(m, f) {
			return
		}
		*r = imageRound{began: f.Time, needs: used - capacity*gc.LowPercent/100 - 1} // rounded
	}
	r.freed += f.Bytes
}

// mayBeTooOld reports whether an image may have been removed for its age.
func (o *imageGC) mayBeTooOld(m *model, f *truth.Fact) bool {
	age := f.Time.Sub(later(o.usedAt[f.Image], o.pulledAt[f.Image])) + imageGCPeriod + imageGCBound
	return m.opts.ImageGC.AgeMax > 0 && age >= m.opts.ImageGC.AgeMax
}

// findEarlyEnd returns which image the last round has left, although it has freed too little.
func (o *imageGC) findEarlyEnd(m *model, now, began time.Time) *finding {
	r, gc := o.round, &m.opts.ImageGC
	if r.began.IsZero() || now.Sub(r.began) <= imageGCBound {
		return nil
	}
	o.round = imageRound{}
	if r.freed >= r.needs || began.After(r.began.Add(-callBound)) {
		return nil
	}
	for _, image := range slices.Sorted(maps.Keys(o.idleSince)) {
		since := later(began, later(o.idleSince[image], o.pulledAt[image]))
		if r.began.After(since.Add(gc.AgeMin + imageGCPeriod + imageGCBound)) {
			return findingf("at %s %d bytes of images had to be removed, but %d were, and image %s is left",
				r.began.Format(time.TimeOnly), r.needs, r.freed, image)
		}
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
	if gc.Filesystem == nil {
		return nil
	}
	o.servedUsed[0] = o.servedUsed[1]
	o.servedUsed[1], _ = gc.Filesystem()
	if m.agentDown {
		return nil
	}
	o.noteIdle(m, now)
	if o.freeFailures > 1 && o.gcFailedAt.Before(o.freeFailedAt) {
		return findingf("images have to be removed in %d rounds in a row, of which the last was at %s, "+
			"but no event ImageGCFailed says so", o.freeFailures, o.freeFailedAt.Format(time.TimeOnly))
	}
	began := later(m.agentStartedAt, m.lastFault(now))
	if full := later(began, o.fullSince); !o.fullSince.IsZero() &&
		now.After(full.Add(2*imageGCPeriod+imageGCBound)) && o.freeFailedAt.Before(full) {
		return findingf("the images take more than %d%% since %s, but no image is removed, and no event "+
			"FreeDiskSpaceFailed says why", gc.HighPercent, o.fullSince.Format(time.TimeOnly))
	}
	if early := o.findEarlyEnd(m, now, began); early != nil {
		return early
	}
	return o.findUnremoved(m, now, began)
}

// findUnremoved returns which image should have been removed by an agent that has run without a
// fault since a time.
func (o *imageGC) findUnremoved(m *model, now, began time.Time) *finding {
	gc := &m.opts.ImageGC
	if o.fullSince.IsZero() && gc.AgeMax == 0 {
		return nil
	}
	for image, idle := range o.idleSince { //ordered: whether there is one
		since := later(began, later(idle, o.pulledAt[image]))
		due := since.Add(gc.AgeMin + 2*imageGCPeriod + imageGCBound)
		if !o.fullSince.IsZero() &&
			now.After(later(due, o.fullSince.Add(imageGCPeriod+imageGCBound))) {
			return findingf("the images take more than %d%% since %s, but no image is removed, not even %s",
				gc.HighPercent, o.fullSince.Format(time.TimeOnly), image)
		}
		if gc.AgeMax > 0 && now.After(due.Add(gc.AgeMax)) {
			return findingf("image %s, which no pod uses, was not removed since %s, although its maximum "+
				"age is %v", image, since.Format(time.TimeOnly), gc.AgeMax)
		}
	}
	return nil
}

// noteIdle notes which images are in use now.
func (o *imageGC) noteIdle(m *model, now time.Time) {
	for _, image := range m.opts.UnusedImages {
		if _, known := o.idleSince[image]; !known && !m.imagesAbsent[image] {
			o.noteTime(&o.idleSince, image, time.Time{})
		}
	}
	for _, c := range o.uses { //ordered: all get the same time
		for _, image := range usedImages(&c) {
			if !m.imagesAbsent[image] {
				o.noteTime(&o.idleSince, image, now)
			}
		}
	}
	o.noteFree(m, now)
	m.idleImages = nil
	for image, since := range o.idleSince { //ordered: each alone, and sorted below
		isNamed := slices.ContainsFunc(m.podsInOrder, func(p *pod) bool { return p.names(image) })
		if isNamed {
			o.idleSince[image] = now
		} else if since.Before(now) {
			m.idleImages = append(m.idleImages, image)
		}
	}
	slices.Sort(m.idleImages)
}

// noteFree notes which images an eviction could have removed now: those that no container uses, and
// no pod names that has not ended.
func (o *imageGC) noteFree(m *model, now time.Time) {
	used := map[string]bool{}
	for _, c := range o.uses { //ordered: a set
		for _, image := range usedImages(&c) {
			used[image] = true
		}
	}
	for image, idle := range o.idleSince { //ordered: each alone
		if _, known := m.imagesFreeSince[image]; !known && idle.IsZero() {
			m.imagesFreeSince[image] = idle // it was never used
		} else if !known || used[image] || m.isNamedByLive(image) {
			m.imagesFreeSince[image] = now
		}
	}
}

// isNamedByLive reports whether a pod that is desired and has not ended names an image.
func (m *model) isNamedByLive(image string) bool {
	return slices.ContainsFunc(m.podsInOrder, func(p *pod) bool {
		return p.names(image) && p.terminalAt.IsZero()
	})
}

// unsettledImages returns which image has to be removed in the end, from a file system of images
// alone: on that of the root, pods may end up using less.
func (m *model) unsettledImages() []string {
	if len(m.idleImages) == 0 || !m.opts.ImagesApart ||
		m.opts.ImageGC.AgeMax == 0 && !m.isImageDiskFull() {
		return nil
	}
	return []string{"image " + m.idleImages[0] + ", which no pod uses, is not removed"}
}

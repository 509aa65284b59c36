package oracle

import (
	"maps"
	"slices"
	"time"

	"seedlet.dev/sim/truth"
)

// reclaim fires when a pod is evicted for a file system although the node could have removed
// something first: the containers of a pod that ended before, or an image that no pod uses.
type reclaim struct {
	removed map[string]bool // images, by reference
}

func (*reclaim) describe() Entry {
	return Entry{"reclaim", "Before a pod is evicted for a file system, the containers of the pods " +
		"of the API server that have ended are removed, if their writable layers are on it, and then " +
		"the unused images, if these are, also those that pods have used; otherwise the newest run of " +
		"a container stays as long as its pod is desired, unless the pod was evicted or preempted."}
}

const (
	// reclaimBound is how old the end of a pod must be for its containers to be removed before the
	// next eviction: a reclaim counts for 30 s, and takes 10 s at most, with what lies between.
	reclaimBound = 55 * time.Second
	// freeImageBound is how long an image must not have been in use for it to be removed before the
	// next eviction: a reclaim counts as well while the pods are observed, for up to 35 s.
	freeImageBound = 100 * time.Second
	// imageAgeMin is how long the agent must have known an image: imageMinimumGCAge, and a reclaim.
	imageAgeMin = 2*time.Minute + reclaimBound
)

// reclaimCalls are the calls of a reclaim, and those by which the agent knows what it can remove.
var reclaimCalls = []string{"RemoveContainer", "RemoveImage", "ListImages", "ListContainers",
	"ListPodSandbox", "RemoveTree", "ListDir", "ContainerStatus", "StopContainer", "StopPodSandbox",
	"PatchObject", "WatchObjects", "ObjectChanged", "WriteFile", "ReadTail", "Unmount",
	"ImageFsInfo", "MeasureFilesystem"}

func (o *reclaim) checkFact(m *model, f *truth.Fact) *finding {
	switch f.Kind {
	case truth.ImageRemoved:
		if o.removed == nil {
			o.removed = map[string]bool{}
		}
		o.removed[f.Image] = true
		return o.findEarlyImage(m, f)
	case truth.ContainerRemoved:
		return o.findNeedlessRemoval(m, f)
	case truth.EventRecorded:
		if f.Reason == reasonEvicted && isForDisk(f.Message) &&
			!m.anyFaultPossible(f.Time.Add(-reclaimBound), f.Time, reclaimCalls...) {
			return o.findUnreclaimed(m, f)
		}
	}
	return nil
}

// findNeedlessRemoval returns why the newest run of a container should not have been removed: its
// pod has ended, but is still desired, and no file system is short of anything, or the pod is a
// static one, whose containers alone say that it has run.
func (o *reclaim) findNeedlessRemoval(m *model, f *truth.Fact) *finding {
	c := m.containers[f.ContainerID]
	if c == nil || c.pod.spec == nil || c.pod.wasRemoved() ||
		f.Cause == truth.CauseAdministrator || c.pod.removedByHand ||
		c.pod.historyOf(c.name).last != c || !c.hasRun() {
		return nil
	}
	if p := c.pod; p.static {
		if p.servedTerminal == "" || p.liveContainers > 0 || p.mayBeKilled(f.Time) || f.Cause != "" {
			return nil
		}
		return findingf("%s was removed, whose static pod has ended but is still desired", c)
	}
	if c.pod.terminalAt.IsZero() || f.Time.Sub(m.pressure.lastStarved(m.hasLayers)) <= reclaimBound {
		return nil
	}
	object := c.pod.object()
	if object == nil || object.DeletionTimestamp != nil || isEvictedOrPreempted(object) {
		return nil
	}
	return findingf("%s was removed, whose pod has ended but is still desired, although no threshold "+
		"of the file system of writable layers was met", c)
}

// findUnreclaimed returns what could have been removed before an eviction, from each file system
// that may have been the reason.
func (o *reclaim) findUnreclaimed(m *model, f *truth.Fact) *finding {
	resource, _ := lowResource(f.Message)
	sources := m.pressure.starvedSources(resource)
	lacks := func(has func(source string) bool) bool {
		return len(sources) > 0 &&
			!slices.ContainsFunc(sources, func(source string) bool { return !has(source) })
	}
	if c := m.leftContainer(f.Time); c != nil && lacks(m.hasLayers) {
		return findingf("pod %s is evicted for a file system, but %s is left, whose pod has ended %v ago",
			m.pods[f.PodUID], c, f.Time.Sub(c.pod.terminalAt).Round(time.Second))
	}
	if !lacks(m.hasImages) || f.Time.Sub(m.agentStartedAt) <= imageAgeMin {
		return nil
	}
	for _, image := range m.opts.UnusedImages {
		if !o.removed[image] {
			return findingf("pod %s is evicted for a file system, but image %s, which no pod uses, is left",
				m.pods[f.PodUID], image)
		}
	}
	return findLeftImage(m, f)
}

// findLeftImage returns which image could have been removed before an eviction that pods have used.
// One that was pulled is known to the agent since the next round of its garbage collection.
func findLeftImage(m *model, f *truth.Fact) *finding {
	for _, image := range slices.Sorted(maps.Keys(m.imagesFreeSince)) {
		since, known := m.imagesFreeSince[image], m.agentStartedAt
		if pulled := m.imagesPulledAt[image]; !pulled.IsZero() {
			known = later(known, pulled.Add(imageGCPeriod))
		}
		if m.imagesAbsent[image] || f.Time.Sub(since) <= freeImageBound ||
			f.Time.Sub(known) <= imageAgeMin || m.isNamedByLive(image) {
			continue
		}
		return findingf("pod %s is evicted for a file system, but image %s is left, which no container "+
			"uses since %s", m.pods[f.PodUID], image, since.Format(time.TimeOnly))
	}
	return nil
}

// findEarlyImage returns that an image was removed for an eviction, although a container is left
// that goes first: it can only be made again from the image.
func (o *reclaim) findEarlyImage(m *model, f *truth.Fact) *finding {
	isShared := func(source string) bool { return m.hasLayers(source) && m.hasImages(source) }
	since, gc := f.Time.Add(-imageReclaimBound), &m.opts.ImageGC
	if gc.Filesystem == nil {
		return nil
	}
	used, capacity := gc.Filesystem()
	mayBeCollected := gc.AgeMax > 0 || used+f.Bytes >= capacity*gc.LowPercent/100
	if f.Cause != "" || mayBeCollected ||
		m.pressure.lastStarved(isShared).Before(since) || m.agentStartedAt.After(since) ||
		m.anyFaultPossible(since, f.Time, reclaimCalls...) {
		return nil // it may have been removed for another reason, or by an earlier agent
	}
	if c := m.leftContainer(f.Time); c != nil {
		return findingf("image %s is removed for an eviction, but %s is left, whose pod has ended %v ago",
			f.Image, c, f.Time.Sub(c.pod.terminalAt).Round(time.Second))
	}
	return nil
}

// leftContainer returns a container that should have been removed for the space by now.
func (m *model) leftContainer(now time.Time) *container {
	for _, p := range m.podsInOrder {
		if p.static || p.terminalAt.IsZero() || p.externalPhase != "" || p.liveContainers > 0 ||
			len(p.specs) != 1 || now.Sub(later(p.terminalAt, m.agentStartedAt)) <= reclaimBound {
			continue
		}
		for _, c := range p.containers {
			if c.state == exited && now.Sub(c.exitedAt) > reclaimBound {
				return c
			}
		}
	}
	return nil
}

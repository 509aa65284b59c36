package core

import (
	"time"

	"seedlet.dev/core/eviction"
	"seedlet.dev/core/imagegc"
	"seedlet.dev/core/imagename"
	"seedlet.dev/core/op"
	"seedlet.dev/core/pod"
	"seedlet.dev/world"
)

func (a *Agent) planImageGC() time.Time {
	return a.state.ImageGC.Plan(a.imageGCEnv())
}

// podsAwaited is how long the images of pods that only the API server knows are waited for. A disk
// fills while the API server is away, as well, and what the runtime has tells which images the
// containers use; the kubelet goes by that alone.
const podsAwaited = 5 * time.Minute

func (a *Agent) imageGCEnv() *imagegc.Env {
	s := &a.state
	knowsPods := a.hasListedEverything()
	knowsContainers := s.Manifests.Ready() && !s.Relist.AsOf.IsZero()
	return &imagegc.Env{Effects: &a.effects, KnowsPods: knowsPods,
		Ready:      knowsPods || knowsContainers && s.Now.Sub(s.BootedAt) >= podsAwaited,
		References: a.imageReferences, Warn: a.warnOfNode}
}

// imageReferences returns the images that pods use or will soon use, by name and ID: those of the
// pods that need them, of manifests that no pod has yet, those that containers mount
// (handleImageVolumes in pkg/kubelet/images/image_gc_manager.go), and those that are being pulled.
// The images that containers run are listed by the runtime, so a pod that has ended uses none
// besides. Pods of the API server that were not admitted name as many images as their authors like,
// and keep none of them.
func (a *Agent) imageReferences(forEviction bool) []string {
	var refs []string
	for _, uid := range a.podUIDs {
		p := a.state.Pods[uid]
		if needsImages(p, forEviction) {
			refs = append(refs, p.ImageNames()...)
		}
		for i := range p.Containers {
			refs = append(refs, p.Containers[i].MountedImages...)
		}
	}
	for _, spec := range a.state.Manifests.Pods() {
		if p := a.state.Pods[string(spec.UID)]; p == nil || p.Spec != spec {
			refs = pod.AppendImageNames(refs, &spec.Spec)
		}
	}
	for _, img := range a.state.Images.Images { //ordered: a set
		refs = append(refs, img.Ref, imagename.Split(img.Ref).Full(), img.ID)
	}
	return refs
}

// needsImages reports whether the images that the spec of a pod names must not be removed. A pod
// that is refused is never started. An eviction ends pods that run, so before it the images of pods
// that wait, for as long as their authors like, are removed.
func needsImages(p *pod.Pod, forEviction bool) bool {
	hasSandbox := len(p.Sandboxes) > 0 || p.Op != 0
	switch {
	case p.Spec == nil, p.Stage == pod.Terminated && !p.IsStatic():
		return false
	case !hasSandbox && (p.OverBudget || p.WaitsForBudget()):
		return false
	}
	return hasSandbox || !forEviction
}

// handleImageGCCompletion handles the completion of an operation. The images whose operations wait
// for the end of a removal are planned.
func (a *Agent) handleImageGCCompletion(r op.Record, ev world.Event) {
	a.state.ImageGC.HandleCompletion(r, ev, a.imageGCEnv())
	if a.state.ImageGC.IsRemovingUnused() {
		a.state.Eviction.NoteRemoval(a.state.Now)
	}
	a.queue.enqueue(eviction.Owner) // which may wait for the end of a removal
	if r.Call == "RemoveImage" {
		a.state.Images.Records.Removed(r.Subject)
		a.enqueueImages(a.state.Images.Names())
	}
}

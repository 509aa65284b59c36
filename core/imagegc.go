package core

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/core/eviction"
	"seedlet.dev/core/image"
	"seedlet.dev/core/imagegc"
	"seedlet.dev/core/op"
	"seedlet.dev/core/pod"
	"seedlet.dev/core/statuswriter"
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

// imageReferences returns the images that pods use or are about to use: those of all specs that are
// known or desired, and those that are being pulled. The images of containers are listed by the
// runtime, so a pod of the API server that has ended uses none besides.
func (a *Agent) imageReferences() []string {
	var refs []string
	add := func(spec *v1.Pod) { refs = appendImages(refs, &spec.Spec) }
	for _, uid := range a.podUIDs {
		if p := a.state.Pods[uid]; p.Spec != nil && (p.Stage != pod.Terminated || p.IsStatic()) {
			add(p.Spec)
		}
	}
	for name := range a.state.APIPodUIDs { //ordered: a set
		if object := a.apiPod(name); object != nil && !statuswriter.IsTerminal(&object.Status) {
			add(object)
		}
	}
	for _, spec := range a.state.Manifests.Pods() {
		add(spec)
	}
	for _, img := range a.state.Images.Images { //ordered: a set
		refs = append(refs, img.Ref, img.ID)
	}
	return refs
}

func appendImages(refs []string, spec *v1.PodSpec) []string {
	for i := range spec.InitContainers {
		refs = append(refs, spec.InitContainers[i].Image)
	}
	for i := range spec.Containers {
		refs = append(refs, spec.Containers[i].Image)
	}
	for i := range spec.EphemeralContainers {
		refs = append(refs, spec.EphemeralContainers[i].Image)
	}
	for i := range spec.Volumes {
		if source := spec.Volumes[i].Image; source != nil {
			refs = append(refs, source.Reference)
		}
	}
	return refs
}

// handleImageGCCompletion handles the completion of an operation. The images whose operations wait
// for the end of a removal are planned.
func (a *Agent) handleImageGCCompletion(r op.Record, ev world.Event) {
	a.state.ImageGC.HandleCompletion(r, ev, a.imageGCEnv())
	if r := a.state.ImageGC.Round; r != nil && r.All {
		a.state.Eviction.NoteRemoval(a.state.Now)
	}
	a.queue.enqueue(eviction.Owner) // which may wait for the end of a removal
	if r.Call == "RemoveImage" {
		for _, name := range a.state.Images.Names() {
			a.queue.enqueue(image.Key(name))
		}
	}
}

package pod

import (
	v1 "k8s.io/api/core/v1"

	"seedlet.dev/core/budget"
	"seedlet.dev/core/imagename"
)

// imageNames are the images that a spec names. A collection of images asks for those of all pods
// before each removal, and taking a reference apart takes longer than all else there.
type imageNames struct {
	of    *v1.Pod // the spec, which is never changed in place
	waits bool    // see ImageNames
	names []string
}

// ImageNames returns the images that the spec names, as written and in full, each once. Ephemeral
// containers that make the pod exceed its budget are not started, and their images do not count:
// there may be any number of them.
func (p *Pod) ImageNames() []string {
	if waits := p.WaitsForBudget(); p.images.of != p.Spec || p.images.waits != waits {
		spec := &p.Spec.Spec
		if waits {
			first := *spec
			first.EphemeralContainers = nil
			spec = &first
		}
		p.images = imageNames{of: p.Spec, waits: waits, names: AppendImageNames(nil, spec)}
	}
	return p.images.names
}

// AppendImageNames appends the images that a spec names, as written and in full, each once. A
// reference with too many bytes is never pulled.
func AppendImageNames(names []string, spec *v1.PodSpec) []string {
	var refs []string
	add := func(ref string) {
		if len(ref) <= budget.ImageReferenceMax {
			refs = append(refs, ref)
		}
	}
	for i := range spec.InitContainers {
		add(spec.InitContainers[i].Image)
	}
	for i := range spec.Containers {
		add(spec.Containers[i].Image)
	}
	for i := range spec.EphemeralContainers {
		add(spec.EphemeralContainers[i].Image)
	}
	for i := range spec.Volumes {
		if source := spec.Volumes[i].Image; source != nil {
			add(source.Reference)
		}
	}
	return append(names, imagename.WithFullNames(refs)...)
}

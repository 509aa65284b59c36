package pod

import (
	v1 "k8s.io/api/core/v1"

	"seedlet.dev/core/budget"
	"seedlet.dev/core/claim"
	"seedlet.dev/core/criconfig"
)

// specIndex finds the containers and volumes of a spec by their names. A pod may have thousands of
// them, so a plan that searched the spec for each one would be quadratic in the size of the pod.
type specIndex struct {
	of         *v1.Pod // the spec, which is never changed in place
	containers map[string]indexedContainer
	volumes    map[string]*v1.Volume
	claims     []*v1.Volume // those with a claim
	// images is the error of references to images that have too many bytes.
	images error
}

// indexedContainer is what a spec and the reported status say about one name.
type indexedContainer struct {
	container    *v1.Container // nil if the spec has none of that name
	role         Role
	sidecarOrder int // the place of a sidecar among the init containers, from one
	// restarts is the restart count in the reported status, if that has a run.
	restarts    int32
	wasReported bool
	// reported is the reported status, if the container runs or has ended by it.
	reported *v1.ContainerStatus
}

// indexed returns the entry of a name in the index of the current spec; the zero value if there is
// none. The first container of a name counts, as in criconfig.FindContainer.
func (p *Pod) indexed(name string) indexedContainer { return p.specIndex().containers[name] }

// specVolume returns the volume of the spec with the given name; nil if the spec has none.
func (p *Pod) specVolume(name string) *v1.Volume { return p.specIndex().volumes[name] }

// specIndex returns the index of the current spec.
func (p *Pod) specIndex() *specIndex {
	if p.index.of != p.Spec {
		p.index = newSpecIndex(p.Spec)
	}
	return &p.index
}

func newSpecIndex(pod *v1.Pod) specIndex {
	index := specIndex{of: pod}
	if pod == nil {
		return index
	}
	spec, status := &pod.Spec, &pod.Status
	index.containers = make(map[string]indexedContainer,
		len(spec.InitContainers)+len(spec.Containers)+len(spec.EphemeralContainers))
	add := func(container *v1.Container, role Role, sidecarOrder int) {
		if index.containers[container.Name].container == nil {
			index.containers[container.Name] = indexedContainer{
				container: container, role: role, sidecarOrder: sidecarOrder}
		}
	}
	for i := range spec.InitContainers {
		container, order := &spec.InitContainers[i], 0
		role := InitRole(container)
		if role == Sidecar {
			order = i + 1
		}
		add(container, role, order)
	}
	for i := range spec.Containers {
		add(&spec.Containers[i], App, 0)
	}
	for i := range spec.EphemeralContainers {
		add(criconfig.EphemeralContainer(&spec.EphemeralContainers[i]), Ephemeral, 0)
	}
	for i := range spec.Volumes {
		if claim.Name(pod, &spec.Volumes[i]) != "" {
			index.claims = append(index.claims, &spec.Volumes[i])
		}
	}
	index.volumes, index.images = criconfig.VolumesByName(spec), budget.CheckImageReferences(spec)
	for _, list := range [][]v1.ContainerStatus{status.InitContainerStatuses,
		status.ContainerStatuses} {
		for i := range list {
			entry, s := index.containers[list[i].Name], &list[i]
			if entry.container != nil && s.ContainerID != "" &&
				(s.State.Running != nil || s.State.Terminated != nil) {
				entry.reported = s
				index.containers[s.Name] = entry
			}
			if !entry.wasReported && (s.ContainerID != "" || s.RestartCount > 0) {
				entry.restarts, entry.wasReported = s.RestartCount, true
				index.containers[s.Name] = entry
			}
		}
	}
	return index
}

// specContainer returns the container of the spec with the given name; nil if the spec has none.
func (p *Pod) specContainer(name string) *v1.Container { return p.indexed(name).container }

// roleOf returns the role of a container of the spec. A container that the spec does not have
// counts as an app container.
func (p *Pod) roleOf(name string) Role {
	if entry := p.indexed(name); entry.container != nil {
		return entry.role
	}
	return App
}

// sidecarOrder returns the place of a sidecar among the init containers, from one; zero if the
// container is no sidecar.
func (p *Pod) sidecarOrder(name string) int { return p.indexed(name).sidecarOrder }

// ReportedRestarts returns the restart count in the status that the API server has, and whether
// that status has a run of the container. The runtime may have lost the records of all runs, as in
// a reboot.
func (p *Pod) ReportedRestarts(name string) (restarts int32, known bool) {
	entry := p.indexed(name)
	return entry.restarts, entry.wasReported
}

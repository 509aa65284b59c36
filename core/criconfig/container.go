package criconfig

import (
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/core/image"
)

// Images are the images that a container is created from.
type Images struct {
	Container Image            // the image that the container runs
	Volumes   map[string]Image // the images that it mounts (KEP-4639), by the volume's name
}

// Image is an image that the runtime has.
type Image struct {
	ID   string
	User image.User
}

// imageSpec returns an image that the runtime has, by its ID, with the reference of the spec.
func imageSpec(found Image, reference string) *runtimeapi.ImageSpec {
	return &runtimeapi.ImageSpec{Image: found.ID, UserSpecifiedImage: reference}
}

// CheckContainer returns why a container cannot be created as the spec defines it, whatever its
// images are; nil if it can. It returns also how many bytes the check has built, as
// budget.ExpandedBytesOfPod counts them. A container that needs more than bytesMax is refused.
func (p *Pod) CheckContainer(container *v1.Container, bytesMax int) (expanded int, err error) {
	if err := p.checkRunAsNonRoot(container); err != nil {
		return 0, err
	}
	if err := checkProfiles(&p.Spec.Spec, container); err != nil {
		return 0, err
	}
	p.expandedMax = bytesMax
	variables, err := p.ownEnvironment(container)
	all := arguments{variables: variables}
	if err == nil {
		_, _, err = all.commandLine(container)
	}
	if err == nil {
		_, err = p.mounts(container, variables, Images{})
	}
	return variables.expanded + all.bytes, err
}

// commandLine returns the command and the arguments of a container.
func (a *arguments) commandLine(container *v1.Container) (command, args []string, err error) {
	if command, err = a.expandAll("command", container.Command); err != nil {
		return nil, nil, err
	}
	args, err = a.expandAll("args", container.Args)
	return command, args, err
}

// ContainerConfig returns the configuration of a run of a container. It fails where CheckContainer
// does.
func (p *Pod) ContainerConfig(container *v1.Container, run *Run, images Images) (
	*runtimeapi.ContainerConfig, error) {
	p.expandedMax = 0 // the check has decided
	variables, err := p.Environment(container)
	if err != nil {
		return nil, err
	}
	all := arguments{variables: variables}
	command, args, err := all.commandLine(container)
	if err != nil {
		return nil, err
	}
	mounts, err := p.mounts(container, variables, images)
	if err != nil {
		return nil, err
	}
	mounts = append(mounts, p.messageMount(container, run)...)
	devices, err := p.devices(container)
	if err != nil {
		return nil, err
	}
	return &runtimeapi.ContainerConfig{
		Metadata:    &runtimeapi.ContainerMetadata{Name: container.Name, Attempt: run.Attempt},
		Image:       imageSpec(images.Container, container.Image),
		Command:     command,
		Args:        args,
		WorkingDir:  container.WorkingDir,
		Envs:        variables.List,
		Mounts:      p.mapIDs(mounts),
		Devices:     devices,
		Labels:      p.labels(nil, container.Name),
		Annotations: run.annotations(container),
		LogPath:     container.Name + "/" + LogName(run.Restarts),
		StopSignal:  stopSignal(container),
		Stdin:       container.Stdin,
		StdinOnce:   container.StdinOnce,
		Tty:         container.TTY,
		Linux: &runtimeapi.LinuxContainerConfig{
			Resources:       p.ContainerResources(container),
			SecurityContext: p.containerSecurity(container, images.Container.User),
		},
	}, nil
}

// stopSignal returns the signal that ends a container, if it is not the image's (KEP-4960).
func stopSignal(container *v1.Container) runtimeapi.Signal {
	if container.Lifecycle == nil || container.Lifecycle.StopSignal == nil {
		return runtimeapi.Signal_RUNTIME_DEFAULT
	}
	return runtimeapi.Signal(runtimeapi.Signal_value[string(*container.Lifecycle.StopSignal)])
}

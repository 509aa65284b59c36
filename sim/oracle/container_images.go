package oracle

import (
	"slices"
	"strconv"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/sim/truth"
)

// images fires when a container is created with other image volumes, or another user, than its
// spec and its image say. If the pod had several specs, any of them may hold.
type images struct{}

func (*images) describe() Entry {
	return Entry{"images", "A container mounts the image volumes of its spec, runs as the user " +
		"of its spec or else of its image, and never as root under runAsNonRoot."}
}

func (*images) checkFact(m *model, f *truth.Fact) *finding {
	p := m.pods[f.PodUID]
	if f.Kind != truth.ContainerCreated || p == nil || f.User == "" {
		return nil
	}
	var problem *finding
	for _, spec := range p.specs {
		c := m.createdFrom(spec, f)
		if c == nil {
			continue
		}
		if problem = m.checkImages(spec, c, f); problem == nil {
			return nil
		}
	}
	return problem
}

// checkImages checks a container that was created from a spec.
func (m *model) checkImages(spec *v1.Pod, c *v1.Container, f *truth.Fact) *finding {
	for i := range spec.Spec.Volumes {
		v := &spec.Spec.Volumes[i]
		mounts := func(m v1.VolumeMount) bool { return m.Name == v.Name }
		if v.Image != nil && slices.ContainsFunc(c.VolumeMounts, mounts) &&
			!slices.Contains(f.ImageMounts, v.Image.Reference) {
			return findingf("container %s of %s mounts %v, not %s", f.Container, f.PodName,
				f.ImageMounts, v.Image.Reference)
		}
	}
	user, rooted := m.runsAs(spec, c)
	switch {
	case f.User != user:
		return findingf("container %s of %s runs as %s, not as %s", f.Container, f.PodName, f.User, user)
	case rooted:
		return findingf("container %s of %s must not run as root, but may (%s)", f.Container,
			f.PodName, user)
	}
	return nil
}

// runsAs returns the user that a container has to run as, and whether that is or may be root
// although runAsNonRoot forbids it.
func (m *model) runsAs(spec *v1.Pod, c *v1.Container) (user string, forbiddenRoot bool) {
	var runAs *int64
	var nonRoot *bool
	if s := spec.Spec.SecurityContext; s != nil {
		runAs, nonRoot = s.RunAsUser, s.RunAsNonRoot
	}
	if s := c.SecurityContext; s != nil && s.RunAsUser != nil {
		runAs = s.RunAsUser
	}
	if s := c.SecurityContext; s != nil && s.RunAsNonRoot != nil {
		nonRoot = s.RunAsNonRoot
	}
	switch {
	case runAs != nil:
		user = strconv.FormatInt(*runAs, 10)
	case m.opts.ImageUser != nil:
		user = m.opts.ImageUser(c.Image)
	}
	if user == "" {
		user = "0"
	}
	uid, err := strconv.ParseInt(user, 10, 64)
	return user, nonRoot != nil && *nonRoot && (err != nil || uid == 0)
}

// cannotBeCreated reports whether a container is never created.
func (p *pod) cannotBeCreated(c *v1.Container) bool {
	return p.isForbiddenRoot(c) || p.cannotGetImages(c) || p.lacksHostDirectory(c)
}

// lacksHostDirectory reports whether a container mounts a sub-path of a directory of the node that
// does not exist, and that the agent must not create.
func (p *pod) lacksHostDirectory(c *v1.Container) bool {
	exists := p.model.opts.Exists
	return exists != nil && slices.ContainsFunc(c.VolumeMounts, func(mount v1.VolumeMount) bool {
		return (mount.SubPath != "" || mount.SubPathExpr != "") &&
			slices.ContainsFunc(p.spec.Spec.Volumes, func(v v1.Volume) bool {
				return v.Name == mount.Name && v.HostPath != nil && !exists(v.HostPath.Path) &&
					(v.HostPath.Type == nil || *v.HostPath.Type == v1.HostPathUnset)
			})
	})
}

// isForbiddenRoot reports whether a container can never be created, because it must not run as
// root.
func (p *pod) isForbiddenRoot(c *v1.Container) bool {
	_, rooted := p.model.runsAs(p.spec, c)
	return rooted
}

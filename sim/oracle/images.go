package oracle

import (
	"slices"
	"strconv"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/core/manifest"
	"seedlet.dev/sim/truth"
)

// images fires when a container is made otherwise than its image and its spec say. Of a pod that
// had several specs, any of them will do.
type images struct{}

func (*images) entry() Entry {
	return Entry{"images", "A container mounts the images that its spec names, runs as whom its " +
		"spec or else its image says, and never as root where it must not."}
}

func (*images) fact(w *world, f *truth.Fact) *finding {
	p := w.pods[f.PodUID]
	if f.Kind != truth.ContainerCreated || p == nil || f.User == "" {
		return nil
	}
	var what *finding
	for _, spec := range p.specs {
		c := containerOf(spec, f.Container)
		if c == nil || f.Annotations[annotationHash] != manifest.ContainerHash(c) {
			continue
		}
		if what = w.judgeImages(spec, c, f); what == nil {
			return nil
		}
	}
	return what
}

// judgeImages judges a container that was made from a spec.
func (w *world) judgeImages(spec *v1.Pod, c *v1.Container, f *truth.Fact) *finding {
	for i := range spec.Spec.Volumes {
		v := &spec.Spec.Volumes[i]
		mounts := func(m v1.VolumeMount) bool { return m.Name == v.Name }
		if v.Image != nil && slices.ContainsFunc(c.VolumeMounts, mounts) &&
			!slices.Contains(f.ImageMounts, v.Image.Reference) {
			return says("container %s of %s mounts %v, not %s", f.Container, f.PodName,
				f.ImageMounts, v.Image.Reference)
		}
	}
	user, rooted := w.runsAs(spec, c)
	switch {
	case f.User != user:
		return says("container %s of %s runs as %s, not as %s", f.Container, f.PodName, f.User, user)
	case rooted:
		return says("container %s of %s must not run as root, and may (%s)", f.Container,
			f.PodName, user)
	}
	return nil
}

// runsAs is whom a container has to run as, and whether that may be root although it must not.
func (w *world) runsAs(spec *v1.Pod, c *v1.Container) (user string, rooted bool) {
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
	case w.opts.ImageUser != nil:
		user = w.opts.ImageUser(c.Image)
	}
	if user == "" {
		user = "0"
	}
	uid, err := strconv.ParseInt(user, 10, 64)
	return user, nonRoot != nil && *nonRoot && (err != nil || uid == 0)
}

// barred says whether a container can never be made, because it must not run as root.
func (p *pod) barred(c *v1.Container) bool {
	_, rooted := p.world.runsAs(p.spec, c)
	return rooted
}

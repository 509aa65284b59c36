package oracle

import "seedlet.dev/sim/truth"

// imageGC fires when an image is removed that a container uses or that is pinned, or when an image
// is removed although the images take less than the low threshold. A removal takes effect a moment
// after its request, so a container that was created in between is excused.
type imageGC struct {
	uses    map[string]truth.Fact // the creation of each container, by ID
	removed map[string]bool       // images that were removed once
}

func (*imageGC) describe() Entry {
	return Entry{"image-gc", "No image is removed that a container uses or that is pinned, and none " +
		"while the images take less than the low threshold."}
}

func (o *imageGC) checkFact(m *model, f *truth.Fact) *finding {
	switch f.Kind {
	case truth.ContainerCreated:
		if o.uses == nil {
			o.uses = map[string]truth.Fact{}
		}
		o.uses[f.ContainerID] = *f
	case truth.ContainerRemoved:
		delete(o.uses, f.ContainerID)
	case truth.ImageRemoved:
		return o.checkRemoval(m, f)
	}
	return nil
}

func (o *imageGC) checkRemoval(m *model, f *truth.Fact) *finding {
	for _, c := range o.uses { //ordered: whether there is one
		image := c.ContainerConfig.GetImage().GetUserSpecifiedImage()
		if (c.Image == f.Image || image == f.Image) && f.Time.Sub(c.Time) > callBound {
			return findingf("image %s was removed while a container uses it", f.Image)
		}
	}
	if f.IsPinned {
		return findingf("the pinned image %s was removed", f.Image)
	}
	if used := m.opts.ImageBytesUsed; used != nil && used()+f.Bytes <= m.opts.ImageBytesKept {
		return findingf("image %s was removed while %d bytes were used, of %d that are kept", f.Image,
			used()+f.Bytes, m.opts.ImageBytesKept)
	}
	return nil
}

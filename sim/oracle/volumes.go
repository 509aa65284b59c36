package oracle

import (
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/core/volume"
	"seedlet.dev/sim/truth"
)

// volumes fires when a pod's volumes are not there while a process of it runs: a container was
// started before they were, or they were unmounted or removed under it (upstream #113979,
// #120150, #75345). What a pod that has gone leaves mounted cannot be removed either, so the
// directory is left, and progress tells of that. Of a pod that is back, or whose spec has changed,
// an old operation that comes late is not the agent's doing.
type volumes struct {
	there map[string]bool // paths below the pods' directories: made, or mounted as "tmpfs PATH"
}

func (*volumes) entry() Entry {
	return Entry{"volumes", "The volumes of a pod are there before a container starts, and as " +
		"long as a process of it runs."}
}

func (o *volumes) fact(w *world, f *truth.Fact) *finding {
	switch f.Kind {
	case truth.ContainerStarted:
		return o.started(w, f)
	case truth.PathMade, truth.PathWritten:
		if isVolume(w, f.Path) {
			o.add(f.Path)
		}
	case truth.Mounted:
		o.add(tmpfs + f.Path)
	case truth.Unmounted:
		delete(o.there, tmpfs+f.Path)
		return o.lost(w, f, "unmounted")
	case truth.PathRemoved:
		for path := range o.there { //ordered: each is dropped or kept by itself
			if within(path, f.Path) {
				delete(o.there, path)
			}
		}
		return o.lost(w, f, "removed")
	case truth.PowerLost: // what was made lately may be gone, and every mount is
		o.there = nil
	}
	return nil
}

const tmpfs = "tmpfs "

func (o *volumes) add(path string) {
	if o.there == nil {
		o.there = map[string]bool{}
	}
	o.there[path] = true
}

// started judges the start of a container.
func (o *volumes) started(w *world, f *truth.Fact) *finding {
	p := w.pods[f.PodUID]
	if p == nil || p.spec == nil || p.respecified || p.loose() {
		return nil
	}
	dir := w.opts.PodsDir + "/" + f.PodUID
	for i := range p.spec.Spec.Volumes {
		v := &p.spec.Spec.Volumes[i]
		path := volume.Path(dir, v)
		switch {
		case v.HostPath != nil, v.Image != nil: // of images the oracle images tells
			continue
		case v.EmptyDir != nil && v.EmptyDir.Medium != v1.StorageMediumDefault:
			path = tmpfs + path
		}
		if !o.there[path] {
			return says("container %s was started without volume %s (%s)", f.Container,
				v.Name, path)
		}
	}
	return nil
}

// isVolume says whether a path is of a volume of a pod, or of a part of one.
func isVolume(w *world, path string) bool {
	rest, is := strings.CutPrefix(path, w.opts.PodsDir+"/")
	_, rest, in := strings.Cut(rest, "/")
	return is && in && (strings.HasPrefix(rest, "volumes") ||
		strings.HasPrefix(rest, "volume-subpaths"))
}

// lost judges a removal or an unmounting below a pod's volumes.
func (o *volumes) lost(w *world, f *truth.Fact, how string) *finding {
	uid, below := childOf(w.opts.PodsDir, f.Path)
	p := w.pods[uid]
	if f.Cause != "" || !below || p == nil || p.live == 0 || p.loose() && p.wishes > 1 {
		return nil
	}
	if !isVolume(w, f.Path) {
		return nil
	}
	return says("%s was %s while %s runs", f.Path, how, p.anyLive())
}

func says(format string, args ...any) *finding {
	return &finding{message: fmt.Sprintf(format, args...)}
}

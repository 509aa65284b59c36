package loop

import (
	"path"
	"strings"

	"seedlet.dev/world"
)

// place is where on the machine an operation takes turns with others; the zero place is nowhere.
type place struct {
	in   space
	path string
}

// space is what a path is in.
type space int

const (
	spaceHost   space = iota + 1 // where a pod's author chose: a path there is in nobody else's way
	spaceOwn                     // the agent's own files: a path stands for all that is below it
	spaceCgroup                  // likewise
)

// places are all that an operation changes, or goes to if a pod's author chose it. What only looks
// is in nobody's way.
type places [2]place

func placesOf(eff world.Effect) places {
	if eff.HostPath != "" {
		return places{{spaceHost, eff.HostPath}}
	}
	switch body := eff.Body.(type) {
	case *world.Rename:
		return places{own(body.From), own(body.To)}
	case *world.Compress:
		return places{own(body.Path), own(body.Path + ".gz")}
	case *world.SetCgroup:
		return places{{spaceCgroup, path.Clean(body.Path)}}
	case *world.RemoveCgroup:
		return places{{spaceCgroup, path.Clean(body.Path)}}
	}
	if changed := changes(eff.Body); changed != "" {
		return places{own(changed)}
	}
	return places{}
}

// changes is the one path that an operation changes; empty if it changes none.
func changes(body any) string {
	switch body := body.(type) {
	case *world.MakeDir:
		return body.Path
	case *world.MakeFile:
		return body.Path
	case *world.MakeLink:
		return body.Path
	case *world.WriteFile:
		return body.Path
	case *world.WriteDir:
		return body.Path
	case *world.RemoveTree:
		return body.Path
	case *world.ShareWithGroup:
		return body.Path
	case *world.MountMemory:
		return body.Path
	case *world.BindSubPath:
		return body.Target
	case *world.Unmount:
		return body.Path
	}
	return ""
}

func own(p string) place { return place{spaceOwn, path.Clean(p)} }

// meet says whether two operations are in each other's way.
func (ps places) meet(others places) bool {
	for _, p := range ps {
		for _, o := range others {
			if p.meets(o) {
				return true
			}
		}
	}
	return false
}

func (p place) meets(o place) bool {
	switch {
	case p.in != o.in || p.in == 0:
		return false
	case p.path == o.path:
		return true
	}
	return p.in != spaceHost && (below(p.path, o.path) || below(o.path, p.path))
}

// below says whether a path leads through another; both are clean.
func below(p, other string) bool {
	return strings.HasPrefix(p, other) && p[len(other)] == '/'
}

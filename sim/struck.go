package sim

import (
	"slices"
	"time"

	"seedlet.dev/sim/apiserver"
)

// struck tells the judges when faults may be at work, for they cannot see what is lost on its way.
type struck struct {
	windows []reach
	runtime []reach // when the runtime's process is away
	pages   []reach // when the page at the manifest URL is none, or has not been read since
}

// reach is a time in which what was sent during a window may still be under way.
type reach struct {
	window   *openWindow
	from, to time.Time
}

func newStruck(f *fates, p *PlanSpec) *struck {
	s := &struck{}
	for i := range f.windows {
		w := &f.windows[i]
		lasts := 2*w.Takes.Most + latencyMost // on the way there and back
		if w.Class == ClassUnheard {
			lasts = unheardLate
		}
		if slices.Contains(apiClasses, w.Class) {
			lasts += reconnected
		}
		s.windows = append(s.windows, reach{w, w.from, w.to.Add(lasts)})
	}
	for _, e := range p.RuntimeEnds {
		from := f.start.Add(time.Duration(e.At))
		s.runtime = append(s.runtime, reach{nil, from, from.Add(time.Duration(e.Down))})
	}
	for i, c := range p.Manifests {
		if !c.URL || c.Text == "" {
			continue
		}
		until := p.Duration
		for _, next := range p.Manifests[i+1:] {
			if next.URL && next.File == c.File {
				until = next.At
				break
			}
		}
		s.pages = append(s.pages, reach{nil, f.start.Add(time.Duration(c.At)),
			f.start.Add(time.Duration(until) + fetchedAgain)})
	}
	return s
}

// fetchedAgain is how long it may take until a page that is good again has been read.
const fetchedAgain = 45 * time.Second

// reconnected is how long it may take until all is well after the API server was away.
const reconnected = 45 * time.Second

// may says whether a call of a name that was under way between two times may have been struck.
func (s *struck) may(call string, from, to time.Time) bool {
	for _, r := range s.windows {
		if r.overlaps(from, to) && r.window.strikes(call) &&
			(r.window.Class != ClassDiskFull || slices.Contains(diskFullCalls, call)) {
			return true
		}
	}
	for _, r := range s.runtime {
		if r.overlaps(from, to) && !slices.Contains(besidesRuntime, call) &&
			!slices.Contains(apiCalls, call) && call != apiserver.CallObject {
			return true
		}
	}
	return call == "FetchManifest" && slices.ContainsFunc(s.pages, func(r reach) bool {
		return r.overlaps(from, to)
	})
}

func (r *reach) overlaps(from, to time.Time) bool {
	return !to.Before(r.from) && !from.After(r.to)
}

// diskFullCalls are those that a full disk refuses.
var diskFullCalls = []string{"MakeDir", "WriteFile"}

// besidesRuntime are the calls that do not go to the runtime.
var besidesRuntime = []string{
	"ReadFiles", "ListDir", "MakeDir", "WriteFile", "RemoveTree", "FileChanged",
	"HTTPGet", "TCPConnect", "GRPCCheck", "FetchManifest",
	"SetCgroup", "RemoveCgroup", "ListCgroups",
}

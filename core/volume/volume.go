// Package volume makes the volumes of one pod: those that need nothing but the node, and those with
// content that comes from the API server (content.go).
//
// It keeps: how far each volume has come, what was found at its path, why it failed last, and
// when its size was last measured. It plans: the next operation (Set.Next) and the next
// measurement (Set.Measure), as functions of those facts and the pod. It takes: the answers.
// Every operation can be repeated: an agent that has just started goes through all of them
// again, which finds what is there and leaves it alone. Start reading at Set, then Set.Next.
package volume

import (
	"path"
	"time"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/core/object"
	"seedlet.dev/core/timer"
	"seedlet.dev/world"
)

// Set is what is known of the volumes of a pod.
type Set struct {
	Volumes []Volume `json:"volumes,omitempty"` // in the order in which they were first looked at

	MeasureOp world.OpID `json:"measureOp,omitempty"`
	Measuring string     `json:"measuring,omitempty"` // the volume that MeasureOp is about
	Measured  []string   `json:"measured,omitempty"`  // volumes that this round has been through
	NextAt    time.Time  `json:"nextAt"`              // when the next round of measuring begins
	Over      string     `json:"over,omitempty"`      // the volume that was found to be too large
}

// Volume is how far one volume has come.
type Volume struct {
	Name  string         `json:"name"`
	Asked bool           `json:"asked,omitempty"` // an operation is in flight, on what is wanted now
	Steps int            `json:"steps,omitempty"` // operations that have succeeded, of those it needs
	Found world.PathKind `json:"found,omitempty"` // what a look found at its path, empty: nothing
	// Of is what the content is taken from, so that it is seen when that changes: versions, and
	// reasons why something cannot be had.
	Of string `json:"of,omitempty"`
	// Holds is the Of of what was written last.
	Holds string `json:"holds,omitempty"`
	// Right says that nothing is left to do. Ready, that this was so once: what fails later, as
	// writing a label that has changed, takes nothing away (kubernetes issue 139045).
	Right bool `json:"right,omitempty"`
	Ready bool `json:"ready,omitempty"`

	Failures  int       `json:"failures,omitempty"` // in a row
	NotBefore time.Time `json:"notBefore"`          // when to try again
	Problem   string    `json:"problem,omitempty"`  // why it failed last
}

// Pod is what the volumes of a pod depend on.
type Pod struct {
	Spec        *v1.Pod
	Dir         string // of the pod, under the agent's root
	MemoryBytes int64  // of the machine
	// Value is what a file of a downward API volume says.
	Value func(*v1.DownwardAPIVolumeFile) (string, error)
	// Objects is what is watched at the API server; nil if there is none.
	Objects *object.Store
	// Token is a token of the pod's service account, and what tells it from another one. Without
	// a version or an error it is being asked for.
	Token func(*v1.ServiceAccountTokenProjection) (value, version string, err error)
}

// Ask is an operation that a volume needs.
type Ask struct {
	Volume   string
	HostPath string // where it goes, if that is not the agent's own
	Body     any
}

// Path is where a volume is on the node. One that is an image has no place of its own.
func Path(dir string, v *v1.Volume) string {
	kind := "empty-dir"
	switch {
	case v.Image != nil:
		return ""
	case v.HostPath != nil:
		return path.Clean(v.HostPath.Path)
	case v.DownwardAPI != nil:
		kind = "downward-api"
	case v.Projected != nil:
		kind = "projected"
	case v.ConfigMap != nil:
		kind = "configmap"
	case v.Secret != nil:
		kind = "secret"
	}
	return dir + "/volumes/kubernetes.io~" + kind + "/" + v.Name
}

// SubPaths is the directory below which sub-paths of the pod's volumes are mounted.
func SubPaths(dir string) string { return dir + "/volume-subpaths" }

// Next is the next operation that the volumes need; nil if there is none for now. The time is
// when a volume that has failed is to be tried again, zero if none waits.
func (s *Set) Next(pod *Pod, now time.Time) (*Ask, time.Time) {
	var wake time.Time
	for i := range pod.Spec.Spec.Volumes {
		want := &pod.Spec.Spec.Volumes[i]
		v := s.volume(want.Name)
		if v == nil {
			s.Volumes = append(s.Volumes, Volume{Name: want.Name})
			v = &s.Volumes[len(s.Volumes)-1]
		}
		of, known := pod.origin(want)
		if known && v.Of != of {
			*v = Volume{Name: v.Name, Ready: v.Ready, Of: of, Holds: v.Holds, Problem: v.Problem}
		}
		switch {
		case v.Right || !known:
			continue
		case now.Before(v.NotBefore):
			if wake.IsZero() || v.NotBefore.Before(wake) {
				wake = v.NotBefore
			}
			continue
		}
		steps, err := v.steps(want, pod)
		switch {
		case err != nil:
			v.fail(err.Error(), now)
			if wake.IsZero() || v.NotBefore.Before(wake) {
				wake = v.NotBefore
			}
		case v.Steps < len(steps):
			v.Asked = true
			ask := &Ask{Volume: want.Name, Body: steps[v.Steps]}
			if want.HostPath != nil {
				ask.HostPath = Path(pod.Dir, want)
			}
			return ask, wake
		default:
			v.Right, v.Ready, v.Failures, v.Problem, v.Holds = true, true, 0, "", v.Of
		}
	}
	return nil, wake
}

// Ready says whether every volume of the pod is there.
func (s *Set) Ready(spec *v1.PodSpec) bool {
	for i := range spec.Volumes {
		if v := s.volume(spec.Volumes[i].Name); v == nil || !v.Ready {
			return false
		}
	}
	return true
}

// Problem says why a volume is not there, in the kubelet's words; empty if none has failed.
func (s *Set) Problem() string {
	return s.first(func(v *Volume) bool { return !v.Ready }).problem()
}

// Failing is Problem, also of a volume that is there and cannot be brought up to date.
func (s *Set) Failing() string { return s.failing().problem() }

// Failures is how often that volume has failed in a row.
func (s *Set) Failures() int {
	if v := s.failing(); v != nil {
		return v.Failures
	}
	return 0
}

func (s *Set) failing() *Volume { return s.first(func(*Volume) bool { return true }) }

// first is the first of some volumes that has failed.
func (s *Set) first(which func(*Volume) bool) *Volume {
	for i := range s.Volumes {
		if v := &s.Volumes[i]; v.Problem != "" && which(v) {
			return v
		}
	}
	return nil
}

func (v *Volume) problem() string {
	if v == nil {
		return ""
	}
	return "MountVolume.SetUp failed for volume \"" + v.Name + "\" : " + v.Problem
}

// Holds tells one content of a volume from another.
func (s *Set) Holds(name string) string {
	if v := s.volume(name); v != nil {
		return v.Holds
	}
	return ""
}

// Recheck has every volume looked at once more, for what the pod says of them may have changed.
// What is there stays usable meanwhile.
func (s *Set) Recheck() {
	for i := range s.Volumes {
		v := &s.Volumes[i]
		*v = Volume{Name: v.Name, Ready: v.Ready, Of: v.Of, Holds: v.Holds}
	}
}

// Forget forgets what was made: it may not be there any more.
func (s *Set) Forget() { s.Volumes = nil }

// Answered takes the answer to what Next asked for.
func (s *Set) Answered(name, call string, ev world.Event) {
	v := s.volume(name)
	if v == nil || !v.Asked {
		return // forgotten meanwhile, or it was about what was wanted before
	}
	v.Asked = false
	_, looked := ev.Body.(*world.PathInfo)
	switch {
	case ev.Err.Has(world.KindNotFound) && call == "StatPath":
		v.Found = ""
	case ev.Err != nil:
		v.fail(ev.Err.Message, ev.Time)
		return
	case looked:
		v.Found = ev.Body.(*world.PathInfo).Kind
	}
	v.Steps++
}

// The waits after failures.
const (
	failureFirst = time.Second
	failureMax   = 2 * time.Minute // the bound to which it doubles, as the kubelet's for mounts
)

// fail begins again from the start, later: what has happened to the volume has to be looked at.
func (v *Volume) fail(why string, now time.Time) {
	v.Failures++
	v.Steps, v.Found, v.Problem = 0, "", why
	v.NotBefore = now.Add(timer.Backoff(v.Failures, failureFirst, failureMax))
}

func (s *Set) volume(name string) *Volume {
	for i := range s.Volumes {
		if s.Volumes[i].Name == name {
			return &s.Volumes[i]
		}
	}
	return nil
}

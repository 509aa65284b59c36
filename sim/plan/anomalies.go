package plan

import "errors"

// An anomaly is a state of the runtime that a correct runtime should not get into, and that node
// agents meet all the same.

// ClockStep sets the runtime's clock forward or back against the agent's. The clock is right again
// when the faults heal; times that the runtime has recorded stay as they are.
type ClockStep struct {
	By SignedDuration `json:"by"`
}

// LostContainer makes the runtime lose track of a container for a while, if it runs at that time:
// the container is in state UNKNOWN. Without For it stays so until it is stopped.
type LostContainer struct {
	For       Duration `json:"for,omitempty"`
	Pod       string   `json:"pod"` // the name of an entry of pods
	Container string   `json:"container"`
}

// SandboxRemoval has an administrator remove a sandbox of a pod by hand, with its containers.
type SandboxRemoval struct {
	Pod string `json:"pod"`
	// DuringCreation waits for the next sandbox of the pod, and removes it before the response of
	// its creation reaches the agent. Otherwise the pod's newest sandbox is removed, if any.
	DuringCreation bool `json:"making,omitempty"`
}

// ImageRemoval has an administrator remove an image by hand, whether or not a container uses it.
// What runs goes on. Pods with the pull policy Never cannot have it any more.
type ImageRemoval struct {
	Image string `json:"image"` // its reference
}

// AnomalyRange is how many anomalies there may be.
type AnomalyRange struct {
	ClockSteps      Count            `json:"clock,omitempty"`   // of the runtime's clock
	ClockStepBy     []SignedDuration `json:"clockBy,omitempty"` // one is drawn for each step
	LostContainers  Count            `json:"lost,omitempty"`
	LostFor         Span             `json:"lostFor,omitempty"`  // half of them; others until stopped
	SandboxRemovals Count            `json:"removals,omitempty"` // by hand
	// ImageRemovals are by hand too, half of them when the creation of a container is requested.
	ImageRemovals Count `json:"images,omitempty"`
	Always        bool  `json:"always,omitempty"` // in every seed
}

func (g *generator) addAnomalies() {
	s, spec := &g.scenario.Spec.Anomalies, &g.plan.Spec
	r := g.stream("clock")
	for range g.occurrences("clock", s.ClockSteps, s.Always) {
		if len(s.ClockStepBy) > 0 {
			g.add(g.randomTime(r), &ClockStep{By: s.ClockStepBy[r.IntN(len(s.ClockStepBy))]})
		}
	}
	r = g.stream("lost")
	for range g.podOccurrences("lost", s.LostContainers, s.Always) {
		pod := spec.Pods[r.IntN(len(spec.Pods))]
		names := containerNames(pod.Manifest)
		at, lost := g.randomTime(r), &LostContainer{For: Duration(s.LostFor.draw(r)), Pod: pod.Name,
			Container: names[r.IntN(len(names))]}
		if r.IntN(2) == 0 {
			lost.For = 0
		}
		g.add(at, lost)
	}
	r = g.stream("removals")
	for range g.podOccurrences("removals by hand", s.SandboxRemovals, s.Always) {
		g.add(g.randomTime(r), &SandboxRemoval{Pod: spec.Pods[r.IntN(len(spec.Pods))].Name,
			DuringCreation: r.IntN(2) == 0})
	}
	r = g.stream("image removals")
	for range g.podOccurrences("removals of images", s.ImageRemovals, s.Always) {
		pod := spec.Pods[r.IntN(len(spec.Pods))]
		refs := imageRefs(pod.Manifest)
		at, removal := g.randomTime(r), &ImageRemoval{Image: refs[r.IntN(len(refs))]}
		if r.IntN(2) == 0 {
			g.add(at, removal)
		} else {
			g.addOn(Anchor{Effect: "CreateContainer", Pod: pod.Name, Nth: 1 + r.IntN(2*len(refs))},
				removal)
		}
	}
}

func (c *ClockStep) validate(*Spec) error { return nil }

// Length implements Deed.
func (c *ClockStep) Length() Duration { return 0 }

// PodEntry implements Deed.
func (c *ClockStep) PodEntry() string { return "" }

func (l *LostContainer) validate(s *Spec) error { return s.validateContainer(l.Pod, l.Container) }

// Length implements Deed.
func (l *LostContainer) Length() Duration { return l.For }

// PodEntry implements Deed.
func (l *LostContainer) PodEntry() string { return l.Pod }

func (m *SandboxRemoval) validate(s *Spec) error { return s.validatePodName(m.Pod) }

// Length implements Deed.
func (m *SandboxRemoval) Length() Duration { return 0 }

// PodEntry implements Deed.
func (m *SandboxRemoval) PodEntry() string { return m.Pod }

func (i *ImageRemoval) validate(*Spec) error {
	if i.Image == "" {
		return errors.New("image: missing")
	}
	return nil
}

// Length implements Deed.
func (i *ImageRemoval) Length() Duration { return 0 }

// PodEntry implements Deed.
func (i *ImageRemoval) PodEntry() string { return "" }

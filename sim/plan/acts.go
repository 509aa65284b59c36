package plan

import (
	"errors"
	"fmt"
	"slices"
)

// Act is one write that a user or a controller makes at the API server, or a change of the
// machine's date. Its target is exactly one of: a pod, by the name of an entry of pods (if that is
// a static pod, its mirror pod), or the claim of a volume of one; an object, by the name of an
// entry of objects; or the Node.
type Act struct {
	Verb Verb   `json:"do"`
	Pod  string `json:"pod,omitempty"`
	// Volume is, of delete, a generic ephemeral volume of the pod, whose claim is deleted; of debug,
	// one whose device the ephemeral container gets.
	Volume string `json:"volume,omitempty"`
	Object string `json:"object,omitempty"`
	Node   bool   `json:"node,omitempty"`

	Grace *int64 `json:"grace,omitempty"` // of delete: in seconds; zero deletes by force
	// Patch is that of patch, a strategic merge, and of resize, which has the names of containers and
	// their resources.
	Patch  map[string]any `json:"patch,omitempty"`
	Status bool           `json:"status,omitempty"` // of patch: of the status subresource

	// Rash binds a created pod to the node whatever the node's labels and taints are, as a scheduler
	// with an outdated cache does. Otherwise creation waits until the node has the labels that the pod
	// selects and no NoExecute taint.
	Rash bool `json:"rash,omitempty"`

	Container string `json:"container,omitempty"` // of debug: the name of the ephemeral container

	By SignedDuration `json:"by,omitempty"` // of date: by how much the machine's date is changed
}

// Verb is what an act does to its target.
type Verb string

// The verbs. Creation of an object whose name is in use waits until the name is free.
const (
	VerbCreate Verb = "create"
	VerbDelete Verb = "delete"
	VerbPatch  Verb = "patch"
	VerbDebug  Verb = "debug" // adds an ephemeral container to a pod
	// VerbResize patches the requests and limits of a pod's containers.
	VerbResize           Verb = "resize"
	VerbSetTerminalPhase Verb = "end" // patches the status of a pod, unless it is terminal
	// VerbDate changes the date of the machine, the target being the Node. The date is right again
	// when the faults heal. The agent's clock goes on, also from one incarnation to the next.
	VerbDate Verb = "date"
)

var verbs = []Verb{VerbCreate, VerbDelete, VerbPatch, VerbDebug, VerbResize, VerbSetTerminalPhase,
	VerbDate}

// validateObjects validates the objects of the API server.
func (s *Spec) validateObjects() error {
	names := map[string]bool{}
	for i := range s.Objects {
		o := &s.Objects[i]
		if o.Name == "" || names[o.Name] {
			return fmt.Errorf("spec.objects[%d].name: want a name of its own, have %q", i, o.Name)
		}
		names[o.Name] = true
		if _, err := o.Decode(); err != nil {
			return fmt.Errorf("spec.objects[%d].object: %w", i, err)
		}
	}
	return nil
}

func (a *Act) validate(s *Spec) error {
	targets := 0
	for _, isTarget := range []bool{a.Pod != "", a.Object != "", a.Node} {
		if isTarget {
			targets++
		}
	}
	p := s.PodNamed(a.Pod)
	switch {
	case !s.Node.API:
		return errors.New("do: want no act without spec.node.api")
	case targets != 1:
		return errors.New("pod: want one of pod, object and node")
	case a.Pod != "" && p == nil:
		return fmt.Errorf("pod: no pod is called %q", a.Pod)
	case a.Pod != "" && a.Verb == VerbCreate && !p.API:
		return fmt.Errorf("pod: %q is not a pod of the API server", a.Pod)
	case a.Object != "" && s.ObjectNamed(a.Object) == nil:
		return fmt.Errorf("object: no object is called %q", a.Object)
	case !slices.Contains(verbs, a.Verb):
		return fmt.Errorf("do: want create, delete, patch, debug, resize, end or date, have %q", a.Verb)
	case (a.Verb == VerbDate) != (a.By != 0) || a.By != 0 && !a.Node:
		return errors.New("by: want one with do: date of the node, and only there")
	case (a.Verb == VerbDebug) != (a.Container != "") || a.Container != "" && (p == nil || !p.API):
		return errors.New("container: want one with do: debug of a pod of the API server, and " +
			"only there")
	case (a.Verb == VerbPatch || a.Verb == VerbSetTerminalPhase || a.Verb == VerbResize) !=
		(a.Patch != nil):
		return errors.New("patch: want one with do: patch, resize or end, and only there")
	case a.Verb == VerbResize && (p == nil || !p.API):
		return errors.New("pod: only a pod of the API server is resized")
	case a.Volume != "" && (a.Verb != VerbDelete && a.Verb != VerbDebug || p == nil || !p.API ||
		a.Grace != nil):
		return errors.New("volume: only for the removal of the claim of a pod of the API server, and " +
			"for do: debug of one")
	case a.Grace != nil && (a.Verb != VerbDelete || a.Pod == ""):
		return errors.New("grace: only for the removal of a pod")
	}
	return nil
}

// Length implements Deed.
func (a *Act) Length() Duration { return 0 }

// PodEntry implements Deed.
func (a *Act) PodEntry() string { return a.Pod }

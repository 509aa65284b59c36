package plan

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"seedlet.dev/sim/truth"
)

// Anchor is a moment that only a run tells: some time after the n-th fact of a kind, or after the
// n-th effect of a kind that the agent has issued, in all its incarnations. It comes at most once,
// and not after the faults have healed. So a plan can reach a window of a millisecond, as that
// between the creation of a container and the response of the runtime.
type Anchor struct {
	Fact   truth.Kind `json:"fact,omitempty"`   // of the simulated world, or
	Effect string     `json:"effect,omitempty"` // a call of the agent, AnyEffect or AnyChange
	// Pod, an entry of pods, is the one that the fact or effect is about, and Container the one that
	// the fact is about; absent: any.
	Pod       string `json:"pod,omitempty"`
	Container string `json:"container,omitempty"`

	Nth   int      `json:"nth,omitempty"` // counted from 1; absent: the first
	After Duration `json:"after,omitempty"`
}

// The effects of an anchor that are no calls. AnyEffect stands for each effect of the agent but
// responses to clients, events and observations of the machine, AnyChange for each that changes
// something outside of the agent.
const (
	AnyEffect = "any"
	AnyChange = "change"
)

// changes are the calls of the agent that change something outside of it.
var changes = []string{
	"CreateContainer", "ExecSync", "PullImage", "RemoveContainer", "RemovePodSandbox",
	"ReopenContainerLog", "RunPodSandbox", "StartContainer", "StopContainer", "StopPodSandbox",
	"UpdateContainerResources", "UpdatePodSandboxResources", "UpdateRuntimeConfig",
	"CreateObject", "UpdateObject", "PatchObject", "DeleteObject", "CreateToken",
	"MakeDir", "MakeFile", "MakeLink", "WriteFile", "WriteDir", "Rename", "Compress", "RemoveTree",
	"ShareWithGroup", "MountMemory", "BindSubPath", "Unmount", "BindMount", "MountDevice", "MountNFS",
	"StageVolume", "UnstageVolume", "PublishVolume", "UnpublishVolume", "ExpandVolume",
	"SetCgroup", "RemoveCgroup",
}

// ChangesSomething reports whether AnyChange stands for a call of the agent.
func ChangesSomething(call string) bool { return slices.Contains(changes, call) }

// Count returns the number of the fact or effect that the anchor waits for, from 1.
func (a *Anchor) Count() int { return max(a.Nth, 1) }

func (a *Anchor) validate(s *Spec) error {
	switch {
	case (a.Fact == "") == (a.Effect == ""):
		return errors.New("fact: want either a fact or an effect")
	case a.Fact != "" && !slices.Contains(truth.Kinds(), a.Fact):
		return fmt.Errorf("fact: want one of %v, have %q", truth.Kinds(), a.Fact)
	case a.Effect != "" && !slices.Contains(faultableCalls, a.Effect) &&
		a.Effect != AnyEffect && a.Effect != AnyChange:
		return fmt.Errorf("effect: want %s, %s or one of %s, have %q", AnyEffect, AnyChange,
			strings.Join(faultableCalls, ", "), a.Effect)
	case a.Pod != "" && s.PodNamed(a.Pod) == nil:
		return fmt.Errorf("pod: no pod is called %q", a.Pod)
	case a.Container != "" && (a.Pod == "" || a.Fact == ""):
		return errors.New("container: want one only with the fact of a pod")
	case a.Nth < 0:
		return fmt.Errorf("nth: want 1 or more, have %d", a.Nth)
	}
	return nil
}

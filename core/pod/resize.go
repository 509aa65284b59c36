package pod

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/core/allocation"
	"seedlet.dev/core/cgroup"
	"seedlet.dev/core/criconfig"
	"seedlet.dev/core/op"
	"seedlet.dev/world"
)

// The in-place resize of a pod (KEP-1287). The agent decides whether the resources that the source
// asks for are allocated, since that depends on the other pods; this file brings the pod's cgroup
// and its running containers to the allocated ones.
//
// The order follows from the facts. While a container has other resources than the allocated ones,
// the cgroup of the pod bounds both. So the cgroup grows before its containers, and shrinks after
// them, also if the agent was killed in between. Upstream: doPodResizeAction in
// pkg/kubelet/kuberuntime/kuberuntime_manager.go.

// Resize is the change of a pod's resources.
type Resize struct {
	// Desired is the pod as its source wrote it, if it asks for other resources than Spec has.
	Desired *v1.Pod `json:"desired,omitempty"`
	// Granted is Desired once that fits, until the decision is on the disk.
	Granted *v1.Pod `json:"granted,omitempty"`

	// Decided is the newest generation whose resources were allocated or denied.
	Decided int64 `json:"decided,omitempty"`
	// ReportedEarlier is the generation that an earlier agent has reported, if it is older than that
	// of Spec: it is not known yet whether the pod has the resources of Spec. Nil otherwise.
	ReportedEarlier *int64 `json:"reportedEarlier,omitempty"`

	// MakingRoom is set while other pods are preempted for Desired: what becomes free is reserved
	// for it.
	MakingRoom bool `json:"makingRoom,omitempty"`
	// AwaitsOther is set while it is not known whether another pod has ended, which would leave room
	// for Desired: none is preempted before.
	AwaitsOther bool `json:"awaitsOther,omitempty"`

	// HeldAsWhole are the resources of the pod as a whole (pod-level resources, KEP-2837) that its
	// cgroup may have instead of the allocated ones; nil: it has the allocated ones.
	HeldAsWhole *v1.ResourceRequirements `json:"heldAsWhole,omitempty"`
	// WholeRecalled is set once the record of an earlier agent was looked up for them.
	WholeRecalled bool `json:"wholeRecalled,omitempty"`

	// HeldEarlier are the resources that the pod had last by the checkpoint of an earlier agent
	// (allocation.ActuatedFile), or that were allocated to it before a resize, if they request more
	// than Spec: a resize to less may not have been carried out. Nil once the running containers were
	// recalled.
	HeldEarlier *allocation.Resources `json:"heldEarlier,omitempty"`

	Pending    *ResizeState `json:"pending,omitempty"`    // Desired is not allocated
	InProgress *ResizeState `json:"inProgress,omitempty"` // the allocated resources are being set

	// Started is when the attempt in progress to set them has started; zero if there is none.
	Started   time.Time `json:"started"`
	Failures  int       `json:"failures,omitempty"` // of setting them, in a row
	NotBefore time.Time `json:"notBefore"`
}

// ResizeState is what a condition of the pod says about a resize.
type ResizeState struct {
	Reason     string    `json:"reason,omitempty"`
	Message    string    `json:"message,omitempty"`
	Generation int64     `json:"generation,omitempty"` // of the spec that asked for it
	Since      time.Time `json:"since"`                // for this reason
}

// Actuation is what is known of the resources of a container in the runtime.
type Actuation struct {
	// Last are those that the runtime took last; nil if that is not known.
	Last *allocation.Amounts `json:"last,omitempty"`
	// Sent are those of the update in flight, or of the last one if that has failed. Attempted bounds
	// those of updates in flight or of unknown outcome.
	Sent      *allocation.Amounts `json:"sent,omitempty"`
	Attempted *allocation.Amounts `json:"attempted,omitempty"`
	Recalled  bool                `json:"recalled,omitempty"` // the records were looked at
	// MemoryUsage is in bytes, as measured for the next update; nil if it was not. It is used for
	// usageAgeMax after MeasuredAt, when the measurement has arrived.
	MemoryUsage *int64    `json:"memoryUsage,omitempty"`
	MeasuredAt  time.Time `json:"measuredAt"`
	// VerifyAt is when the runtime is asked whether an older update of unknown outcome has taken
	// effect after the last one; zero if none can have. Verifying is set until it has answered.
	VerifyAt  time.Time `json:"verifyAt"`
	Verifying bool      `json:"verifying,omitempty"`
	// Reported are those in the runtime's status of the container; nil if it has none.
	Reported *allocation.Amounts `json:"reported,omitempty"`
}

// Source returns the pod as its source wrote it.
func (p *Pod) Source() *v1.Pod {
	if p.Resize.Desired != nil {
		return p.Resize.Desired
	}
	return p.Spec
}

// setSpec sets the pod as its source wrote it. What is allocated to the pod stays; without that,
// the recorded allocation counts, and without a record what the source asks for.
func (p *Pod) setSpec(object *v1.Pod, recorded *allocation.Resources, now time.Time) {
	r, isFirst := &p.Resize, p.Spec == nil
	isSame := p.Spec != nil && r.Desired == nil && object.Generation != 0 &&
		object.Generation == p.Spec.Generation
	switch {
	case isSame:
		p.Spec = object
	case p.Spec != nil:
		held := allocation.Of(p.Spec)
		p.Spec = held.Apply(object)
	case recorded == nil && object.Generation > 1:
		created := p.createdResources(object)
		p.Spec = created.Apply(object)
	case recorded == nil:
		p.Spec = object
	default:
		p.Spec = recorded.Apply(object)
	}
	previous := r.Desired
	switch r.Desired = nil; {
	case p.Spec != object:
		r.Desired = object
	case r.Granted != nil:
		r.Pending = nil
	default:
		r.Pending, r.Decided = nil, object.Generation
	}
	r.MakingRoom = r.MakingRoom && r.Desired != nil && previous != nil &&
		equality.Semantic.DeepEqual(allocation.Of(r.Desired), allocation.Of(previous))
	if isFirst {
		p.recallResize(now)
	}
}

// ObservedGeneration returns the newest generation that the status of the pod is about. One that
// asks for other resources is not observed before these are allocated or denied: until then, no
// condition says that the resize is not complete. A kubelet decides on it before it syncs the pod
// (HandlePodUpdates in pkg/kubelet/kubelet.go). Nor is one that an earlier agent has not reported,
// until it is known whether containers that run have what it asks for.
func (p *Pod) ObservedGeneration() int64 {
	observed, r := p.Spec.Generation, &p.Resize
	if p.Stage != Syncing {
		return observed
	}
	if r.Desired != nil || r.Granted != nil {
		observed = r.Decided
	}
	if r.ReportedEarlier != nil && r.InProgress == nil && p.HasLiveContainers() {
		observed = min(observed, *r.ReportedEarlier)
	}
	return observed
}

// createdResources returns the resources of a pod that may have been resized, if the record of what
// is allocated to it is lost: those that its containers were created with, as far as they are
// known.
func (p *Pod) createdResources(object *v1.Pod) allocation.Resources {
	return allocation.OfAmounts(object, func(container string) (allocation.Amounts, bool) {
		c := p.NewestRun(container)
		if c == nil || c.Resources == nil {
			return allocation.Amounts{}, false
		}
		return *c.Resources, true
	})
}

// Grant allocates the desired resources. They take effect with ApplyGrant, once the decision is on
// the disk: an agent that is killed would not know of it otherwise.
func (p *Pod) Grant() { p.Resize.Granted = p.Resize.Desired }

// ApplyGrant makes the granted resources those of the pod.
func (p *Pod) ApplyGrant(env *Env) {
	r := &p.Resize
	granted, source := allocation.Of(r.Granted), p.Source()
	generation := r.Granted.Generation
	if held := p.Spec.Spec.Resources; !equality.Semantic.DeepEqual(held, granted.Pod) {
		r.HeldAsWhole = withLargerRequests(held, r.HeldAsWhole) // its cgroup may have either
	}
	before := p.Spec
	p.Spec = granted.Apply(source)
	if _, recalled := p.ActuatedAmounts(); !recalled || !p.Observed {
		p.holdBeforeGrant(before)
	}
	if r.Desired, r.Granted, r.Pending = nil, nil, nil; p.Spec != source {
		r.Desired = source
	}
	r.InProgress = &ResizeState{Generation: generation, Since: env.Effects.Now()}
	r.Decided, r.ReportedEarlier = generation, nil
	r.Failures, r.NotBefore = 0, time.Time{}
	p.recordEvent(env, "", normal, "ResizeStarted", "%s",
		resizeMessage("Pod resize started", p.Spec, generation, ""))
}

// DenyResize records why the desired resources are not allocated now, and reports whether that has
// changed. Another reason, or a newer resize, has an Event; the message alone has none, since it
// changes with every pod that comes or goes.
func (p *Pod) DenyResize(reason, message string, env *Env) (changed bool) {
	r := &p.Resize
	state := ResizeState{reason, message, r.Desired.Generation, env.Effects.Now()}
	r.Decided = state.Generation
	isNew := true
	if old := r.Pending; old != nil {
		isNew = old.Reason != reason || old.Generation != state.Generation
		if old.Reason == reason {
			state.Since = old.Since
		}
		if *old == state {
			return false
		}
	}
	r.Pending = &state
	if isNew {
		p.recordEvent(env, "", warning, "Resize"+reason, "%s",
			resizeMessage("Pod resize "+reason, r.Desired, state.Generation, message))
	}
	return true
}

// recallResize takes over what the pod's status says of a resize, as an earlier agent has reported
// it: an Event tells of it once, also of its end. Upstream:
// BackfillPodResizeConditions in pkg/kubelet/status/status_manager.go.
func (p *Pod) recallResize(now time.Time) {
	if IsTerminal(p.Spec.Status.Phase) {
		return
	}
	if reported := p.Spec.Status.ObservedGeneration; p.Resize.Desired != nil {
		p.Resize.Decided = reported
	} else if reported != 0 && reported < p.Spec.Generation {
		p.Resize.ReportedEarlier = &reported
	}
	for _, c := range p.Spec.Status.Conditions {
		state := &ResizeState{c.Reason, c.Message, c.ObservedGeneration, now}
		switch {
		case c.Status != v1.ConditionTrue:
		case c.Type == v1.PodResizePending && p.Resize.Desired != nil:
			p.Resize.Pending = state
		case c.Type == v1.PodResizeInProgress:
			p.Resize.InProgress = state
		}
	}
}

// IncreasesRequests reports whether the pod requests more than is allocated to it.
func (p *Pod) IncreasesRequests() bool {
	desired, held := resizableRequests(p.Resize.Desired), resizableRequests(p.Spec)
	return desired.Cpu().Cmp(*held.Cpu()) > 0 || desired.Memory().Cmp(*held.Memory()) > 0
}

// ResizesSwap reports whether the desired resources change the requested memory, and with it the
// swap, of a container that may swap and does not restart for that. Upstream:
// disallowResizeForSwappableContainers in pkg/kubelet/allocation/handlers.go.
func (p *Pod) ResizesSwap(env *Env) bool {
	before := p.criPod(env)
	after := *before
	after.Spec = p.Resize.Desired
	desired, found := allocation.Of(p.Resize.Desired), false
	held := allocation.Of(p.Spec)
	for name, want := range desired.Containers { //ordered: whether there is one
		container := p.specContainer(name)
		if container == nil || slices.ContainsFunc(container.ResizePolicy,
			func(policy v1.ContainerResizePolicy) bool {
				return policy.ResourceName == v1.ResourceMemory &&
					policy.RestartPolicy == v1.RestartContainer
			}) {
			continue
		}
		have := held.Containers[name]
		found = found || want.Requests.Memory().Cmp(*have.Requests.Memory()) != 0 &&
			(before.MaySwap(&have) || after.MaySwap(&want))
	}
	return found
}

// visitResizable calls visit for each container that runs: the resources of all can change. An
// ephemeral one has none of its own, and the limits of the pod as a whole.
func (p *Pod) visitResizable(visit func(*Container, *v1.Container)) {
	for i := range p.Containers {
		c := &p.Containers[i]
		container := p.specContainer(c.Name)
		if c.State == Running && container != nil {
			visit(c, container)
		}
	}
}

// recallAmounts looks up what the running containers of an earlier agent were given, and reports
// whether that is known of all of them. If nothing is recorded, the runtime's status decides
// whether a container gets its resources once more. In a pod that may have been resized, a
// container may have more than is recorded: the earlier agent may have ended before it could.
func (p *Pod) recallAmounts(env *Env) bool {
	complete := true
	p.visitResizable(func(c *Container, container *v1.Container) {
		a := &c.Actuation
		if a.Last != nil || a.Recalled {
			return
		}
		recorded, known := env.recordedAmounts(p.UID, c.Name)
		switch created := c.Resources; {
		case c.Inspected != Running && p.Spec.Generation > 1:
			complete = false
			return
		case known && created != nil:
			recorded = allocation.Recall(container, *created, recorded)
			a.Last = &recorded
		case known:
			a.Last = &recorded
		case created != nil:
			a.Last = created
		case c.Inspected != Running:
			return
		case a.Reported == nil || p.reportsAllocated(a, container, env):
			want := allocation.AmountsOf(p.Spec, container)
			a.Last = &want
		}
		a.Recalled = true
		if a.Last != nil && a.Reported != nil {
			p.compareReported(a, container, env)
		}
		if p.Spec.Generation > 1 || a.Attempted != nil {
			a.VerifyAt = env.Effects.Now().Add(env.Node.RuntimeTimeout)
		}
	})
	return complete
}

// compareReported compares what a container of an earlier agent has by the records with what the
// runtime reports. If the runtime reports the allocated resources, they were set after the record:
// the limit of memory is not lowered once more, which would fail while the container uses about as
// much. If it reports more than the record, the cgroup of the pod has to bound that. No runtime
// reports the request of memory.
func (p *Pod) compareReported(a *Actuation, container *v1.Container, env *Env) {
	if p.reportsAllocated(a, container, env) {
		has := allocation.AmountsOf(p.Spec, container)
		has.MemoryRequest = a.Last.MemoryRequest
		if *a.Last != has && !allocation.MustRestart(container, *a.Last, has) {
			a.Last = &has
			if p.roleOf(container.Name) != Ephemeral { // of which there is no record
				p.noteResizing(env) // the earlier agent may have ended before it set the pod's cgroup
			}
		}
	} else if more := a.Last.Max(a.Reported.Known(*a.Last)); more != *a.Last {
		a.Attempted = &more
	}
}

// reportsAllocated reports whether the runtime's status of a container has the allocated resources.
// a.Reported must not be nil.
func (p *Pod) reportsAllocated(a *Actuation, container *v1.Container, env *Env) bool {
	return *a.Reported == *reportedAmounts(p.criPod(env).ContainerResources(container))
}

// recallWhole looks up once what the pod as a whole had when that was recorded last. If other
// resources are allocated, an earlier agent may not have set them.
func (p *Pod) recallWhole(env *Env) {
	r := &p.Resize
	if r.WholeRecalled || env.RecordedWhole == nil {
		return
	}
	r.WholeRecalled = true
	recorded := env.RecordedWhole(p.UID)
	if recorded == nil || equality.Semantic.DeepEqual(recorded, p.Spec.Spec.Resources) {
		return
	}
	r.HeldAsWhole = withLargerRequests(recorded, r.HeldAsWhole)
	p.noteResizing(env)
}

// noteResizing records that the allocated resources are being set.
func (p *Pod) noteResizing(env *Env) {
	if p.Resize.InProgress == nil {
		p.Resize.InProgress = &ResizeState{Generation: p.Spec.Generation, Since: env.Effects.Now()}
	}
}

// verifyAmounts looks whether an update of unknown outcome has taken effect after a later one.
func (p *Pod) verifyAmounts(env *Env, w *wakeTimer) {
	p.visitResizable(func(c *Container, container *v1.Container) {
		a := &c.Actuation
		if !a.VerifyAt.IsZero() && !w.waitUntil(a.VerifyAt) {
			a.VerifyAt, a.Verifying, c.Inspected = time.Time{}, true, ""
			p.issueInspections(env, w)
		}
		if !a.Verifying || c.Inspected != Running || p.isUnsettled(c, container) {
			return
		}
		a.Verifying = false
		if a.Reported != nil && !p.reportsAllocated(a, container, env) {
			bound := a.Last.Max(a.Reported.Known(*a.Last))
			a.Attempted = &bound
		}
	})
}

func (env *Env) recordedAmounts(uid, container string) (allocation.Amounts, bool) {
	if env.RecordedAmounts == nil {
		return allocation.Amounts{}, false
	}
	return env.RecordedAmounts(uid, container)
}

// isUnsettled reports whether a container does not have, or may not have, its allocated resources.
func (p *Pod) isUnsettled(c *Container, container *v1.Container) bool {
	a := &c.Actuation
	return a.Last == nil && a.Recalled || a.Attempted != nil ||
		a.Last != nil && *a.Last != allocation.AmountsOf(p.Spec, container)
}

// isCreatedOtherwise reports whether a container that was not started yet was created with other
// resources than the allocated ones, which its pod's cgroup may not hold.
func (p *Pod) isCreatedOtherwise(c *Container) bool {
	container := p.specContainer(c.Name)
	return container != nil && c.Resources != nil &&
		*c.Resources != allocation.AmountsOf(p.Spec, container)
}

// hasUnsettled reports whether a running container does not have its allocated resources.
func (p *Pod) hasUnsettled() bool {
	found := false
	p.visitResizable(func(c *Container, container *v1.Container) {
		found = found || p.isUnsettled(c, container)
	})
	return found
}

// ActuatedAmounts returns the amounts that the running containers have, by name, without ephemeral
// ones; false if they are not known of all.
func (p *Pod) ActuatedAmounts() (map[string]allocation.Amounts, bool) {
	amounts, known := map[string]allocation.Amounts{}, true
	p.visitResizable(func(c *Container, _ *v1.Container) {
		if p.roleOf(c.Name) == Ephemeral {
			return
		}
		if known = known && c.Actuation.Last != nil; known {
			amounts[c.Name] = *c.Actuation.Last
		}
	})
	return amounts, known
}

// syncResources brings the pod's cgroup and the running containers to the allocated resources. It
// reports whether the containers that are to be created have to wait.
func (p *Pod) syncResources(sandbox *Sandbox, env *Env, w *wakeTimer) bool {
	if !p.recallAmounts(env) {
		return true
	}
	p.verifyAmounts(env, w)
	p.recallWhole(env)
	r := &p.Resize
	r.HeldEarlier = nil
	unsettled := p.hasUnsettled()
	if unsettled {
		p.noteResizing(env)
	}
	if r.Failures > 0 && w.waitUntil(r.NotBefore) {
		return !p.hasRoom(sandbox, env) // new containers must be within the pod
	}
	if r.InProgress != nil && r.Started.IsZero() {
		r.Started = env.Effects.Now()
	}
	if p.setCgroup(sandbox, sandbox.Attempt, env) {
		return true
	}
	if unsettled {
		issued := p.updateContainers(env, w)
		if r.Failures > 0 {
			w.waitUntil(r.NotBefore) // set by what has just failed without an operation
		}
		return issued
	}
	r.Failures, r.NotBefore, r.ReportedEarlier = 0, time.Time{}, nil
	if r.InProgress != nil {
		p.recordEvent(env, "", normal, "ResizeCompleted", "%s",
			resizeMessage("Pod resize completed", p.Spec, r.InProgress.Generation, ""))
		r.InProgress, r.HeldAsWhole = nil, nil
		p.countResize(true, env)
	}
	return false
}

// countResize counts the attempt in progress to carry out a resize, which has ended.
func (p *Pod) countResize(succeeded bool, env *Env) {
	since := p.Resize.Started
	if p.Resize.Started = (time.Time{}); !since.IsZero() && env.CountResize != nil {
		env.CountResize(env.Effects.Now().Sub(since), succeeded)
	}
}

// boundedSpec returns the pod with the resources that its cgroup has to hold: the allocated ones,
// and where a running container may have others, the greater ones. bounds are those of such
// containers.
func (p *Pod) boundedSpec() (spec *v1.Pod, bounds []allocation.Amounts) {
	var held allocation.Resources
	p.visitResizable(func(c *Container, container *v1.Container) {
		if !p.isUnsettled(c, container) {
			return
		}
		if held.Containers == nil {
			held = allocation.Of(p.Spec)
		}
		bound := c.Actuation.boundWith(allocation.AmountsOf(p.Spec, container))
		held.Containers[c.Name] = bound.Over(container.Resources)
		bounds = append(bounds, bound)
	})
	if len(bounds) == 0 {
		return p.Spec, nil
	}
	return held.Apply(p.Spec), bounds
}

// boundWith returns the greater of what a container may have and of what it is to get.
func (a *Actuation) boundWith(want allocation.Amounts) allocation.Amounts {
	for _, known := range []*allocation.Amounts{a.Last, a.Attempted} {
		if known != nil {
			want = want.Max(*known)
		}
	}
	return want
}

// cgroupLimits returns the limits that the pod's cgroup is to have now.
func (p *Pod) cgroupLimits(path string, l *cgroup.Layout) world.SetCgroup {
	spec, bounds := p.boundedSpec()
	set := l.Limits(spec, criconfig.QOS(p.Spec), path)
	if applied := p.Cgroup.Applied; len(bounds) > 0 && applied != nil && applied.Cgroup.Path == path {
		set.Raise(&applied.Cgroup)
	}
	for i := range bounds {
		limits := l.ContainerLimits(bounds[i].CPURequest, bounds[i].CPULimit, bounds[i].MemoryLimit)
		set.Raise(&limits)
	}
	return set
}

// hasRoom reports whether the pod's cgroup has at least the limits that it is to have now.
func (p *Pod) hasRoom(sandbox *Sandbox, env *Env) bool {
	l, applied := &env.Node.Cgroups, p.Cgroup.Applied
	if !l.PerPod {
		return true
	}
	if applied == nil || applied.Attempt != sandbox.Attempt {
		return false
	}
	raised, wanted := applied.Cgroup, p.cgroupLimits(p.sandboxCgroup(sandbox, l), l)
	raised.Raise(&wanted)
	return raised.Equal(&applied.Cgroup)
}

// updateContainers gives running containers their allocated resources, those that get less first.
// It reports whether it has issued an operation.
func (p *Pod) updateContainers(env *Env, w *wakeTimer) bool {
	issued := false
	for _, shrinking := range []bool{true, false} {
		p.visitResizable(func(c *Container, container *v1.Container) {
			if issued || c.Stop != nil || c.Op != 0 || !p.isUnsettled(c, container) {
				return
			}
			want, last := allocation.AmountsOf(p.Spec, container), c.Actuation.Last
			if last != nil && allocation.MustRestart(container, *last, want) {
				p.stopContainer(c, p.GracePeriod(), stopReasonResize, env, w)
				return
			}
			if lowers := last == nil || last.Max(want) != want; lowers == shrinking {
				issued = p.updateContainer(c, container, want, env)
			}
		})
	}
	return issued
}

// usageAgeMax is how long a measurement is used after it has arrived. The plan that follows it uses
// it, unless the pod waits for something else by then, as for the end of a back-off.
const usageAgeMax = time.Second

// updateContainer issues the next operation that gives a container its allocated resources; before
// its memory is lowered, its usage is measured. It reports whether it has issued one.
func (p *Pod) updateContainer(c *Container, container *v1.Container, want allocation.Amounts,
	env *Env) bool {
	a := &c.Actuation
	bound := a.boundWith(want)
	if bound.LowersMemory(want) || a.Last == nil && want.MemoryLimit != 0 {
		if a.MemoryUsage == nil || env.Effects.Now().Sub(a.MeasuredAt) > usageAgeMax {
			p.Op = env.Effects.Issue(p.Key(), c.ID, env.Node.RuntimeTimeout,
				&runtimeapi.ContainerStatsRequest{ContainerId: c.ID})
			return true
		}
		usage := *a.MemoryUsage
		if a.MemoryUsage = nil; usage >= want.MemoryLimit {
			p.failResize(fmt.Sprintf("cannot decrease memory limits: attempting to set container %q "+
				"memory limit (%d) below current usage (%d)", c.Name, want.MemoryLimit, usage), env)
			return false
		}
	}
	if a.Sent != nil { // an earlier one has failed, and may take effect after this one
		a.VerifyAt = env.Effects.Now().Add(env.Node.RuntimeTimeout)
	}
	a.Attempted, a.Sent = &bound, &want
	p.Op = env.Effects.Issue(p.Key(), c.ID, env.Node.RuntimeTimeout,
		&runtimeapi.UpdateContainerResourcesRequest{
			ContainerId: c.ID, Linux: p.criPod(env).ContainerResources(container)})
	return true
}

// handleResizeCompletion handles the completion of an operation of a resize. After a failed update
// a container may have the resources of before or after it, or any between.
func (p *Pod) handleResizeCompletion(id world.OpID, r op.Record, ev world.Event, env *Env) {
	if p.Op != id {
		panic("pod: " + p.FullName() + ": completion of an operation it did not issue: " + r.Call)
	}
	p.Op = 0
	if r.Call == "UpdatePodSandboxResources" && isUnimplemented(ev.Err) {
		ev.Body, ev.Err = &runtimeapi.UpdatePodSandboxResourcesResponse{}, nil
	}
	if ev.Err != nil {
		p.failResize(ev.Err.Error(), env)
		return
	}
	c := p.containerByID(r.Subject)
	switch body := ev.Body.(type) {
	case *runtimeapi.ContainerStatsResponse:
		if used := body.GetStats().GetMemory().GetUsageBytes(); c != nil && used != nil {
			bytes := int64(min(used.Value, 1<<62))
			c.Actuation.MemoryUsage, c.Actuation.MeasuredAt = &bytes, ev.Time
		} else if c != nil {
			p.failResize(fmt.Sprintf("cannot decrease memory limits: missing container %q memory usage",
				c.Name), env)
		}
	case *runtimeapi.UpdateContainerResourcesResponse:
		if c != nil {
			a := &c.Actuation
			a.Last, a.Sent, a.Attempted = a.Sent, nil, nil
			c.Inspected = "" // its status has other resources now
		}
	case *runtimeapi.UpdatePodSandboxResourcesResponse:
		p.Cgroup.Announced, p.Cgroup.Announcing = p.Cgroup.Announcing, nil
	}
}

// isUnimplemented reports whether the runtime does not have a call. containerd 2.2 has it and says
// that it is not implemented, in an error without a code (containerd/containerd#13023).
func isUnimplemented(err *world.Error) bool {
	return err.Has(world.KindUnimplemented) ||
		err.Has(world.KindInternal) && strings.Contains(err.Message, "not implemented")
}

// failResize records that the allocated resources could not be set.
func (p *Pod) failResize(message string, env *Env) {
	r, now := &p.Resize, env.Effects.Now()
	r.Failures++
	r.NotBefore = now.Add(failureBackoff(r.Failures))
	p.countResize(false, env)
	state := ResizeState{Reason: v1.PodReasonError, Message: message, Since: now}
	if old := r.InProgress; old != nil {
		state.Generation = old.Generation
		if old.Reason == state.Reason {
			state.Since = old.Since
		}
		if *old == state {
			return
		}
	} else {
		state.Generation = p.Spec.Generation
	}
	r.InProgress = &state
	p.recordEvent(env, "", warning, "ResizeError", "%s",
		resizeMessage("Pod resize error", p.Spec, state.Generation, message))
}

// reportedAmounts returns the amounts in the runtime's status of a container; nil if it has none.
// Upstream: toKubeContainerResources in pkg/kubelet/kuberuntime/kuberuntime_container_linux.go.
func reportedAmounts(r *runtimeapi.LinuxContainerResources) *allocation.Amounts {
	if r == nil {
		return nil
	}
	a := allocation.Amounts{MemoryLimit: max(0, r.MemoryLimitInBytes)}
	if r.CpuPeriod > 0 && r.CpuQuota > 0 && r.CpuQuota < 1<<40 {
		a.CPULimit = r.CpuQuota * 1000 / r.CpuPeriod
	}
	if r.CpuShares > 0 && r.CpuShares <= cgroup.SharesMax {
		a.CPURequest = cgroup.SharesToMilliCPU(uint64(r.CpuShares))
	}
	return &a
}

// resizeMessage returns the message of an event about a resize (pkg/kubelet/events/resize.go).
func resizeMessage(text string, pod *v1.Pod, generation int64, failure string) string {
	type container struct {
		Name      string                  `json:"name"`
		Resources v1.ResourceRequirements `json:"resources"`
	}
	summary := struct {
		InitContainers []container `json:"initContainers,omitempty"`
		Containers     []container `json:"containers,omitempty"`
		Generation     int64       `json:"generation"`
		Error          string      `json:"error,omitempty"`
	}{Generation: generation, Error: failure}
	for _, c := range pod.Spec.InitContainers {
		summary.InitContainers = append(summary.InitContainers, container{c.Name, c.Resources})
	}
	for _, c := range pod.Spec.Containers {
		summary.Containers = append(summary.Containers, container{c.Name, c.Resources})
	}
	data, err := json.Marshal(summary)
	if err != nil {
		return text
	}
	return text + ": " + string(data)
}

package csi

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"seedlet.dev/core/budget"
	"seedlet.dev/core/op"
	"seedlet.dev/core/volumeop"
	"seedlet.dev/world"
)

// Expansion of volumes: after a controller has made a volume larger, the status of its claim says
// that the node has to follow (KEP-1790, node_expander.go in pkg/volume/util/operationexecutor).
// Before a pod gets a volume it is expanded, and the pod waits for that. A volume in use is
// expanded where it is published for one of its pods. If a controller waits for a node whose driver
// has no capability EXPAND_VOLUME, the expansion has failed.
//
// The steps follow from the claim as the API server has it: it is read, it says that the expansion
// is in progress, the driver is called, and the claim gets the new size. Whatever happens between,
// the claim says what is left to do.

// Expansion is how far the expansion of a volume on the node is.
type Expansion struct {
	// Claim is the claim as it was read or written last for the expansion; nil: it has to be read.
	Claim *v1.PersistentVolumeClaim `json:"claim,omitempty"`
	// Decided names the versions of the claim and the volume, as they are cached, for which nothing
	// is left to do.
	Decided string `json:"decided,omitempty"`
	// Asked is the size of the last call. Bytes is the size that the volume has on the node: that of
	// the persistent volume when it was seen first, and then what the driver was called for with
	// success. Expanded is set once it was.
	Asked    int64 `json:"asked,omitempty"`
	Bytes    int64 `json:"bytes,omitempty"`
	Expanded bool  `json:"expanded,omitempty"`
	// InUse is set if the driver does not expand a volume that is in use.
	InUse bool `json:"inUse,omitempty"`
	// Failure is a final failure that the claim does not say yet. Infeasible: it is not tried again.
	Failure    string `json:"failure,omitempty"`
	Infeasible bool   `json:"infeasible,omitempty"`
	// HasFailed is set after a final failure. If there is one more, and a user requests another size
	// by then, the expansion is infeasible: a controller can begin with the other size.
	HasFailed bool              `json:"hasFailed,omitempty"`
	Attempts  volumeop.Attempts `json:"attempts,omitzero"`
}

// notRequired is the annotation of a claim that needs no expansion on nodes.
const notRequired = "volume.kubernetes.io/node-expansion-not-required"

// sizeFor returns the size to which a volume is to be expanded on the node, and whether it is.
func (e *Expansion) sizeFor(claim *v1.PersistentVolumeClaim,
	volume *v1.PersistentVolume) (size resource.Quantity, isNeeded bool) {
	status := claim.Status.AllocatedResourceStatuses[v1.ResourceStorage]
	allocated, isAllocated := claim.Status.AllocatedResources[v1.ResourceStorage]
	have, capacity := claim.Status.Capacity.Storage(), volume.Spec.Capacity.Storage()
	switch {
	case status == v1.PersistentVolumeClaimNodeResizePending,
		status == v1.PersistentVolumeClaimNodeResizeInProgress:
		if !isAllocated {
			allocated = *capacity
		}
		return allocated, true
	case status != "":
	case !isAllocated && capacity.Cmp(*have) > 0: // by a resizer that does not know this status
		return *capacity, true
	case slices.Contains(claim.Spec.AccessModes, v1.ReadWriteMany) && e.Bytes > 0 &&
		capacity.Value() > e.Bytes && have.Cmp(*capacity) >= 0:
		if _, isMarked := claim.Annotations[notRequired]; !isMarked {
			return *capacity, true
		}
	}
	return size, false
}

// expand takes the next step of the expansion of a volume that is published for a use. It reports
// whether it has issued an operation, and whether nothing is left to do. Without a registered
// driver it does nothing, and whatever may be left is left: the volume is planned again once there
// is one.
func (n *Node) expand(v *Volume, u *Use, p *Publication, env *Env) (issued, done bool,
	wake time.Time) {
	e, session := &v.Expansion, n.session(v.Driver)
	if u.ReadOnly || u.Claim == "" || e.InUse && e.Failure == "" {
		return false, true, wake
	}
	claim, volume, version := u.objects(env)
	if claim == nil || volume == nil || e.Decided == version {
		return false, true, wake
	}
	if e.Bytes == 0 {
		e.Bytes = volume.Spec.Capacity.Storage().Value()
	}
	canExpand := session != nil && session.Info.Capabilities.Expand
	switch _, isNeeded := e.sizeFor(claim, volume); {
	case e.Claim == nil && (!isNeeded || session != nil && !canExpand && !isAwaited(claim)):
		e.Decided = version
		return false, true, wake
	case session == nil:
		return false, false, wake
	}
	if e.Attempts.IsWaiting(env.Effects.Now(), &wake) {
		return false, false, wake
	}
	subject := subjectExpand + u.target()
	if e.Claim == nil {
		v.issueWithin(subject, apiTimeout,
			&world.GetObject{Resource: world.ResourceClaims, Namespace: u.Namespace, Name: u.Claim}, env)
		return true, false, wake
	}
	size, isNeeded := e.sizeFor(e.Claim, volume)
	if !isNeeded || e.Claim.Spec.VolumeName != u.SpecName ||
		!canExpand && !isAwaited(e.Claim) {
		*e = Expansion{Bytes: e.Bytes, InUse: e.InUse, Decided: version}
		return false, true, wake
	}
	if issued = n.expandTo(v, u, p, size, env); !issued {
		e.Attempts.IsWaiting(env.Effects.Now(), &wake)
	}
	return issued, false, wake
}

// objects returns the claim and the persistent volume of a use as they are cached, with the name of
// their versions.
func (u *Use) objects(env *Env) (claim *v1.PersistentVolumeClaim, volume *v1.PersistentVolume,
	version string) {
	o, _ := env.Objects.Get(world.ResourceClaims, u.Namespace, u.Claim)
	if o == nil {
		return nil, nil, ""
	}
	claim = o.Claim
	if o, _ = env.Objects.Get(world.ResourceVolumes, "", u.SpecName); o == nil {
		return claim, nil, ""
	}
	return claim, o.Volume, claim.ResourceVersion + " " + o.Volume.ResourceVersion
}

// expandTo issues the next operation of an expansion, and reports whether it has.
func (n *Node) expandTo(v *Volume, u *Use, p *Publication, size resource.Quantity, env *Env) bool {
	e, subject := &v.Expansion, subjectExpand+u.target()
	status := e.Claim.Status.AllocatedResourceStatuses[v1.ResourceStorage]
	switch {
	case e.Failure != "":
		v.patchClaim(subject, e.failurePatch(env), env)
	case e.Expanded && e.Bytes >= size.Value():
		v.patchClaim(subject, finishedPatch(e.Claim, size), env)
	case status == v1.PersistentVolumeClaimNodeResizePending:
		v.patchClaim(subject, map[string]any{"allocatedResourceStatuses": map[string]any{
			"storage": v1.PersistentVolumeClaimNodeResizeInProgress}}, env)
	case !n.session(v.Driver).Info.Capabilities.Expand:
		e.Asked = size.Value()
		e.Failure = v.failExpansion(u, "NodeExpand is not supported by the CSI driver "+v.Driver, env)
		v.recordFailedExpansion(u, env)
		e.noteFinal(false)
		v.patchClaim(subject, e.failurePatch(env), env)
	default:
		return n.callExpand(v, u, p, size, env)
	}
	return true
}

// isAwaited reports whether a controller waits for the node: a driver that cannot expand volumes on
// nodes has failed then. Otherwise it has nothing to do there, as upstream.
func isAwaited(claim *v1.PersistentVolumeClaim) bool {
	return claim.Status.AllocatedResourceStatuses[v1.ResourceStorage] != ""
}

// callExpand calls the driver, and reports whether it has: not while a secret is being read.
func (n *Node) callExpand(v *Volume, u *Use, p *Publication, size resource.Quantity,
	env *Env) bool {
	e, session := &v.Expansion, n.session(v.Driver)
	secrets, known, err := secretOf(u.ExpandSecret, "NodeExpandSecretRef", env)
	if err != nil {
		e.Attempts.Fail(env.Effects.Now(), v.expandProblem(u, err.Error()))
		return false
	}
	if !known {
		return false
	}
	request := &world.ExpandVolume{Driver: session.driver(v.Driver), Handle: v.Handle,
		Path: n.publishedPath(p), RequiredBytes: size.Value(), Secrets: secrets,
		Capability: capabilityOf(v, u, session), Migrated: u.Migrated}
	request.Capability.MountGroup = ""
	if session.Info.Capabilities.StageUnstage {
		request.StagingPath = n.stagingPath(v)
	}
	e.Expanded, e.Asked = false, size.Value()
	v.call(subjectExpand+u.target(), request, env)
	return true
}

// patchClaim issues a change of the status of the claim, as it was read or written last.
func (v *Volume) patchClaim(subject string, status map[string]any, env *Env) {
	claim := v.Expansion.Claim
	patch, err := json.Marshal(map[string]any{"status": status, "metadata": map[string]any{
		"uid": claim.UID, "resourceVersion": claim.ResourceVersion}})
	if err != nil {
		panic("csi: encoding a patch of a claim: " + err.Error())
	}
	v.issueWithin(subject, apiTimeout, &world.PatchObject{
		Resource: world.ResourceClaims, Namespace: claim.Namespace, Name: claim.Name, Status: true,
		Patch: patch}, env)
}

// resizeConditions are the conditions of a claim that end with an expansion.
var resizeConditions = []v1.PersistentVolumeClaimConditionType{
	v1.PersistentVolumeClaimResizing, v1.PersistentVolumeClaimFileSystemResizePending,
	v1.PersistentVolumeClaimControllerResizeError, v1.PersistentVolumeClaimNodeResizeError,
}

// finishedPatch is the change of the status of a claim after its expansion.
func finishedPatch(claim *v1.PersistentVolumeClaim, size resource.Quantity) map[string]any {
	status := map[string]any{"capacity": map[string]any{"storage": size.String()},
		"allocatedResourceStatuses": map[string]any{"storage": nil}}
	var conditions []map[string]any
	for _, c := range claim.Status.Conditions {
		if slices.Contains(resizeConditions, c.Type) {
			conditions = append(conditions, map[string]any{"$patch": "delete", "type": c.Type})
		}
	}
	if len(conditions) > 0 {
		status["conditions"] = conditions
	}
	return status
}

// failurePatch is the change of the status of a claim whose expansion has failed.
func (e *Expansion) failurePatch(env *Env) map[string]any {
	status := map[string]any{"conditions": []map[string]any{{
		"type": v1.PersistentVolumeClaimNodeResizeError, "status": v1.ConditionTrue,
		"lastTransitionTime": env.Effects.Date().UTC().Format(time.RFC3339),
		"message":            "failed to expand pvc with " + e.Failure}}}
	if e.Infeasible {
		status["allocatedResourceStatuses"] = map[string]any{
			"storage": v1.PersistentVolumeClaimNodeResizeInfeasible}
	}
	return status
}

// handleExpanding handles the completion of an operation of expand.
func (n *Node) handleExpanding(v *Volume, target string, r op.Record, ev world.Event, env *Env) {
	e, u := &v.Expansion, v.Uses[target]
	if u == nil {
		return // the next use begins again
	}
	if r.Call == "ExpandVolume" {
		v.end(OperationExpand, &r.IssuedAt, ev.Err != nil, env)
		n.handleExpanded(v, u, ev, env)
		return
	}
	read, isObject := ev.Body.(*world.ObjectRead)
	switch {
	case ev.Err == nil && isObject && read.Object.Claim != nil:
		e.Claim = read.Object.Claim
		if r.Call == "PatchObject" && e.Failure != "" {
			e.Failure = ""
			e.Attempts.BackOff(ev.Time)
		}
	case ev.Err != nil:
		e.Claim = nil // it may have changed
		e.Attempts.Fail(ev.Time, v.expandProblem(u, ev.Err.Message))
	default:
		e.Attempts.Fail(ev.Time, v.expandProblem(u, "the answer is no claim"))
	}
}

// handleExpanded handles the answer of the driver.
func (n *Node) handleExpanded(v *Volume, u *Use, ev world.Event, env *Env) {
	e := &v.Expansion
	if e.Claim == nil {
		return
	}
	if ev.Err == nil {
		e.Bytes, e.Expanded = e.Asked, true
		e.Attempts.Succeed()
		v.recordExpansion(u, n.Name, env)
		return
	}
	const failed = "Expander.NodeExpand failed to expand the volume : "
	problem := v.failExpansion(u, failed+ev.Err.Message, env)
	if !ev.Err.Has(world.KindConflict) { // a driver may expand only what is not in use
		v.recordFailedExpansion(u, env)
	}
	if ev.Err.Has(world.KindTimeout) || ev.Err.Has(world.KindUnavailable) {
		return
	}
	e.Failure, e.InUse = problem, ev.Err.Has(world.KindConflict)
	e.noteFinal(ev.Err.Has(world.KindInvalid) || ev.Err.Has(world.KindNotFound))
}

// failExpansion notes that an expansion has failed, and returns the problem, of a bounded length.
func (v *Volume) failExpansion(u *Use, problem string, env *Env) string {
	problem = budget.CutMessage(problem)
	v.Expansion.Attempts.Fail(env.Effects.Now(), v.expandProblem(u, problem))
	return problem
}

// recordFailedExpansion records the event that a volume which a pod has could not be expanded. A
// pod that waits for the volume has the event FailedMount.
func (v *Volume) recordFailedExpansion(u *Use, env *Env) {
	if v.isSizedFor(u) {
		env.Effects.RecordEvent(u.pod(), v1.EventTypeWarning, "VolumeResizeFailed", "%s",
			v.Expansion.Attempts.Problem)
	}
}

// isSizedFor reports whether the volume had the size of its claim before a pod got it, so that the
// pod has it while it is expanded.
func (v *Volume) isSizedFor(u *Use) bool {
	p := v.Publications[u.target()]
	return p != nil && p.Sized
}

// noteFinal notes that the last failure is final. The claim is written at once.
func (e *Expansion) noteFinal(infeasible bool) {
	requested := e.Claim.Spec.Resources.Requests.Storage().Value()
	e.Infeasible = infeasible || e.HasFailed && requested != e.Asked
	e.HasFailed = true
	e.Attempts.NotBefore = time.Time{}
}

// recordExpansion records the events that a volume was expanded, of the pod and of its claim.
func (v *Volume) recordExpansion(u *Use, node string, env *Env) {
	for _, of := range []v1.ObjectReference{u.pod(), claimReference(v.Expansion.Claim)} {
		env.Effects.RecordEvent(of, v1.EventTypeNormal, "FileSystemResizeSuccessful",
			"MountVolume.NodeExpandVolume succeeded for volume %q %s", u.SpecName, node)
	}
}

// recordReadOnly records that a pod gets a volume that should be expanded, and may not write to it:
// the volume stays as it is.
func (u *Use) recordReadOnly(env *Env) {
	claim, volume, _ := u.objects(env)
	if claim == nil || volume == nil ||
		claim.Status.Capacity.Storage().Cmp(*volume.Spec.Capacity.Storage()) >= 0 {
		return
	}
	for _, of := range []v1.ObjectReference{u.pod(), claimReference(claim)} {
		env.Effects.RecordEvent(of, v1.EventTypeWarning, "FileSystemResizeFailed",
			"MountVolume.NodeExpandVolume failed for volume %q requested read-only file system", u.SpecName)
	}
}

func claimReference(claim *v1.PersistentVolumeClaim) v1.ObjectReference {
	return v1.ObjectReference{Kind: "PersistentVolumeClaim", APIVersion: "v1",
		Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID}
}

// expandProblem returns the message of an event about an expansion that has failed.
func (v *Volume) expandProblem(u *Use, problem string) string {
	step := "NodeExpandVolume.NodeExpandVolume failed"
	switch {
	case v.isSizedFor(u):
	case v.Device != "":
		step = "MapVolume.MarkVolumeAsMounted failed while expanding volume"
	default:
		step = "MountVolume.Setup failed while expanding volume"
	}
	return fmt.Sprintf("%s for volume %q : %s", step, u.SpecName, problem)
}

// planExpansion expands a volume that is in use, and returns when to plan again.
func (n *Node) planExpansion(v *Volume, env *Env) (wake time.Time) {
	for _, target := range slices.Sorted(maps.Keys(v.Uses)) {
		if u, p := v.Uses[target], v.Publications[target]; p != nil && p.isReady() && !u.ReadOnly &&
			u.Claim != "" {
			_, _, wake = n.expand(v, u, p, env)
			return wake
		}
	}
	return wake
}

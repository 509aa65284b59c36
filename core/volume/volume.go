// Package volume sets up the volumes of one pod: volumes on the node alone, and volumes with
// content from the API server (content.go).
//
// Facts: for each volume how many of its operations have succeeded, what was found at its path and
// why it failed last. Plan: the next operation (Set.NextOperation), as a function of the facts and
// the pod. Events: the completions of these operations. Every operation is idempotent: after a
// restart the agent repeats all of them, and existing volumes stay as they are. Package pod issues
// the operations. Start reading at Set, then Set.NextOperation.
package volume

import (
	"cmp"
	"errors"
	"fmt"
	"path"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/core/budget"
	"seedlet.dev/core/claim"
	"seedlet.dev/core/csi"
	"seedlet.dev/core/objectcache"
	"seedlet.dev/core/scsi"
	"seedlet.dev/core/timer"
	"seedlet.dev/world"
)

// Set is the state of the volumes of a pod.
type Set struct {
	Volumes []Volume `json:"volumes,omitempty"` // in the order of their first plan
}

// Volume is the state of one volume.
type Volume struct {
	Name string `json:"name"`
	// InFlight reports whether an operation for the desired content is in flight.
	InFlight  bool `json:"inFlight,omitempty"`
	StepsDone int  `json:"stepsDone,omitempty"` // number of succeeded operations
	// Found is the kind of the path by the last StatPath; empty: it does not exist.
	Found world.PathKind `json:"found,omitempty"`
	// Mounted is what the last BindMount has found.
	Mounted world.Mounted `json:"mounted,omitzero"`
	// Backing is what backs the volume (IsBacked), as of its set-up.
	Backing *Backing `json:"backing,omitempty"`
	// SourceVersion is the version of the content's sources, from which a change is detected:
	// versions, and errors of sources that are not available. Of a backed volume it is that of its
	// backing.
	SourceVersion string `json:"sourceVersion,omitempty"`
	// WrittenVersion is the SourceVersion of the content written last.
	WrittenVersion string `json:"writtenVersion,omitempty"`
	// UpToDate reports whether no operation is left. Ready reports whether that was so once: a later
	// failure, as of writing a changed label, does not make the volume unready (kubernetes issue
	// 139045).
	UpToDate bool `json:"upToDate,omitempty"`
	Ready    bool `json:"ready,omitempty"`

	// SetupStartedAt is when the first operation of the set-up in progress was issued.
	SetupStartedAt time.Time `json:"setupStartedAt"`

	Failures  int       `json:"failures,omitempty"` // consecutive
	NotBefore time.Time `json:"notBefore"`          // back-off
	Problem   string    `json:"problem,omitempty"`  // the last failure
	// Device is the device of a disk of a network, once that is there.
	Device world.BlockDevice `json:"device,omitzero"`
	// FailedStep is the step of the kubelet that failed last; empty: MountVolume.SetUp.
	FailedStep string `json:"failedStep,omitempty"`
	// ContentBytes is what the content of the volume takes that the agent wrote last, or is writing.
	ContentBytes int `json:"contentBytes,omitempty"`
	// OverBudget is the bound that the volume exceeds, by its name in package budget.
	OverBudget string `json:"overBudget,omitempty"`
	// NodeFull is set if the node has too many volumes to have this one attached.
	NodeFull bool `json:"nodeFull,omitempty"`
}

// Pod is what the volumes of a pod depend on.
type Pod struct {
	Spec        *v1.Pod
	Dir         string // the pod's directory under the agent's root
	DevicesDir  string // where devices of local volumes are mounted for all pods
	BlocksDir   string // where devices that containers get have a directory for each volume
	RootDir     string // of the kubelet
	MemoryBytes int64  // that pods can have of the node
	// Node returns the Node at the API server, nil if it does not exist, and whether that is known.
	Node func() (node *v1.Node, known bool)
	// Value returns the content of a downward API file.
	Value func(*v1.DownwardAPIVolumeFile) (string, error)
	// Objects are the objects of the API server; nil without an API server.
	Objects *objectcache.Store
	// Token returns a token of the pod's service account, and its version. Without a version or an
	// error the request is in flight.
	Token func(*v1.ServiceAccountTokenProjection) (value, version string, err error)
	// Certificate returns the private key and the chain of a source podCertificate, and a version of
	// both. Without a version or an error the first request is being made.
	Certificate func(volume string, source int) (key, chain, version string, err error)
	// Shared declares that the pod uses a volume of a CSI driver, and returns how far that is.
	Shared func(csi.Use) Shared
	// Disk declares that the pod uses a volume of the kind iscsi or fc, and returns how far that is.
	Disk func(scsi.Use) scsi.UseState
	// UseDevice declares that the device of a local volume is about to be bound for the pod; nil to
	// declare nothing.
	UseDevice func(persistentVolume string)
	// SetupEnded is called for each set-up of a volume that ends in a plan: HandleCompletion returns
	// the failures of operations. Nil to count nothing.
	SetupEnded func(spec *v1.Volume, took time.Duration, failed bool)
	// FilesBuilt is how many files of volumes NextOperation has built, those of refused ones included.
	FilesBuilt int

	anchors map[string]string // trustAnchorsOf, by the versions of the bundles
	// uses are how containers use the volumes, once one was asked for: all are found at once, as a pod
	// may have many volumes and many mounts.
	uses map[string]claim.Use
}

func (p *Pod) setupEnded(spec *v1.Volume, took time.Duration, failed bool) {
	if p.SetupEnded != nil {
		p.SetupEnded(spec, took, failed)
	}
}

// Shared is how far a volume of a CSI driver is: package csi sets it up, because pods share it.
type Shared struct {
	Ready bool
	// Problem is why it is not ready or cannot be refreshed, as an event says it; empty if nothing has
	// failed. Failures is how often in a row.
	Problem  string
	Failures int
	// Relabel is set if the runtime has to relabel its files for SELinux.
	Relabel bool
	// NodeFull is set if it cannot be attached: the node has too many volumes.
	NodeFull bool
	// OverBudget is the bound that it exceeds, by its name in package budget.
	OverBudget string
}

// Operation is an operation that a volume needs.
type Operation struct {
	Volume   string
	HostPath string // the path, if it is not under the agent's root
	Body     any
}

// Path returns the path of a volume on the node; empty for an image volume.
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

// partDelay is when the rest of the volumes is looked at, once those that were refused have had as
// many files as the largest one may.
const partDelay = time.Millisecond

// NextOperation returns the next operation that the volumes need, or nil. The time is when the
// back-off of a failed volume ends, or zero.
func (s *Set) NextOperation(pod *Pod, now time.Time) (*Operation, time.Time) {
	var wake time.Time
	worked := 0
	for i := range pod.Spec.Spec.Volumes {
		spec := &pod.Spec.Spec.Volumes[i]
		v := s.findNear(i, spec.Name)
		if v == nil {
			s.Volumes = append(s.Volumes, Volume{Name: spec.Name})
			v = &s.Volumes[len(s.Volumes)-1]
		}
		version, known := pod.sourceVersion(v, spec)
		if known && v.SourceVersion != version {
			*v = Volume{Name: v.Name, Ready: v.isSetUp(), SourceVersion: version,
				WrittenVersion: v.WrittenVersion, Problem: v.Problem, FailedStep: v.FailedStep,
				ContentBytes: v.ContentBytes}
		}
		switch {
		case v.adoptShared(spec, pod), v.waitsForDisk(spec, pod), v.UpToDate || !known:
			continue
		case now.Before(v.NotBefore):
			if wake.IsZero() || v.NotBefore.Before(wake) {
				wake = v.NotBefore
			}
			continue
		}
		if worked > budget.FilesMax {
			return nil, now.Add(partDelay)
		}
		steps, files, err := s.stepsOf(v, spec, pod)
		worked += files
		pod.FilesBuilt += files
		switch {
		case err != nil:
			pod.setupEnded(spec, v.recordFailure(err.Error(), now), true)
			v.OverBudget = budget.NameOf(err)
			if failed := (*setupError)(nil); errors.As(err, &failed) {
				v.FailedStep = failed.step
			}
			if wake.IsZero() || v.NotBefore.Before(wake) {
				wake = v.NotBefore
			}
		case v.StepsDone < len(steps):
			v.InFlight = true
			if v.SetupStartedAt.IsZero() {
				v.SetupStartedAt = now
			}
			body := steps[v.StepsDone]
			return &Operation{Volume: spec.Name, Body: body,
				HostPath: v.hostPathOf(spec, pod.Dir, body)}, wake
		default:
			v.UpToDate, v.Ready, v.Failures, v.Problem, v.FailedStep = true, true, 0, "", ""
			v.WrittenVersion = v.SourceVersion
			if v.SourceVersion != notUsed {
				pod.setupEnded(spec, v.endSetup(now), false)
			}
		}
	}
	return nil, wake
}

// adoptShared takes over how far a volume of a CSI driver is, and reports whether it is one.
func (v *Volume) adoptShared(spec *v1.Volume, pod *Pod) bool {
	if !IsBacked(spec) || v.SourceVersion == notUsed {
		return false
	}
	if v.Backing == nil {
		b, known, err := pod.backingOf(spec)
		if !known || err != nil || b.Plugin != CSIPlugin {
			return false
		}
		v.Backing = &b
	}
	if v.Backing.Plugin != CSIPlugin {
		return false
	}
	shared := pod.Shared(*v.Backing.CSI)
	v.UpToDate, v.Ready = shared.Ready, v.Ready || shared.Ready
	if shared.Ready {
		v.Backing.Relabel = shared.Relabel
	}
	v.Problem, v.Failures, v.FailedStep = shared.Problem, shared.Failures, stepShared
	v.NodeFull, v.OverBudget = shared.NodeFull, shared.OverBudget
	return true
}

// stepsOf returns the operations that a volume needs, in order, and what that has cost: its files,
// or its sources if the number of files alone refuses it.
func (s *Set) stepsOf(v *Volume, spec *v1.Volume, pod *Pod) (steps []any, files int, err error) {
	switch {
	case v.SourceVersion == notUsed:
		return nil, 0, nil
	case IsBacked(spec):
		steps, err = v.backedSteps(spec, pod)
		return steps, 0, err
	case !HasContent(spec):
		steps, err = v.steps(spec, pod)
		return steps, 0, err
	}
	all, _ := projections(spec)
	files = pod.countFiles(all)
	if err := s.checkContent(v, files*contentPage); err != nil {
		return nil, len(all), err
	}
	c, err := pod.contentOf(spec)
	if err == nil {
		err = s.checkContent(v, c.pageBytes)
	}
	if err == nil {
		steps, err = v.contentSteps(spec, c, pod)
	}
	if err == nil {
		v.ContentBytes = c.pageBytes
	}
	return steps, files, err
}

// notUsed is the version of a volume that no container uses. It needs no set-up, and no pod waits
// for its sources, as in the kubelet (pkg/kubelet/volumemanager/populator).
const notUsed = "not used"

// isSetUp reports whether the volume was set up for a container.
func (v *Volume) isSetUp() bool { return v.Ready && v.SourceVersion != notUsed }

// sourceVersion returns the version of the sources of a volume. It is known once all of them are.
func (p *Pod) sourceVersion(v *Volume, spec *v1.Volume) (version string, known bool) {
	switch {
	case !v.isSetUp() && !p.isUsed(spec.Name):
		return notUsed, true
	case IsBacked(spec):
		return p.backingVersion(v, spec)
	}
	return p.contentVersion(spec)
}

// isUsed reports whether a container uses a volume. An ephemeral container may be added that does.
func (p *Pod) isUsed(volume string) bool { return p.useOf(volume) != claim.Use{} }

// useOf returns how containers use a volume.
func (p *Pod) useOf(volume string) claim.Use {
	if p.uses == nil {
		p.uses = claim.UsesOf(p.Spec)
	}
	return p.uses[volume]
}

// checkContent returns an error if the content of a volume, which takes so many bytes, and that of
// the others take more than those of a pod may: one object can be named by each of them. A volume
// that is refused counts with the content that it had before, which stays. The number of files
// alone can show that it is to be refused, before any is looked at.
func (s *Set) checkContent(v *Volume, own int) error {
	others := 0
	for i := range s.Volumes {
		if other := &s.Volumes[i]; other.Name != v.Name {
			others += other.ContentBytes
		}
	}
	if own > 0 && own+others > budget.ContentOfPodMax {
		return budget.ContentBytesOfPod.Errorf(
			"its files take %d bytes and those of other volumes of the pod %d, together more than %d",
			own, others, budget.ContentOfPodMax)
	}
	return nil
}

// Ready reports whether every volume of the pod has been set up.
func (s *Set) Ready(spec *v1.PodSpec) bool {
	for i := range spec.Volumes {
		if !s.IsReady(i, spec.Volumes[i].Name) {
			return false
		}
	}
	return true
}

// IsReady reports whether a volume has been set up, by its position in the spec and its name.
func (s *Set) IsReady(position int, name string) bool {
	v := s.findNear(position, name)
	return v != nil && v.Ready
}

// LimitMessage returns that the node has too many volumes to have one of the pod attached, in the
// kubelet's words (VolumeAttachLimitExceededError in pkg/kubelet/volumemanager); empty if it has
// not.
func (s *Set) LimitMessage(spec *v1.PodSpec) string {
	var unmounted, unattached []string
	for i := range spec.Volumes {
		v := s.findNear(i, spec.Volumes[i].Name)
		if v == nil || v.Ready {
			continue
		}
		if unmounted = append(unmounted, v.Name); v.NodeFull {
			unattached = append(unattached, v.Name)
		}
	}
	if unattached == nil {
		return ""
	}
	slices.Sort(unmounted)
	slices.Sort(unattached)
	return fmt.Sprintf("Node has reached its volume attachment limit, rejecting pod. unmounted "+
		"volumes=%v, unattached volumes=%v, failed to process volumes=[]: context deadline exceeded",
		unmounted, unattached)
}

// Problem returns why a volume has not been set up, in the kubelet's words; empty if none has
// failed.
func (s *Set) Problem() string {
	return s.firstFailedOf(func(v *Volume) bool { return !v.Ready }).problemMessage()
}

// AnyProblem is Problem for all volumes, including those that are ready but cannot be updated.
func (s *Set) AnyProblem() string { return s.firstFailed().problemMessage() }

// Failures returns the number of consecutive failures of the first failed volume.
func (s *Set) Failures() int {
	if v := s.firstFailed(); v != nil {
		return v.Failures
	}
	return 0
}

// OverBudget returns the bound that the first failed volume exceeds; empty if it failed for another
// reason.
func (s *Set) OverBudget() string {
	if v := s.firstFailed(); v != nil {
		return v.OverBudget
	}
	return ""
}

func (s *Set) firstFailed() *Volume { return s.firstFailedOf(func(*Volume) bool { return true }) }

// firstFailedOf returns the first failed volume that matches.
func (s *Set) firstFailedOf(which func(*Volume) bool) *Volume {
	for i := range s.Volumes {
		if v := &s.Volumes[i]; v.Problem != "" && which(v) {
			return v
		}
	}
	return nil
}

func (v *Volume) problemMessage() string {
	switch {
	case v == nil:
		return ""
	case v.FailedStep == stepShared:
		return v.Problem
	}
	name, step := v.Name, cmp.Or(v.FailedStep, "MountVolume.SetUp")
	if step == stepProcess {
		return "Unable to attach or mount volumes: unmounted volumes=[" + name + "], unattached " +
			"volumes=[], failed to process volumes=[" + name + "]: " + v.Problem
	}
	if v.Backing != nil {
		name = v.Backing.Name
	}
	return step + " failed for volume \"" + name + "\" : " + v.Problem
}

// ContentVersion identifies the written content of a volume.
func (s *Set) ContentVersion(name string) string {
	if v := s.find(name); v != nil {
		return v.WrittenVersion
	}
	return ""
}

// Recheck repeats the operations of every volume, since the pod's spec may have changed. Volumes
// that are ready stay so.
func (s *Set) Recheck() {
	for i := range s.Volumes {
		v := &s.Volumes[i]
		*v = Volume{Name: v.Name, Ready: v.Ready, SourceVersion: v.SourceVersion,
			WrittenVersion: v.WrittenVersion, ContentBytes: v.ContentBytes, Backing: v.Backing}
	}
}

// Reset forgets all volumes: they may not exist any more.
func (s *Set) Reset() { s.Volumes = nil }

// HandleCompletion applies the completion of an operation of NextOperation. If the set-up of the
// volume has failed, it returns how long that took.
func (s *Set) HandleCompletion(name, call string,
	ev world.Event) (took time.Duration, failed bool) {
	v := s.find(name)
	if v == nil || !v.InFlight {
		return 0, false // reset meanwhile, or issued for the content desired before
	}
	v.InFlight = false
	switch {
	case ev.Err.Has(world.KindNotFound) && call == "StatPath":
		v.Found = ""
	case ev.Err != nil:
		problem := budget.CutMessage(ev.Err.Message)
		if call == "BindMount" && ev.Err.Has(world.KindRefused) && v.Backing != nil && v.Backing.OnePod {
			problem = csi.InUseElsewhere
		}
		took = v.recordFailure(problem, ev.Time)
		switch {
		case call == "MountDevice":
			v.FailedStep = stepDevice
		case v.Backing != nil && v.Backing.Block:
			v.FailedStep = v.failedMapStep(call)
		}
		return took, true
	}
	switch body := ev.Body.(type) {
	case *world.PathInfo:
		v.Found = body.Kind
	case *world.Mounted:
		v.Mounted = *body
	}
	v.StepsDone++
	return 0, false
}

// SharedWith returns the name of a volume that was just mounted for another pod as well, with the
// group that its tree has: the pod's own is not set then.
func (s *Set) SharedWith(name string) (volume string, gid int64, shared bool) {
	v := s.find(name)
	if v == nil || v.Backing == nil || !v.Mounted.Shared || v.Mounted.Existed {
		return "", 0, false
	}
	return v.Backing.Name, v.Mounted.GID, true
}

// The back-off after failures.
const (
	backoffFirst = time.Second
	backoffMax   = 2 * time.Minute // the limit of the doubling, the kubelet's value for mounts
)

// recordFailure sets the back-off and starts again with the first operation: the state of the
// volume on the node is unknown. It returns how long the set-up took.
func (v *Volume) recordFailure(problem string, now time.Time) time.Duration {
	v.Failures++
	v.StepsDone, v.Found, v.Problem, v.OverBudget, v.FailedStep = 0, "", problem, "", ""
	v.NotBefore = now.Add(timer.Backoff(v.Failures, backoffFirst, backoffMax))
	return v.endSetup(now)
}

// findNear is find for the volume i of the spec, which is in the same place here unless the spec
// has changed. Otherwise a spec of many volumes would take the square of their number.
func (s *Set) findNear(i int, name string) *Volume {
	if i < len(s.Volumes) && s.Volumes[i].Name == name {
		return &s.Volumes[i]
	}
	return s.find(name)
}

func (s *Set) find(name string) *Volume {
	for i := range s.Volumes {
		if s.Volumes[i].Name == name {
			return &s.Volumes[i]
		}
	}
	return nil
}

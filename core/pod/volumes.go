package pod

import (
	"hash/fnv"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/core/admission"
	"seedlet.dev/core/budget"
	"seedlet.dev/core/criconfig"
	"seedlet.dev/core/csi"
	"seedlet.dev/core/localstorage"
	"seedlet.dev/core/op"
	"seedlet.dev/core/podcertificate"
	"seedlet.dev/core/token"
	"seedlet.dev/core/volume"
	"seedlet.dev/core/volumeop"
	"seedlet.dev/world"
)

// The volumes of the pod, and when they are created and removed.
//
// They are created after the sandbox and before the first container. The sandbox comes first
// because its record tells an agent that was killed halfway that there are volumes to clean up, and
// it is removed last for the same reason. Volumes are unmounted when no container runs any more:
// subpaths first, then all mounts below the pod's directory, including those of other processes.
// Nothing is removed before everything is unmounted.

// Storage holds the facts about the pod's files on the node besides logs.
type Storage struct {
	Volumes volume.Set         `json:"volumes"`
	Usage   localstorage.Usage `json:"usage"`
	Binds   []string           `json:"binds,omitempty"` // mounted subpaths, as bindKeys
	// HostsChecksum is that of the /etc/hosts that was written.
	HostsChecksum string `json:"hostsChecksum,omitempty"`
	// Tokens are the service account tokens in volumes, Certificates those of the pod.
	Tokens          token.Set          `json:"tokens"`
	Certificates    podcertificate.Set `json:"certificates,omitzero"`
	ReportedFailure string             `json:"reportedFailure,omitempty"` // that of the last event
	// Group is about the last operation that gives a volume to the group of the pod.
	Group csi.GroupWatch `json:"group,omitzero"`
	// Preparing is the subpath or the /etc/hosts that the pod's operation Op creates. The spec may
	// have changed when the operation completes.
	Preparing string `json:"preparing,omitempty"`
	// ReleaseSteps is how many steps of releaseVolumes have completed.
	ReleaseSteps int `json:"releaseSteps,omitempty"`
	// Unmounted holds once releaseVolumes has unmounted the volumes.
	Unmounted bool `json:"unmounted,omitempty"`
}

// storageSubject begins the subjects of all operations on storage.
const storageSubject = "storage/"

const (
	subjectVolume  = storageSubject + "volume/"  // followed by the volume
	subjectBind    = storageSubject + "bind/"    // followed by the container
	subjectHosts   = storageSubject + "hosts/"   // followed by the container
	subjectRelease = storageSubject + "release/" // followed by the step
	subjectMeasure = storageSubject + "measure/" // followed by the item
	subjectToken   = storageSubject + "token/"

	subjectCertificate = storageSubject + "certificate/"
)

// reset drops the facts about files that were created for an earlier sandbox, because they may have
// been removed together with it.
func (s *Storage) reset() {
	s.Volumes.Reset()
	s.Binds, s.HostsChecksum, s.ReleaseSteps = nil, "", 0
}

// syncStorage evicts a pod that exceeds a limit of what it keeps on disks, measures that, and
// brings the volumes up to date. It reports whether containers may be created.
func (p *Pod) syncStorage(env *Env, w *wakeTimer) bool {
	if p.evictOverLimit(env) {
		return false
	}
	p.measureStorage(env, w)
	return p.syncVolumes(env, w)
}

// syncVolumes creates missing volumes and updates the others, unless another operation of the pod
// is in flight. It reports whether containers may be created.
func (p *Pod) syncVolumes(env *Env, w *wakeTimer) bool {
	if len(p.Spec.Spec.Volumes) == 0 {
		return true
	}
	p.renewCredentials(env, w)
	if p.Op != 0 {
		return false
	}
	view := p.volumeView(env)
	if p.issueVolumeOperation(view, env, w) || p.endAtVolumeLimit(env) {
		return false
	}
	return p.Storage.Volumes.Ready(&p.Spec.Spec)
}

// ReasonVolumeLimit is the reason of a pod that ends because the node has too many volumes to have
// one of the pod attached (VolumeAttachmentLimitExceededReason in pkg/kubelet/volumemanager).
const ReasonVolumeLimit = "VolumeAttachmentLimitExceeded"

// endAtVolumeLimit ends a pod that waits in vain for a volume, as a rejected one: its controller
// makes another one, which the scheduler binds by what the drivers say now. It reports whether it
// has.
func (p *Pod) endAtVolumeLimit(env *Env) bool {
	message := p.Storage.Volumes.LimitMessage(&p.Spec.Spec)
	if message == "" || p.HasUnknownExits() { // the pod may have completed before
		return false
	}
	p.recordEvent(env, "", warning, ReasonVolumeLimit, "%s", message)
	if env.CountRejection != nil {
		env.CountRejection(ReasonVolumeLimit)
	}
	p.startTermination(Termination{Reason: ReasonVolumeLimit, Message: "Pod was rejected: " + message,
		Phase: v1.PodFailed, Grace: p.GracePeriod()}, env.Effects.Now())
	return true
}

// workOfFile is what a file of a volume counts as work of a step, in bytes: its content is not
// copied.
const workOfFile = 128

// issueVolumeOperation issues the next operation that a volume needs, and reports whether it has.
func (p *Pod) issueVolumeOperation(view *volume.Pod, env *Env, w *wakeTimer) bool {
	step, at := p.Storage.Volumes.NextOperation(view, env.Effects.Now())
	env.Effects.CountWork(view.FilesBuilt * workOfFile)
	p.recordVolumeFailures(env)
	if step == nil {
		w.waitUntil(at)
		return false
	}
	p.Op = env.Effects.IssueAt(step.HostPath, p.Key(), subjectVolume+step.Volume, fsTimeout, step.Body)
	return true
}

// measureStorage measures what a pod with limits keeps on disks, from time to time.
func (p *Pod) measureStorage(env *Env, w *wakeTimer) {
	if env.Node.NoStorageLimits {
		return
	}
	usage := &p.Storage.Usage
	step, at := usage.NextMeasurement(p.localStorage(env), env.Effects.Now())
	if step == nil {
		w.waitUntil(at)
		return
	}
	usage.MeasurementIssued(env.Effects.Issue(p.Key(), subjectMeasure+step.String(), fsTimeout,
		step.Body), step.Item)
}

// MeasuresVolume reports whether an operation with a subject measures a volume of a pod.
func MeasuresVolume(subject string) bool {
	return strings.HasPrefix(subject, subjectMeasure+string(localstorage.VolumeItem)+"/")
}

// localStorage returns what measurements depend on. A pod with live containers has its volumes,
// also one that ends and of which this agent has not inspected them.
func (p *Pod) localStorage(env *Env) *localstorage.Pod {
	isReady := p.Storage.Volumes.IsReady
	if p.HasLiveContainers() {
		isReady = func(int, string) bool { return true }
	}
	return &localstorage.Pod{Spec: p.Spec, Dir: p.dir(env.Node), LogDir: p.logDir(env.Node),
		IsReady: isReady, RunningID: func(container string) string {
			if c := p.NewestRun(container); c != nil && c.State == Running {
				return c.ID
			}
			return ""
		}, LayersApart: env.LayersApart}
}

const (
	// ReasonEvicted is the reason of an evicted pod, and of one that is rejected under pressure.
	ReasonEvicted = "Evicted"
	evictionGrace = time.Second // the kubelet's, for a pod that exceeds a limit
)

// evictOverLimit evicts the pod if it exceeds a limit of what it keeps on disks, and reports
// whether it has. A static pod, which no controller would create on another node, and a critical
// pod are not evicted for it (upstream #40573).
//
// A pod that is ending already is hastened, and one that is deleted is reported as evicted, as by
// Evict. Nothing is left to hasten of a pod that ends within the grace period of an eviction.
func (p *Pod) evictOverLimit(env *Env) bool {
	message, now := p.Storage.Usage.Message(p.Spec), env.Effects.Now()
	if message == "" || admission.IsCritical(p.Spec, p.IsStatic()) {
		return false
	}
	end := Termination{Reason: ReasonEvicted, Message: message, Phase: v1.PodFailed,
		Grace: min(p.GracePeriod(), evictionGrace)}
	if t := &p.Termination; p.Stage != Syncing && !t.Since.Add(t.Grace).After(now.Add(end.Grace)) {
		return false
	}
	p.recordEvent(env, "", warning, ReasonEvicted, "%s", message)
	p.endForNode(end, now)
	p.OverLimit = true
	return true
}

// enforceStorageLimits measures what a pod with live containers keeps on disks, and evicts it if
// that exceeds a limit. Plans that do not get to syncStorage call it, as those of a pod that ends:
// an end may take as long as the author of the pod likes.
func (p *Pod) enforceStorageLimits(env *Env, w *wakeTimer) {
	if p.Spec != nil && p.HasLiveContainers() && !p.evictOverLimit(env) {
		p.measureStorage(env, w)
	}
}

// IsEvicted reports whether the pod is terminating, or has terminated, because it was evicted.
func (p *Pod) IsEvicted() bool { return p.Termination.Reason == ReasonEvicted }

// canPrepareMounts reports whether the mounts of containers can be prepared: what /etc/hosts is to
// have is known.
func (p *Pod) canPrepareMounts(env *Env) bool {
	return p.CurrentSandbox().Inspected && (!p.Spec.Spec.HostNetwork || env.Node.Hosts.Loaded)
}

// prepareMounts takes the next step towards the mounts of a container other than whole volumes:
// subpaths and /etc/hosts. It reports whether it has issued an operation, and whether all mounts
// are ready.
func (p *Pod) prepareMounts(container *v1.Container, cri *criconfig.Pod,
	env *Env) (issued, ready bool) {
	var variables *criconfig.Variables
	var err error
	if slices.ContainsFunc(container.VolumeMounts, func(m v1.VolumeMount) bool {
		return m.SubPathExpr != ""
	}) {
		variables, err = cri.Environment(container)
	}
	for i := 0; i < len(container.VolumeMounts) && err == nil; i++ {
		bind, _ := cri.SubPathBind(container, i, variables) // recordMisconfiguration reported an error
		if bind == nil {
			continue
		}
		key := bindKey(bind) + "\x00" + p.Storage.Volumes.ContentVersion(container.VolumeMounts[i].Name)
		if slices.Contains(p.Storage.Binds, key) {
			continue
		}
		p.Storage.Preparing = key
		p.Op = env.Effects.IssueAt(p.hostPath(container.VolumeMounts[i].Name, bind.SubPath, env), p.Key(),
			subjectBind+container.Name+"/"+strconv.Itoa(i), fsTimeout, bind)
		return true, false
	}
	if !cri.NeedsHostsFile(container) {
		return false, true
	}
	for i := range p.Spec.Spec.HostAliases {
		env.Effects.CountWork(len(p.Spec.Spec.HostAliases[i].Hostnames) * workOfEntry)
	}
	hosts := []byte(cri.HostsFileContent())
	sum := hostsChecksum(hosts)
	if p.Storage.HostsChecksum == sum {
		return false, true
	}
	p.Storage.Preparing = sum
	p.Op = env.Effects.Issue(p.Key(), subjectHosts+container.Name, fsTimeout, &world.WriteFile{
		Path: env.Node.HostsFilePath(p.UID), Data: hosts, Mode: 0o644,
		Volatile: true}) // another sandbox gets a new file
	return true, false
}

// hostPath returns the path of a subpath in a volume that may hang: a hostPath, or a volume that is
// backed by others. It is empty for any other volume.
func (p *Pod) hostPath(name, subPath string, env *Env) string {
	v := p.specVolume(name)
	if v == nil || v.HostPath == nil && !volume.IsBacked(v) {
		return ""
	}
	return path.Join(p.Storage.Volumes.Place(p.dir(env.Node), v).Path, subPath)
}

// hostsChecksum returns a checksum of the content of /etc/hosts.
func hostsChecksum(hosts []byte) string {
	h := fnv.New64a()
	h.Write(hosts)
	return strconv.FormatUint(h.Sum64(), 16)
}

// unmountStep is the step of releaseVolumes after which no volume is mounted.
const unmountStep = "1"

// countUnmount counts the end of a step of releaseVolumes, up to the one that unmounts the volumes
// of the pod together.
func (p *Pod) countUnmount(step string, r op.Record, ev world.Event, env *Env) {
	if p.Storage.Unmounted || ev.Err == nil && step != unmountStep {
		return
	}
	p.Storage.Unmounted = ev.Err == nil
	if p.Spec != nil {
		p.Storage.Volumes.ReadyVolumes(&p.Spec.Spec, func(v *v1.Volume) {
			p.countVolumeOperation(v, VolumeUnmount, ev.Time.Sub(r.IssuedAt), ev.Err != nil, env)
		})
	}
}

// NeedsVolume reports whether the pod has a volume that is backed by a persistent volume, until its
// volumes are unmounted.
func (p *Pod) NeedsVolume(persistentVolume string) bool {
	return !p.Storage.Unmounted && p.Storage.Volumes.IsBackedBy(persistentVolume)
}

// HasUnmounted reports whether the pod has ended and its volumes are unmounted: it holds no memory
// any more, and nothing that a pod of a later group of a shutdown provides.
func (p *Pod) HasUnmounted() bool { return p.Stage == Terminated && p.Storage.Unmounted }

// HasFreedDisk reports whether the pod has ended and its volumes are removed, and so are its
// containers, with their writable layers and logs, if it was evicted or is not desired any more.
// Those of another pod, whose end was only hastened, are removed by the next reclaim.
func (p *Pod) HasFreedDisk() bool {
	hasRuns := len(p.Containers) > 0
	switch {
	case p.Stage != Terminated, p.dropsRuns() && hasRuns:
		return false
	case p.NoLongerDesired:
		return p.DirRemoved && !hasRuns
	}
	return p.DirRemoved || p.Storage.ReleaseSteps >= releaseStepsOfDesired
}

// stepAfterShared is the step of releaseVolumes before which volumes of CSI drivers are
// unpublished, and devices taken from the pod: their subpaths are unmounted, and nothing else has
// touched them.
const stepAfterShared = 1

// unmountSteps is the number of steps of releaseVolumes that unmount, which are the first ones.
const unmountSteps = 2

// releaseStepsOfDesired is the number of steps of releaseVolumes for a pod that is still desired.
const releaseStepsOfDesired = 5

// releaseVolumes undoes the pod's mounts, and reports whether it has issued an operation, or waits
// for volumes of CSI drivers. The volumes of a terminated pod that is still desired are removed as
// well, and so is its /etc/hosts, which may have any size: the object of such a pod can stay for
// weeks.
func (p *Pod) releaseVolumes(env *Env) bool {
	dir := p.dir(env.Node)
	steps := [releaseStepsOfDesired]any{
		&world.Unmount{Path: volumeop.SubPathDir(dir)}, &world.Unmount{Path: dir},
		&world.RemoveTree{Path: volumeop.SubPathDir(dir)},
		&world.RemoveTree{Path: env.Node.HostsFilePath(p.UID)},
		&world.RemoveTree{Path: dir + "/volumes"},
	}
	left := len(steps)
	if p.NoLongerDesired {
		left = unmountSteps // removeDirs removes the whole directory
	}
	if p.Storage.ReleaseSteps == stepAfterShared {
		waitsForDriver, waitsForDevice := p.releaseShared(env), p.releaseDevices(env)
		waitsForDisk := p.releaseDisks(env, false)
		if waitsForDriver || waitsForDevice || waitsForDisk {
			return true // each volume that is unpublished, or device that is taken, has the pod planned
		}
	}
	if p.Storage.ReleaseSteps >= unmountSteps {
		p.releaseDisks(env, true)
	}
	if p.Storage.ReleaseSteps >= left {
		return false
	}
	p.Op = env.Effects.IssueAt(p.unmountPath(dir), p.Key(),
		subjectRelease+strconv.Itoa(p.Storage.ReleaseSteps), fsTimeout, steps[p.Storage.ReleaseSteps])
	return true
}

// unmountPath returns the path that an unmount of the pod's volumes may hang at; empty if it cannot
// hang: the pod has no volume that is backed by others.
func (p *Pod) unmountPath(dir string) string {
	if p.Storage.ReleaseSteps < unmountSteps && p.HasBackedVolumes() {
		return dir
	}
	return ""
}

// handleStorageCompletion handles the completion of an operation on storage; it reports false for
// any other operation.
func (p *Pod) handleStorageCompletion(id world.OpID, r op.Record, ev world.Event, env *Env) bool {
	kind, rest, ok := strings.Cut(strings.TrimPrefix(r.Subject, storageSubject), "/")
	if !ok || !strings.HasPrefix(r.Subject, storageSubject) {
		return false
	}
	switch {
	case kind == "token":
		p.handleTokenCompletion(id, r, ev, env)
		return true
	case kind == "certificate":
		p.handleCertificateCompletion(id, r, ev, env)
		return true
	case kind == "measure":
		if p.Storage.Usage.Op == id {
			p.Storage.Usage.HandleCompletion(p.localStorage(env), ev)
		}
		return true
	}
	if p.Op != id {
		panic("pod: " + p.FullName() + ": completion of an operation it did not issue: " + r.Call)
	}
	p.Op = 0
	container := "" // the container that waits for the operation
	switch kind {
	case "volume":
		p.handleVolumeCompletion(rest, r, ev, env)
		return true
	case "env":
		p.handleEnvFileRead(rest, ev, env)
		return true
	case "bind", "hosts":
		container, _, _ = strings.Cut(rest, "/")
	}
	if kind == "release" {
		p.countUnmount(rest, r, ev, env)
	}
	if ev.Err != nil {
		pr := p.noteFailure(container, r.Call, ev.Err, ev.Time)
		if kind == "bind" {
			pr.Message = "failed to prepare subPath for a volume mount of container \"" +
				container + "\": " + budget.CutMessage(ev.Err.Message)
		}
		p.recordFailureEvent(pr, env)
		if container != "" { // the next attempt may have to pull its images again
			p.releaseImages(container, env)
		}
		return true
	}
	p.clearProblems(container, r.Call)
	switch kind {
	case "bind":
		p.Storage.addBind()
	case "hosts":
		p.Storage.HostsChecksum = p.Storage.Preparing
	case "release":
		p.Storage.ReleaseSteps++
		if p.UnreportedTerminalPhase() != "" {
			p.Record.NotBefore = time.Time{} // the disk may have room for the record now
		}
	}
	return true
}

// handleVolumeCompletion handles the completion of an operation on a volume. A failure does not
// make the observations of the runtime stale; the volume is inspected again later.
func (p *Pod) handleVolumeCompletion(name string, r op.Record, ev world.Event, env *Env) {
	took, failed := p.Storage.Volumes.HandleCompletion(name, r.Call, ev)
	if spec := p.specVolume(name); failed && spec != nil {
		p.countVolumeOperation(spec, VolumeMount, took, true, env)
	}
	switch {
	case failed:
	case r.Call == "BindMount":
		p.warnOfSharedGroup(name, env)
	case r.Call == "MakeLink":
		p.recordDevice(name, env)
	}
	p.recordVolumeFailures(env)
}

// recordDevice records that the pod has got the device of a volume.
func (p *Pod) recordDevice(name string, env *Env) {
	if p.Spec == nil {
		return
	}
	volume, bound, link := p.Storage.Volumes.Device(name, p.volumeView(env))
	if volume != "" {
		volumeop.RecordMapped(env.Effects, p.objectReference(""), volume, bound, link)
	}
}

// warnOfSharedGroup records an event if a volume that was mounted does not get the group of the
// pod, because another pod has it with another group.
func (p *Pod) warnOfSharedGroup(name string, env *Env) {
	volume, gid, shared := p.Storage.Volumes.SharedWith(name)
	if p.Spec == nil || p.Spec.Spec.SecurityContext == nil || !shared {
		return
	}
	if own := p.Spec.Spec.SecurityContext.FSGroup; own != nil && *own != gid {
		p.recordEvent(env, "", warning, "AlreadyMountedVolume", "The requested fsGroup is %d, but the "+
			"volume %s has GID %d. The volume may not be shareable.", *own, volume, gid)
	}
}

// bindKey identifies a mounted subpath: its target, and the volume and path that are mounted there.
// A file of a volume that was written again is a new file, and a container that is created
// afterwards must get the new one.
func bindKey(bind *world.BindSubPath) string {
	return bind.Target + "\x00" + bind.Root + "\x00" + bind.SubPath
}

// addBind records that a subpath was mounted, in place of an earlier mount at the same target.
func (s *Storage) addBind() {
	target, _, _ := strings.Cut(s.Preparing, "\x00")
	s.Binds = slices.DeleteFunc(s.Binds, func(key string) bool {
		return strings.HasPrefix(key, target+"\x00")
	})
	s.Binds = append(s.Binds, s.Preparing)
}

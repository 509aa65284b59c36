package devicemount

import (
	"maps"
	"slices"
	"strings"
	"time"

	"seedlet.dev/core/op"
	"seedlet.dev/core/timer"
	"seedlet.dev/core/volumeop"
	"seedlet.dev/world"
)

// Local volumes of volumeMode Block: containers get the device itself. Their files are those of a
// kubelet (MapBlockVolume in pkg/volume/util), below plugins/kubernetes.io~local-volume and the
// directory of the pod:
//
//	volumeDevices/PV/UID                                  the device is bound here, and kept open
//	pods/UID/volumeDevices/kubernetes.io~local-volume/PV  a link to it, which the runtime gets
//
// A pod sets its devices up itself (package volume), and declares that before (Blocks.Use). They
// are taken from it here: what is bound is not in the directory of the pod, and the agent that ends
// the pod may not be the one that has started it.

// BlocksOwner is the key of the operations on block volumes, and of their timer.
var BlocksOwner = timer.Key{Component: Owner.Component, Name: "blocks"}

const (
	blockLinks = "/volumeDevices/kubernetes.io~local-volume/"
	// removalsMax bounds the operations in flight that take devices from pods.
	removalsMax = 8

	backoffFirst = time.Second
	backoffMax   = time.Minute
)

// LinkPath returns the link to the device of a volume, below the directory of its pod.
func LinkPath(podDir, volume string) string { return podDir + blockLinks + volume }

// BoundPath returns the file below a directory to which the device of a volume is bound for a pod.
func BoundPath(dir, volume, uid string) string { return dir + "/" + volume + "/" + uid }

// Blocks is which devices may be bound for pods, and the search for those of earlier agents.
type Blocks struct {
	Dir     string                  `json:"dir"`     // with a directory for each volume
	PodsDir string                  `json:"podsDir"` // with a directory for each pod
	Volumes map[string]*BlockVolume `json:"volumes,omitempty"`
	Search  BlockSearch             `json:"search,omitzero"`
}

// BlockVolume is a volume whose directory may exist.
type BlockVolume struct {
	Bound   map[string]*volumeop.BoundDevice `json:"bound,omitempty"` // by the UIDs of the pods
	Removal volumeop.Removal                 `json:"removal,omitzero"`
}

// BlockSearch is the search for what earlier agents, or kubelets, have bound, by directories: after
// a loss of power nothing is mounted, and the files are there.
type BlockSearch struct {
	// Wanted is set while the directory is to be looked at, and Complete once everything was looked
	// at: what is bound later is declared.
	Wanted   bool `json:"wanted,omitempty"`
	Complete bool `json:"complete,omitempty"`
	// TableSeen is set once the mount table was seen.
	TableSeen bool             `json:"tableSeen,omitempty"`
	Dirs      []string         `json:"dirs,omitempty"` // volumes, to be listed
	State     volumeop.Removal `json:"state,omitzero"`
	Waiting   []string         `json:"waiting,omitempty"` // UIDs of pods that wait for it
}

// BlocksEnv is the input of the plan of block volumes.
type BlocksEnv struct {
	Effects *op.Effects
	// CleansUp is set once everything was listed: devices of pods that are not known are taken away.
	CleansUp   bool
	IsKnownPod func(uid string) bool
	EnqueuePod func(uid string) // plans a pod that may have waited
}

// IsActive reports whether there is anything to plan.
func (b *Blocks) IsActive() bool { return len(b.Volumes) > 0 || b.Search.Wanted }

// Use declares that the device of a volume is about to be bound for a pod. A removal that is under
// way stops; its operation in flight ends before the pod's, which changes the same path.
func (b *Blocks) Use(uid, volume string) {
	bound := b.note(uid, volume)
	bound.Released, bound.Removal.StepsDone = false, 0
}

// note adds a device that may be bound for a pod.
func (b *Blocks) note(uid, volume string) *volumeop.BoundDevice {
	v := b.noteVolume(volume)
	if v.Bound[uid] == nil {
		v.Bound[uid] = &volumeop.BoundDevice{}
	}
	return v.Bound[uid]
}

// noteVolume adds a volume whose directory may exist.
func (b *Blocks) noteVolume(name string) *BlockVolume {
	if b.Volumes == nil {
		b.Volumes = map[string]*BlockVolume{}
	}
	if b.Volumes[name] == nil {
		b.Volumes[name] = &BlockVolume{}
	}
	if b.Volumes[name].Bound == nil {
		b.Volumes[name].Bound = map[string]*volumeop.BoundDevice{}
	}
	return b.Volumes[name]
}

// NoteMounts records what the mount table says, and plans the pods that have waited for that.
func (b *Blocks) NoteMounts(mounts []world.Mount, enqueuePod func(uid string)) {
	found := false
	for i := range mounts {
		name, isBelow := strings.CutPrefix(mounts[i].Path, b.Dir+"/")
		volume, uid, isBound := strings.Cut(name, "/")
		if !isBelow || !isBound || strings.Contains(uid, "/") {
			continue
		}
		if v := b.Volumes[volume]; v == nil || v.Bound[uid] == nil {
			b.note(uid, volume)
			found = true
		}
	}
	s := &b.Search
	s.Wanted = s.Wanted || found // there may be files without a mount as well
	if !s.TableSeen {
		s.TableSeen = true
		b.enqueueWaiting(enqueuePod)
	}
}

// NoteOrphan records that a pod has left a directory, so that it may have left the file of a device
// as well: a loss of power can undo the latest removals.
func (b *Blocks) NoteOrphan() { b.Search.Wanted = b.Search.Wanted || !b.Search.Complete }

// enqueueWaiting plans the pods that have waited for a part of the search.
func (b *Blocks) enqueueWaiting(enqueuePod func(uid string)) {
	waiting := b.Search.Waiting
	b.Search.Waiting = nil
	for _, uid := range waiting {
		enqueuePod(uid)
	}
}

// Holds reports whether a device is, or may be, bound for a pod.
func (b *Blocks) Holds(uid string) bool {
	if !b.Search.TableSeen {
		return true
	}
	for _, v := range b.Volumes { //ordered: whether there is one
		if v.Bound[uid] != nil {
			return true
		}
	}
	return false
}

// Release takes back what a pod needs, and reports whether the pod has to wait: until nothing is
// bound for it, and that is known by the mount table or, of one that may have devices, by the
// directories.
func (b *Blocks) Release(uid string, mayHave bool) (waits bool) {
	for _, v := range b.Volumes { //ordered: each by itself
		if bound := v.Bound[uid]; bound != nil {
			bound.Released = true
			waits = true
		}
	}
	s := &b.Search
	s.Wanted = s.Wanted || !s.Complete
	if mayHave && !s.Complete || !mayHave && !s.TableSeen {
		waits = true
		if !slices.Contains(s.Waiting, uid) {
			s.Waiting = append(s.Waiting, uid)
		}
	}
	return waits
}

// Plan takes the next steps, and returns when to be called again.
func (b *Blocks) Plan(env *BlocksEnv) time.Time {
	var wake time.Time
	b.planSearch(env, &wake)
	inFlight := 0
	for _, volume := range slices.Sorted(maps.Keys(b.Volumes)) {
		v := b.Volumes[volume]
		for _, uid := range slices.Sorted(maps.Keys(v.Bound)) {
			bound := v.Bound[uid]
			if bound.Removal.Op == 0 && inFlight < removalsMax && !b.isNeeded(uid, bound, env) &&
				!bound.Removal.Attempts.IsWaiting(env.Effects.Now(), &wake) {
				if bound.Removal.StepsDone == 0 && bound.Removal.Attempts.Failures == 0 {
					env.Effects.Log(world.LevelInfo, "Taking a device from a pod", "podUID", uid, "path",
						BoundPath(b.Dir, volume, uid))
				}
				bound.Removal.Op = env.Effects.IssueFor(uid, BlocksOwner, volume+"/"+uid, timeout,
					bound.NextStep(LinkPath(b.PodsDir+"/"+uid, volume), BoundPath(b.Dir, volume, uid)))
			}
			if bound.Removal.Op != 0 {
				inFlight++
			}
		}
		if len(v.Bound) == 0 && v.Removal.Op == 0 && inFlight < removalsMax &&
			!v.Removal.Attempts.IsWaiting(env.Effects.Now(), &wake) {
			v.Removal.Op = env.Effects.Issue(BlocksOwner, volume+"/", timeout,
				&world.RemoveTree{Path: b.Dir + "/" + volume})
			inFlight++
		}
	}
	return wake
}

// isNeeded reports whether a pod needs a device.
func (b *Blocks) isNeeded(uid string, bound *volumeop.BoundDevice, env *BlocksEnv) bool {
	return bound.IsNeeded(uid, env.CleansUp, env.IsKnownPod)
}

// planSearch takes the next step of the search.
func (b *Blocks) planSearch(env *BlocksEnv, wake *time.Time) {
	s := &b.Search
	if !s.Wanted || s.State.Op != 0 || s.State.Attempts.IsWaiting(env.Effects.Now(), wake) {
		return
	}
	dir := b.Dir
	if len(s.Dirs) > 0 {
		dir += "/" + s.Dirs[0]
	}
	s.State.Op = env.Effects.Issue(BlocksOwner, "", timeout, &world.ListDir{Path: dir})
}

// HandleCompletion handles the completion of an operation that Plan issued.
func (b *Blocks) HandleCompletion(id world.OpID, r op.Record, ev world.Event, env *BlocksEnv) {
	volume, uid, isRemoval := strings.Cut(r.Subject, "/")
	v := b.Volumes[volume]
	switch {
	case !isRemoval:
		b.handleSearch(ev, env)
	case v == nil:
	case uid == "" && v.Removal.Op == id:
		b.handleDirRemoval(volume, v, ev)
	case v.Bound[uid] != nil && v.Bound[uid].Removal.Op == id:
		b.handleRemoval(volume, uid, ev, env)
	}
}

func (b *Blocks) handleRemoval(volume, uid string, ev world.Event, env *BlocksEnv) {
	v := b.Volumes[volume]
	bound := v.Bound[uid]
	isRemoved := bound.EndStep(ev, b.isNeeded(uid, bound, env), backoffFirst, backoffMax)
	if ev.Err != nil && bound.Removal.Attempts.Failures == 1 {
		env.Effects.Log(world.LevelWarning, "Failed to take a device from a pod", "podUID", uid, "path",
			BoundPath(b.Dir, volume, uid), "err", ev.Err.Message)
	}
	if !isRemoved {
		return
	}
	if delete(v.Bound, uid); env.IsKnownPod(uid) {
		env.EnqueuePod(uid)
	}
}

// handleDirRemoval handles the removal of the directory of a volume. If it fails, something may be
// bound there that is not known.
func (b *Blocks) handleDirRemoval(volume string, v *BlockVolume, ev world.Event) {
	v.Removal.Op = 0
	switch {
	case ev.Err != nil:
		v.Removal.Fail(ev, backoffFirst, backoffMax)
		b.Search.Wanted = true
	case len(v.Bound) == 0:
		delete(b.Volumes, volume)
	}
}

// handleSearch applies what a directory has. What does not exist has nothing to be found.
func (b *Blocks) handleSearch(ev world.Event, env *BlocksEnv) {
	s := &b.Search
	s.State.Op = 0
	listed, isListed := ev.Body.(*world.DirListed)
	if ev.Err == nil && !isListed {
		ev.Err = world.Errorf(world.KindInternal, "ListDir", "answered with another message")
	}
	isFirst := len(s.Dirs) == 0
	switch {
	case ev.Err != nil && !ev.Err.Has(world.KindNotFound):
		if s.State.Fail(ev, backoffFirst, backoffMax); s.State.Attempts.Failures == 1 {
			env.Effects.Log(world.LevelWarning, "Failed to look for devices of local volumes", "err",
				ev.Err.Message)
		}
		return
	case ev.Err == nil && isFirst:
		for _, entry := range listed.Entries {
			if entry.Directory {
				s.Dirs = append(s.Dirs, entry.Name)
			}
		}
	case ev.Err == nil:
		b.noteVolume(s.Dirs[0])
		for _, entry := range listed.Entries {
			b.note(entry.Name, s.Dirs[0])
		}
	}
	s.State = volumeop.Removal{}
	if !isFirst {
		s.Dirs = s.Dirs[1:]
	}
	if len(s.Dirs) > 0 {
		return
	}
	s.Wanted, s.Complete = false, true
	b.enqueueWaiting(env.EnqueuePod)
}

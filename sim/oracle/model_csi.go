package oracle

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"seedlet.dev/sim/truth"
	"seedlet.dev/world"
)

// csiModel is what is true of CSI drivers and their volumes on the node.
type csiModel struct {
	driverUpSince map[string]time.Time // drivers of which a process runs, by name
	processes     map[string]*truth.Driver
	grouping      map[string]bool      // drivers of which a process had VOLUME_MOUNT_GROUP, by name
	driverDownAt  map[string]time.Time // when a process of it last ended

	staged    map[string]csiPlace // by staging path
	published map[string]csiPlace // by target path
	// sharedAt is when a volume was last published while it was published elsewhere.
	sharedAt map[csiName]time.Time
	// lied are the targets of which a driver said that it has published, and had not, with the time.
	lied      map[string]time.Time
	dataFiles map[string]bool // the files beside targets that have been written, and not removed

	drivers      map[string]*storagev1.CSIDriver // the objects, by name
	driverStates map[string][]csiDriverState     // all that they have been
	tokens       map[string]csiIssuedToken       // by their values
	republished  map[string]csiRepublished       // by target: the calls that publish a volume
	// attached are the volumes that the Node says are attached, or has said, with the last time.
	attached map[v1.UniqueVolumeName]time.Time
	// full has the attachments that have failed because the node has too many volumes, by name.
	full map[string]csiFull

	inFlight map[csiName]csiInFlight // calls of this agent
	// groupUntil is until when this agent waits at most for the last call that gives a volume to the
	// group of a pod, or when that was answered.
	groupUntil map[csiName]time.Time
	// releasedAt is when a driver was last asked to let go of what a vol_data.json describes, by its
	// directory.
	releasedAt map[string]time.Time
	// knownFreeAt is when a driver last answered that it has let go of a volume, which may have
	// been so before: the Node does not say any more that the volume is in use.
	knownFreeAt time.Time
	// succeeded are the targets whose last call has succeeded, as this agent or one before knows.
	succeeded map[string]bool

	stats      csiStatsModel
	unmeasured map[string]bool   // drivers without statistics, by name
	expanded   map[csiName]int64 // the size to which a driver has expanded a volume on the node
	// awaitingSince is since when claims wait for the node to expand their volumes, by
	// namespace/name.
	awaitingSince map[string]time.Time
}

// csiName names a volume of a driver.
type csiName struct{ driver, handle string }

func (n csiName) String() string { return n.driver + "^" + n.handle }

// unique returns the name of the volume in the status of the Node.
func (n csiName) unique() v1.UniqueVolumeName {
	return v1.UniqueVolumeName("kubernetes.io/csi/" + n.String())
}

// csiPlace is a place at which a volume is.
type csiPlace struct {
	csiName
	since time.Time
	label string // the SELinux label of all its files, if they have one
	// startedAt is when a container of the pod was first started since; zero: none was.
	startedAt time.Time
}

// csiInFlight is a call that the agent waits for.
type csiInFlight struct {
	op       world.OpID
	call     string
	target   string // of a publication
	deadline time.Time
}

func newCSIModel() csiModel {
	return csiModel{driverUpSince: map[string]time.Time{}, driverDownAt: map[string]time.Time{},
		grouping: map[string]bool{}, processes: map[string]*truth.Driver{},
		staged: map[string]csiPlace{}, published: map[string]csiPlace{}, lied: map[string]time.Time{},
		sharedAt:  map[csiName]time.Time{},
		dataFiles: map[string]bool{},
		drivers:   map[string]*storagev1.CSIDriver{}, driverStates: map[string][]csiDriverState{},
		tokens: map[string]csiIssuedToken{}, republished: map[string]csiRepublished{},
		attached: map[v1.UniqueVolumeName]time.Time{},
		full:     map[string]csiFull{}, inFlight: map[csiName]csiInFlight{},
		groupUntil: map[csiName]time.Time{}, releasedAt: map[string]time.Time{},
		succeeded: map[string]bool{}, stats: newCSIStatsModel(), unmeasured: map[string]bool{},
		expanded: map[csiName]int64{}, awaitingSince: map[string]time.Time{}}
}

// notePublished notes where a volume is published.
func (c *csiModel) notePublished(f *truth.Fact) {
	is := placeOf(f)
	for target, other := range c.published { //ordered: whether there is one
		if target != f.Path && other.csiName == is.csiName {
			c.sharedAt[is.csiName] = f.Time
		}
	}
	c.published[f.Path] = is
	delete(c.lied, f.Path)
}

// noteStarted notes that a container of a pod was started with what is published for the pod.
func (c *csiModel) noteStarted(f *truth.Fact) {
	for target, is := range c.published { //ordered: each by itself
		if is.startedAt.IsZero() && strings.Contains(target, "/"+f.PodUID+"/") {
			is.startedAt = f.Time
			c.published[target] = is
		}
	}
}

// apply updates the model with a fact.
func (c *csiModel) apply(f *truth.Fact) {
	switch f.Kind {
	case truth.DriverStarted:
		c.driverUpSince[f.Driver.Name], c.processes[f.Driver.Name] = f.Time, f.Driver
		c.grouping[f.Driver.Name] = c.grouping[f.Driver.Name] || f.Driver.Groups
		c.unmeasured[f.Driver.Name] = !f.Driver.Measures
	case truth.DriverEnded:
		delete(c.driverUpSince, f.Driver.Name)
		c.driverDownAt[f.Driver.Name] = f.Time
	case truth.VolumeStaged:
		c.staged[f.Path] = placeOf(f)
	case truth.VolumeUnstaged:
		delete(c.staged, f.Path)
	case truth.VolumePublished:
		c.notePublished(f)
	case truth.VolumeUnpublished:
		delete(c.published, f.Path)
		c.stats.forget(f.Path)
	case truth.ContainerStarted:
		c.noteStarted(f)
	case truth.TokenIssued:
		c.tokens[f.Token] = csiIssuedToken{f.PodUID, f.Audience, f.Time, f.Expires}
	case truth.VolumeExpanded:
		c.expanded[csiName{f.Volume.Driver, f.Volume.Handle}] = f.Bytes
	case truth.VolumeNotPublished:
		c.lied[f.Path] = f.Time
	case truth.PathWritten:
		if path.Base(f.Path) == "vol_data.json" || isBoundPath(f.Path) {
			c.dataFiles[f.Path] = true
		}
	case truth.PathRemoved:
		maps.DeleteFunc(c.lied, func(path string, _ time.Time) bool { return isWithin(path, f.Path) })
		maps.DeleteFunc(c.dataFiles, func(path string, _ bool) bool { return isWithin(path, f.Path) })
	case truth.Unmounted: // by the loss of power, or wrongly
		delete(c.staged, f.Path)
		delete(c.published, f.Path)
	case truth.PowerLost:
		clear(c.staged)
		clear(c.published)
		clear(c.succeeded)
		clear(c.lied)
	case truth.ObjectCreated, truth.ObjectUpdated, truth.ObjectDeleted:
		c.applyObject(f)
	}
}

func placeOf(f *truth.Fact) csiPlace {
	return csiPlace{csiName: csiName{f.Volume.Driver, f.Volume.Handle}, since: f.Time,
		label: f.Volume.Label}
}

func (c *csiModel) applyObject(f *truth.Fact) {
	w := f.Write
	switch w.Resource {
	case world.ResourceCSIDrivers:
		states := c.driverStates[w.Name]
		if len(states) > 0 {
			states[len(states)-1].until = f.Time
		} else {
			states = append(states, csiDriverState{until: f.Time}) // before the first one
		}
		c.driverStates[w.Name] = append(states, csiDriverState{object: w.After.CSIDriver})
		if delete(c.drivers, w.Name); w.After.CSIDriver != nil {
			c.drivers[w.Name] = w.After.CSIDriver
		}
	case world.ResourceClaims:
		key := w.Namespace + "/" + w.Name
		if _, isNoted := c.awaitingSince[key]; !awaitsExpansion(w.After.Claim) {
			delete(c.awaitingSince, key)
		} else if !isNoted {
			c.awaitingSince[key] = f.Time
		}
	case world.ResourceAttachments:
		c.applyAttachment(f)
	case world.ResourceNodes:
		for _, node := range []*v1.Node{w.Before.Node, w.After.Node} {
			if node == nil {
				continue
			}
			for _, v := range node.Status.VolumesAttached {
				c.attached[v.Name] = f.Time
			}
		}
	}
}

// isDeceived reports whether the agent may take a volume for published, at a time, that is not: the
// driver has said so, and something is at the target. An agent that was started since then goes by
// the mounts; a call of the one before may still have its effect.
func (m *model) isDeceived(target string, now time.Time) bool {
	at, lied := m.csi.lied[target]
	_, isPublished := m.csi.published[target]
	return lied && !isPublished && (m.opts.Exists == nil || m.opts.Exists(target)) &&
		(m.agentStartedAt.Before(at) || now.Sub(m.agentStartedAt) <= callBound)
}

// mustBeAttached reports whether volumes of a driver have to be attached, as far as the agent can
// know.
func (m *model) mustBeAttached(now time.Time, driver string) bool {
	return !slices.ContainsFunc(m.csiDriverStates(now, driver), func(d *storagev1.CSIDriver) bool {
		return d != nil && d.Spec.AttachRequired != nil && !*d.Spec.AttachRequired
	})
}

// csiUse is a volume of a CSI driver that a pod has.
type csiUse struct {
	csiName
	volume string // its name in the pod
	path   string // where it has to be published
	pv     string // the persistent volume, or the volume of the pod
}

// csiUses returns the volumes of CSI drivers that a pod has, as far as objects say which.
func (m *model) csiUses(pod *v1.Pod) []csiUse {
	var uses []csiUse
	add := func(v *v1.Volume, name csiName, dir string, block bool) {
		at := m.opts.PodsDir + "/" + string(pod.UID) + "/volumes/kubernetes.io~csi/" + dir + "/mount"
		if block {
			at = m.csiBlocks() + "/publish/" + dir + "/" + string(pod.UID)
		}
		uses = append(uses, csiUse{name, v.Name, at, dir})
	}
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		if v.CSI != nil {
			add(v, csiName{v.CSI.Driver, inlineHandle(string(pod.UID), v.Name)}, v.Name, false)
			continue
		}
		if v.Cinder != nil {
			add(v, csiName{cinderDriver, v.Cinder.VolumeID}, cinderDir(v.Cinder), false)
			continue
		}
		pv := m.volumes.volumeOf(pod, v)
		if source, isCSI := csiNameOf(pv); isCSI {
			add(v, source, pv.Name,
				pv.Spec.VolumeMode != nil && *pv.Spec.VolumeMode == v1.PersistentVolumeBlock)
		}
	}
	return uses
}

// cinderDriver is the driver that has replaced the plugin for volumes of the kind cinder, whose ID
// is its handle for them (KEP-625).
const cinderDriver = "cinder.csi.openstack.org"

// cinderDir returns the name of the directory of such a volume that is written in a pod.
func cinderDir(s *v1.CinderVolumeSource) string {
	return cinderDriver + "-" + strings.ReplaceAll(s.VolumeID, "/", "~")
}

// csiSourceOf returns a persistent volume as one of a CSI driver; nil if it is none.
func csiSourceOf(pv *v1.PersistentVolume) *v1.CSIPersistentVolumeSource {
	if pv != nil && pv.Spec.Cinder != nil {
		return &v1.CSIPersistentVolumeSource{Driver: cinderDriver,
			VolumeHandle: pv.Spec.Cinder.VolumeID, FSType: pv.Spec.Cinder.FSType}
	}
	if pv != nil {
		return pv.Spec.CSI
	}
	return nil
}

// csiNameOf returns which volume of a CSI driver a persistent volume is; false if it is none.
func csiNameOf(pv *v1.PersistentVolume) (csiName, bool) {
	source := csiSourceOf(pv)
	if source == nil {
		return csiName{}, false
	}
	return csiName{source.Driver, source.VolumeHandle}, true
}

// csiVolumeAt returns the volume that is published at a path, or has to be; false if there is none.
func (m *model) csiVolumeAt(path string) (csiName, bool) {
	if is, isPublished := m.csi.published[path]; isPublished {
		return is.csiName, true
	}
	if p := m.podOfTarget(path); p != nil {
		for _, spec := range p.specs {
			for _, use := range m.csiUses(spec) {
				if use.path == path {
					return use.csiName, true
				}
			}
		}
	}
	return csiName{}, false
}

// inlineHandle returns the handle that a kubelet gives a volume that is written in a pod
// (makeVolumeHandle upstream).
func inlineHandle(uid, volume string) string {
	return fmt.Sprintf("csi-%x", sha256.Sum256([]byte(uid+volume)))
}

// isInline reports whether a handle is of the form that a kubelet gives such volumes.
func isInline(handle string) bool {
	hash, isOf := strings.CutPrefix(handle, "csi-")
	return isOf && len(hash) == 2*sha256.Size
}

// isBoundPath reports whether a path is the file to which the device of a pod is bound.
func isBoundPath(p string) bool {
	return strings.Contains(p, "/kubernetes.io/csi/volumeDevices/") && path.Base(path.Dir(p)) == "dev"
}

// podOfTarget returns the pod in whose directory a target is, or after which one of a device is
// named; nil if there is none.
func (m *model) podOfTarget(target string) *pod {
	uid, below := childName(m.opts.PodsDir, target)
	if !below && (isWithin(target, m.csiBlocks()) || isWithin(target, m.localBlocks()) ||
		m.isInDiskBlocks(target)) {
		uid, below = path.Base(target), true
	}
	if !below {
		return nil
	}
	return m.pods[uid]
}

// csiBlocks returns the directory of block volumes.
func (m *model) csiBlocks() string {
	return path.Dir(m.opts.PodsDir) + "/plugins/kubernetes.io/csi/volumeDevices"
}

// csiDataDir returns the directory of the vol_data.json that describes what is staged or published
// at a path.
func (m *model) csiDataDir(at string) string {
	below, isBlock := strings.CutPrefix(at, m.csiBlocks()+"/")
	if !isBlock {
		return path.Dir(at)
	}
	_, below, _ = strings.Cut(below, "/") // staging or publish
	name, _, _ := strings.Cut(below, "/")
	return m.csiBlocks() + "/" + name + "/data"
}

// publishedAt returns the targets at which a volume is published, sorted.
func (c *csiModel) publishedAt(name csiName) []string {
	var paths []string
	for _, path := range slices.Sorted(maps.Keys(c.published)) {
		if c.published[path].csiName == name {
			paths = append(paths, path)
		}
	}
	return paths
}

// isInVolume reports whether a path is in a volume, and not only the place of one.
func (c *csiModel) isInVolume(path string) bool {
	for place := range c.published { //ordered: whether there is one
		if strings.HasPrefix(path, place+"/") {
			return true
		}
	}
	for place := range c.staged { //ordered: whether there is one
		if strings.HasPrefix(path, place+"/") {
			return true
		}
	}
	return false
}

package csi

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/core/budget"
	"seedlet.dev/core/timer"
	"seedlet.dev/core/token"
	"seedlet.dev/core/volumeop"
	"seedlet.dev/world"
)

// Volume is what is known of one volume of a driver.
type Volume struct {
	Driver string `json:"driver"`
	Handle string `json:"handle"`
	// Ephemeral volumes belong to one pod, and are neither attached nor staged.
	Ephemeral bool `json:"ephemeral,omitempty"`
	// Device is the name of the persistent volume of a block volume, by which its directories are
	// named; empty: it is a file system.
	Device string `json:"device,omitempty"`
	// Migrated is Use.Migrated of its last use.
	Migrated bool `json:"migrated,omitempty"`
	// Inline is set if the authors of pods have named the volume, and no claim has.
	Inline bool `json:"inline,omitempty"`
	// NameBytes is what its name takes in the status of the Node, as NamesOfNode counts it.
	NameBytes int `json:"nameBytes,omitempty"`
	// Refused is set if a pod wants to use the volume in the other way. It has to be let go before.
	Refused bool `json:"refused,omitempty"`
	// Displaced are the UIDs of pods from which the volume was just taken, see changeMode.
	Displaced []string `json:"displaced,omitempty"`

	Uses         map[string]*Use         `json:"uses,omitempty"`         // desired, by TargetOf
	Publications map[string]*Publication `json:"publications,omitempty"` // may exist, by TargetOf
	Staging      Staging                 `json:"staging,omitzero"`
	Attachment   Attachment              `json:"attachment,omitzero"`
	Expansion    Expansion               `json:"expansion,omitzero"`

	Op world.OpID `json:"op,omitempty"` // the one operation in flight
	// User is the UID of the pod that has used it last, also after its end.
	User string `json:"user,omitempty"`
	// Secrets are the secrets that are watched for the volume, by namespace and name.
	Secrets []world.WatchTarget `json:"secrets,omitempty"`
	// Waiting is why nothing can be undone at present, as it was logged last.
	Waiting string `json:"waiting,omitempty"`
}

// State is how far something is done. A state is uncertain from the moment a call is issued.
type State string

// The states. Without a state, nothing is there.
const (
	Uncertain State = "Uncertain"
	Done      State = "Done"
)

// Staging is the volume at its global path, which all pods of the node share.
type Staging struct {
	State State `json:"state,omitempty"`
	Fresh bool  `json:"fresh,omitempty"` // as of a publication
	// Dir reports whether a directory may exist, DirsMade and DataWritten what this agent has made.
	Dir         bool `json:"dir,omitempty"`
	DirsMade    int  `json:"dirsMade,omitempty"` // of stagingDirs
	DataWritten bool `json:"dataWritten,omitempty"`
	// Label is that of the volume, as Publication.Label, also if its driver does not stage.
	Label    string            `json:"label,omitempty"`
	Removal  Removal           `json:"removal,omitzero"`
	Attempts volumeop.Attempts `json:"attempts,omitzero"`
	Undoing  volumeop.Attempts `json:"undoing,omitzero"` // to undo it
	// UndoneSince is since when it is being undone; zero: it is not.
	UndoneSince time.Time `json:"undoneSince,omitzero"`
}

// Publication is the volume in the directory of a pod.
type Publication struct {
	UID      string `json:"uid"`
	SpecName string `json:"specName"` // the name of the directory
	State    State  `json:"state,omitempty"`
	// Fresh is set while the first call is in flight: if it has no effect, nothing is published.
	Fresh bool `json:"fresh,omitempty"`
	// Released is set once the pod needs the publication no more.
	Released bool `json:"released,omitempty"`
	// Mounted reports whether the search has found a mount at its path.
	Mounted     bool `json:"mounted,omitempty"`
	DirMade     bool `json:"dirMade,omitempty"`
	DataWritten bool `json:"dataWritten,omitempty"`
	// Label is the SELinux label with which it is, or will be, mounted; empty: with none.
	Label string `json:"label,omitempty"`
	// Checked reports whether there is something at its path, of a block volume a device: a driver may
	// answer without doing anything.
	Checked bool `json:"checked,omitempty"`
	// Block is set for a device. Bound, Held and Linked are what was done to give it to the pod.
	Block  bool `json:"block,omitempty"`
	Bound  bool `json:"bound,omitempty"`
	Held   bool `json:"held,omitempty"`
	Linked bool `json:"linked,omitempty"`
	// Sized reports whether the volume had the size of its claim before the pod got it.
	Sized bool `json:"sized,omitempty"`
	// LabelsKnown reports whether it is known if the runtime has to relabel the files for SELinux:
	// Relabel, which is set if their file system has labels that can be changed.
	LabelsKnown bool `json:"labelsKnown,omitempty"`
	Relabel     bool `json:"relabel,omitempty"`
	// GroupSet reports whether the files belonged to the group of the pod, if they had to, before it
	// got them. Regroup is set from when the volume was published again, as its driver may have made
	// files, until they were given to the group.
	GroupSet    bool              `json:"groupSet,omitempty"`
	Regroup     bool              `json:"regroup,omitempty"`
	Group       GroupWatch        `json:"group,omitzero"`
	PublishedAt time.Time         `json:"publishedAt,omitzero"`
	Removal     Removal           `json:"removal,omitzero"`
	Attempts    volumeop.Attempts `json:"attempts,omitzero"` // to undo it
	// UndoneSince is since when it is being undone; zero: it is not.
	UndoneSince time.Time `json:"undoneSince,omitzero"`
}

// Removal is how far the removal of a directory is. It begins when the volume has no State there,
// but for a device, which is taken from the pod before.
type Removal struct {
	SubPaths  bool `json:"subPaths,omitempty"`  // the pod has no mounts of them
	Unlinked  bool `json:"unlinked,omitempty"`  // the pod has no link to the device
	Freed     bool `json:"freed,omitempty"`     // nothing holds the device
	Unbound   bool `json:"unbound,omitempty"`   // the device is not bound
	Checked   bool `json:"checked,omitempty"`   // nothing else has the staged volume mounted
	Unmounted bool `json:"unmounted,omitempty"` // nothing is mounted there
	Empty     bool `json:"empty,omitempty"`     // the driver left nothing there
	Removed   int  `json:"removed,omitempty"`   // of stagingTrees
}

// Use is that a pod needs a volume at a path of its directory, and how.
type Use struct {
	UID            string `json:"uid"`
	Namespace      string `json:"namespace"`
	PodName        string `json:"podName"`
	ServiceAccount string `json:"serviceAccount,omitempty"`
	Volume         string `json:"volume"`   // the name in the spec of the pod
	SpecName       string `json:"specName"` // that of the PersistentVolume, or of an inline volume

	Driver    string `json:"driver"`
	Handle    string `json:"handle"`
	Ephemeral bool   `json:"ephemeral,omitempty"`
	Inline    bool   `json:"inline,omitempty"` // the author of the pod has written what it is
	ReadOnly  bool   `json:"readOnly,omitempty"`
	Block     bool   `json:"block,omitempty"` // the pod gets the device
	// Migrated is set for a volume of a kind whose plugin a CSI driver has replaced. Metrics have it.
	Migrated bool `json:"migrated,omitempty"`

	FSType        string                          `json:"fsType,omitempty"`
	MountOptions  []string                        `json:"mountOptions,omitempty"`
	AccessModes   []v1.PersistentVolumeAccessMode `json:"accessModes,omitempty"`
	Attributes    map[string]string               `json:"attributes,omitempty"`
	StageSecret   *v1.SecretReference             `json:"stageSecret,omitempty"`
	PublishSecret *v1.SecretReference             `json:"publishSecret,omitempty"`
	ExpandSecret  *v1.SecretReference             `json:"expandSecret,omitempty"`
	Claim         string                          `json:"claim,omitempty"` // its name

	FSGroup        *int64 `json:"fsGroup,omitempty"`
	OnRootMismatch bool   `json:"onRootMismatch,omitempty"` // the policy of its change

	// SELinux are the options of the containers that mount the volume, if it may be mounted with
	// their label.
	SELinux []v1.SELinuxOptions `json:"selinux,omitempty"`
	// LabelConflict is why the volume cannot be mounted with the pod's SELinux label; empty: it can.
	LabelConflict string `json:"labelConflict,omitempty"`
	// OverBudget is the bound that the volume exceeds, by its name in package budget.
	OverBudget string `json:"overBudget,omitempty"`

	// HasRun reports whether the pod has containers in its sandbox: they were created after its
	// volumes were ready, and the machine has not booted since.
	HasRun bool `json:"hasRun,omitempty"`

	Since time.Time `json:"since"` // since when the use is declared
	// MountSince is since when the pod is being given the volume; zero: it is not.
	MountSince time.Time         `json:"mountSince,omitzero"`
	Attempts   volumeop.Attempts `json:"attempts,omitzero"`
	Tokens     token.Set         `json:"tokens,omitzero"`
	// NodeFull is set if the volume was not attached because the node has too many.
	NodeFull bool `json:"nodeFull,omitempty"`
}

// TargetOf identifies a publication of a volume.
func TargetOf(uid, specName string) string { return uid + "/" + specName }

func (u *Use) target() string { return TargetOf(u.UID, u.SpecName) }

// The bounds of what is kept of a volume; those that pods share are in package budget.
const (
	dataMax      = 64 << 10
	specNameMax  = world.NameBytesMax
	uniquePrefix = "kubernetes.io/csi/"
)

// UniqueName returns the name of a volume in the status of the Node.
func UniqueName(driver, handle string) string { return uniquePrefix + driver + "^" + handle }

// unreadName is the name of a record without driver and handle. It has the publications that were
// found without readable data: they are removed unless something is mounted there.
var unreadName = UniqueName("", "")

func (v *Volume) name() string { return UniqueName(v.Driver, v.Handle) }

// Component is the component of the keys of volumes.
const Component = "csi"

// VolumeKey returns the key of the volume with a unique name.
func VolumeKey(name string) timer.Key { return timer.Key{Component: Component, Name: name} }

// watchUser returns the user of what is watched for a volume.
func watchUser(name string) string { return Component + ":" + name }

// KeyOfUser returns the key of the volume that a watch has as its user; false for other users.
func KeyOfUser(user string) (timer.Key, bool) {
	name, isVolume := strings.CutPrefix(user, Component+":")
	return VolumeKey(name), isVolume
}

// EphemeralHandle returns the handle of an inline volume of a pod (makeVolumeHandle upstream).
func EphemeralHandle(uid, volume string) string {
	return fmt.Sprintf("csi-%x", sha256.Sum256([]byte(uid+volume)))
}

// isOfEphemeral reports whether a handle has the form of EphemeralHandle. Another volume of the
// driver must not be taken for an ephemeral one of a pod.
func isOfEphemeral(handle string) bool {
	sum, isOf := strings.CutPrefix(handle, "csi-")
	return isOf && len(sum) == 2*sha256.Size
}

// encodedName returns the name of a volume as the status of the Node has it.
func encodedName(driver, handle string) []byte {
	text, err := json.Marshal(UniqueName(driver, handle))
	if err != nil {
		panic("csi: encoding the name of a volume: " + err.Error())
	}
	return text
}

// attachmentName returns the name of the VolumeAttachment of a volume (getAttachmentName upstream).
func (n *Node) attachmentName(v *Volume) string {
	return fmt.Sprintf("csi-%x", sha256.Sum256([]byte(v.Handle+v.Driver+n.Name)))
}

const (
	dataFile    = "vol_data.json"
	mountDir    = "mount"
	globalMount = "globalmount"
	volumesDir  = "/volumes/kubernetes.io~csi/"
)

// stagingDir returns the directory of a volume that holds its global path and its data.
func (n *Node) stagingDir(v *Volume) string {
	if v.Device != "" {
		return n.blockDir(v.Device)
	}
	return fmt.Sprintf("%s/%s/%x", n.Dir, v.Driver, sha256.Sum256([]byte(v.Handle)))
}

func (n *Node) stagingPath(v *Volume) string {
	if v.Device != "" {
		return n.blocksDir() + "/" + stagedDir + "/" + v.Device
	}
	return n.stagingDir(v) + "/" + globalMount
}

// dataPath returns the path of the data of a staged volume.
func (n *Node) dataPath(v *Volume) string {
	if v.Device != "" {
		return n.blockDir(v.Device) + "/data/" + dataFile
	}
	return n.stagingDir(v) + "/" + dataFile
}

// PublicationDir returns the directory of a publication, below the directory of its pod.
func PublicationDir(podDir, specName string) string {
	return podDir + volumesDir + EscapeName(specName)
}

// PublishedPath returns where a volume is published, below the directory of its pod.
func PublishedPath(podDir, specName string) string {
	return PublicationDir(podDir, specName) + "/" + mountDir
}

// EscapeName replaces the separator of paths, as EscapeQualifiedName in k8s.io/utils/strings does.
func EscapeName(name string) string { return strings.ReplaceAll(name, "/", "~") }

// publicationDir returns what is removed last of a publication.
func (n *Node) publicationDir(p *Publication) string {
	if p.Block {
		return n.boundPath(p)
	}
	return PublicationDir(n.PodsDir+"/"+p.UID, p.SpecName)
}

func (n *Node) publishedPath(p *Publication) string {
	if p.Block {
		return n.publishDir(p.SpecName) + "/" + p.UID
	}
	return n.publicationDir(p) + "/" + mountDir
}

// UseState is how far a use is.
type UseState struct {
	Ready    bool
	Problem  string // why it is not ready, or cannot be refreshed; may be empty
	Failures int
	// Relabel is set if the runtime has to relabel the files for SELinux.
	Relabel bool
	// NodeFull is set if the pod waits in vain: the node has too many volumes to have this one
	// attached.
	NodeFull bool
	// OverBudget is the bound of one pod that it exceeds, by its name in package budget.
	OverBudget string
}

// Use declares that a pod needs a volume, and returns how far that is. Declaring it again changes
// nothing but what may change while a pod runs. A change is a reason to plan the volume.
func (n *Node) Use(u Use, now time.Time) (state UseState, changed bool) {
	if err := u.check(); err != nil {
		return u.refused(err), false
	}
	name := UniqueName(u.Driver, u.Handle)
	v := n.Volumes[name]
	if v == nil {
		if err := n.checkRoom(&u); err != nil {
			n.Full = true
			return u.refused(err), false
		}
		v = n.addVolume(u.Driver, u.Handle, u.Ephemeral)
		v.Device = u.device()
	}
	if v.Device != u.device() && !u.Inline && n.isYielding(v) {
		n.changeMode(v, &u)
	}
	if v.Device != u.device() {
		v.Refused = true
		return UseState{Problem: u.setUpProblem("the volume is used in another way on the node, as a " +
			"device, as a file system, or under another name"), Failures: 1}, false
	}
	known := v.Uses[u.target()]
	if known == nil {
		v.User, v.Migrated = u.UID, u.Migrated
		n.countName(v, u.Inline && (v.Inline || len(v.Uses) == 0))
		v.Attachment.Known = false // it may have been detached meanwhile, if in use by force
		if !v.mustStay() {
			v.Attachment = Attachment{}
		}
		if v.Uses == nil {
			v.Uses = map[string]*Use{}
		}
		u.Since = now
		v.Uses[u.target()], known, changed = &u, &u, true
		n.Owners.Add(u.UID, name)
	}
	if p := v.Publications[u.target()]; p == nil || p.State == "" {
		changed = known.adoptOptions(&u) || changed
	}
	if p := v.Publications[u.target()]; p != nil && p.Released {
		p.Released, changed = false, true
	}
	known.HasRun = known.HasRun || u.HasRun
	n.adopt(u.target())
	return v.stateOf(known), changed
}

// adoptOptions takes over what an administrator may change in a persistent volume, also by creating
// it again, for a pod that does not have it yet, and reports whether that has changed.
func (u *Use) adoptOptions(newer *Use) (changed bool) {
	if u.FSType == newer.FSType && slices.Equal(u.MountOptions, newer.MountOptions) &&
		slices.Equal(u.AccessModes, newer.AccessModes) &&
		maps.Equal(u.Attributes, newer.Attributes) && isSameSecret(u.StageSecret, newer.StageSecret) &&
		isSameSecret(u.PublishSecret, newer.PublishSecret) &&
		isSameSecret(u.ExpandSecret, newer.ExpandSecret) {
		return false
	}
	u.FSType, u.MountOptions, u.AccessModes = newer.FSType, newer.MountOptions, newer.AccessModes
	u.Attributes, u.StageSecret = newer.Attributes, newer.StageSecret
	u.PublishSecret, u.ExpandSecret = newer.PublishSecret, newer.ExpandSecret
	return true
}

func isSameSecret(a, b *v1.SecretReference) bool {
	return a == b || a != nil && b != nil && *a == *b
}

// adopt forgets that a directory was found without readable data: a use says what belongs there.
func (n *Node) adopt(target string) {
	if unread := n.Volumes[unreadName]; unread != nil && unread.Publications[target] != nil {
		uid := unread.Publications[target].UID
		delete(unread.Publications, target)
		n.dropOwner(unread, uid)
	}
}

// refused returns the state of a use that an error keeps from being planned.
func (u *Use) refused(err error) UseState {
	return UseState{Problem: u.setUpProblem(err.Error()), Failures: 1, OverBudget: budget.NameOf(err)}
}

// check returns why a volume cannot be used, whatever its driver does; nil if it may.
func (u *Use) check() error {
	switch {
	case u.Driver == "" || len(u.Driver) > world.CSIDriverNameMax,
		strings.ContainsAny(u.Driver, "/\x00"):
		return fmt.Errorf("the name of the CSI driver has to have 1 to %d characters, and no slash",
			world.CSIDriverNameMax)
	case u.Handle == "":
		return errors.New("the volume has no handle")
	case len(u.Handle) > budget.VolumeHandleMax:
		return budget.VolumeHandle.Errorf("the volume handle has %d bytes, and may have %d",
			len(u.Handle), budget.VolumeHandleMax)
	case u.Inline && !u.Ephemeral && isOfEphemeral(u.Handle):
		return errors.New("the volume handle is of the form that ephemeral volumes have")
	case u.SpecName == "" || len(u.SpecName) > specNameMax:
		return errors.New("the name of the volume is too long for a directory")
	case strings.ContainsAny(u.SpecName, "/\x00") || u.SpecName == "." || u.SpecName == "..":
		return errors.New("the name of the volume is none that a directory can have")
	case u.Block && isDirOfBlocks(u.SpecName):
		return fmt.Errorf("a block volume cannot have the name %q: the directory of block volumes has "+
			"another one of this name", u.SpecName)
	case !u.Inline:
		return nil
	}
	if n := len(encodedName(u.Driver, u.Handle)); n > budget.VolumeNameMax {
		return budget.VolumeName.Errorf("the name of the volume takes %d bytes in the status of the "+
			"Node, and may take %d", n, budget.VolumeNameMax)
	}
	return nil
}

// device returns the name of the device of a block volume; empty for a file system.
func (u *Use) device() string {
	if u.Block {
		return u.SpecName
	}
	return ""
}

// InUseElsewhere is the kubelet's message for a volume that only one pod may have.
const InUseElsewhere = "volume uses the ReadWriteOncePod access mode and is already in use by " +
	"another pod"

func (u *Use) setUpProblem(problem string) string {
	name := budget.Cut(u.SpecName, specNameMax)
	switch {
	case u.Block && problem == InUseElsewhere:
		return fmt.Sprintf("MapVolume.SetUpDevice failed for volume %q : %s", name, problem)
	case u.Block:
		return fmt.Sprintf("MapVolume.MapPodDevice failed for volume %q : %s", name, problem)
	}
	return fmt.Sprintf("MountVolume.SetUp failed for volume %q : %s", name, problem)
}

// stateOf returns how far a use is.
func (v *Volume) stateOf(u *Use) UseState {
	p := v.Publications[u.target()]
	state := UseState{Ready: p != nil && p.isReady(),
		Problem: u.Attempts.Problem, Failures: u.Attempts.Failures}
	if !state.Ready {
		state.OverBudget = u.OverBudget
	}
	state.Relabel, state.NodeFull = state.Ready && p.Relabel, !state.Ready && u.NodeFull
	if !state.Ready && u.LabelConflict != "" {
		state.Problem, state.Failures = u.LabelConflict, max(1, state.Failures)
	}
	if !state.Ready && state.Problem == "" {
		state.Problem, state.Failures = v.Staging.Attempts.Problem, v.Staging.Attempts.Failures
	}
	return state
}

// isReady reports whether containers can use a publication.
func (p *Publication) isReady() bool {
	return p.isGiven() && p.Sized
}

// isGiven reports whether a publication is what and where containers get it.
func (p *Publication) isGiven() bool {
	return p.State == Done && p.Checked && p.LabelsKnown && p.GroupSet &&
		(!p.Block || p.Bound && p.Held && p.Linked)
}

// UseStateOf returns how far a declared use is; the zero state if it is not declared.
func (n *Node) UseStateOf(u *Use) UseState {
	if v := n.Volumes[UniqueName(u.Driver, u.Handle)]; v != nil {
		if known := v.Uses[u.target()]; known != nil {
			return v.stateOf(known)
		}
	}
	return UseState{}
}

// Release takes back all uses of a pod, and returns the names of the volumes that are to be planned
// for that, and whether anything is, or may be, published for it. Before the search has seen
// everything, that is not known.
func (n *Node) Release(uid string) (changed []string, held bool) {
	for _, name := range slices.Clone(n.Owners[uid]) {
		v := n.Volumes[name]
		before := len(v.Uses)
		maps.DeleteFunc(v.Uses, func(_ string, u *Use) bool { return u.UID == uid })
		isChanged := len(v.Uses) < before
		for _, p := range v.Publications { //ordered: each by itself
			if p.UID == uid && !p.Released {
				p.Released, isChanged = true, true
			}
		}
		if isChanged {
			changed = append(changed, name)
		}
		n.dropOwner(v, uid)
	}
	return changed, n.HoldsPod(uid)
}

// HoldsPod reports whether anything is, or may be, published in the directory of a pod.
func (n *Node) HoldsPod(uid string) bool {
	return n.Enabled && (n.Search.mayFind(uid) || len(n.Owners[uid]) > 0)
}

func (n *Node) addVolume(driver, handle string, ephemeral bool) *Volume {
	if n.Volumes == nil {
		n.Volumes = map[string]*Volume{}
	}
	v := &Volume{Driver: driver, Handle: handle, Ephemeral: ephemeral}
	n.Volumes[v.name()] = v
	n.countName(v, false)
	return v
}

// dropOwner notes in Owners if a pod has nothing of a volume any more.
func (n *Node) dropOwner(v *Volume, uid string) {
	for _, u := range v.Uses { //ordered: whether there is one
		if u.UID == uid {
			return
		}
	}
	for _, p := range v.Publications { //ordered: whether there is one
		if p.UID == uid {
			return
		}
	}
	n.Owners.Remove(uid, v.name())
}

// VolumeNames returns the unique names of all volumes, sorted.
func (n *Node) VolumeNames() []string { return slices.Sorted(maps.Keys(n.Volumes)) }

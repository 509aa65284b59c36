package volume

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"seedlet.dev/core/claim"
	"seedlet.dev/core/csi"
	"seedlet.dev/core/devicemount"
	"seedlet.dev/core/scsi"
	"seedlet.dev/world"
)

// Volumes that are backed by storage of the node, of a server or of a driver. What
// backs a volume is a fact of it from its set-up on: later changes of the claim do not change what
// the containers see.

// Backing is what backs a volume.
type Backing struct {
	Plugin Plugin `json:"plugin"`
	// Name names the directory of the volume: the persistent volume, or else the volume of the pod.
	Name string `json:"name"`
	// Source is the path on the node of a local volume or a hostPath, and HostPathType the type of the
	// latter.
	Source       string          `json:"source,omitempty"`
	HostPathType v1.HostPathType `json:"hostPathType,omitempty"`
	FSType       string          `json:"fsType,omitempty"` // of a device
	Server       string          `json:"server,omitempty"` // of NFS
	Export       string          `json:"export,omitempty"`
	ReadOnly     bool            `json:"readOnly,omitempty"`
	Options      []string        `json:"options,omitempty"` // for mounting it, sorted
	CSI          *csi.Use        `json:"csi,omitempty"`     // of a volume of a CSI driver
	Relabel      bool            `json:"relabel,omitempty"` // csi.UseState.Relabel
	Disk         *scsi.Use       `json:"disk,omitempty"`    // of a volume of the kind iscsi or fc
	// HasLabel is scsi.UseState.HasLabel.
	HasLabel bool `json:"hasLabel,omitempty"`
	// OnePod is set for a local volume of the access mode ReadWriteOncePod (KEP-2485). Of hostPath and
	// NFS volumes only the scheduler lets one pod have the claim, as with a kubelet.
	OnePod bool `json:"onePod,omitempty"`
	// Group is the group of the files of a persistent volume, which its annotation names; zero: none.
	Group int64 `json:"group,omitempty"`
	// Block is set for a volume of the kinds local, iscsi or fc whose device containers get.
	Block bool `json:"block,omitempty"`
}

// Place is where a volume is on the node.
type Place struct {
	Path string // empty for an image volume
	// Name is that of its directory, and of that of its sub-paths. A persistent volume has its own.
	Name     string
	ReadOnly bool // containers may not write, whatever their mounts say
	// OfNode is set for a path of the node outside of the pod's directory. It may hang.
	OfNode bool
	// Relabel is set if the runtime has to relabel the volume for SELinux.
	Relabel bool
	// Block is set for a device, which containers name in volumeDevices, and nowhere else.
	Block bool
}

// Place returns where a volume of the spec is, or will be. A volume whose backing is not known yet
// has no path.
func (s *Set) Place(dir string, spec *v1.Volume) Place {
	if !IsBacked(spec) {
		return Place{Path: Path(dir, spec), Name: spec.Name, ReadOnly: HasContent(spec),
			OfNode: spec.HostPath != nil, Relabel: spec.HostPath == nil && spec.Image == nil}
	}
	if v := s.find(spec.Name); v != nil && v.Backing != nil {
		return v.Backing.place(dir)
	}
	return Place{Name: spec.Name}
}

// place returns where the volume is. A volume that the pod may not write is not relabeled: other
// pods may have it (Managed of the mounters in pkg/volume/csi and pkg/volume/local).
func (b *Backing) place(dir string) Place {
	isOwn := b.Plugin == LocalPlugin || b.Disk != nil && !b.HasLabel
	return Place{Path: b.path(dir), Name: b.Name, ReadOnly: b.ReadOnly,
		OfNode:  b.Plugin == HostPathPlugin,
		Relabel: !b.ReadOnly && (!b.Block && isOwn || b.Relabel),
		Block:   b.Block || b.CSI != nil && b.CSI.Block}
}

// IsResolved reports whether it is known what backs a volume.
func (s *Set) IsResolved(name string) bool {
	v := s.find(name)
	return v != nil && v.Backing != nil
}

// IsBackedBy reports whether a local volume, whose file system is mounted, backs a volume of the
// pod.
func (s *Set) IsBackedBy(persistentVolume string) bool {
	return slices.ContainsFunc(s.Volumes, func(v Volume) bool {
		return v.Backing != nil && v.Backing.Plugin == LocalPlugin && !v.Backing.Block &&
			v.Backing.Name == persistentVolume
	})
}

// MayHaveDevice reports whether a container of the pod may have the device of a volume of one of
// the plugins: one of a volume whose backing is not known, or is that.
func (s *Set) MayHaveDevice(pod *v1.Pod, plugins ...Plugin) bool {
	uses := claim.UsesOf(pod)
	return slices.ContainsFunc(pod.Spec.Volumes, func(spec v1.Volume) bool {
		if claim.Name(pod, &spec) == "" || !uses[spec.Name].Device {
			return false
		}
		v := s.find(spec.Name)
		return v == nil || v.Backing == nil || v.Backing.Block &&
			slices.Contains(plugins, v.Backing.Plugin)
	})
}

// path returns the path of the volume on the node: the kubelet's.
func (b *Backing) path(dir string) string {
	switch b.Plugin {
	case HostPathPlugin:
		return path.Clean(b.Source)
	case NFSPlugin:
		return dir + "/volumes/kubernetes.io~nfs/" + b.Name
	case CSIPlugin:
		if b.CSI != nil && b.CSI.Block {
			return csi.DevicePath(dir, b.Name)
		}
		return csi.PublishedPath(dir, b.Name)
	case ISCSIPlugin, FCPlugin:
		if b.Block {
			return scsi.LinkPath(dir, b.Disk)
		}
		return scsi.MountPath(dir, b.Disk)
	case LocalPlugin:
		if b.Block {
			return devicemount.LinkPath(dir, b.Name)
		}
	}
	return dir + "/volumes/kubernetes.io~local-volume/" + b.Name
}

// IsBacked reports whether a volume is backed by storage that has to be found or mounted, or cannot
// be: all kinds but those that the node itself has and fills.
func IsBacked(v *v1.Volume) bool {
	return v.HostPath == nil && v.EmptyDir == nil && v.Image == nil && !HasContent(v)
}

// setupError is why a volume is not set up, with the step of the kubelet that failed.
type setupError struct {
	step string // as MountVolume.SetUp; stepProcess if what backs the volume is not known
	err  error
}

func (e *setupError) Error() string { return e.err.Error() }

// The steps of the kubelet in which a set-up fails, as its messages name them.
const (
	stepProcess       = "process" // no step: the volume was not found
	stepMountAffinity = "MountVolume.NodeAffinity check"
	stepMapAffinity   = "MapVolume.NodeAffinity check" // of a block volume
	stepResolve       = "MapVolume.EvalHostSymlinks"   // of a local volume's device
	stepMap           = "MapVolume.MapBlockVolume"     // the same
	stepMapAlone      = "MapVolume.SetUpDevice"        // the same, if one pod alone may have it
	stepInit          = "MountVolume.NewMounter initialization"
	stepOptions       = "MountVolume.MountOptionSupport check"
	stepDevice        = "MountVolume.MountDevice"
	stepShared        = "shared" // no step: the message is whole
)

// backingVersion returns a version of what backs a volume, which changes with it. A volume that has
// been set up keeps its own.
func (p *Pod) backingVersion(v *Volume, spec *v1.Volume) (version string, known bool) {
	if v.Ready && v.Backing != nil {
		return v.SourceVersion, true
	}
	b, known, err := p.backingOf(spec)
	if err != nil {
		return err.Error(), true
	}
	return b.version(), known
}

func (b Backing) version() string {
	switch {
	case b.CSI != nil && b.CSI.Inline: // as in its pod
		return csi.UniqueName(b.CSI.Driver, b.CSI.Handle) + " " + b.Name
	case b.CSI != nil: // what of a persistent volume may change, or differ in one created again
		u := b.CSI
		return fmt.Sprint(csi.UniqueName(u.Driver, u.Handle), " ", b.Name, u.MountOptions,
			u.AccessModes, u.FSType, u.Attributes, u.StageSecret, u.PublishSecret, u.ExpandSecret)
	case b.Disk != nil:
		return fmt.Sprintf("%+v %s %q %q", b.Disk.Source, b.Name, b.Disk.Options, b.Disk.AccessModes)
	}
	return fmt.Sprintf("%+v", b)
}

// backingOf returns what backs a volume. Without an error, not known means that an object is still
// being read.
func (p *Pod) backingOf(spec *v1.Volume) (b Backing, known bool, err error) {
	if claim.Name(p.Spec, spec) == "" {
		b, err = p.inlineBacking(spec)
		return b, true, err
	}
	r, known, err := claim.Resolve(p.Spec, spec, p.useOf(spec.Name), p.Objects)
	if err != nil {
		return b, known, &setupError{stepProcess, err}
	}
	if !known {
		return b, false, nil
	}
	volume, isMigrated, err := migratePV(r.Volume)
	if err != nil {
		return b, true, err
	}
	switch source := &volume.Spec; {
	case r.Mode == v1.PersistentVolumeBlock && source.CSI == nil && source.Local == nil &&
		source.ISCSI == nil && source.FC == nil:
		return b, true, noDevice(volume)
	case source.HostPath != nil:
		b = Backing{Plugin: HostPathPlugin, Source: source.HostPath.Path}
		if source.HostPath.Type != nil {
			b.HostPathType = *source.HostPath.Type
		}
	case source.Local != nil:
		b = Backing{Plugin: LocalPlugin, Source: source.Local.Path, FSType: fsTypeDefault,
			Block: r.Mode == v1.PersistentVolumeBlock,
			OnePod: slices.Equal(source.AccessModes,
				[]v1.PersistentVolumeAccessMode{v1.ReadWriteOncePod})}
		if source.Local.FSType != nil {
			b.FSType = *source.Local.FSType
		}
	case source.CSI != nil:
		u := csi.PersistentUse(p.Spec, spec, volume, r.ReadOnly)
		u.Migrated = isMigrated
		b = Backing{Plugin: CSIPlugin, CSI: &u}
	case source.ISCSI != nil:
		u := scsi.PersistentUse(p.Spec, spec, volume, r.ReadOnly)
		u.Options = mountOptions(volume)
		b = Backing{Plugin: ISCSIPlugin, Disk: &u, Block: u.Block}
	case source.FC != nil:
		u := scsi.PersistentFCUse(p.Spec, spec, volume, r.ReadOnly)
		u.Options = mountOptions(volume)
		b = Backing{Plugin: FCPlugin, Disk: &u, Block: u.Block}
	case source.NFS != nil:
		b = nfsBacking(volume.Name, source.NFS, r.ReadOnly)
	default:
		return b, true, noPlugin(volume.Name)
	}
	b.Name, b.ReadOnly, b.Options = volume.Name, r.ReadOnly, mountOptions(volume)
	b.Group = groupOf(r.Volume)
	if r.Mode == v1.PersistentVolumeBlock {
		return b, true, p.checkAffinity(volume, stepMapAffinity)
	}
	return b, true, p.checkAffinity(volume, stepMountAffinity)
}

// groupAnnotation names the group that the files of a persistent volume have, and that the
// processes of its pods are to be in (VolumeGidAnnotationKey in pkg/volume/util).
const groupAnnotation = "pv.beta.kubernetes.io/gid"

// groupOf returns the group of the files of a persistent volume; zero if it names none, or none
// that processes can have.
func groupOf(volume *v1.PersistentVolume) int64 {
	group, err := strconv.ParseInt(volume.Annotations[groupAnnotation], 10, 32)
	if err != nil || group < 0 {
		return 0
	}
	return group
}

// Groups returns the groups of the files of volumes that are set up, each once and sorted.
func (s *Set) Groups() []int64 {
	var groups []int64
	for i := range s.Volumes {
		if v := &s.Volumes[i]; v.Ready && v.Backing != nil && v.Backing.Group != 0 {
			groups = append(groups, v.Backing.Group)
		}
	}
	slices.Sort(groups)
	return slices.Compact(groups)
}

// inlineBacking returns what backs a volume that is written in the pod.
func (p *Pod) inlineBacking(spec *v1.Volume) (Backing, error) {
	isMigrated := isMigratedInline(spec)
	switch {
	case (spec.CSI != nil || isMigrated) && p.Objects == nil:
		return Backing{Name: spec.Name}, &setupError{stepInit,
			errors.New("failed to get a kubernetes client")}
	case isMigrated:
		u, err := migrateInline(p.Spec, spec)
		if err != nil {
			return Backing{Name: spec.Name}, err
		}
		return Backing{Plugin: CSIPlugin, Name: u.SpecName, CSI: &u}, nil
	case spec.CSI != nil:
		u := csi.EphemeralUse(p.Spec, spec)
		return Backing{Plugin: CSIPlugin, Name: spec.Name, ReadOnly: u.ReadOnly, CSI: &u}, nil
	case spec.NFS != nil:
		return nfsBacking(spec.Name, spec.NFS, spec.NFS.ReadOnly), nil
	case spec.ISCSI != nil:
		u := scsi.InlineUse(p.Spec, spec)
		return Backing{Plugin: ISCSIPlugin, Name: spec.Name, ReadOnly: u.ReadOnly, Disk: &u}, nil
	case spec.FC != nil:
		u := scsi.InlineFCUse(p.Spec, spec)
		return Backing{Plugin: FCPlugin, Name: spec.Name, ReadOnly: u.ReadOnly, Disk: &u}, nil
	case spec.GitRepo != nil:
		return Backing{Name: spec.Name}, errors.New("git-repo volume plugin has been disabled; " +
			"if necessary, it may be re-enabled by enabling the feature-gate `GitRepoVolumeDriver`")
	}
	return Backing{}, noPlugin(spec.Name)
}

// fsTypeDefault is the file system of a local device whose volume names none.
const fsTypeDefault = "ext4"

func nfsBacking(name string, source *v1.NFSVolumeSource, readOnly bool) Backing {
	return Backing{Plugin: NFSPlugin, Name: name, Server: source.Server, Export: source.Path,
		ReadOnly: readOnly}
}

// noPlugin is the kubelet's error for volumes of kinds that it has no plugin for.
func noPlugin(name string) error {
	return &setupError{stepProcess, fmt.Errorf(
		"failed to get Plugin from volumeSpec for volume %q err=no volume plugin matched", name)}
}

// noDevice returns the error of a block volume of a kind that has no devices.
func noDevice(volume *v1.PersistentVolume) error {
	return &setupError{stepProcess, fmt.Errorf("MapVolume.FindMapperPluginBySpec failed for volume "+
		"%q : its kind has no volumeMode Block", volume.Name)}
}

// mountOptions returns the mount options of a persistent volume, each once and sorted, as the
// kubelet joins them. The old annotation precedes the field.
func mountOptions(volume *v1.PersistentVolume) []string {
	options := slices.Clone(volume.Spec.MountOptions)
	if old, has := volume.Annotations[v1.MountOptionAnnotation]; has {
		options = strings.Split(old, ",")
	}
	options = slices.DeleteFunc(options, func(o string) bool { return o == "" })
	slices.Sort(options)
	return slices.Compact(options)
}

// checkAffinity returns an error of a step if a persistent volume is not for the node.
func (p *Pod) checkAffinity(volume *v1.PersistentVolume, step string) error {
	affinity := volume.Spec.NodeAffinity
	if affinity == nil || affinity.Required == nil {
		return nil
	}
	node, known := p.Node()
	if !known { // nothing plans the pod again when it is
		return &setupError{step, errors.New("the Node was not read yet")}
	}
	labeled := &v1.Node{} // the kubelet looks at labels alone
	if node != nil {
		labeled.ObjectMeta = metav1.ObjectMeta{Labels: node.Labels}
	}
	fits, err := nodeaffinity.NewLazyErrorNodeSelector(affinity.Required).Match(labeled)
	if err == nil && !fits {
		err = errors.New("no matching NodeSelectorTerms")
	}
	if err != nil {
		return &setupError{step, err}
	}
	return nil
}

// backedSteps returns the operations that a backed volume needs.
func (v *Volume) backedSteps(spec *v1.Volume, pod *Pod) ([]any, error) {
	if !v.Ready || v.Backing == nil {
		b, _, err := pod.backingOf(spec)
		if b.Name != "" {
			b.HasLabel = v.Backing != nil && v.Backing.HasLabel
			v.Backing = &b
		}
		if err != nil {
			return nil, err
		}
	}
	switch b := v.Backing; b.Plugin {
	case HostPathPlugin:
		if len(b.Options) > 0 {
			return nil, &setupError{stepOptions,
				errors.New("mount options are not supported for this volume type")}
		}
		if hasBacksteps(b.Source) {
			return nil, fmt.Errorf("invalid HostPath `%s`: must not contain '..'", b.Source)
		}
		source := &v1.HostPathVolumeSource{Path: b.Source, Type: &b.HostPathType}
		return v.hostPathSteps(source, b.path(pod.Dir))
	case NFSPlugin:
		return []any{&world.MountNFS{Server: b.Server, Export: b.Export, Path: b.path(pod.Dir),
			ReadOnly: b.ReadOnly, Options: b.Options}}, nil
	case ISCSIPlugin, FCPlugin:
		return v.diskSteps(b, pod), nil
	default:
		if b.Block {
			return v.deviceSteps(b, pod)
		}
		return v.localSteps(b, pod)
	}
}

// localSteps returns the operations for a local volume. Of a directory a bind mount is made for
// each pod. A device is mounted once for all pods, and the mount is bound for each.
func (v *Volume) localSteps(b *Backing, pod *Pod) ([]any, error) {
	if hasBacksteps(b.Source) {
		return nil, fmt.Errorf("invalid path: %s must not contain '..'", b.Source)
	}
	steps := []any{&world.StatPath{Path: b.Source}}
	if v.StepsDone == 0 {
		return steps, nil
	}
	bind := &world.BindMount{Source: b.Source, Path: b.path(pod.Dir), ReadOnly: b.ReadOnly,
		Options: b.Options}
	switch v.Found {
	case world.PathDirectory:
	case world.PathBlockDevice:
		bind.Source, bind.SourceMounted = pod.DevicesDir+"/"+b.Name, true
		steps = append(steps, &world.MountDevice{Device: b.Source, Path: bind.Source, FSType: b.FSType,
			ReadOnly: b.ReadOnly, Options: b.Options})
	case "":
		return nil, &setupError{stepInit, fmt.Errorf("path %q does not exist", b.Source)}
	default:
		return nil, &setupError{stepInit, errors.New("only directory and block device are supported")}
	}
	gid := fsGroup(pod.Spec)
	if gid != nil || b.OnePod {
		bind.Among, bind.Exclusive = path.Dir(pod.Dir), b.OnePod
	}
	steps = append(steps, bind)
	if gid == nil || b.ReadOnly || v.StepsDone < len(steps) || v.Mounted.Shared && !v.Mounted.Existed {
		return steps, nil
	}
	// The group of the first pod that has the volume counts. An existing mount may be one whose tree
	// was not finished: its root is changed last.
	return append(steps, &world.ShareWithGroup{Path: bind.Path, GID: *gid,
		OnRootMismatch: v.Mounted.Existed || sharesOnRootMismatch(pod.Spec)}), nil
}

// sharesOnRootMismatch reports whether a tree whose root has the right group and mode is left as it
// is.
func sharesOnRootMismatch(pod *v1.Pod) bool {
	policy := pod.Spec.SecurityContext.FSGroupChangePolicy
	return policy != nil && *policy == v1.FSGroupChangeOnRootMismatch
}

func hasBacksteps(p string) bool { return slices.Contains(strings.Split(p, "/"), "..") }

// hostPathOf returns the path that an operation of a volume may hang at; empty if it is in the
// agent's own files.
func (v *Volume) hostPathOf(spec *v1.Volume, dir string, body any) string {
	if v.Backing == nil {
		if spec.HostPath != nil {
			return Path(dir, spec)
		}
		return ""
	}
	switch b := v.Backing; {
	case world.CallName(body) == "ShareWithGroup", world.CallName(body) == "MakeLink":
		return ""
	case b.Plugin == NFSPlugin, b.Disk != nil:
		return b.path(dir) // it is mounted by many pods, and none waits for another one
	default:
		return path.Clean(b.Source)
	}
}

// Measured returns how the usage of a volume that is set up is measured: by an operation on its
// file system or its device, or by its CSI driver. Neither: it is not measured, as a hostPath. Of a
// device only the size is known, at the file to which it is bound for the pod (NewMetricsBlock in
// pkg/volume).
func (s *Set) Measured(name string, pod *Pod) (request any, use *csi.Use) {
	v := s.find(name)
	if v == nil || !v.Ready || v.Backing == nil {
		return nil, nil
	}
	switch b := v.Backing; b.Plugin {
	case CSIPlugin:
		return nil, b.CSI
	case LocalPlugin, NFSPlugin, ISCSIPlugin, FCPlugin:
		if b.Block {
			return &world.MeasureDevice{Path: b.boundPath(pod)}, nil
		}
		return &world.MeasureFilesystem{Path: b.path(pod.Dir)}, nil
	}
	return nil, nil
}

package volume

import (
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/core/object"
	"seedlet.dev/world"
)

// Volumes whose content the agent writes: from ConfigMaps, Secrets, service account tokens, trust
// bundles and the pod itself. They are written anew when what they are taken from has another
// version. Until all of it can be had, what is there stays as it is: an object that is removed, a
// server that is away and a token that cannot be renewed take nothing away (kubernetes issue
// 139045).

const (
	// contentMax bounds what one volume holds. An object has less than a MiB.
	contentMax      = 64 << 20
	modeDefault     = 0o644
	modeToken       = 0o600 // of one that the pod's group can read
	modeMemoryMount = 0o777
)

// sources are what the content of a volume is taken from; none if the agent does not write it.
func sources(v *v1.Volume) ([]v1.VolumeProjection, *int32) {
	switch {
	case v.Projected != nil:
		return v.Projected.Sources, v.Projected.DefaultMode
	case v.ConfigMap != nil:
		return []v1.VolumeProjection{{ConfigMap: &v1.ConfigMapProjection{
			LocalObjectReference: v.ConfigMap.LocalObjectReference, Items: v.ConfigMap.Items,
			Optional: v.ConfigMap.Optional}}}, v.ConfigMap.DefaultMode
	case v.Secret != nil:
		return []v1.VolumeProjection{{Secret: &v1.SecretProjection{
			LocalObjectReference: v1.LocalObjectReference{Name: v.Secret.SecretName},
			Items:                v.Secret.Items, Optional: v.Secret.Optional}}}, v.Secret.DefaultMode
	case v.DownwardAPI != nil:
		return []v1.VolumeProjection{{DownwardAPI: &v1.DownwardAPIProjection{
			Items: v.DownwardAPI.Items}}}, v.DownwardAPI.DefaultMode
	}
	return nil, nil
}

// isContent says whether the agent writes what is in a volume.
func isContent(v *v1.Volume) bool {
	return v.Projected != nil || v.ConfigMap != nil || v.Secret != nil || v.DownwardAPI != nil
}

// secretive says whether what is in a volume must not come onto a disk.
func secretive(v *v1.Volume) bool {
	return v.Secret != nil || v.Projected != nil && slices.ContainsFunc(v.Projected.Sources,
		func(s v1.VolumeProjection) bool { return s.Secret != nil || s.ServiceAccountToken != nil })
}

// origin tells one state of what a volume is taken from outside the pod from another. It is not
// known while something is still being asked for.
func (p *Pod) origin(v *v1.Volume) (version string, known bool) {
	if v.Projected == nil && v.ConfigMap == nil && v.Secret == nil {
		return "", true
	}
	var b strings.Builder
	all, _ := sources(v)
	for i := range all {
		switch s := &all[i]; {
		case s.ConfigMap != nil:
			known = p.object(world.ResourceConfigMaps, s.ConfigMap.Name).writeTo(&b)
		case s.Secret != nil:
			known = p.object(world.ResourceSecrets, s.Secret.Name).writeTo(&b)
		case s.ServiceAccountToken != nil:
			known = p.token(s.ServiceAccountToken).writeTo(&b)
		case s.ClusterTrustBundle != nil:
			known = p.bundles(s.ClusterTrustBundle).writeTo(&b)
		default:
			known = true
		}
		if !known {
			return "", false
		}
	}
	return b.String(), true
}

// part is what is known of one source of a volume.
type part struct {
	version string // empty while it is not known
	object  *world.Object
	absent  bool // it is known that there is none
	token   string
	bundles []string // of trust anchors
	err     error    // why it cannot be had
}

func (f part) writeTo(b *strings.Builder) bool {
	switch {
	case f.version != "":
		b.WriteString(f.version)
	case f.err != nil:
		b.WriteString(f.err.Error())
	default:
		return false
	}
	b.WriteByte(' ')
	return true
}

func (p *Pod) object(r world.Resource, name string) part {
	if p.Objects == nil {
		return part{err: errors.New("no API server is configured")}
	}
	found := p.Objects.Find(r, p.Spec.Namespace, name)
	is := part{object: found.Object, absent: found.Known && found.Object == nil, err: found.Err}
	if is.object != nil {
		is.version = object.Version(is.object)
	}
	return is
}

func (p *Pod) token(s *v1.ServiceAccountTokenProjection) part {
	if p.Token == nil {
		return part{err: errors.New("no API server is configured")}
	}
	value, version, err := p.Token(s)
	return part{token: value, version: version, err: err}
}

// files are the content of a volume. What is wrong with its sources is told of all of them.
func (p *Pod) files(v *v1.Volume) ([]world.DirFile, error) {
	all, mode := sources(v)
	w := &writing{pod: p, mode: modeDefault}
	if mode != nil {
		w.mode = *mode
	}
	var wrong []string
	for i := range all {
		if err := w.add(&all[i]); err != nil {
			wrong = append(wrong, err.Error())
		}
	}
	switch {
	case len(wrong) == 1:
		return nil, errors.New(wrong[0])
	case len(wrong) > 1:
		return nil, errors.New("[" + strings.Join(wrong, ", ") + "]")
	case w.size > contentMax:
		return nil, fmt.Errorf("its files hold %d bytes, more than %d", w.size, contentMax)
	}
	return w.files, nil
}

// writing is the content of a volume in the making.
type writing struct {
	pod   *Pod
	mode  int32
	files []world.DirFile
	size  int
}

func (w *writing) add(s *v1.VolumeProjection) error {
	switch {
	case s.ConfigMap != nil:
		is := w.pod.object(world.ResourceConfigMaps, s.ConfigMap.Name)
		return w.keys(is, s.ConfigMap.Items, s.ConfigMap.Optional,
			"configmap references non-existent config key: ")
	case s.Secret != nil:
		is := w.pod.object(world.ResourceSecrets, s.Secret.Name)
		return w.keys(is, s.Secret.Items, s.Secret.Optional,
			"references non-existent secret key: ")
	case s.ServiceAccountToken != nil:
		is := w.pod.token(s.ServiceAccountToken)
		w.file(s.ServiceAccountToken.Path, []byte(is.token), w.modeShared())
		return is.err
	case s.ClusterTrustBundle != nil:
		is := w.pod.bundles(s.ClusterTrustBundle)
		if is.absent && isTrue(s.ClusterTrustBundle.Optional) {
			is.err = nil // the file is empty
		}
		w.file(s.ClusterTrustBundle.Path, anchors(is.bundles, w.pod.Spec.UID), w.modeShared())
		return is.err
	case s.DownwardAPI != nil:
		for i := range s.DownwardAPI.Items {
			item := &s.DownwardAPI.Items[i]
			value, err := w.pod.Value(item)
			if err != nil {
				return err
			}
			w.file(item.Path, []byte(value), item.Mode)
		}
	}
	return nil
}

// modeShared are the permissions of what nobody but the pod's group is to read, if it has one.
func (w *writing) modeShared() *int32 {
	mode := w.mode
	if fsGroup(w.pod.Spec) != nil {
		mode = modeToken
	}
	return &mode
}

func isTrue(b *bool) bool { return b != nil && *b }

// keys adds files for the keys of an object: the named ones, or all.
func (w *writing) keys(is part, items []v1.KeyToPath, optional *bool, missing string) error {
	may := isTrue(optional)
	switch {
	case is.absent && may:
		return nil
	case is.err != nil:
		return is.err
	}
	data := dataOf(is.object)
	for _, item := range items {
		value, is := data[item.Key]
		if !is && !may {
			return errors.New(missing + item.Key)
		}
		if is {
			w.file(item.Path, value, item.Mode)
		}
	}
	if len(items) == 0 {
		for _, key := range slices.Sorted(maps.Keys(data)) {
			w.file(key, data[key], nil)
		}
	}
	return nil
}

// file adds a file. Of two with one path the last one wins.
func (w *writing) file(at string, data []byte, mode *int32) {
	if mode == nil {
		mode = &w.mode
	}
	file := world.DirFile{Path: path.Clean(at), Data: data, Mode: uint32(*mode)}
	same := func(f world.DirFile) bool { return f.Path == file.Path }
	w.files = append(slices.DeleteFunc(w.files, same), file)
	w.size += len(data)
}

func dataOf(o *world.Object) map[string][]byte {
	if o.Secret != nil {
		return o.Secret.Data
	}
	data := map[string][]byte{}
	if o.ConfigMap != nil {
		for key, text := range o.ConfigMap.Data { //ordered: into a map
			data[key] = []byte(text)
		}
		maps.Copy(data, o.ConfigMap.BinaryData)
	}
	return data
}

// write writes the content of a volume, in one instant. What is secret is kept in memory.
func (p *Pod) write(v *v1.Volume, at string) ([]any, error) {
	files, err := p.files(v)
	if err != nil {
		return nil, err
	}
	steps := []any{&world.MakeDir{Path: path.Dir(at), Mode: modeParent}}
	if secretive(v) {
		medium := &v1.EmptyDirVolumeSource{Medium: v1.StorageMediumMemory}
		steps = append(steps, &world.MountMemory{
			Path: at, Mode: modeMemoryMount, BytesMax: memoryMax(medium, p)})
	}
	return append(steps, &world.WriteDir{Path: at, GID: fsGroup(p.Spec), Files: files}), nil
}

// Lines is a map as a file of a downward API volume has it: a line for each key, in order.
func Lines(m map[string]string) string {
	var lines []string
	for _, key := range slices.Sorted(maps.Keys(m)) {
		lines = append(lines, fmt.Sprintf("%s=%q", key, m[key]))
	}
	return strings.Join(lines, "\n")
}

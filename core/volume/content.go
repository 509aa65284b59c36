package volume

import (
	"errors"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/core/budget"
	"seedlet.dev/core/objectcache"
	"seedlet.dev/world"
)

// Volumes whose content the agent writes: from ConfigMaps, Secrets, service account tokens, trust
// bundles, certificates of the pod and fields of it. A volume is written again when the version of
// a source changes. Until all sources are available the written content stays: the deletion of an
// object, an unavailable server, and a token or certificate that cannot be renewed remove nothing
// (kubernetes issue 139045).

const (
	modeDefault    = 0o644
	modeToken      = 0o600 // with an owner, or an fsGroup, which WriteDir also lets read
	modeMountPoint = 0o755
)

// projections returns the sources of a volume and its default mode; none if the agent does not
// write the volume's content.
func projections(v *v1.Volume) ([]v1.VolumeProjection, *int32) {
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

// HasContent reports whether the agent writes the content of a volume. Containers can only read
// such a volume: a container that writes to it changes what all containers of the pod read, and
// what the agent compares (CVE-2017-1002102).
func HasContent(v *v1.Volume) bool {
	return v.Projected != nil || v.ConfigMap != nil || v.Secret != nil || v.DownwardAPI != nil
}

// isInMemory reports whether the content of a volume is written to memory, which is so for all but
// ConfigMaps, as in the kubelet: Secrets and tokens must not be on a disk, and annotations of a pod
// may be secret too.
func isInMemory(v *v1.Volume) bool { return v.ConfigMap == nil }

// contentVersion returns the version of all sources of a volume outside the pod. The version is not
// known while the result of a request is missing.
func (p *Pod) contentVersion(v *v1.Volume) (version string, known bool) {
	if v.Projected == nil && v.ConfigMap == nil && v.Secret == nil {
		return "", true
	}
	var b strings.Builder
	all, _ := projections(v)
	for i := range all {
		switch s := &all[i]; {
		case s.ConfigMap != nil:
			known = p.lookupObject(world.ResourceConfigMaps, s.ConfigMap.Name).appendVersion(&b)
		case s.Secret != nil:
			known = p.lookupObject(world.ResourceSecrets, s.Secret.Name).appendVersion(&b)
		case s.ServiceAccountToken != nil:
			known = p.lookupToken(s.ServiceAccountToken).appendVersion(&b)
		case s.ClusterTrustBundle != nil:
			known = p.trustBundles(s.ClusterTrustBundle).appendVersion(&b)
		case s.PodCertificate != nil:
			known = p.lookupCertificate(v.Name, i).appendVersion(&b)
		default:
			known = true
		}
		if !known {
			return "", false
		}
	}
	return b.String(), true
}

// sourceContent is the content of one source of a volume.
type sourceContent struct {
	version string // empty if not known
	object  *world.Object
	absent  bool // the source is known not to exist
	token   string
	bundles []string // of trust anchors
	key     string   // the private key of a certificate
	chain   string   // its chain
	err     error    // why the source is not available
}

func (f sourceContent) appendVersion(b *strings.Builder) bool {
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

func (p *Pod) lookupObject(r world.Resource, name string) sourceContent {
	if p.Objects == nil {
		return sourceContent{err: errors.New("no API server is configured")}
	}
	found := p.Objects.Lookup(r, p.Spec.Namespace, name)
	content := sourceContent{object: found.Object, absent: found.Known && found.Object == nil,
		err: found.Err}
	if content.object != nil {
		content.version = objectcache.Version(content.object)
	}
	return content
}

func (p *Pod) lookupToken(s *v1.ServiceAccountTokenProjection) sourceContent {
	if p.Token == nil {
		return sourceContent{err: errors.New("no API server is configured")}
	}
	value, version, err := p.Token(s)
	return sourceContent{token: value, version: version, err: err}
}

func (p *Pod) lookupCertificate(volume string, index int) sourceContent {
	if p.Certificate == nil { // the words of a kubelet without the feature gate
		return sourceContent{err: errors.New("unimplemented")}
	}
	key, chain, version, err := p.Certificate(volume, index)
	return sourceContent{key: key, chain: chain, version: version, err: err}
}

// contentOf returns the files of a volume, without a copy of any value. The error has the problems
// of all its sources.
func (p *Pod) contentOf(v *v1.Volume) (*content, error) {
	all, mode := projections(v)
	added := p.countFiles(all)
	if added > budget.FilesMax {
		return nil, budget.Files.Errorf("it has %d files or more, and one volume may have %d", added,
			budget.FilesMax)
	}
	w := &contentBuilder{pod: p, mode: modeDefault, user: fsUser(p.Spec), index: make(map[string]int,
		added), content: &content{files: make([]contentFile, 0, added)}}
	if mode != nil {
		w.mode = *mode
	}
	var problems []string
	said := 0 // bytes: a message is cut there, and thousands of sources can lack the same object
	for i := 0; i < len(all) && w.isWithinBounds() && said <= budget.MessageMax; i++ {
		if err := w.addSource(v.Name, i, &all[i]); err != nil {
			problems = append(problems, err.Error())
			said += len(problems[len(problems)-1])
		}
	}
	switch {
	case len(problems) == 1:
		return nil, errors.New(problems[0])
	case len(problems) > 1:
		return nil, errors.New("[" + strings.Join(problems, ", ") + "]")
	case w.size > budget.ContentMax:
		return nil, budget.ContentBytes.Errorf("its files hold %d bytes, more than %d", w.size,
			budget.ContentMax)
	}
	isReplaced := func(f contentFile) bool { return f.path == "" }
	w.content.files = slices.DeleteFunc(w.content.files, isReplaced)
	return w.content, nil
}

// content is the files of a volume. Their values are those of the sources and are never copied: a
// volume costs the number of its files, and not their bytes.
type content struct {
	files     []contentFile
	pageBytes int // what the files take, those that were replaced included
}

// contentFile is a file of a volume; one that was replaced has no path.
type contentFile struct {
	path  string
	value value
	mode  int32
	uid   *int64
}

// value is a text or bytes of a source.
type value struct {
	text  string
	bytes []byte // nil for a text
}

func (v value) size() int { return len(v.text) + len(v.bytes) }

// dirFiles returns the files as they are written.
func (c *content) dirFiles() []world.DirFile {
	files := make([]world.DirFile, len(c.files))
	for i, f := range c.files {
		files[i] = world.DirFile{Path: f.path, Data: f.value.bytes, Text: f.value.text,
			Mode: uint32(f.mode), UID: f.uid}
	}
	return files
}

// countFiles returns how many files the sources of a volume add, those that are replaced included.
// The files are counted before any is made: several volumes can each name the same large object.
// Keys that an object lacks are counted too.
func (p *Pod) countFiles(all []v1.VolumeProjection) int {
	added := 0
	count := func(r world.Resource, name string, items int) {
		if items == 0 {
			if o := p.lookupObject(r, name).object; o != nil {
				items = dataLen(o)
			}
		}
		added += items
	}
	for i := 0; i < len(all) && added <= budget.FilesMax; i++ {
		switch s := &all[i]; {
		case s.ConfigMap != nil:
			count(world.ResourceConfigMaps, s.ConfigMap.Name, len(s.ConfigMap.Items))
		case s.Secret != nil:
			count(world.ResourceSecrets, s.Secret.Name, len(s.Secret.Items))
		case s.DownwardAPI != nil:
			added += len(s.DownwardAPI.Items)
		case s.PodCertificate != nil:
			added += 3 // at most
		default:
			added++
		}
	}
	return added
}

// dataLen returns the number of keys of a ConfigMap or Secret. A key that has both text and binary
// data counts twice.
func dataLen(o *world.Object) int {
	switch {
	case o.Secret != nil:
		return len(o.Secret.Data)
	case o.ConfigMap != nil:
		return len(o.ConfigMap.Data) + len(o.ConfigMap.BinaryData)
	}
	return 0
}

// contentBuilder collects the files of a volume.
type contentBuilder struct {
	pod     *Pod
	mode    int32
	user    *int64 // the only one of the pod, if known
	content *content
	index   map[string]int // into its files, by path
	size    int            // the bytes of the values, those of files that were replaced included
}

// isWithinBounds reports whether the files exceed no bound so far.
func (w *contentBuilder) isWithinBounds() bool { return w.size <= budget.ContentMax }

// addSource adds the files of a source, the index-th of a volume, until they exceed a bound.
func (w *contentBuilder) addSource(volume string, index int, s *v1.VolumeProjection) error {
	switch {
	case s.ConfigMap != nil:
		content := w.pod.lookupObject(world.ResourceConfigMaps, s.ConfigMap.Name)
		return w.addKeys(content, s.ConfigMap.Items, s.ConfigMap.Optional,
			"configmap references non-existent config key: ")
	case s.Secret != nil:
		content := w.pod.lookupObject(world.ResourceSecrets, s.Secret.Name)
		return w.addKeys(content, s.Secret.Items, s.Secret.Optional,
			"references non-existent secret key: ")
	case s.ServiceAccountToken != nil:
		content := w.pod.lookupToken(s.ServiceAccountToken)
		w.addRestrictedFile(s.ServiceAccountToken.Path, content.token)
		return content.err
	case s.ClusterTrustBundle != nil:
		content := w.pod.trustBundles(s.ClusterTrustBundle)
		if content.absent && isTrue(s.ClusterTrustBundle.Optional) {
			content.err = nil // the file is empty
		}
		w.addRestrictedFile(s.ClusterTrustBundle.Path,
			w.pod.trustAnchorsOf(content))
		return content.err
	case s.PodCertificate != nil:
		content := w.pod.lookupCertificate(volume, index)
		w.addCertificate(s.PodCertificate, content)
		return content.err
	case s.DownwardAPI != nil:
		for i := 0; i < len(s.DownwardAPI.Items) && w.isWithinBounds(); i++ {
			item := &s.DownwardAPI.Items[i]
			text, err := w.pod.Value(item)
			if err != nil {
				return err
			}
			w.addFile(item.Path, value{text: text}, item.Mode)
		}
	}
	return nil
}

// addCertificate adds the files of a certificate: the key with the chain, the key, and the chain,
// as far as they have a path.
func (w *contentBuilder) addCertificate(s *v1.PodCertificateProjection, content sourceContent) {
	if s.CredentialBundlePath != "" {
		w.addRestrictedFile(s.CredentialBundlePath, content.key+content.chain)
	}
	if s.KeyPath != "" {
		w.addRestrictedFile(s.KeyPath, content.key)
	}
	if s.CertificateChainPath != "" {
		w.addRestrictedFile(s.CertificateChainPath, content.chain)
	}
}

// addRestrictedFile adds a file with a token, trust anchors or a certificate. If all containers run
// as one user, the file belongs to that user. With a user or an fsGroup, only these can read it
// (KEP-1205).
func (w *contentBuilder) addRestrictedFile(at, text string) {
	mode := w.mode
	if w.user != nil || fsGroup(w.pod.Spec) != nil {
		mode = modeToken
	}
	w.addFile(at, value{text: text}, &mode)
	w.content.files[len(w.content.files)-1].uid = w.user
}

// fsUser returns the user that the spec gives to all containers of a pod, as the kubelet determines
// it (FsUserFrom in volume/util); nil if it leaves the user of one to its image, or has several.
func fsUser(pod *v1.Pod) *int64 {
	var all []*v1.SecurityContext
	for i := range pod.Spec.InitContainers {
		all = append(all, pod.Spec.InitContainers[i].SecurityContext)
	}
	for i := range pod.Spec.Containers {
		all = append(all, pod.Spec.Containers[i].SecurityContext)
	}
	for i := range pod.Spec.EphemeralContainers {
		all = append(all, pod.Spec.EphemeralContainers[i].SecurityContext)
	}
	var user *int64
	for _, s := range all {
		var own *int64
		switch {
		case s != nil && s.RunAsUser != nil:
			own = s.RunAsUser
		case pod.Spec.SecurityContext != nil:
			own = pod.Spec.SecurityContext.RunAsUser
		}
		if own == nil || user != nil && *user != *own {
			return nil
		}
		user = own
	}
	return user
}

func isTrue(b *bool) bool { return b != nil && *b }

// addKeys adds files for the keys of an object: the specified ones, or all.
func (w *contentBuilder) addKeys(content sourceContent, items []v1.KeyToPath, optional *bool,
	missing string) error {
	isOptional := isTrue(optional)
	switch {
	case content.absent && isOptional:
		return nil
	case content.err != nil:
		return content.err
	}
	for i := 0; i < len(items) && w.isWithinBounds(); i++ {
		item := &items[i]
		value, exists := dataOf(content.object, item.Key)
		if !exists && !isOptional {
			return errors.New(missing + item.Key)
		}
		if exists {
			w.addFile(item.Path, value, item.Mode)
		}
	}
	if len(items) == 0 {
		for _, key := range dataKeys(content.object) {
			value, _ := dataOf(content.object, key)
			w.addFile(key, value, nil)
		}
	}
	return nil
}

// addFile adds a file after the others. It replaces a file with the same path.
func (w *contentBuilder) addFile(at string, v value, mode *int32) {
	if mode == nil {
		mode = &w.mode
	}
	c, file := w.content, contentFile{path: path.Clean(at), value: v, mode: *mode}
	if i, found := w.index[file.path]; found {
		c.files[i] = contentFile{}
	}
	w.index[file.path] = len(c.files)
	c.files = append(c.files, file)
	w.size += v.size()
	c.pageBytes += max(v.size()+contentPage-1, contentPage) / contentPage * contentPage
}

// dataKeys returns the keys of a ConfigMap or Secret, sorted and each once.
func dataKeys(o *world.Object) []string {
	switch {
	case o.Secret != nil:
		return slices.Sorted(maps.Keys(o.Secret.Data))
	case o.ConfigMap == nil:
		return nil
	}
	keys := slices.Sorted(maps.Keys(o.ConfigMap.Data))
	if len(o.ConfigMap.BinaryData) > 0 {
		keys = append(keys, slices.Sorted(maps.Keys(o.ConfigMap.BinaryData))...)
		slices.Sort(keys)
	}
	return slices.Compact(keys)
}

// dataOf returns what a ConfigMap or Secret has under a key. Binary data goes before text.
func dataOf(o *world.Object, key string) (v value, found bool) {
	if o.Secret != nil {
		v.bytes, found = o.Secret.Data[key]
		return v, found
	}
	if o.ConfigMap == nil {
		return v, false
	}
	if v.bytes, found = o.ConfigMap.BinaryData[key]; found {
		return v, true
	}
	v.text, found = o.ConfigMap.Data[key]
	return v, found
}

// contentSteps returns the operations that write the content of a volume, its files atomically. The
// files are given only to their own operation, which is the last.
func (v *Volume) contentSteps(spec *v1.Volume, c *content, pod *Pod) ([]any, error) {
	at := Path(pod.Dir, spec)
	steps := []any{&world.MakeDir{Path: path.Dir(at), Mode: modeParent}}
	if isInMemory(spec) {
		medium := &v1.EmptyDirVolumeSource{Medium: v1.StorageMediumMemory}
		steps = append(steps, &world.MountMemory{
			Path: at, Mode: modeMemory, BytesMax: memoryMax(medium, pod)})
	}
	points, err := pod.nestedMountPoints(spec.Name, c.files)
	if err != nil {
		return nil, err
	}
	for _, point := range points {
		steps = append(steps, &world.MakeDir{Path: at + "/" + point, Mode: modeMountPoint})
	}
	write := &world.WriteDir{Path: at, GID: fsGroup(pod.Spec)}
	if v.StepsDone == len(steps) {
		write.Files = c.dirFiles()
	}
	return append(steps, write), nil
}

// contentPage is the least that a file takes in memory, or on a disk.
const contentPage = 4096

// FormatMap returns a map in the format of downward API files: one line per key, sorted.
func FormatMap(m map[string]string) string {
	var b []byte
	for i, key := range slices.Sorted(maps.Keys(m)) {
		if i > 0 {
			b = append(b, '\n')
		}
		b = strconv.AppendQuote(append(append(b, key...), '='), m[key])
	}
	return string(b)
}

package kubelet

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"seedlet.dev/world"
)

// Pulls of images, and the files about them (pkg/kubelet/images/pullmanager, KEP-2535): a file in
// image_manager/pulling while an image is pulled, and then the record in image_manager/pulled of
// who may use it. A kubelet that ends within a pull leaves the first.

// image is what the kubelet knows of an image that it has pulled.
type image struct {
	puller   *pod   // for which it is being pulled; nil: it is not
	pulled   string // its ID after a pull whose record is not written yet
	failed   bool   // the pull has failed, and its file is still there
	failedAt time.Time
	record   *kubeletconfig.ImagePulledRecord
}

const pullBackoff = 10 * time.Second

func imageFile(name string) string {
	return fmt.Sprintf("sha256-%x", sha256.Sum256([]byte(name)))
}

func (n *Node) imageDir(name string) string { return n.RootDir + "/image_manager/" + name }

// imageStep returns what gives a pod an image; nil if it may use it, and idle while it waits.
func (k *Kubelet) imageStep(p *pod, ref string) *step {
	i := k.pulls[ref]
	if i == nil {
		i = &image{}
		k.pulls[ref] = i
	}
	secrets := pullSecrets(p.object, k.secret)
	isLeft := i.puller != nil && i.puller.object.DeletionTimestamp != nil && !i.puller.busy
	switch {
	case i.puller != nil && i.puller != p && !isLeft:
		return idle
	case k.images[ref] == "" && !p.done["image "+ref]:
		return &step{"image " + ref, world.PortCRI,
			&runtimeapi.ImageStatusRequest{Image: &runtimeapi.ImageSpec{Image: ref}}}
	case k.images[ref] != "" && (i.record == nil || mayUse(i.record, ref, secrets)):
		return nil
	case i.puller == nil && !i.failedAt.IsZero() && k.opts.Agenda.Now().Sub(i.failedAt) < pullBackoff:
		return idle
	}
	if w := p.once(mkdir(k.opts.imageDir("pulling"), 0o700),
		mkdir(k.opts.imageDir("pulled"), 0o700)); w != nil {
		return w
	}
	i.puller = p
	intent := k.opts.imageDir("pulling") + "/" + imageFile(ref)
	switch {
	case !p.done["intent "+ref]:
		return &step{"intent " + ref, world.PortFS, &world.WriteFile{Path: intent, Mode: 0o600,
			Data: []byte(encode(&kubeletconfig.ImagePullIntent{Image: ref,
				TypeMeta: pullType("ImagePullIntent")}))}}
	case i.pulled == "" && !i.failed:
		request := &runtimeapi.PullImageRequest{Image: &runtimeapi.ImageSpec{Image: ref},
			SandboxConfig: k.sandboxConfig(p, 0)}
		if len(secrets) > 0 {
			request.Auth = secrets[0].auth
		}
		return &step{"pull " + ref, world.PortCRI, request}
	case i.pulled != "" && !p.done["record "+ref]:
		i.add(ref, secrets, k.opts.Agenda.Now())
		return &step{"record " + ref, world.PortFS, &world.WriteFile{Mode: 0o600,
			Path: k.opts.imageDir("pulled") + "/" + imageFile(i.pulled),
			Data: []byte(encode(i.record))}}
	}
	return &step{"unintent " + ref, world.PortFS, &world.RemoveTree{Path: intent}}
}

func pullType(kind string) metav1.TypeMeta {
	return metav1.TypeMeta{Kind: kind, APIVersion: "kubelet.config.k8s.io/v1beta1"}
}

// completePull records how far a pull has come.
func (k *Kubelet) completePull(p *pod, kind, ref string, ev *world.Event) {
	i := k.pulls[ref]
	switch kind {
	case "pull":
		if body, ok := ev.Body.(*runtimeapi.PullImageResponse); ok && ev.Err == nil {
			i.pulled = body.ImageRef
		} else {
			i.failed, i.failedAt = true, k.opts.Agenda.Now()
		}
	case "unintent":
		if i.pulled != "" {
			k.images[ref] = i.pulled
		}
		i.puller, i.pulled, i.failed = nil, "", false
		for _, key := range []string{"intent ", "record ", "unintent "} {
			delete(p.done, key+ref)
		}
	}
}

// pullSecret is a secret with which a pod pulls images: its coordinates, and its content.
type pullSecret struct {
	kubeletconfig.ImagePullSecret
	auth *runtimeapi.AuthConfig
}

func (k *Kubelet) secret(namespace, name string) *v1.Secret {
	return k.opts.Server.Object(world.ResourceSecrets, namespace, name).Secret
}

// pullSecrets returns the secrets of a pod. Each has one user, of the one registry.
func pullSecrets(p *v1.Pod, secret func(namespace, name string) *v1.Secret) []pullSecret {
	var all []pullSecret
	for _, name := range p.Spec.ImagePullSecrets {
		o := secret(p.Namespace, name.Name)
		if o == nil {
			continue
		}
		var config struct {
			Auths map[string]struct {
				Username string `json:"username,omitempty"`
				Password string `json:"password,omitempty"`
			}
		}
		_ = json.Unmarshal(o.Data[v1.DockerConfigJsonKey], &config) // or it has no user
		for _, host := range sortedKeys(config.Auths) {
			entry := config.Auths[host]
			all = append(all, pullSecret{kubeletconfig.ImagePullSecret{UID: string(o.UID),
				Namespace: o.Namespace, Name: o.Name,
				CredentialHash: fmt.Sprintf("%x", sha256.Sum256([]byte(encode(entry))))},
				&runtimeapi.AuthConfig{Username: entry.Username, Password: entry.Password}})
		}
	}
	return all
}

// imageName returns the name of an image without its tag, as records have it.
func imageName(ref string) string {
	name, _, _ := strings.Cut(ref, "@")
	if i := strings.LastIndex(name, ":"); i > strings.LastIndex(name, "/") {
		name = name[:i]
	}
	return name
}

// mayUse reports whether a record lets a pod use an image without a pull (MustAttemptImagePull).
func mayUse(record *kubeletconfig.ImagePulledRecord, ref string, secrets []pullSecret) bool {
	credentials := record.CredentialMapping[imageName(ref)]
	if credentials.NodePodsAccessible {
		return true
	}
	for _, has := range credentials.KubernetesSecrets {
		for _, s := range secrets {
			if has.CredentialHash == s.CredentialHash ||
				has.UID == s.UID && has.Namespace == s.Namespace && has.Name == s.Name {
				return true
			}
		}
	}
	return false
}

// add records with which secret an image was pulled.
func (i *image) add(ref string, secrets []pullSecret, now time.Time) {
	if i.record == nil {
		i.record = &kubeletconfig.ImagePulledRecord{TypeMeta: pullType("ImagePulledRecord"),
			ImageRef: i.pulled, CredentialMapping: map[string]kubeletconfig.ImagePullCredentials{}}
	}
	i.record.LastUpdatedTime = metav1.NewTime(now.Truncate(time.Second))
	credentials := i.record.CredentialMapping[imageName(ref)]
	if len(secrets) == 0 {
		credentials = kubeletconfig.ImagePullCredentials{NodePodsAccessible: true}
	} else if !credentials.NodePodsAccessible && !mayUse(i.record, ref, secrets) {
		credentials.KubernetesSecrets = append(credentials.KubernetesSecrets,
			secrets[0].ImagePullSecret)
	}
	i.record.CredentialMapping[imageName(ref)] = credentials
}

// imageProblems returns what a kubelet cannot read of the files about images. The file of a pull
// that brought no image stays, as with a kubelet (PullManager.initialize).
func (l *Left) imageProblems() []string {
	var problems []string
	for _, kind := range []string{"pulled", "pulling"} {
		dir := l.imageDir(kind)
		for _, file := range l.List(dir) {
			if !strings.HasPrefix(file, "sha256-") {
				continue // a kubelet ignores it
			}
			text, _ := l.ReadFile(dir + "/" + file)
			name, err := imageOf(kind, text)
			problem := ""
			switch {
			case err != nil:
				problem = fmt.Sprintf("cannot be read by a kubelet: %v: %q", err, text)
			case imageFile(name) != file:
				problem = fmt.Sprintf("is about %s, for which a kubelet reads %s", name, imageFile(name))
			}
			if problem != "" {
				problems = append(problems, fmt.Sprintf("image_manager/%s/%s %s", kind, file, problem))
			}
		}
	}
	return problems
}

// imageOf returns which image a file is about.
func imageOf(kind string, text []byte) (string, error) {
	var record kubeletconfig.ImagePulledRecord
	var intent kubeletconfig.ImagePullIntent
	into, want := any(&record), pullType("ImagePulledRecord")
	if kind == "pulling" {
		into, want = &intent, pullType("ImagePullIntent")
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil {
		return "", err
	}
	if record.TypeMeta != want && intent.TypeMeta != want {
		return "", fmt.Errorf("it is no %s", want)
	}
	return record.ImageRef + intent.Image, nil
}

// imageProblem returns for which image of a running container a kubelet would ask the registry
// again, although its pod has pulled it, or would let every pod use it; empty if for none.
func (l *Left) imageProblem(p *v1.Pod, c *runtimeapi.ContainerStatus) string {
	ref := specOf(&p.Spec, c.Labels[labelContainer]).Image
	text, exists := l.ReadFile(l.imageDir("pulled") + "/" + imageFile(c.ImageId))
	var record kubeletconfig.ImagePulledRecord
	isRunning := c.State == runtimeapi.ContainerState_CONTAINER_RUNNING
	_, isIntended := l.ReadFile(l.imageDir("pulling") + "/" + imageFile(ref))
	if isRunning && !exists && !isIntended && l.NeedsRecord(ref) {
		return "every pod may use its private image " + ref + ": there is no record"
	}
	if !isRunning || ref == "" || !exists || json.Unmarshal(text, &record) != nil ||
		mayUse(&record, ref, pullSecrets(p, l.Secret)) {
		return ""
	}
	return fmt.Sprintf("its image %s is pulled again: the record has the credentials %v", ref,
		record.CredentialMapping[imageName(ref)])
}

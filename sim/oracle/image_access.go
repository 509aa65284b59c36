package oracle

import (
	"encoding/json"
	"slices"

	v1 "k8s.io/api/core/v1"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"seedlet.dev/sim/truth"
)

// imageAccess fires when a container is created from an image that its pod could not pull, and that
// the credentials of another pod have brought to the node (KEP-2535). A secret that was good for the
// image stays so, whatever it has later.
type imageAccess struct{}

func (*imageAccess) describe() Entry {
	return Entry{"image-access", "A container is created from a private image only if the pod has a " +
		"secret with which the image can be pulled, or the image was on the node before."}
}

func (*imageAccess) checkFact(m *model, f *truth.Fact) *finding {
	p := m.pods[f.PodUID]
	if f.Kind != truth.ContainerCreated || p == nil || m.opts.PullPolicy == "" ||
		m.opts.PullPolicy == kubeletconfig.NeverVerify {
		return nil
	}
	var problem *finding
	for _, spec := range p.specs {
		c := containerOf(spec, f.Container)
		if c == nil || f.Annotations[annotationHash] != containerHash(c) {
			continue
		}
		refused := slices.DeleteFunc(p.imagesOf(spec, c), func(ref string) bool {
			return !m.images.wasPulled[ref] || m.canPull(spec, ref)
		})
		if len(refused) == 0 {
			return nil
		}
		problem = findingf("container %s of %s has the image %s, which the pod cannot pull", f.Container,
			f.PodName, refused[0])
	}
	return problem
}

// privateImages is what is known of images that not everybody may pull.
type privateImages struct {
	wasPulled map[string]bool            // by reference
	users     map[string]map[string]bool // that a Secret has had, by its namespace and name
}

func newPrivateImages() privateImages {
	return privateImages{map[string]bool{}, map[string]map[string]bool{}}
}

// applySecret notes the users of a Secret of the type of image pull secrets.
func (i *privateImages) applySecret(s *v1.Secret) {
	var config struct {
		Auths map[string]struct{ Username string }
	}
	if json.Unmarshal(s.Data[v1.DockerConfigJsonKey], &config) != nil {
		return
	}
	name := s.Namespace + "/" + s.Name
	if i.users[name] == nil {
		i.users[name] = map[string]bool{}
	}
	for _, auth := range config.Auths { //ordered: a set
		i.users[name][auth.Username] = true
	}
}

// imagesOf returns the images of a container: the one that it runs, and its image volumes.
func (p *pod) imagesOf(spec *v1.Pod, c *v1.Container) []string {
	refs := []string{c.Image}
	for i := range spec.Spec.Volumes {
		v := &spec.Spec.Volumes[i]
		mounts := func(m v1.VolumeMount) bool { return m.Name == v.Name }
		if v.Image != nil && slices.ContainsFunc(c.VolumeMounts, mounts) {
			refs = append(refs, v.Image.Reference)
		}
	}
	return refs
}

// canPull reports whether a pod has, or had, a secret of a user that may pull an image.
func (m *model) canPull(spec *v1.Pod, ref string) bool {
	users := m.opts.PullUsers[ref]
	return len(users) == 0 || slices.ContainsFunc(spec.Spec.ImagePullSecrets,
		func(secret v1.LocalObjectReference) bool {
			has := m.images.users[spec.Namespace+"/"+secret.Name]
			return slices.ContainsFunc(users, func(user string) bool { return has[user] })
		})
}

// cannotGet reports whether a pod cannot get an image: it has to be pulled for it, by a user that
// the pod does not know.
func (p *pod) cannotGet(ref string) bool {
	m := p.model
	return !m.canPull(p.spec, ref) &&
		(m.images.wasPulled[ref] || slices.Contains(m.opts.AbsentImages, ref))
}

package oracle

import (
	"encoding/json"
	"path"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"seedlet.dev/sim/truth"
)

// imageAccess fires when a container is created from an image that its pod could not pull, and that
// the credentials of another pod have brought to the node (KEP-2535). A secret that was good for
// the image stays so, whatever it has later, and so does a service account (KEP-4412), of which one
// with the same name counts as the same.
type imageAccess struct{}

func (*imageAccess) describe() Entry {
	return Entry{"image-access", "A container is created from a private image only if the pod has a " +
		"secret or a service account with which the image can be pulled, or the image was on the node " +
		"before."}
}

func (*imageAccess) checkFact(m *model, f *truth.Fact) *finding {
	p := m.pods[f.PodUID]
	if f.Kind != truth.ContainerCreated || p == nil {
		return nil
	}
	var problem *finding
	for _, spec := range p.specs {
		c := m.createdFrom(spec, f)
		if c == nil {
			continue
		}
		refused := slices.DeleteFunc(p.imagesOf(spec, c), func(ref string) bool {
			return !m.isVerified(ref) || m.canPull(spec, ref)
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
	// broken are the Secrets that cannot be decoded. Nothing is pulled for a pod that has one.
	broken   map[string]bool
	accounts map[string]map[string]bool // that a service account has had, likewise
	// wasTried are the images that may count as pulled since an agent was about to pull them,
	// whatever came of that: it may not have been able to read its records; or the image was on the
	// node before, and the next agent finds the intent, and not what came of it.
	wasTried map[string]bool
	// intendedAt is when an agent last was about to pull an image.
	intendedAt map[string]time.Time
	asked      map[string]bool // files of images that agents have asked the runtime to pull
}

func newPrivateImages() privateImages {
	return privateImages{map[string]bool{}, map[string]map[string]bool{}, map[string]bool{},
		map[string]map[string]bool{}, map[string]bool{}, map[string]time.Time{}, map[string]bool{}}
}

// noteIntent notes that an agent has written, into the file that is named for it, that it is about
// to pull an image.
func (m *model) noteIntent(f *truth.Fact) {
	if !isIntent(f.Path) {
		return
	}
	file := path.Base(f.Path)
	unread := m.faultPossible("ReadFiles", m.agentStartedAt, f.Time)
	for ref := range m.opts.PullUsers { //ordered: a set
		if file == intentFile(ref) {
			m.images.intendedAt[ref] = f.Time
			if unread || !m.imagesAbsent[ref] {
				m.images.wasTried[ref] = true
			}
		}
	}
}

// notePulled notes that a pull has brought an image. If the agent may not have seen that it
// succeeded, an image that was on the node before stays what it was, as with a kubelet.
func (m *model) notePulled(f *truth.Fact) {
	wasThere := !m.imagesAbsent[f.Image]
	if !wasThere || !m.faultPossible("PullImage", m.images.intendedAt[f.Image], f.Time) {
		m.images.wasPulled[f.Image] = true
	}
}

// applySecret notes the users of a Secret of the type of image pull secrets.
func (i *privateImages) applySecret(s *v1.Secret) {
	var config struct {
		Auths map[string]struct{ Username string }
	}
	name := s.Namespace + "/" + s.Name
	err := json.Unmarshal(s.Data[v1.DockerConfigJsonKey], &config)
	i.broken[name] = s.Type == v1.SecretTypeDockerConfigJson && err != nil
	if err != nil {
		return
	}
	if i.users[name] == nil {
		i.users[name] = map[string]bool{}
	}
	for _, auth := range config.Auths { //ordered: a set
		i.users[name][auth.Username] = true
	}
}

// applyAccount notes the user that a service account stands for, by an annotation.
func (i *privateImages) applyAccount(a *v1.ServiceAccount, annotation string) {
	name := a.Namespace + "/" + a.Name
	user, has := a.Annotations[annotation]
	if annotation == "" || !has {
		return
	}
	if i.accounts[name] == nil {
		i.accounts[name] = map[string]bool{}
	}
	i.accounts[name][user] = true
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

// canPull reports whether a pod has, or had, a secret or a service account of a user that may pull
// an image.
func (m *model) canPull(spec *v1.Pod, ref string) bool {
	users := m.opts.PullUsers[ref]
	account := m.images.accounts[spec.Namespace+"/"+spec.Spec.ServiceAccountName]
	hasAccount := slices.ContainsFunc(users, func(user string) bool { return account[user] })
	isBroken := func(secret v1.LocalObjectReference) bool {
		return m.images.broken[spec.Namespace+"/"+secret.Name]
	}
	switch {
	case len(users) == 0:
		return true
	case slices.ContainsFunc(spec.Spec.ImagePullSecrets, isBroken):
		return false
	}
	return hasAccount || m.opts.NodePulls[ref] || slices.ContainsFunc(spec.Spec.ImagePullSecrets,
		func(secret v1.LocalObjectReference) bool {
			has := m.images.users[spec.Namespace+"/"+secret.Name]
			return slices.ContainsFunc(users, func(user string) bool { return has[user] })
		})
}

// isVerified reports whether the agent has to verify that a pod may use an image that is on the
// node. No scenario has a private image that its policy allows by name.
func (m *model) isVerified(ref string) bool {
	switch m.opts.PullPolicy {
	case "", kubeletconfig.NeverVerify:
		return false
	case kubeletconfig.NeverVerifyPreloadedImages:
		return m.images.wasPulled[ref]
	}
	return true
}

// cannotGetImages reports whether a pod cannot get an image that a container needs.
func (p *pod) cannotGetImages(c *v1.Container) bool {
	return slices.ContainsFunc(p.imagesOf(p.spec, c), p.cannotGet)
}

// cannotRunAgain reports whether the pod of a container that has exited cannot get its image any
// more: another pod has pulled it since.
func (p *pod) cannotRunAgain(c *container) bool {
	spec := containerOf(p.spec, c.name)
	return spec != nil && p.cannotGetImages(spec)
}

// cannotGet reports whether a pod cannot get an image: it has to be pulled for it, by a user that
// the pod does not know.
func (p *pod) cannotGet(ref string) bool {
	m := p.model
	return !m.canPull(p.spec, ref) && (m.isVerified(ref) || m.images.wasTried[ref] ||
		slices.Contains(m.opts.AbsentImages, ref))
}

package pod

import (
	"strings"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/core/image"
	"seedlet.dev/core/keyring"
	"seedlet.dev/core/objectcache"
	"seedlet.dev/world"
)

// The image pull secrets of a pod. A secret is decoded when it is observed, once for each version.
// The keyring of a pod is made again when one of its secrets has changed, and remembers what it has
// been asked: a plan looks up the images of all containers that wait.

// pullSecrets are the image pull secrets of a pod, in the versions that are known.
type pullSecrets struct {
	// version consists of the names and versions of the secrets.
	version string
	keyring *keyring.Keyring
	err     error // the secrets are more than a pod may have; there is no keyring
}

// DecodePullSecret decodes an image pull secret that was observed, so that a plan of several pods
// need not. Another object is ignored.
func DecodePullSecret(watch *objectcache.Watch) {
	for _, name := range watch.Names() {
		if o := watch.Objects[name]; o.Secret != nil {
			decodePullSecret(watch, o.Secret)
		}
	}
}

// decodePullSecret returns the secret of a watch, decoded.
func decodePullSecret(watch *objectcache.Watch, s *v1.Secret) *keyring.Secret {
	return watch.Memoize("keyring", func() any { return keyring.Decode(s) }).(*keyring.Secret)
}

// pullSecretNames returns the names of the image pull secrets of the pod, each once.
func (p *Pod) pullSecretNames() []string {
	var names []string
	isKnown := map[string]bool{"": true}
	for _, ref := range p.Spec.Spec.ImagePullSecrets {
		if !isKnown[ref.Name] {
			isKnown[ref.Name] = true
			names = append(names, ref.Name)
		}
	}
	return names
}

// pullSecrets returns the image pull secrets of the pod that exist. Missing ones are left out,
// because the pull may succeed without them. It reports false while one of them is being read.
func (p *Pod) pullSecrets(env *Env) (secrets *pullSecrets, known bool) {
	var versions []string
	var existing []*v1.Secret
	for _, name := range p.pullSecretNames() {
		if env.Objects == nil {
			break
		}
		switch found := env.Objects.Lookup(world.ResourceSecrets, p.Namespace, name); {
		case found.Object != nil:
			existing = append(existing, found.Object.Secret)
			versions = append(versions, p.Namespace+"/"+name+"@"+objectcache.Version(found.Object))
		case !found.Known && found.Err == nil:
			return nil, false
		}
	}
	version := strings.Join(versions, " ")
	if p.pulls.keyring == nil && p.pulls.err == nil || p.pulls.version != version {
		var decoded []*keyring.Secret
		for _, s := range existing {
			watch := env.Objects.Watch(world.WatchTarget{Resource: world.ResourceSecrets,
				Namespace: p.Namespace, Name: s.Name})
			decoded = append(decoded, decodePullSecret(watch, s))
		}
		p.pulls = pullSecrets{version: version}
		p.pulls.keyring, p.pulls.err = keyring.Join(keyring.OfPod, decoded)
	}
	return &p.pulls, true
}

// credentials returns the credentials for an image, and an error if they are more than it may have.
func (s *pullSecrets) credentials(ref string) (image.Credentials, error) {
	if s.err != nil {
		return image.Credentials{}, s.err
	}
	if s.keyring.Problem != "" {
		return image.Credentials{Name: s.version, Problem: s.keyring.Problem}, nil
	}
	tries, err := s.keyring.Lookup(ref)
	if err != nil || len(tries.Credentials) == 0 {
		return image.Credentials{}, err
	}
	return image.Credentials{Name: s.version, List: tries.Credentials, Sources: tries.Sources}, nil
}

// checkPullSecrets returns an error if the image pull secrets of the pod, as far as they are known,
// are more than they may be for the images of a container.
func (p *Pod) checkPullSecrets(container *v1.Container, env *Env) error {
	secrets, known := p.pullSecrets(env)
	if !known {
		return nil
	}
	_, err := p.requiredImages(container, secrets, env)
	return err
}

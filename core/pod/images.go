package pod

import (
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/core/criconfig"
	"seedlet.dev/core/image"
	"seedlet.dev/core/keyring"
	"seedlet.dev/core/objectcache"
	"seedlet.dev/world"
)

// The images that a container needs: the one that it runs, and those that it mounts (KEP-4639).
// Each is inspected, pulled and waited for separately. Once all are present the container is
// created, and its pending images are released.

// requiredImage is an image that a container needs.
type requiredImage struct {
	volume string
	image.Request
	policy v1.PullPolicy
}

// requiredImages returns the images that a container needs, the one that it runs first.
func (p *Pod) requiredImages(container *v1.Container, env *Env) []requiredImage {
	all := []requiredImage{{policy: container.ImagePullPolicy,
		Request: image.Request{Ref: container.Image,
			Credentials: p.pullCredentials(container.Image, env)}}}
	for i := range container.VolumeMounts {
		v := p.specVolume(container.VolumeMounts[i].Name)
		if v == nil || v.Image == nil {
			continue
		}
		isSame := func(r requiredImage) bool { return r.volume == v.Name }
		if !slices.ContainsFunc(all, isSame) { // a volume may be mounted twice
			ref := v.Image.Reference
			all = append(all, requiredImage{v.Name, image.Request{Ref: ref,
				Credentials: p.pullCredentials(ref, env)}, v.Image.PullPolicy})
		}
	}
	return all
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
func (p *Pod) pullSecrets(env *Env) (secrets []*v1.Secret, known bool) {
	if env.Objects == nil {
		return nil, true
	}
	for _, name := range p.pullSecretNames() {
		switch found := env.Objects.Lookup(world.ResourceSecrets, p.Namespace, name); {
		case found.Object != nil:
			secrets = append(secrets, found.Object.Secret)
		case !found.Known && found.Err == nil:
			return nil, false
		}
	}
	return secrets, true
}

// pullCredentials returns the pod's credentials for an image. Their name consists of the names and
// versions of the secrets.
func (p *Pod) pullCredentials(ref string, env *Env) image.Credentials {
	secrets, _ := p.pullSecrets(env)
	tries := keyring.Lookup(secrets, ref)
	if len(tries) == 0 {
		return image.Credentials{}
	}
	var names []string
	for _, s := range secrets {
		names = append(names, s.Namespace+"/"+s.Name+"@"+objectcache.Version(&world.Object{Secret: s}))
	}
	return image.Credentials{Name: strings.Join(names, " "), List: tries}
}

// ensureImages returns the images that a container is created from. It reports false while one of
// them is not present. Other containers do not wait for them.
func (p *Pod) ensureImages(container *v1.Container, env *Env) (criconfig.Images, bool) {
	if _, known := p.pullSecrets(env); !known {
		return criconfig.Images{}, false
	}
	required := p.requiredImages(container, env)
	p.releaseImagesWhere(env, func(n *PendingImage) bool {
		isSame := func(r requiredImage) bool { return r.volume == n.Volume && r.Name() == n.Image }
		return n.Container == container.Name && !slices.ContainsFunc(required, isSame)
	})
	if p.PendingImage(container.Name) == nil {
		p.recordMissingPullSecrets(env)
	}
	present := criconfig.Images{Volumes: map[string]criconfig.Image{}}
	missing := false
	for _, needed := range required {
		result := p.ensureImage(container, needed, env)
		if result.ID == "" {
			env.Enqueue(image.Key(needed.Name()))
			missing = true
		}
		found := criconfig.Image{ID: result.ID, User: result.User}
		if needed.volume == "" {
			present.Container = found
		} else {
			present.Volumes[needed.volume] = found
		}
	}
	if missing {
		return criconfig.Images{}, false
	}
	p.releaseImagesWhere(env, func(n *PendingImage) bool { return n.Container == container.Name })
	return present, true
}

// ensureImage requests an image that a container needs. The user of the image matters if the spec
// does not set runAsUser.
func (p *Pod) ensureImage(container *v1.Container, required requiredImage, env *Env) image.Result {
	i := slices.IndexFunc(p.PendingImages, func(n PendingImage) bool {
		return n.Container == container.Name && n.Volume == required.volume
	})
	if i < 0 {
		i = len(p.PendingImages)
		p.PendingImages = append(p.PendingImages, PendingImage{Container: container.Name,
			Volume: required.volume, Image: required.Name(), Since: env.Effects.Now()})
	}
	pending, ensure := &p.PendingImages[i], env.Images.Require
	security := criconfig.EffectiveSecurityContext(&p.Spec.Spec, container)
	if required.volume == "" && security.RunAsUser == nil {
		ensure = env.Images.RequireWithUser
	}
	result := ensure(p.UID, required.Request, required.policy, pending.Since)
	p.recordImageEvents(pending, required.Ref, &result, env)
	pending.countRequest(required.policy, result.Decision, env)
	pending.Problem = result.Problem
	return result
}

// countRequest counts the request for the image by its decision. A request that has led to a pull
// counts once: the retries of the pull are no requests of their own.
func (n *PendingImage) countRequest(policy v1.PullPolicy, decision image.Decision, env *Env) {
	leadsToPull := n.Decision == image.Missing || n.Decision == image.AlwaysPulled
	if decision == "" || decision == n.Decision || leadsToPull {
		return
	}
	n.Decision = decision
	if env.CountImageRequest != nil {
		env.CountImageRequest(policy, decision)
	}
}

// PendingImage returns an image that a container waits for, preferably one with a problem; nil if
// the container waits for none.
func (p *Pod) PendingImage(name string) *PendingImage {
	var first *PendingImage
	for i := range p.PendingImages {
		n := &p.PendingImages[i]
		if n.Container == name && (first == nil || first.Problem == nil) {
			first = n
		}
	}
	return first
}

// releaseImagesWhere stops waiting for the selected images.
func (p *Pod) releaseImagesWhere(env *Env, selected func(*PendingImage) bool) {
	for i := 0; i < len(p.PendingImages); i++ {
		if !selected(&p.PendingImages[i]) {
			continue
		}
		name := p.PendingImages[i].Image
		p.PendingImages = slices.Delete(p.PendingImages, i, i+1)
		i--
		if !slices.ContainsFunc(p.PendingImages, func(n PendingImage) bool { return n.Image == name }) {
			env.Images.Release(p.UID, name)
		}
	}
}

// releaseUnreferencedImages stops waiting for the images of containers that the spec no longer has.
func (p *Pod) releaseUnreferencedImages(env *Env) {
	p.releaseImagesWhere(env, func(n *PendingImage) bool {
		return p.specContainer(n.Container) == nil
	})
}

// releaseAllImages stops waiting for all images.
func (p *Pod) releaseAllImages(env *Env) {
	p.releaseImagesWhere(env, func(*PendingImage) bool { return true })
}

// callVerifyImage is the operation of a Problem that follows from a container's image.
const callVerifyImage = "VerifyImage"

// failsNonRootCheck reports whether the spec demands runAsNonRoot and the image would run as root,
// or might, and records that as a failure. The check is retried, because another image may get the
// same name.
func (p *Pod) failsNonRootCheck(container *v1.Container, user image.User, env *Env) bool {
	failure := p.criPod(env).CheckImageUser(container, user)
	if failure == nil {
		return false
	}
	err := world.Errorf(world.KindInvalid, callVerifyImage, "%s", failure.Error())
	p.recordFailureEvent(p.noteFailure(container.Name, callVerifyImage, err, env.Effects.Now()), env)
	return true
}

package pod

import (
	"slices"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/core/budget"
	"seedlet.dev/core/criconfig"
	"seedlet.dev/core/image"
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

// requiredImages returns the images that a container needs, the one that it runs first, and an
// error if the credentials for one of them are more than it may have.
func (p *Pod) requiredImages(container *v1.Container, secrets *pullSecrets,
	env *Env) ([]requiredImage, error) {
	all := []requiredImage{{policy: container.ImagePullPolicy,
		Request: image.Request{Ref: container.Image}}}
	for i := range container.VolumeMounts {
		v := p.specVolume(container.VolumeMounts[i].Name)
		if v == nil || v.Image == nil {
			continue
		}
		isSame := func(r requiredImage) bool { return r.volume == v.Name }
		if !slices.ContainsFunc(all, isSame) { // a volume may be mounted twice
			all = append(all, requiredImage{v.Name, image.Request{Ref: v.Image.Reference},
				v.Image.PullPolicy})
		}
	}
	for i := range all {
		var err error
		if all[i].Credentials, err = secrets.credentials(all[i].Ref); err != nil {
			return nil, err
		}
		if all[i].Credentials.Problem == "" { // else no plugin is asked, as by a kubelet
			all[i].Account = p.pullAccount(all[i].Ref, env)
		}
	}
	return all, nil
}

// pullAccount returns the service account of the pod if a plugin for an image gets a token of it
// (KEP-4412). A static pod has none.
func (p *Pod) pullAccount(ref string, env *Env) image.Account {
	name := p.Spec.Spec.ServiceAccountName
	if name == "" || p.IsStatic() || env.Objects == nil || len(ref) > budget.ImageReferenceMax {
		return image.Account{}
	}
	use := env.Images.Node.AccountUse(ref)
	account := image.Account{Namespace: p.Namespace, Name: name, Pod: p.Name}
	switch {
	case !use.Any:
		return image.Account{}
	case use.PerPod:
		account.OnlyFor = p.UID
	}
	return account
}

// ensureImages returns the images that a container is created from. It reports false while one of
// them is not present. Other containers do not wait for them.
func (p *Pod) ensureImages(container *v1.Container, env *Env) (criconfig.Images, bool) {
	secrets, known := p.pullSecrets(env)
	if !known {
		return criconfig.Images{}, false
	}
	required, err := p.requiredImages(container, secrets, env)
	if err != nil {
		return criconfig.Images{}, false // recordMisconfiguration has reported it
	}
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
	return present, true
}

// noteImageUses notes the images that a container uses, so that none of them counts as unused for
// long when the container is soon removed.
func noteImageUses(images criconfig.Images, env *Env) {
	if env.NoteImageUse == nil {
		return
	}
	env.NoteImageUse(images.Container.ID)
	for _, volume := range images.Volumes { //ordered: each image alone
		env.NoteImageUse(volume.ID)
	}
}

// releaseImages stops waiting for the images of a container. It is called when the container is
// created or the attempt has failed: before that, a plan that finds the images again does not ask
// for another pull.
func (p *Pod) releaseImages(container string, env *Env) {
	p.releaseImagesWhere(env, func(n *PendingImage) bool { return n.Container == container })
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
	if len(required.Ref) > budget.ImageReferenceMax && pending.Problem == nil {
		p.countRefusal(budget.ImageReference.Name(), env)
	}
	result := image.Result{Decision: image.Undecidable, Problem: pending.Problem}
	if pending.Problem == nil || pending.Problem.Reason != image.ErrInvalidImageName {
		result = ensure(p.UID, required.Request, required.policy, pending.Since)
	}
	p.recordImageEvents(pending, required.Ref, &result, env)
	pending.countRequest(required.policy, &result, env)
	pending.Problem = result.Problem
	return result
}

// countRequest counts the request for the image by its decision. A request that has led to a pull
// counts once: the retries of the pull are no requests of their own.
func (n *PendingImage) countRequest(policy v1.PullPolicy, result *image.Result, env *Env) {
	leadsToPull := n.Decision == image.Missing || n.Decision == image.AlwaysPulled ||
		n.Decision == image.NotAccessible
	if result.Decision == "" || result.Decision == n.Decision || leadsToPull {
		return
	}
	n.Decision = result.Decision
	if env.CountImageRequest != nil {
		env.CountImageRequest(policy, result)
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

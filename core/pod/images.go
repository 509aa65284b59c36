package pod

import (
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/core/image"
	"seedlet.dev/core/keyring"
	"seedlet.dev/core/object"
	"seedlet.dev/world"
)

// The images that a container is made from: the one that it runs, and those that it mounts
// (KEP-4639). Each is pulled, looked for and waited for by itself; once all are there, the
// container is made, and its needs are forgotten.

// images are what a container is made from.
type images []foundImage

// foundImage is an image that is there; the one that the container runs has no volume.
type foundImage struct {
	volume string
	image.Answer
}

// of is the image of a volume, or with no name the one that the container runs.
func (all images) of(volume string) image.Answer {
	for i := range all {
		if all[i].volume == volume {
			return all[i].Answer
		}
	}
	return image.Answer{}
}

// wantedImage is one image that a container is made from.
type wantedImage struct {
	volume string
	image.Wanted
	policy v1.PullPolicy
}

// imagesOf are the images that a container is made from, the one that it runs first.
func (p *Pod) imagesOf(want *v1.Container, env *Env) []wantedImage {
	all := []wantedImage{{policy: want.ImagePullPolicy,
		Wanted: image.Wanted{Ref: want.Image, With: p.credentials(want.Image, env)}}}
	for i := range want.VolumeMounts {
		v := p.volume(want.VolumeMounts[i].Name)
		if v == nil || v.Image == nil {
			continue
		}
		same := func(w wantedImage) bool { return w.volume == v.Name }
		if !slices.ContainsFunc(all, same) { // it may be mounted twice
			ref := v.Image.Reference
			all = append(all, wantedImage{v.Name, image.Wanted{Ref: ref,
				With: p.credentials(ref, env)}, v.Image.PullPolicy})
		}
	}
	return all
}

// pullSecrets are the image pull secrets of the pod that there are. Those that there are not are
// left out, as the image may be had without. It is not known while one is being asked for.
func (p *Pod) pullSecrets(env *Env) (secrets []*v1.Secret, known bool) {
	for _, ref := range p.Spec.Spec.ImagePullSecrets {
		if ref.Name == "" || env.Objects == nil {
			continue
		}
		switch found := env.Objects.Find(world.ResourceSecrets, p.Namespace, ref.Name); {
		case found.Object != nil:
			secrets = append(secrets, found.Object.Secret)
		case !found.Known && found.Err == nil:
			return nil, false
		}
	}
	return secrets, true
}

// credentials are those that the pod has for an image. They are named after the secrets and their
// versions.
func (p *Pod) credentials(ref string, env *Env) image.Credentials {
	secrets, _ := p.pullSecrets(env)
	tries := keyring.Find(secrets, ref)
	if len(tries) == 0 {
		return image.Credentials{}
	}
	var names []string
	for _, s := range secrets {
		names = append(names, s.Namespace+"/"+s.Name+"@"+object.Version(&world.Object{Secret: s}))
	}
	return image.Credentials{Name: strings.Join(names, " "), Tries: tries}
}

// images returns what a container is made from; nil while one of them is not there. Nobody else
// waits for it.
func (p *Pod) images(want *v1.Container, env *Env) images {
	if _, known := p.pullSecrets(env); !known {
		return nil
	}
	wanted := p.imagesOf(want, env)
	p.release(env, func(n *Need) bool {
		same := func(w wantedImage) bool { return w.volume == n.Volume && w.Name() == n.Image }
		return n.Container == want.Name && !slices.ContainsFunc(wanted, same)
	})
	if p.need(want.Name) == nil {
		p.tellSecrets(env)
	}
	all, missing := make(images, 0, len(wanted)), false
	for _, w := range wanted {
		answer := p.askImage(want, w, env)
		if answer.ID == "" {
			env.Touch(image.Key(w.Name()))
			missing = true
		}
		all = append(all, foundImage{w.volume, answer})
	}
	if missing {
		return nil
	}
	p.release(env, func(n *Need) bool { return n.Container == want.Name })
	return all
}

// askImage asks for one image that a container is made from. Whom the image runs as matters if the
// spec does not say it.
func (p *Pod) askImage(want *v1.Container, w wantedImage, env *Env) image.Answer {
	same := func(n Need) bool { return n.Container == want.Name && n.Volume == w.volume }
	i := slices.IndexFunc(p.Needs, same)
	if i < 0 {
		i = len(p.Needs)
		p.Needs = append(p.Needs, Need{Container: want.Name, Volume: w.volume, Image: w.Name(),
			Since: env.Out.Now()})
	}
	need, ask := &p.Needs[i], env.Images.Need
	if w.volume == "" && effective(&p.Spec.Spec, want).RunAsUser == nil {
		ask = env.Images.NeedUser
	}
	answer := ask(p.UID, w.Wanted, w.policy, need.Since)
	p.tellImage(need, w.Ref, &answer, env)
	need.Problem = answer.Problem
	return answer
}

// need is an image that a container waits for, one with a problem if there is any; nil if it waits
// for none.
func (p *Pod) need(name string) *Need {
	var first *Need
	for i := range p.Needs {
		n := &p.Needs[i]
		if n.Container == name && (first == nil || first.Problem == nil) {
			first = n
		}
	}
	return first
}

// release stops waiting for some of the images.
func (p *Pod) release(env *Env, which func(*Need) bool) {
	for i := 0; i < len(p.Needs); i++ {
		if !which(&p.Needs[i]) {
			continue
		}
		name := p.Needs[i].Image
		p.Needs = slices.Delete(p.Needs, i, i+1)
		i--
		if !slices.ContainsFunc(p.Needs, func(n Need) bool { return n.Image == name }) {
			env.Images.Release(p.UID, name)
		}
	}
}

// releaseUnwanted stops waiting for images of containers that the spec no longer has.
func (p *Pod) releaseUnwanted(env *Env) {
	p.release(env, func(n *Need) bool { return p.want(n.Container) == nil })
}

// releaseImages stops waiting for images.
func (p *Pod) releaseImages(env *Env) {
	p.release(env, func(*Need) bool { return true })
}

// callVerify stands, in problems, for what follows from the image of a container.
const callVerify = "VerifyImage"

// rootByImage reports whether a container must not run as root and its image would have it, or
// may. Another image may come by the same name, so that is tried again.
func (p *Pod) rootByImage(want *v1.Container, from images, env *Env) bool {
	e := effective(&p.Spec.Spec, want)
	user := from.of("").User
	why := ""
	switch {
	case !isTrue(e.RunAsNonRoot) || e.RunAsUser != nil || user.UID != nil && *user.UID != 0:
		return false
	case user.UID == nil && user.Name != "":
		why = fmt.Sprintf("image has non-numeric user (%s), cannot verify user is non-root",
			user.Name)
	default:
		why = "image will run as root"
	}
	err := world.Errorf(world.KindInvalid, callVerify,
		"container has runAsNonRoot and %s (pod: %q, container: %s)", why, p.logged(), want.Name)
	p.tellFailure(p.failed(want.Name, callVerify, err, env.Out.Now()), env)
	return true
}

// logged is how the kubelet names a pod in its messages.
func (p *Pod) logged() string { return fmt.Sprintf("%s_%s(%s)", p.Name, p.Namespace, p.UID) }

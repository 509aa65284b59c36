package pod

import (
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"seedlet.dev/core/image"
	"seedlet.dev/world"
)

// What users are told of a pod, as Event objects: with the kubelet's reasons, for programs know
// them, and its sentences, for people look for them. An event is told where an operation is asked
// for or answered, or else goes with a fact that says that it was told.

const (
	normal  = v1.EventTypeNormal
	warning = v1.EventTypeWarning
)

// The reasons of events that are told in more than one place.
const (
	reasonFailed  = "Failed"
	reasonBackOff = "BackOff"
	reasonPulled  = "Pulled"
	reasonSandbox = "FailedCreatePodSandBox"
)

// Reference is a pod, as events name it. A static pod goes by the UID of its manifest, for which
// whoever shows its mirror looks.
func Reference(pod *v1.Pod) v1.ObjectReference {
	return v1.ObjectReference{Kind: "Pod", APIVersion: "v1", Namespace: pod.Namespace,
		Name: pod.Name, UID: pod.UID, ResourceVersion: pod.ResourceVersion}
}

// reference is the pod, or one of its containers.
func (p *Pod) reference(container string) v1.ObjectReference {
	is := &v1.Pod{}
	if p.Spec != nil {
		is = p.Spec
	}
	ref := Reference(is)
	ref.Namespace, ref.Name, ref.UID = p.Namespace, p.Name, types.UID(p.UID)
	if container != "" {
		ref.FieldPath = p.fieldPath(container)
	}
	return ref
}

// fieldPath is where a container is in the pod. One that the spec does not have is not there.
func (p *Pod) fieldPath(container string) string {
	if p.want(container) == nil {
		return "implicitly required container " + container
	}
	list := "containers"
	switch p.role(container) {
	case Init, Sidecar:
		list = "initContainers"
	case Ephemeral:
		list = "ephemeralContainers"
	}
	return "spec." + list + "{" + container + "}"
}

// event tells of something that has happened to the pod, or to a container of it.
func (p *Pod) event(env *Env, container, kind, reason, format string, args ...any) {
	env.Out.Event(p.reference(container), kind, reason, format, args...)
}

func (p *Pod) tell(env *Env, all ...telling) {
	for _, t := range all {
		p.event(env, t.container, t.kind, t.reason, "%s", t.message)
	}
}

// tellSandbox tells that a sandbox is asked for: that the one there was is no good any more, unless
// that was told before, and what is left out of the resolver's configuration.
func (p *Pod) tellSandbox(env *Env) {
	if p.current() != nil && p.problem("") == nil {
		p.event(env, "", normal, "SandboxChanged",
			"Pod sandbox changed, it will be killed and re-created.")
	}
	if _, left := p.dnsConfig(env.Node); left.reason != "" {
		p.event(env, "", warning, left.reason, "%s", left.message)
	}
}

// tellFailure tells that something that the pod needs could not be made.
func (p *Pod) tellFailure(pr *Problem, env *Env) {
	switch {
	case pr.Container != "":
		p.event(env, pr.Container, warning, reasonFailed, "Error: %s", pr.Message)
	case pr.Call == "RunPodSandbox":
		p.event(env, "", warning, reasonSandbox, "Failed to create pod sandbox: %s", pr.Message)
	case pr.Call == "SetCgroup":
		p.event(env, "", warning, pr.Reason, "%s", pr.Message)
	case pr.Call == "MakeDir":
		p.event(env, "", warning, reasonFailed, "error making pod data directories: %s",
			pr.Message)
	default: // nothing that was to run: what is left of the pod is removed later
		env.Out.Log(world.LevelWarning, "operation failed", "pod", p.FullName(), "call", pr.Call,
			"error", pr.Message, "failures", pr.Failures)
	}
}

// tellBackOff tells that a container has exited that is run again only after a while. How it ended
// is learnt once.
func (p *Pod) tellBackOff(c *Container, env *Env) {
	if p.backsOff(c, env.Out.Now()) {
		p.tell(env, p.backOff(c))
	}
}

// tellImage tells what has become of an image that a container waits for, as far as it was not
// told yet.
func (p *Pod) tellImage(n *Need, ref string, is *image.Answer, env *Env) {
	pull := &is.Pull
	if began := pull.Began; !began.Before(n.Since) && !n.Pulling.Equal(began) {
		n.Pulling = began
		p.event(env, n.Container, normal, "Pulling", "Pulling image %q", ref)
	}
	switch {
	case is.ID == "" && is.Problem != nil:
		if n.Problem == nil || *n.Problem != *is.Problem {
			p.tell(env, noImage(n.Container, ref, is.Problem)...)
		}
	case is.ID == "" || n.There:
	case !n.Pulling.IsZero() && !pull.Ended.IsZero():
		size := ""
		if is.Bytes > 0 {
			size = fmt.Sprintf(" Image size: %d bytes.", is.Bytes)
		}
		p.event(env, n.Container, normal, reasonPulled, "Successfully pulled image %q in %v "+
			"(%v including waiting).%s", ref, pull.Took(),
			pull.Ended.Sub(n.Since).Truncate(image.Precision), size)
	default:
		p.event(env, n.Container, normal, reasonPulled, "Container image %q already present on "+
			"machine and can be accessed by the pod", ref)
	}
	n.There = is.ID != ""
}

// tellSecrets tells which pull secrets there are not.
func (p *Pod) tellSecrets(env *Env) {
	var missing []string
	for _, ref := range p.Spec.Spec.ImagePullSecrets {
		if ref.Name == "" || env.Objects == nil {
			continue
		}
		if env.Objects.Find(world.ResourceSecrets, p.Namespace, ref.Name).Object == nil {
			missing = append(missing, ref.Name)
		}
	}
	if len(missing) > 0 {
		p.event(env, "", warning, "FailedToRetrieveImagePullSecret", "Unable to retrieve some "+
			"image pull secrets (%s); attempting to pull the image may not succeed.",
			strings.Join(missing, ", "))
	}
}

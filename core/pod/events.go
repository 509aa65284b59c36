package pod

import (
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"seedlet.dev/core/image"
	nodeobject "seedlet.dev/core/node"
	"seedlet.dev/world"
)

// The Events of a pod. They have the kubelet's reasons, because programs depend on them, and the
// kubelet's messages, because people search for them. An event is recorded where an operation is
// issued or completed; any other event goes with a fact that says that it was recorded.

const (
	normal  = v1.EventTypeNormal
	warning = v1.EventTypeWarning
)

// The reasons of events that are recorded in more than one place.
const (
	reasonFailed              = "Failed"
	reasonBackOff             = "BackOff"
	reasonPulled              = "Pulled"
	reasonFailedCreateSandbox = "FailedCreatePodSandBox"
)

// ObjectReference returns a pod as the object that events are about. The UID of a static pod is
// that of its manifest, by which clients find the events of its mirror pod.
func ObjectReference(pod *v1.Pod) v1.ObjectReference {
	return v1.ObjectReference{Kind: "Pod", APIVersion: "v1", Namespace: pod.Namespace,
		Name: pod.Name, UID: pod.UID, ResourceVersion: pod.ResourceVersion}
}

// objectReference returns the pod, or one of its containers, as the object that events are about.
func (p *Pod) objectReference(container string) v1.ObjectReference {
	pod := &v1.Pod{}
	if p.Spec != nil {
		pod = p.Spec
	}
	ref := ObjectReference(pod)
	ref.Namespace, ref.Name, ref.UID = p.Namespace, p.Name, types.UID(p.UID)
	if container != "" {
		ref.FieldPath = p.fieldPath(container)
	}
	return ref
}

// fieldPath returns the path of a container in the pod. A container that the spec does not have
// gets the kubelet's text for that case.
func (p *Pod) fieldPath(container string) string {
	if p.specContainer(container) == nil {
		return "implicitly required container " + container
	}
	list := "containers"
	switch p.roleOf(container) {
	case Init, Sidecar:
		list = "initContainers"
	case Ephemeral:
		list = "ephemeralContainers"
	}
	return "spec." + list + "{" + container + "}"
}

// recordEvent records an event about the pod, or about one of its containers.
func (p *Pod) recordEvent(env *Env, container, kind, reason, format string, args ...any) {
	env.Effects.RecordEvent(p.objectReference(container), kind, reason, format, args...)
}

func (p *Pod) recordEvents(env *Env, events ...podEvent) {
	for _, e := range events {
		p.recordEvent(env, e.container, e.kind, e.reason, "%s", e.message)
	}
}

// recordSandboxEvents records the events that go with the creation of a sandbox: that the old
// sandbox is replaced, unless a failed creation has recorded that before, and what the resolver
// configuration omits.
func (p *Pod) recordSandboxEvents(env *Env) {
	if p.CurrentSandbox() != nil && p.ProblemOf("") == nil {
		p.recordEvent(env, "", normal, "SandboxChanged",
			"Pod sandbox changed, it will be killed and re-created.")
	}
	cri := p.criPod(env)
	if missing := cri.MissingClusterDNS(); missing != "" {
		env.Effects.RecordEvent(nodeobject.Reference(env.Node.Name), warning, "MissingClusterDNS", "%s",
			missing)
	}
	for _, w := range cri.DNSWarnings() {
		p.recordEvent(env, "", warning, w.Reason, "%s", w.Message)
	}
}

// recordFailureEvent records that an operation which the pod needs has failed.
func (p *Pod) recordFailureEvent(problem *Problem, env *Env) {
	switch {
	case problem.Container != "":
		p.recordEvent(env, problem.Container, warning, reasonFailed, "Error: %s", problem.Message)
	case problem.Call == "RunPodSandbox":
		p.recordEvent(env, "", warning, reasonFailedCreateSandbox,
			"Failed to create pod sandbox: %s", problem.Message)
	case problem.Call == "SetCgroup":
		p.recordEvent(env, "", warning, problem.Reason, "%s", problem.Message)
	case problem.Call == "MakeDir":
		p.recordEvent(env, "", warning, reasonFailed, "error making pod data directories: %s",
			problem.Message)
	default: // a removal, which no container waits for and which is retried
		env.Effects.Log(world.LevelWarning, "operation failed", "pod", p.FullName(), "call", problem.Call,
			"err", problem.Message, "failures", problem.Failures)
	}
}

// recordBackoffEvent records that a container has exited whose restart has to wait for its
// back-off. It is called once for each container, when its exit becomes known.
func (p *Pod) recordBackoffEvent(c *Container, env *Env) {
	if p.isInRestartBackoff(c, env.Effects.Now()) {
		p.recordEvents(env, p.restartBackoffEvent(c))
	}
}

// recordImageEvents records the events about an image that a container waits for, as far as they
// were not recorded yet.
func (p *Pod) recordImageEvents(pending *PendingImage, ref string, result *image.Result, env *Env) {
	pull := &result.Pull
	if started := pull.Started; !started.Before(pending.Since) &&
		!pending.PullReported.Equal(started) {
		pending.PullReported = started
		p.recordEvent(env, pending.Container, normal, "Pulling", "Pulling image %q", ref)
	}
	switch {
	case result.ID == "" && result.Problem != nil:
		if pending.Problem == nil || *pending.Problem != *result.Problem {
			p.recordEvents(env, imageFailureEvents(pending.Container, ref, result.Problem)...)
		}
	case result.ID == "" || pending.PresenceReported:
	case !pending.PullReported.IsZero() && !pull.Finished.IsZero():
		size := ""
		if result.Bytes > 0 {
			size = fmt.Sprintf(" Image size: %d bytes.", result.Bytes)
		}
		p.recordEvent(env, pending.Container, normal, reasonPulled, "Successfully pulled image %q in %v "+
			"(%v including waiting).%s", ref, pull.Duration(),
			pull.Finished.Sub(pending.Since).Truncate(image.Precision), size)
	default:
		p.recordEvent(env, pending.Container, normal, reasonPulled, "Container image %q already "+
			"present on machine and can be accessed by the pod", ref)
	}
	pending.PresenceReported = result.ID != ""
}

// recordMissingPullSecrets records which image pull secrets do not exist.
func (p *Pod) recordMissingPullSecrets(env *Env) {
	var names []string
	for _, name := range p.pullSecretNames() {
		if env.Objects != nil &&
			env.Objects.Lookup(world.ResourceSecrets, p.Namespace, name).Object == nil {
			names = append(names, name)
		}
	}
	if len(names) > 0 {
		p.recordEvent(env, "", warning, "FailedToRetrieveImagePullSecret", "Unable to retrieve some "+
			"image pull secrets (%s); attempting to pull the image may not succeed.",
			strings.Join(names, ", "))
	}
}

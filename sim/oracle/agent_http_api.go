package oracle

import (
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"seedlet.dev/sim/truth"
	api "seedlet.dev/world"
)

// httpAPI fires when a response of the agent's HTTP API is about another pod or container than
// the request, misses one that exists, or does not come. A request by name must never reach
// another pod that has the name (logs, exec).
type httpAPI struct{}

func (*httpAPI) describe() Entry {
	return Entry{"http-api", "A request for a container is answered in the step that handles " +
		"it, about the pod that has the name now or the UID of the request, with its newest " +
		"run; the containers that run are listed as running, and no others."}
}

// identities is what requests can name, and the owner of each ID.
type identities struct {
	sandboxes, containers map[string]idOwner // by ID, also after their removal
	names                 map[podName]bool   // of all pods so far
	mirrors               map[string]mirrorPod
}

type idOwner struct{ uid, fullName, container string }

// podName is a full name that the pod of a UID has, or had.
type podName struct{ uid, fullName string }

// mirrorPod is the full name of a mirror pod, with the UID of its static pod.
type mirrorPod struct {
	podName
	createdAt time.Time
	isGone    bool
}

func newIdentities() identities {
	return identities{sandboxes: map[string]idOwner{}, containers: map[string]idOwner{},
		names: map[podName]bool{}, mirrors: map[string]mirrorPod{}}
}

// apply records the names and IDs of a fact.
func (c *identities) apply(f *truth.Fact) {
	full := f.PodNamespace + "/" + f.PodName
	switch f.Kind {
	case truth.SandboxCreated:
		c.sandboxes[f.SandboxID] = idOwner{f.PodUID, full, ""}
	case truth.ContainerCreated:
		c.containers[f.ContainerID] = idOwner{f.PodUID, full, f.Container}
	case truth.ObjectCreated:
		if o := f.Write.After.Pod; o != nil && isMirror(o) {
			c.mirrors[string(o.UID)] = mirrorPod{podName{mirroredUID(o), o.Namespace + "/" + o.Name},
				f.Time, false}
		}
	case truth.ObjectUpdated, truth.ObjectDeleted:
		if o := f.Write.Before.Pod; o != nil && isMirror(o) {
			mirrored := c.mirrors[string(o.UID)]
			mirrored.isGone = mirrored.isGone || f.Kind == truth.ObjectDeleted ||
				mirroredUID(f.Write.After.Pod) != mirrored.uid
			c.mirrors[string(o.UID)] = mirrored
		}
	}
}

// resolveUID returns the UID of the pod that a request is about: of the static pod, if the
// request has the UID of its mirror. Empty if the request has none.
func (c *identities) resolveUID(r *api.ContainerRequest) string {
	if mirrored, ok := c.mirrors[r.UID]; ok && mirrored.fullName == r.Namespace+"/"+r.Pod {
		return mirrored.uid
	}
	return r.UID
}

// CheckContainerAnswer reports that a client has requested a container, the agent's answer, and the
// pods that the agent served at the same instant.
func (s *Set) CheckContainerAnswer(now time.Time, r *api.ContainerRequest, a *api.ContainerAnswer,
	served []*v1.Pod) {
	m := s.model
	var named []*v1.Pod // the served pods of the requested name
	for _, pod := range served {
		if pod.Namespace == r.Namespace && pod.Name == r.Pod {
			named = append(named, pod)
		}
	}
	problem := ""
	if a.Err != nil {
		problem = m.wrongNotFound(now, r, a, named)
	} else {
		for _, check := range []func(time.Time, *api.ContainerRequest, *api.ContainerAnswer,
			[]*v1.Pod) string{m.wrongPod, m.wrongRuntimeID, m.inconsistentAnswer, m.outdatedRun} {
			if problem == "" {
				problem = check(now, r, a, named)
			}
		}
	}
	if problem != "" {
		s.report(&httpAPI{}, findingf(
			"requested container %q of pod %s/%s (uid %q): the agent %s", r.Container, r.Namespace,
			r.Pod, r.UID, problem), now)
	}
}

// RequestUnanswered reports that the agent has not answered a request in the step that handled it,
// although the agent was running.
func (s *Set) RequestUnanswered(now time.Time, request string) {
	s.report(&httpAPI{}, &finding{message: request + " is not answered"}, now)
}

// wrongNotFound returns what is wrong with the answer that the pod or container does not exist.
func (m *model) wrongNotFound(now time.Time, r *api.ContainerRequest, a *api.ContainerAnswer,
	named []*v1.Pod) string {
	if a.Err.Kind != api.KindNotFound {
		return "answers " + a.Err.Error()
	}
	uid := m.identities.resolveUID(r)
	mirrored := m.identities.mirrors[r.UID]
	if uid != r.UID && (mirrored.isGone || !m.mustKnowSources(mirrored.createdAt, now)) {
		return "" // the agent may not know the mirror pod
	}
	for _, pod := range named {
		if (uid == "" || uid == string(pod.UID)) && hasContainer(pod, r.Container) {
			return fmt.Sprintf("answers %q, but serves it with uid %s", a.Err.Message, pod.UID)
		}
	}
	for _, p := range m.podsInOrder {
		if p.spec != nil && p.fullName.name == r.Namespace+"/"+r.Pod && (uid == "" || uid == p.uid) &&
			hasContainer(p.spec, r.Container) && m.mustKnowSources(p.desiredAt, now) {
			return fmt.Sprintf("answers %q, but %s has been desired since %v", a.Err.Message, p, p.desiredAt)
		}
	}
	return ""
}

// hasContainer reports whether a pod has the container of a request that names one.
func hasContainer(pod *v1.Pod, container string) bool {
	return container == "" || containerOf(pod, container) != nil
}

// mustKnowSources reports whether the agent must know what sources have desired since some time.
func (m *model) mustKnowSources(since, now time.Time) bool {
	since = later(since, m.agentStartedAt)
	return now.Sub(since) > manifestReadBound && !m.anyFaultPossible(since, now, "ReadFiles",
		"FileChanged", "FetchManifest", "WatchObjects", "ObjectChanged")
}

// wrongPod reports that an answer is about another pod than the request.
func (m *model) wrongPod(now time.Time, r *api.ContainerRequest, a *api.ContainerAnswer,
	served []*v1.Pod) string {
	full := r.Namespace + "/" + r.Pod
	if !m.identities.names[podName{a.UID, full}] {
		return fmt.Sprintf("answers with uid %q, which has never had that name", a.UID)
	}
	if uid := m.identities.resolveUID(r); uid != "" {
		if uid != a.UID {
			return "answers with uid " + a.UID
		}
		return ""
	}
	answered := m.pods[a.UID]
	for _, pod := range served {
		if pod.DeletionTimestamp == nil && string(pod.UID) != a.UID && isTerminating(served, a.UID) {
			return fmt.Sprintf("answers with uid %s, which is terminating, but serves one with uid %s",
				a.UID, pod.UID)
		}
	}
	if answered.spec != nil && answered.fullName.name == full ||
		!m.mustKnowSources(answered.removedAt, now) {
		return ""
	}
	for _, p := range m.podsInOrder {
		if p.spec != nil && p.fullName.name == full && m.mustKnowSources(p.firstDesiredAt, now) {
			return fmt.Sprintf("answers with uid %s, which is no longer desired, but uid %s is",
				a.UID, p.uid)
		}
	}
	return ""
}

// isTerminating reports whether a pod is served as terminating.
func isTerminating(served []*v1.Pod, uid string) bool {
	return slices.ContainsFunc(served, func(p *v1.Pod) bool {
		return string(p.UID) == uid && p.DeletionTimestamp != nil
	})
}

// wrongRuntimeID reports that the sandbox or container of an answer is another pod's or
// container's.
func (m *model) wrongRuntimeID(_ time.Time, r *api.ContainerRequest, a *api.ContainerAnswer,
	_ []*v1.Pod) string {
	full := r.Namespace + "/" + r.Pod
	if sandbox := m.identities.sandboxes[a.SandboxID]; a.SandboxID != "" &&
		sandbox != (idOwner{a.UID, full, ""}) {
		return fmt.Sprintf("answers with sandbox %.12s, which is of pod %s (uid %s)", a.SandboxID,
			sandbox.fullName, sandbox.uid)
	}
	if container := m.identities.containers[a.ContainerID]; a.ContainerID != "" &&
		container != (idOwner{a.UID, full, r.Container}) {
		return fmt.Sprintf("answers with container %.12s, which is %s of pod %s (uid %s)",
			a.ContainerID, container.container, container.fullName, container.uid)
	}
	return ""
}

// inconsistentAnswer reports that an answer contradicts itself, or what is served of the pod at
// the same instant.
func (m *model) inconsistentAnswer(_ time.Time, r *api.ContainerRequest, a *api.ContainerAnswer,
	served []*v1.Pod) string {
	if a.Status != nil && a.Status.Name != r.Container {
		return "answers with the status of container " + a.Status.Name
	}
	if a.Status != nil && a.Status.ContainerID != "" && !m.lacksRemovedContainer(a) &&
		!strings.HasSuffix(a.Status.ContainerID, "://"+a.ContainerID) {
		return fmt.Sprintf("answers with container %.12s, but the status has %.23s", a.ContainerID,
			a.Status.ContainerID)
	}
	for _, pod := range served {
		if string(pod.UID) != a.UID {
			continue
		}
		if string(pod.Status.Phase) != a.Phase {
			return fmt.Sprintf("answers with phase %s, but serves %s", a.Phase, pod.Status.Phase)
		}
		var status *v1.ContainerStatus
		for _, list := range append([][]v1.ContainerStatus{pod.Status.EphemeralContainerStatuses},
			pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
			for i := range list {
				if list[i].Name == r.Container {
					status = &list[i]
				}
			}
		}
		if !equality.Semantic.DeepEqual(status, a.Status) {
			return "answers with another container status than it serves"
		}
	}
	return ""
}

// lacksRemovedContainer reports that an answer has no container because the one in the status,
// which comes from the API server, was removed from the runtime.
func (m *model) lacksRemovedContainer(a *api.ContainerAnswer) bool {
	_, id, _ := strings.Cut(a.Status.ContainerID, "://")
	_, exists := m.containers[id]
	return a.ContainerID == "" && a.Status.State.Terminated != nil && !exists
}

// outdatedRun reports that an answer does not have the newest run of a container, although that
// run has been running for long enough.
func (m *model) outdatedRun(now time.Time, r *api.ContainerRequest, a *api.ContainerAnswer,
	_ []*v1.Pod) string {
	p := m.pods[a.UID]
	if r.Container == "" || p.spec == nil || !m.mustHaveListed(p.changedAt, now) {
		return ""
	}
	c := p.newestRun(r.Container)
	if c == nil || c.state != running || c.wasLost || c.podFullName != r.Namespace+"/"+r.Pod ||
		c.id == a.ContainerID {
		return ""
	}
	return fmt.Sprintf("answers with container %.12q, the newest is %s, which has been running for %v",
		a.ContainerID, c, now.Sub(c.startedAt))
}

// mustHaveListed reports whether the agent must have listed what the runtime has had since some
// time.
func (m *model) mustHaveListed(since, now time.Time) bool {
	since = later(since, m.agentStartedAt)
	return now.Sub(since) > statusBound && !m.opts.EventedPLEG && !m.agentDown &&
		!m.anyFaultPossible(since, now, "ListPodSandbox", "ListContainers")
}

// CheckRunningPods reports which pods the agent served as running.
func (s *Set) CheckRunningPods(now time.Time, served []*v1.Pod) {
	if problem := s.model.runningPodsProblem(now, served); problem != "" {
		s.report(&httpAPI{}, &finding{message: "requested the running pods: the agent " + problem}, now)
	}
}

// runningPodsProblem returns what is wrong with the pods that are served as running.
func (m *model) runningPodsProblem(now time.Time, served []*v1.Pod) string {
	names := map[string]bool{} // "UID CONTAINER"
	for _, pod := range served {
		full := pod.Namespace + "/" + pod.Name
		p := m.pods[string(pod.UID)]
		if p == nil || !m.identities.names[podName{p.uid, full}] {
			return fmt.Sprintf("serves %s (uid %s), which never existed", full, pod.UID)
		}
		for i := range pod.Spec.Containers {
			name := pod.Spec.Containers[i].Name
			names[p.uid+" "+name] = true
			if m.mustHaveListed(p.changedAt, now) && p.liveRun(name) == nil {
				return fmt.Sprintf("serves container %s of pod %s, which does not run", name, p)
			}
		}
	}
	for _, p := range m.podsInOrder {
		if p.liveContainers == 0 || !m.mustHaveListed(p.changedAt, now) {
			continue
		}
		for _, c := range p.containers {
			if c.state == running && !c.wasLost && !names[p.uid+" "+c.name] {
				return fmt.Sprintf("does not serve %s", c)
			}
		}
	}
	return ""
}

package oracle

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"seedlet.dev/sim/truth"
	api "seedlet.dev/world"
)

// nothingChanges fires when an agent that takes over the node of a kubelet changes what is right
// there: it makes, starts, stops or removes a sandbox or a container of a pod, unmounts or removes
// files of it, writes a file that the kubelet has left, changes its cgroup, its status or its
// mirror, or takes back that it, or the Node, is ready.
//
// A pod is judged as long as nothing but the agent changes it: its spec, a process that exits, a
// probe that has another result. A container that was to run again, or for the first time, when the
// kubelet ended may be made; the status of its pod is not judged. Two things differ by rule: the
// back-off of a container, which a kubelet has in memory alone, and the /etc/hosts of a pod that
// has ended, which the agent removes with its volumes.
type nothingChanges struct {
	at    time.Time // when the last kubelet ended; zero: there was none, or one runs
	pods  map[string]*takenPod
	files map[string]bool // that the kubelet has left in its root directory
	node  v1.NodeCondition
	// driversChanged is set once a driver was started or has ended under the agent.
	driversChanged bool
	images         takenImages
}

// takenPod is what the kubelet has left of a pod.
type takenPod struct {
	uid        string
	sandbox    string          // its ready sandbox
	containers map[string]bool // by ID
	oldLogs    map[string]bool // the logs of the runs in old
	old        map[string]bool // runs that have ended, and another one of their container has too
	// isRight has the containers whose newest run need not be followed by another one, by name.
	isRight    map[string]bool
	isRenamed  bool          // the kubelet ran it, but the agent has another UID for it
	isRestless bool          // something was to be done when the kubelet ended
	isChanged  bool          // something but the agent has changed the pod
	status     *v1.PodStatus // at the API server
	cgroups    map[string]truth.Limits
	hasEnded   bool     // no container runs again: its volumes are to go
	shared     []string // directories of volumes that it may share
	deletion   takenDeletion
	isResizing bool // it asks for other resources than it has: the agent may give it them
	// tokens are the volumes with tokens that were written again, with the number of the agent.
	tokens map[string]int
}

func (*nothingChanges) describe() Entry {
	return Entry{"nothing-changes", "An agent that takes over the node of a kubelet changes nothing " +
		"of a pod that nothing else changes: no container, sandbox, volume, file, status or mirror; " +
		"neither the pod nor the Node is reported as not ready, and the CSINode keeps its drivers. A " +
		"pod that was deleted before ends within its grace period: nothing is started for it."}
}

// KubeletStarted reports that a kubelet has the node until KubeletEnded. It is not judged.
func (s *Set) KubeletStarted() {
	s.model.kubeletRuns = true
	s.model.incarnation++
	for _, o := range s.factOracles {
		if o, isIt := o.(*nothingChanges); isIt {
			o.at, o.pods, o.driversChanged = time.Time{}, nil, false
		}
	}
}

// KubeletEnded reports that the kubelet has ended. The agent begins with what it has left.
func (s *Set) KubeletEnded(now time.Time) {
	s.model.agentKilled(now) // as an agent that ends
	for _, o := range s.factOracles {
		if o, isIt := o.(*nothingChanges); isIt {
			o.begin(s.model, now)
		}
	}
}

// begin records what there is.
func (o *nothingChanges) begin(m *model, now time.Time) {
	o.at, o.pods = now, map[string]*takenPod{}
	for _, p := range m.podsInOrder {
		o.pods[p.uid] = m.takenPod(p, now)
	}
	if m.objects.node != nil {
		o.node = readyCondition(m.objects.node)
	}
}

func (m *model) takenPod(p *pod, now time.Time) *takenPod {
	t := &takenPod{uid: p.uid, containers: map[string]bool{}, isRight: map[string]bool{},
		old: map[string]bool{}, oldLogs: map[string]bool{}, cgroups: map[string]truth.Limits{},
		tokens: map[string]int{}}
	for _, s := range p.sandboxes {
		if s.ready {
			t.sandbox = s.id
		}
	}
	for _, c := range p.containers {
		t.containers[c.id] = true
		t.old[c.id] = slices.ContainsFunc(p.containers, func(o *container) bool {
			return o.name == c.name && o.attempt > c.attempt && o.state == exited
		})
		t.oldLogs[c.logPath] = t.old[c.id]
	}
	for dir, limits := range m.cgroups { //ordered: into a map
		if ownerOfCgroup(dir) == escapeUID(p.uid) {
			t.cgroups[dir] = limits
		}
	}
	if object := m.objects.pods[p.fullName.name]; object != nil {
		t.status = object.Status.DeepCopy()
		if string(object.UID) == p.uid {
			t.deletion.note(object, now)
			t.isResizing = object.Generation > t.status.ObservedGeneration
		}
	}
	t.isResizing = t.isResizing || isResizing(p.spec, t.status)
	if p.spec == nil { // nothing has it; an agent with another UID for its manifest would stop it
		t.isRestless = true
		t.isRenamed = slices.ContainsFunc(p.fullName.pods, func(o *pod) bool { return o.spec != nil })
		t.isChanged = !t.isRenamed
		return t
	}
	for _, list := range [][]v1.Container{p.spec.Spec.InitContainers, p.spec.Spec.Containers} {
		for i := range list {
			c := p.newestRun(list[i].Name)
			t.isRight[list[i].Name] = c != nil && (c.state == running ||
				c.state == exited && (p.isFinalRun(c) || p.isCompletedInit(c)))
			t.isRestless = t.isRestless || !t.isRight[list[i].Name]
		}
	}
	for i := range p.spec.Spec.EphemeralContainers {
		name := p.spec.Spec.EphemeralContainers[i].Name
		t.isRight[name] = p.newestRun(name) != nil // it runs once
		t.isRestless = t.isRestless || !t.isRight[name]
	}
	hasEnded := p.hasExitedForGood()
	t.hasEnded, t.shared = hasEnded, m.sharedDirs(p.spec)
	t.isRestless = t.isRestless || t.status == nil || hasEnded != isTerminalPhase(t.status.Phase) ||
		hasEnded == (t.sandbox != "") || hasEnded && len(t.cgroups) > 0 || t.isBehind(p)
	if hasEnded {
		t.sandbox = "" // one that is still ready is to be stopped
	}
	return t
}

// isResizing reports whether a pod asks for other resources than its status has.
func isResizing(spec *v1.Pod, status *v1.PodStatus) bool {
	if spec == nil || status == nil {
		return false
	}
	for _, c := range status.Conditions {
		if c.Type == v1.PodResizePending || c.Type == v1.PodResizeInProgress {
			return true
		}
	}
	for _, s := range allContainerStatuses(&v1.Pod{Status: *status}) {
		c := containerOf(spec, s.Name)
		if c != nil && s.Resources != nil && (!equality.Semantic.DeepEqual(c.Resources.Requests,
			s.Resources.Requests) || !equality.Semantic.DeepEqual(c.Resources.Limits, s.Resources.Limits)) {
			return true
		}
	}
	return false
}

// isCompletedInit reports whether a run is that of an init container that is done.
func (p *pod) isCompletedInit(c *container) bool {
	return p.isInitContainer(c.name) && p.sidecarPosition(c.name) == 0 && c.exitCode == 0
}

// isBehind reports whether the status is older than what the pod has: the kubelet ended before it
// wrote the next one, or a probe has not had a result yet.
func (t *takenPod) isBehind(p *pod) bool {
	reported := allContainerStatuses(&v1.Pod{Status: *t.status})
	return slices.ContainsFunc(reported, func(status *v1.ContainerStatus) bool {
		c := p.newestRun(status.Name)
		isReported := c != nil && strings.HasSuffix(status.ContainerID, c.id)
		return !isReported || (c.state == running) != (status.State.Running != nil) ||
			c.state == running && !status.Ready && !p.isEphemeral(status.Name)
	}) || len(reported) < len(t.isRight)
}

func readyCondition(node *v1.Node) v1.NodeCondition {
	for _, c := range node.Status.Conditions {
		if c.Type == v1.NodeReady {
			return c
		}
	}
	return v1.NodeCondition{}
}

func (o *nothingChanges) checkFact(m *model, f *truth.Fact) *finding {
	if m.kubeletRuns && o.at.IsZero() {
		o.noteFile(m, f)
		o.images.note(f)
		return nil
	}
	if f.Kind == truth.PathRemoved {
		defer delete(o.files, f.Path)
	}
	if o.at.IsZero() || f.Kind == truth.PowerLost {
		o.at, o.pods = time.Time{}, nil // what a reboot changes is judged by others
		return nil
	}
	if t := o.pods[m.uidOf(f)]; t != nil {
		if problem := o.checkDeletion(m, t, f); problem != nil {
			return problem
		}
	}
	if f.Write != nil {
		return o.checkWrite(m, f)
	}
	if problem := o.images.check(m, f); problem != nil {
		return problem
	}
	o.driversChanged = o.driversChanged || f.Kind == truth.DriverStarted ||
		f.Kind == truth.DriverEnded
	if problem, known := o.checkShared(m, f); known {
		return problem
	}
	uid := m.uidOf(f)
	t := o.pods[uid]
	if t == nil {
		if f.Kind == truth.PathRemoved && f.Cause == "" && o.files[f.Path] ||
			f.Kind == truth.PathWritten && f.Cause == "" && o.files[f.Path] && !isRecord(f.Path) {
			return findingf("%s, which a kubelet has left, was written or removed", f.Path)
		}
		return nil
	}
	p := m.pods[uid]
	t.isChanged = t.isChanged || p.spec == nil && !t.isRenamed || p.desiredAt.After(o.at) ||
		p.removedAt.After(o.at)
	if what := o.describeAction(m, t, f); what != "" && !t.isChanged && !m.mayBeFromKubelet(o, f) {
		return findingf("pod %s was taken over as it is, and nothing has changed it, but %s", p, what)
	}
	t.isChanged = t.isChanged || changesPod(m, t, f)
	return nil
}

// uidOf returns the UID of the pod that a fact is about; empty if it is about none.
func (m *model) uidOf(f *truth.Fact) string {
	switch {
	case f.PodUID != "":
		return f.PodUID
	case f.Write != nil && f.Write.After.Pod != nil:
		return string(f.Write.After.Pod.UID)
	case f.Path == "":
		return ""
	}
	if p := m.podOfPath(f.Path); p != nil {
		return p.uid
	}
	return ""
}

// kubeletCallBound is how long a call that the kubelet had made may still take effect.
const kubeletCallBound = 2 * time.Second

// mayBeFromKubelet reports whether a fact may be of a call that the kubelet has made.
func (m *model) mayBeFromKubelet(o *nothingChanges, f *truth.Fact) bool {
	return o.awaitsAgent(m) ||
		f.Time.Sub(o.at) < kubeletCallBound && m.agentStartedAt.Equal(f.Time)
}

// awaitsAgent reports whether no agent has been started since the kubelet ended.
func (o *nothingChanges) awaitsAgent(m *model) bool { return m.agentStartedAt.Before(o.at) }

// isRecord reports whether a file in the root directory holds what changes with the pods: another
// oracle judges its content.
func isRecord(file string) bool {
	return strings.HasSuffix(file, "ed_pods_state") // allocated and actuated
}

func (o *nothingChanges) noteFile(m *model, f *truth.Fact) {
	if o.files == nil {
		o.files = map[string]bool{}
	}
	switch {
	case f.Kind == truth.PathRemoved:
		delete(o.files, f.Path)
	case f.Kind == truth.PathWritten && isWithin(f.Path, path.Dir(m.opts.PodsDir)) &&
		!isWithin(f.Path, path.Dir(m.opts.PodsDir)+"/image_manager"):
		o.files[f.Path] = true
	}
}

// describeAction returns what the agent does to a pod by a fact that it must not do; empty if
// nothing.
func (o *nothingChanges) describeAction(m *model, t *takenPod, f *truth.Fact) string {
	byAgent := f.Cause == "" || isRequestedBy(f.Cause)
	switch f.Kind {
	case truth.SandboxCreated:
		if t.sandbox != "" || !t.isRestless {
			return "another sandbox was created"
		}
	case truth.SandboxStopped, truth.SandboxRemoved:
		// Of a pod that has a sandbox, an older one is collected, as by a kubelet.
		if byAgent && (f.SandboxID == t.sandbox || f.Kind == truth.SandboxRemoved &&
			t.sandbox == "" && !t.isRestless) {
			return "its sandbox was stopped or removed"
		}
	case truth.ContainerCreated:
		if t.isRight[f.Container] {
			return "another run of container " + f.Container + " was created"
		}
	case truth.StopRequested:
		if c := m.containers[f.ContainerID]; c == nil || !m.mayHaveFailed(c, f.Time) {
			return "container " + f.Container + " was stopped"
		}
	case truth.ContainerRemoved:
		if t.containers[f.ContainerID] && t.isRight[f.Container] && byAgent && !t.old[f.ContainerID] {
			return "a run of container " + f.Container + " was removed"
		}
	case truth.HandlerRequested:
		c := m.containers[f.ContainerID]
		h := c.handlerOfFact(f)
		if h != nil && h.kind == postStartHook && !c.startedAt.IsZero() && c.startedAt.Before(o.at) {
			return "container " + f.Container + " had its postStart hook again"
		}
	case truth.CgroupRemoved:
		if !t.isRestless {
			return "its cgroup was removed"
		}
	case truth.CgroupCreated:
		if before, existed := t.cgroups[f.Path]; existed && before != f.Limits && f.Cause == "" &&
			!t.isResizing {
			return fmt.Sprintf("its cgroup got other limits: %+v, before %+v", f.Limits, before)
		}
	case truth.Unmounted, truth.VolumeUnpublished:
		return o.describeVolume(m, t, f)
	case truth.PathRemoved:
		// When a pod has ended, an agent removes its /etc/hosts with its volumes; see the differences.
		isOfEnd := t.sandbox == "" && strings.HasSuffix(f.Path, "/etc-hosts") ||
			t.hasEnded && isWithin(f.Path, m.opts.PodsDir+"/"+t.uid+"/volumeDevices")
		if f.Cause == "" && !isOfEnd && !t.oldLogs[f.Path] && (o.files[f.Path] || !t.isRestless) {
			return f.Path + " was removed"
		}
	case truth.PathWritten:
		if o.files[f.Path] && f.Cause == "" && o.isWritten(m, t, m.pods[t.uid], f.Path) &&
			!m.isWrittenUnread(f) {
			return f.Path + " was written"
		}
		return o.describeVolume(m, t, f)
	}
	return ""
}

func isRequestedBy(cause string) bool {
	return cause == truth.CauseStop || cause == truth.CauseRemove || cause == truth.CauseSandbox
}

// changesPod reports whether a fact changes what is right for a pod, and is not by the agent.
func changesPod(m *model, t *takenPod, f *truth.Fact) bool {
	switch f.Kind {
	case truth.ContainerExited, truth.SandboxStopped:
		return !isRequestedBy(f.Cause)
	case truth.ContainerRemoved, truth.SandboxRemoved:
		return f.Cause == truth.CauseAdministrator
	case truth.ContainerLost, truth.StopRequested: // a stop that had a reason
		return true
	case truth.HandlerEnded:
		return f.Reply.Class() != truth.ReplySuccess && !m.isOfPostStart(f)
	}
	return false
}

// checkWrite checks a write to the API server.
func (o *nothingChanges) checkWrite(m *model, f *truth.Fact) *finding {
	w := f.Write
	if problem := o.checkCSINode(f); problem != nil {
		return problem
	}
	if w.Resource == api.ResourceNodes && w.Incarnation > 0 && w.After.Node != nil {
		return o.checkNode(m, f)
	}
	object := w.Before.Pod
	if object == nil {
		object = w.After.Pod
	}
	if w.Resource != api.ResourcePods || object == nil {
		return nil
	}
	uid := string(object.UID)
	if isMirror(object) {
		uid = mirroredUID(object)
	}
	t := o.pods[uid]
	switch {
	case t == nil || t.isChanged:
	case w.Incarnation == 0:
		t.isChanged = true
	case m.pods[uid].spec == nil:
	case f.Kind != truth.ObjectUpdated:
		return findingf("pod %s was taken over as it is, but its object was deleted or created again",
			m.pods[uid])
	case !o.awaitsAgent(m):
		return o.checkStatus(m, m.pods[uid], t, f)
	}
	return nil
}

// probeTroubleBound is how long before a status a probe may have failed by a fault.
const probeTroubleBound = 10 * time.Second

// checkStatus checks a status that the agent has written.
func (o *nothingChanges) checkStatus(m *model, p *pod, t *takenPod, f *truth.Fact) *finding {
	if p.desiredAt.After(o.at) {
		return nil
	}
	before, after := &f.Write.Before.Pod.Status, &f.Write.After.Pod.Status
	name, a, b := m.turnedUnready(before, after, t), inOrder(before), inOrder(after)
	switch {
	case name == "" && (t.isRestless || t.isResizing || equality.Semantic.DeepEqual(a, b)):
	case m.anyFaultPossible(f.Time.Add(-probeTroubleBound), f.Time, "ExecSync", "HTTPGet"):
		t.isChanged = true // a probe may have failed
	case name != "":
		return findingf("pod %s was taken over as it is, and nothing has changed it, but %s is "+
			"reported as not ready", p, name)
	default:
		return findingf("pod %s was taken over as it is, and nothing has changed it, but its status is "+
			"written: %s", p, statusDifference(a, b))
	}
	return nil
}

// turnedUnready returns what is ready in one status and not in the next; empty if nothing is.
func (m *model) turnedUnready(before, after *v1.PodStatus, t *takenPod) string {
	for _, b := range before.ContainerStatuses {
		for _, a := range after.ContainerStatuses {
			_, id, _ := strings.Cut(b.ContainerID, "://")
			c := m.containers[id]
			if a.Name == b.Name && b.Ready && !a.Ready && c != nil && c.state == running {
				return "container " + a.Name
			}
		}
	}
	if t.isRestless {
		return "" // another container of it may not be ready
	}
	for _, b := range before.Conditions {
		for _, a := range after.Conditions {
			if a.Type == b.Type && a.Type == v1.PodReady && b.Status == v1.ConditionTrue &&
				a.Status != v1.ConditionTrue {
				return "it"
			}
		}
	}
	return ""
}

// inOrder returns a status with its conditions in order.
func inOrder(s *v1.PodStatus) *v1.PodStatus {
	s = s.DeepCopy()
	slices.SortFunc(s.Conditions, func(a, b v1.PodCondition) int {
		return strings.Compare(string(a.Type), string(b.Type))
	})
	return s
}

// statusDifference returns the fields that differ, of containers and conditions each by itself.
func statusDifference(a, b *v1.PodStatus) string {
	before, after := map[string]string{}, map[string]string{}
	flatten("", fieldsOf(a), before)
	flatten("", fieldsOf(b), after)
	names := maps.Clone(before)
	maps.Copy(names, after)
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if before[name] != after[name] {
			parts = append(parts, fmt.Sprintf("%s was %s and is %s", name, cmp.Or(before[name], "absent"),
				cmp.Or(after[name], "absent")))
		}
	}
	return strings.Join(parts, "; ")
}

func fieldsOf(s *v1.PodStatus) (all any) {
	data, err := json.Marshal(s)
	if err == nil {
		err = json.Unmarshal(data, &all)
	}
	if err != nil {
		panic("oracle: " + err.Error())
	}
	return all
}

// flatten adds the values in a JSON value, by their paths. Entries of lists are named by their type
// or name.
func flatten(at string, value any, into map[string]string) {
	into[strings.TrimPrefix(at, ".")] = fmt.Sprintf("a %T", value)
	switch v := value.(type) {
	case map[string]any:
		for key, field := range v { //ordered: into a map
			flatten(at+"."+key, field, into)
		}
	case []any:
		for i, entry := range v {
			name := any(i)
			if fields, ok := entry.(map[string]any); ok && fields["type"] != nil {
				name = fields["type"]
			} else if ok && fields["name"] != nil {
				name = fields["name"]
			}
			flatten(fmt.Sprintf("%s[%v]", at, name), entry, into)
		}
	default:
		into[strings.TrimPrefix(at, ".")] = fmt.Sprintf("%v", v)
	}
}

// unreadyNoticeBound is how long after a call of the runtime has failed the Node may be written for
// it: the runtime counts as ready for half a minute, and the Node is compared every ten seconds.
const unreadyNoticeBound = 90 * time.Second

// checkNode checks that the Node stays ready. Only the runtime may make it unready.
func (o *nothingChanges) checkNode(m *model, f *truth.Fact) *finding {
	ready := readyCondition(f.Write.After.Node)
	if o.node.Status != v1.ConditionTrue ||
		ready.Status == v1.ConditionTrue && ready.LastTransitionTime.Equal(&o.node.LastTransitionTime) {
		return nil
	}
	since := later(o.at, f.Time.Add(-unreadyNoticeBound))
	if m.anyFaultPossible(since, f.Time, "Status", "ListPodSandbox", "ListContainers", "Version") {
		o.node = ready
		return nil
	}
	return findingf("the Node was ready since %v, and is now reported as %s since %v",
		o.node.LastTransitionTime, ready.Status, ready.LastTransitionTime)
}

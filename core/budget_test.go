package core

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/core/budget"
	"seedlet.dev/core/claim"
	"seedlet.dev/core/timer"
	"seedlet.dev/world"
)

// podOfTokens returns a pod of so many different service account tokens.
func podOfTokens(name, uid string, tokens int) *v1.Pod {
	p := apiPodNamed(name, uid)
	source := &v1.ProjectedVolumeSource{}
	for i := range tokens {
		seconds := int64(600 + i)
		source.Sources = append(source.Sources, v1.VolumeProjection{
			ServiceAccountToken: &v1.ServiceAccountTokenProjection{
				ExpirationSeconds: &seconds, Path: "t"}})
	}
	p.Spec.Volumes = []v1.Volume{{Name: "v", VolumeSource: v1.VolumeSource{Projected: source}}}
	mountAll(&p.Spec)
	return p
}

// mountAll has the first container mount the volumes that none uses: those would not be set up.
func mountAll(s *v1.PodSpec) {
	uses := claim.UsesOf(&v1.Pod{Spec: *s})
	for i := range s.Volumes {
		if name := s.Volumes[i].Name; uses[name] == (claim.Use{}) {
			c := &s.Containers[0]
			c.VolumeMounts = append(c.VolumeMounts, v1.VolumeMount{Name: name, MountPath: "/" + name})
		}
	}
}

// podOf returns a pod with a changed spec.
func podOf(name, uid string, change func(*v1.PodSpec)) *v1.Pod {
	p := apiPodNamed(name, uid)
	change(&p.Spec)
	return p
}

// podOfSecrets returns a pod that refers to so many optional Secrets.
func podOfSecrets(name, uid string, secrets int) *v1.Pod {
	p := apiPodNamed(name, uid)
	optional := true
	for i := range secrets {
		p.Spec.Containers[0].EnvFrom = append(p.Spec.Containers[0].EnvFrom, v1.EnvFromSource{
			SecretRef: &v1.SecretEnvSource{Optional: &optional, LocalObjectReference: v1.
				LocalObjectReference{Name: fmt.Sprintf("%s-%d", name, i)}}})
	}
	return p
}

// restore continues with an agent that has the state of a snapshot.
func (n *fakeNode) restore(t *testing.T) {
	t.Helper()
	again, err := Restore(snapshotOf(t, n.agent))
	if err != nil {
		t.Fatal(err)
	}
	n.agent = again
}

// waitingMessage returns why the container of a pod waits.
func (n *fakeNode) waitingMessage(uid string) string {
	for _, status := range n.agent.servedPod(uid).Status.ContainerStatuses {
		if status.State.Waiting != nil {
			return status.State.Waiting.Message
		}
	}
	return ""
}

// sandboxNames returns the sorted names of the pods that have a sandbox.
func (n *fakeNode) sandboxNames() []string {
	var names []string
	for _, s := range n.sandboxes {
		names = append(names, s.Metadata.Name)
	}
	slices.Sort(names)
	return names
}

// setLongProbe gives the first container a probe whose command is long only when it is expanded.
func setLongProbe(spec *v1.PodSpec) {
	spec.Containers[0].Env = []v1.EnvVar{{Name: "A", Value: strings.Repeat("x", 4100)}}
	spec.Containers[0].ReadinessProbe = &v1.Probe{ProbeHandler: v1.ProbeHandler{
		Exec: &v1.ExecAction{Command: []string{strings.Repeat("$(A)", 30)}}}}
}

// A pod that needs too much is not started, and says why in its status and in an event. The agent
// and an ordinary pod are not affected, neither at the first start nor after a restart.
func TestPodOverBudgetIsNotStarted(t *testing.T) {
	for want, hostile := range map[string]*v1.Pod{
		"the pod has 601 containers, and one pod may have 256": podOf("hostile", "h", func(
			spec *v1.PodSpec) {
			for i := range 600 {
				c := spec.Containers[0]
				c.Name = fmt.Sprint("c", i)
				spec.InitContainers = append(spec.InitContainers, c)
			}
		}),
		"the pod has 600 volumes, and one pod may have 256": podOf("hostile", "h", func(
			spec *v1.PodSpec) {
			for i := range 600 {
				spec.Volumes = append(spec.Volumes, v1.Volume{Name: fmt.Sprint("v", i),
					VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}})
			}
		}),
		"the pod needs 16500 service account tokens, and one pod may have 64": podOfTokens("hostile",
			"h", 16500),
		"the pod refers to 8200 API objects, and one pod may refer to 256": podOfSecrets("hostile",
			"h", 8200),
		"the containers of the pod have 5000 ports, and one pod may have 4096": podOf("hostile", "h",
			func(spec *v1.PodSpec) { spec.Containers[0].Ports = make([]v1.ContainerPort, 5000) }),
		"the pod and its containers name 2000 resources in requests and limits, and one pod may name " +
			"1024": podOf("hostile", "h", func(spec *v1.PodSpec) { setResources(spec, 2000) }),
		"the node selector and node affinity of the pod have 3000 labels, terms, expressions and " +
			"values, and one pod may have 1024": podOf("hostile", "h", func(spec *v1.PodSpec) {
			spec.NodeSelector = map[string]string{}
			for i := range 3000 {
				spec.NodeSelector[fmt.Sprint("k", i)] = "v"
			}
		}),
		"the command of a probe of container c has 123001 bytes, and one may have 32768": podOf(
			"hostile", "h", setLongProbe),
	} {
		n := bootWithPods(nil, hostile, podOfTokens("tokens", "u1", 8), podOfSecrets("web", "u2", 3))
		check := func(when string) {
			t.Helper()
			if got := n.waitingMessage("h"); got != want {
				t.Errorf("%s: the status has %q, want %q", when, got, want)
			}
			if got := n.sandboxNames(); !slices.Equal(got, []string{"tokens", "web"}) {
				t.Errorf("%s: sandboxes of %v", when, got)
			}
			if n.waitingMessage("u1")+n.waitingMessage("u2") != "" {
				t.Errorf("%s: an ordinary pod waits", when)
			}
		}
		check("started")
		if found := eventsWith(n.events, want); len(found) != 1 ||
			!strings.Contains(found[0], "BudgetExceeded") {
			t.Errorf("events %q", found)
		}
		refusals := uint64(0)
		for _, count := range n.agent.state.Metrics.OverBudget {
			refusals += count
		}
		if refusals != 1 {
			t.Errorf("refusals %v", n.agent.state.Metrics.OverBudget)
		}
		n.checkNextAgents(t, check)
	}
}

// checkNextAgents checks an agent that is restored from the state of this one, and then one that is
// started.
func (n *fakeNode) checkNextAgents(t *testing.T, check func(when string)) {
	t.Helper()
	n.restore(t)
	n.advance(time.Minute)
	check("restored")
	n.restart()
	n.advance(5 * time.Second)
	check("restarted")
}

// The agent keeps no more of the objects of a pod than the pod may have, neither at the first start
// nor after a restart nor when all of them are read again. An ordinary pod is not affected.
func TestLargeObjectsAreNotKept(t *testing.T) {
	n := bootWithPods(nil, podOfSecrets("web", "u", 3))
	putLargeObjects(n, 100)
	check := func(when string) {
		t.Helper()
		kept := 0
		for _, w := range n.agent.state.Objects.Watches {
			kept += w.Bytes
		}
		if kept > budget.ReferenceBytesMax || kept < budget.ReferenceBytesMax-2<<20 {
			t.Errorf("%s: %d bytes are kept", when, kept)
		}
		const want = "and those of one pod may have 16777216"
		if got := n.waitingMessage("h"); !strings.Contains(got, want) {
			t.Errorf("%s: waits for %q", when, got)
		}
		if n.waitingMessage("u") != "" {
			t.Errorf("%s: the ordinary pod waits", when)
		}
	}
	n.advance(5 * time.Second)
	check("new")
	if found := eventsWith(n.events, "may have 16777216"); len(found) != 1 {
		t.Errorf("events %q", found)
	}
	n.advance(10 * time.Minute)
	check("read again")
	n.checkNextAgents(t, check)
	if got := n.agent.state.Metrics.OverBudget["reference_bytes"]; got != 1 {
		t.Errorf("%d refusals", got)
	}
}

// The status and the events of a pod are short, whatever its image is called.
func TestLongImageReference(t *testing.T) {
	n := bootWithPods(nil, apiPodNamed("web", "u"))
	longest := 0
	n.apiServer.onEffect = func(effect any) {
		if patch, ok := effect.(*world.PatchObject); ok {
			longest = max(longest, len(patch.Patch))
		}
	}
	n.apiServer.put(podOf("hostile", "h", func(spec *v1.PodSpec) {
		spec.Containers[0].Image = strings.Repeat("a", 1_300_000) + "//"
	}))
	n.advance(2 * time.Minute)
	if longest == 0 || longest > 8<<10 {
		t.Errorf("a patch of %d bytes", longest)
	}
	if got := n.waitingMessage("h"); len(got) == 0 || len(got) > 300 {
		t.Errorf("waits for %q", got)
	}
	for _, event := range n.events {
		if len(event) > 2<<10 {
			t.Errorf("an event of %d bytes: %s ...", len(event), event[:200])
		}
	}
	if got := n.agent.state.Metrics.OverBudget["image_reference_bytes"]; got != 1 {
		t.Errorf("%d refusals", got)
	}
	if n.waitingMessage("u") != "" {
		t.Error("an ordinary pod waits")
	}
}

// A pod that exceeds its budget takes no ports, no resources and no place of another pod: it never
// starts. That holds from the first moment, also in the same list.
func TestPodOverBudgetTakesNothing(t *testing.T) {
	ports := func(spec *v1.PodSpec) {
		for i := range 5000 {
			spec.Containers[0].Ports = append(spec.Containers[0].Ports,
				v1.ContainerPort{HostPort: int32(i + 1), ContainerPort: 1})
		}
	}
	critical := int32(2_000_000_000)
	secrets := func(spec *v1.PodSpec) { spec.Containers = podOfSecrets("", "", 300).Spec.Containers }
	for message, exceed := range map[string]func(*v1.PodSpec){
		"the containers of the pod have 5000 ports, and one pod may have 4096": ports,
		"the pod refers to 300 API objects, and one pod may refer to 256":      secrets,
	} {
		hostile := podOf("hostile", "h", func(spec *v1.PodSpec) {
			exceed(spec)
			spec.Priority = &critical
			spec.Containers[0].Resources.Requests = v1.ResourceList{
				v1.ResourceCPU: resource.MustParse("2")}
		})
		web := func(name string, port int32) *v1.Pod {
			return podOf(name, name, func(spec *v1.PodSpec) {
				spec.Containers[0].Ports = []v1.ContainerPort{{HostPort: port, ContainerPort: 80}}
				spec.Containers[0].Resources.Requests = v1.ResourceList{
					v1.ResourceCPU: resource.MustParse("500m")}
			})
		}
		n := bootWithPods(nil, hostile, web("z", 79))
		check := func(when string, want ...string) {
			t.Helper()
			if got := n.sandboxNames(); !slices.Equal(got, want) || n.waitingMessage("h") != message {
				t.Errorf("%s: sandboxes of %v, the hostile pod says %q", when, got, n.waitingMessage("h"))
			}
		}
		check("in one list", "z")
		n.apiServer.put(web("a", 80))
		n.advance(5 * time.Second)
		check("beside it", "a", "z")
		if n.agent.state.Allocation.Allocated.Get("h") != nil {
			t.Error("resources are allocated to the hostile pod")
		}
		n.restart()
		n.apiServer.put(web("b", 81))
		n.advance(5 * time.Second)
		check("after a restart", "a", "b", "z")
	}
}

// A pod whose status the API server finds too large runs, and is deleted without force. That holds
// after a restart of the agent as well.
func TestPodWithTooLargeStatusEnds(t *testing.T) {
	n := newNode(nil)
	n.apiServer = newServer()
	n.apiServer.patchMax = 4 << 10
	n.apiServer.put(podOf("large", "l", func(spec *v1.PodSpec) {
		spec.Containers = containersOf("c", 50)
	}))
	n.restart()
	check := func(when string) {
		t.Helper()
		n.advance(time.Minute)
		p := n.apiServer.objects["default/large"]
		if p == nil || p.Status.Phase != v1.PodRunning || p.Status.Reason != "StatusTooLarge" ||
			len(p.Status.ContainerStatuses) > 0 {
			t.Fatalf("%s: %+v", when, p)
		}
	}
	check("started")
	n.restart()
	check("restarted")
	n.markDeleted("default/large", 1)
	n.advance(time.Minute)
	if p := n.apiServer.objects["default/large"]; p != nil || len(n.sandboxes) > 0 {
		t.Errorf("the deleted pod is left with %d sandboxes: %+v", len(n.sandboxes), p)
	}
}

// Labels and annotations may change at any time: a pod that has too many of them waits, and holds
// what it was admitted with. What its resources take in the annotation of its sandbox does not
// change: such a pod holds nothing.
func TestPodOverBudgetOfItsSandbox(t *testing.T) {
	labelled := podOf("labelled", "l", func(*v1.PodSpec) {})
	labelled.Annotations = map[string]string{"a": strings.Repeat("x", budget.SandboxMetadataMax)}
	list := v1.ResourceList{}
	for i := range 100 {
		list[v1.ResourceName(longResource(308, i))] = resource.MustParse("0")
	}
	resources := podOf("resources", "r", func(spec *v1.PodSpec) {
		spec.Containers[0].Resources.Requests = list
		for i := range 1000 {
			spec.Containers[0].Ports = append(spec.Containers[0].Ports,
				v1.ContainerPort{HostPort: int32(i + 1), ContainerPort: 1})
		}
	})
	n := bootWithPods(nil, labelled, resources)
	for uid, allocated := range map[string]bool{"l": true, "r": false} {
		if got := n.agent.state.Allocation.Allocated.Get(uid) != nil; got != allocated {
			t.Errorf("%s: allocated %t", uid, got)
		}
		if got := n.agent.servedPod(uid).Status.AllocatedResources; allocated != (got != nil) {
			t.Errorf("%s: %d resources are allocated in the status", uid, len(got))
		}
		if message := n.waitingMessage(uid); !strings.Contains(message, "one pod may have 32768") {
			t.Errorf("%s says %q", uid, message)
		}
	}
}

// A pod that only the references to its images bring over a bound is checked as any other: they can
// be replaced by shorter ones, and it would be started then without a check.
func TestPodOverBudgetOfItsImages(t *testing.T) {
	p := podOf("large", "l", func(spec *v1.PodSpec) {
		spec.Containers = containersOf("c", 100)
		for i := range spec.Containers {
			spec.Containers[i].Image = strings.Repeat("i", 1000) + fmt.Sprint(i)
		}
		spec.Containers[0].Resources.Requests = v1.ResourceList{
			v1.ResourceMemory: resource.MustParse("1Pi")}
	})
	n := bootWithPods(nil, p)
	if status := n.agent.servedPod("l").Status; status.Reason != "OutOfmemory" {
		t.Errorf("a pod that the node has no room for: %s %q %q", status.Phase, status.Reason,
			status.Message)
	}
}

func eventsWith(events []string, text string) []string {
	return slices.DeleteFunc(slices.Clone(events), func(line string) bool {
		return !strings.Contains(line, text)
	})
}

// A running pod that comes over a bound goes on, also after a restart of the agent. The ephemeral
// containers that bring it over the bound are not created, and say why.
func TestEphemeralContainersOverBudget(t *testing.T) {
	n := bootWithPods(nil, apiPodNamed("web", "u1"))
	p := apiPodNamed("web", "u1")
	for i := range 300 {
		p.Spec.EphemeralContainers = append(p.Spec.EphemeralContainers, v1.EphemeralContainer{
			EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: fmt.Sprint("debug-", i),
				Image: "i"}})
	}
	n.takeCalls()
	n.apiServer.put(p)
	n.advance(time.Minute)
	n.restart()
	n.advance(time.Minute)
	if calls := n.takeCalls(); strings.Contains(calls, "create") || strings.Contains(calls, "stop") {
		t.Errorf("calls %s", calls)
	}
	const want = "the pod has 301 containers, and one pod may have 256"
	statuses := n.agent.servedPod("u1").Status.EphemeralContainerStatuses
	if len(statuses) != 256 || statuses[0].State.Waiting == nil ||
		statuses[0].State.Waiting.Message != want {
		t.Errorf("statuses %+v", statuses[:min(len(statuses), 1)])
	}
}

// A pod whose objects cannot all be watched says so, and starts when other pods have ended. A pod
// of few objects starts, because watches are left to those.
func TestPodWaitsForWatches(t *testing.T) {
	var pods []*v1.Pod
	for i := range 25 {
		name := fmt.Sprintf("p%02d", i)
		pods = append(pods, podOfSecrets(name, name, 250))
	}
	n := newNode(nil)
	n.apiServer, n.stepsMax = newServer(), 100_000
	for _, p := range pods {
		n.apiServer.put(p)
	}
	n.apiServer.put(podOfSecrets("small", "small", 16))
	n.restart()
	n.advance(5 * time.Second)
	const want = "the pod refers to 250 API objects, and all pods of the node with more than 16 may " +
		"refer to 6144: waiting until other pods have ended"
	if got := n.waitingMessage("p24"); got != want || len(n.sandboxes) != 25 {
		t.Fatalf("%d sandboxes, the last pod says %q", len(n.sandboxes), got)
	}
	if !slices.Contains(n.sandboxNames(), "small") {
		t.Error("the pod of few objects waits")
	}
	n.markDeleted("default/p07", 1)
	n.advance(time.Minute)
	if got := n.waitingMessage("p24"); got != "" || !slices.Contains(n.sandboxNames(), "p24") {
		t.Errorf("sandboxes of %v, the last pod says %q", n.sandboxNames(), got)
	}
}

// stepWithList gives an agent a list of so many pods, in Steps of its own.
func stepWithList(t *testing.T, pods int, change func(*v1.Pod)) {
	t.Helper()
	n := bootWithPods(nil)
	list := &world.ObjectsListed{Watch: n.apiServer.watch}
	for i := range pods {
		name := fmt.Sprintf("p%d", i)
		p := apiPodNamed(name, name)
		change(p)
		list.Objects = append(list.Objects, world.Object{Pod: p})
	}
	n.agent.Step(world.Event{Time: n.now, Body: list})
	for steps := 1; len(n.agent.state.APIPodUIDs) < pods; steps++ {
		known := len(n.agent.state.APIPodUIDs)
		if wake := n.agent.NextWake(); wake.After(n.now) || known != steps*apiPodsPerStep {
			t.Fatalf("after %d steps %d pods are known, and the next step is at %v", steps, known, wake)
		}
		n.agent.Step(world.Event{Time: n.now})
	}
	for range 2 { // what was refused comes back
		n.now = n.now.Add(2 * time.Second)
		n.agent.Step(world.Event{Time: n.now})
	}
}

// While a long list is applied in parts nothing of a pod that is late in the list is ended, changes
// wait for their turn, and an agent that is restored goes on.
func TestListIsAppliedInParts(t *testing.T) {
	const pods = apiPodsPerStep + 50
	n := newNode(nil)
	n.apiServer, n.stepsMax, n.podsMax = newServer(), 100_000, pods
	for i := range pods {
		name := fmt.Sprintf("p%03d", i)
		n.apiServer.put(apiPodNamed(name, name))
		n.podDirs = append(n.podDirs, name)
	}
	n.restart()
	n.advance(5 * time.Second)
	if len(n.sandboxes) != pods {
		t.Fatalf("%d sandboxes", len(n.sandboxes))
	}
	n.takeCalls()
	n.apiServer.undelivered = nil
	written := len(n.apiServer.writes)
	parts := 0
	n.measure = func(ev world.Event, step func(world.Event) []world.Effect) ([]world.Effect, bool) {
		effects := slices.Clone(step(ev))
		if s := &n.agent.state; len(s.PendingAPIPods) > 0 {
			if parts++; parts == 1 && (s.APIPodsApplied || len(s.APIPodUIDs) >= pods) {
				t.Errorf("%d of %d pods are known at once", len(s.APIPodUIDs), pods)
			}
			n.restore(t)
		}
		return effects, false
	}
	n.restart()
	if parts == 0 {
		t.Error("the list is applied at once")
	}
	n.measure = nil
	n.apiServer.remove("default/p070")
	n.advance(90 * time.Second)
	s := &n.agent.state
	if calls := n.takeCalls(); strings.Count(calls, "stop c") != 1 || len(n.sandboxes) != pods-1 ||
		len(s.PendingAPIPods) > 0 || !s.APIPodsApplied {
		t.Errorf("%d sandboxes, %d pods pending: %.200s", len(n.sandboxes), len(s.PendingAPIPods), calls)
	}
	if writes := n.apiServer.writes[written:]; len(writes) > 0 {
		t.Errorf("written: %.200s", strings.Join(writes, ", "))
	}
}

// The length of a list is no reason to panic.
func TestListOfManyPods(t *testing.T) {
	stepWithList(t, 60_000, func(p *v1.Pod) { // refused, and Pending
		p.Spec.ResourceClaims = []v1.PodResourceClaim{{}}
	})
	stepWithList(t, 17_000, func(p *v1.Pod) { // known to an earlier agent: each reads its record
		p.Status.StartTime = &metav1.Time{Time: time.Unix(1, 0)}
	})
}

// When tenants have filled their part of the table, the agent's own operations and the stops of
// pods are issued all the same.
func TestHeartbeatsWithFullTable(t *testing.T) {
	n := bootWithPods(nil, apiPodNamed("web", "u1"))
	n.agent.effects.Reset(&n.agent.state.Ops, n.now)
	for i := range 100_000 {
		owner := timer.Key{Component: "pod", Name: fmt.Sprint("hostile", i/1000)}
		n.agent.effects.Issue(owner, "", time.Hour, &runtimeapi.ExecSyncRequest{})
	}
	n.restore(t)
	n.stepsMax = 1_000_000
	renewals := len(n.apiServer.nodeWrites.leaseRenewals)
	relists := n.agent.state.Relist.Completed
	n.advance(time.Minute)
	if len(n.apiServer.nodeWrites.leaseRenewals) < renewals+5 ||
		n.agent.state.Relist.Completed < relists+5 {
		t.Error("the lease is not renewed, or the runtime not listed")
	}
	n.takeCalls()
	n.markDeleted("default/web", 1)
	if calls := n.takeCalls(); !strings.Contains(calls, "stop c") {
		t.Errorf("the container is not stopped: %s", calls)
	}
}

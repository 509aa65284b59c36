package podstatus

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"seedlet.dev/core/budget"
	"seedlet.dev/core/criconfig"
	"seedlet.dev/core/image"
	"seedlet.dev/core/pod"
	"seedlet.dev/core/volume"
)

var t0 = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// newPod returns an observed pod with the app container "web", a ready sandbox and these runs of
// the container.
func newPod(policy v1.RestartPolicy, runs ...pod.Container) *pod.Pod {
	spec := &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "u", Namespace: "default", Name: "p"}}
	spec.Spec.RestartPolicy = policy
	spec.Spec.Containers = []v1.Container{{Name: "web", Image: "i"}}
	p := pod.New(spec, nil, true, true, t0)
	p.Sandboxes = []pod.Sandbox{{ID: "s", Ready: true, Inspected: true}}
	p.Containers = runs
	return p
}

// newRun returns run number attempt of the app container.
func newRun(attempt uint32, state pod.State, exitCode int32) pod.Container {
	return pod.Container{Name: "web", ID: fmt.Sprint("web", attempt), SandboxID: "s", State: state,
		Run: criconfig.Run{Attempt: attempt}, Inspected: state, ExitCode: exitCode, StartedAt: t0}
}

// The status is unknown before the runtime was listed and the pod's record was loaded.
func TestUnknown(t *testing.T) {
	for _, change := range []func(*pod.Pod){
		func(p *pod.Pod) { p.Observed = false },
		func(p *pod.Pod) { p.Record.Loaded = false },
		func(p *pod.Pod) { p.Sandboxes[0].Inspected = false },
		func(p *pod.Pod) { p.Containers[0].Inspected = pod.Running },
	} {
		p := newPod(v1.RestartPolicyAlways, newRun(0, pod.Exited, 1))
		change(p)
		Update(p, t0)
		if got := ServedPod(p, &pod.Node{}, "c").Status; got.Phase != v1.PodUnknown {
			t.Errorf("served as %s", got.Phase)
		}
	}
	p := newPod(v1.RestartPolicyAlways, newRun(0, pod.Running, 0))
	Update(p, t0)
	if got := ServedPod(p, &pod.Node{}, "c").Status; got.Phase != v1.PodRunning {
		t.Errorf("served as %s", got.Phase)
	}
	if p.Observed = false; ServedPod(p, &pod.Node{}, "c").Status.Phase != v1.PodRunning {
		t.Error("a status that was known is unknown again")
	}
}

// A status waits for the inspection of a running container, but not for ever.
func TestUnknownRun(t *testing.T) {
	p := newPod(v1.RestartPolicyAlways, newRun(0, pod.Running, 0))
	phase := func() v1.PodPhase {
		Update(p, t0)
		return ServedPod(p, &pod.Node{}, "c").Status.Phase
	}
	c := &p.Containers[0]
	c.Inspected, c.InspectFailures = "", 3
	if got := phase(); got != v1.PodUnknown {
		t.Errorf("after three failures it is %s", got)
	}
	c.InspectFailures = 4
	if got := phase(); got != v1.PodRunning {
		t.Errorf("after four failures it is %s", got)
	}
}

// A pod that has run before is not pending while its container is created again.
func TestPhaseOfAPodThatHasRun(t *testing.T) {
	first := newPod(v1.RestartPolicyAlways, newRun(0, pod.Created, 0))
	if got := phase(first); got != v1.PodPending {
		t.Errorf("the first container is created: phase %s, want Pending", got)
	}
	again := newPod(v1.RestartPolicyAlways, newRun(0, pod.Exited, 1), newRun(1, pod.Created, 0))
	if got := phase(again); got != v1.PodRunning {
		t.Errorf("the second is created: phase %s, want Running", got)
	}
}

// A pod is pending while the postStart hook of its first run has not completed: the container is
// reported as waiting.
func TestPhaseDuringPostStart(t *testing.T) {
	p := newPod(v1.RestartPolicyAlways, newRun(0, pod.Running, 0))
	p.Spec.Spec.Containers[0].Lifecycle = &v1.Lifecycle{
		PostStart: &v1.LifecycleHandler{Exec: &v1.ExecAction{}}}
	if got := phase(p); got != v1.PodPending {
		t.Errorf("phase %s, want Pending", got)
	}
	p.Status.Phase = v1.PodRunning // a later run
	if got := phase(p); got != v1.PodRunning {
		t.Errorf("phase %s, want Running", got)
	}
}

// A failure of the containers does not change the condition Initialized, as in the kubelet.
func TestInitializedOfAFailedPod(t *testing.T) {
	p := newPod(v1.RestartPolicyNever, newRun(0, pod.Exited, 1))
	p.Sandboxes[0].Ready, p.Sandboxes[0].Stopped = false, true
	p.Termination.Phase = v1.PodFailed
	p.Stage, p.Record.Termination = pod.Terminated, &p.Termination
	Update(p, t0)
	for _, c := range p.Status.Conditions {
		if c.Type == v1.PodInitialized && (!c.Status || c.Reason != "") {
			t.Errorf("phase %s: initialized %v, reason %q", p.Status.Phase, c.Status, c.Reason)
		}
	}
	if p.Status.Phase != v1.PodFailed {
		t.Errorf("phase %s", p.Status.Phase)
	}
}

// The condition Initialized of a pod that has ended stays when its runs have been removed.
func TestInitializedWithoutRuns(t *testing.T) {
	p := newPod(v1.RestartPolicyNever, newRun(0, pod.Exited, 1))
	p.Spec.Spec.InitContainers = []v1.Container{{Name: "setup", Image: "i"}}
	p.Termination.Phase = v1.PodFailed
	p.Stage, p.Record.Termination = pod.Terminated, &p.Termination
	initialized := func() bool {
		Update(p, t0)
		return slices.ContainsFunc(p.Status.Conditions, func(c pod.Condition) bool {
			return c.Type == v1.PodInitialized && c.Status
		})
	}
	if !initialized() {
		t.Error("not initialized although an app container has run")
	}
	p.MayLoseRuns, p.Containers = true, nil
	if !initialized() {
		t.Error("not initialized any more without runs")
	}
}

func hasCondition(p *pod.Pod, t v1.PodConditionType) bool {
	Update(p, t0)
	return slices.ContainsFunc(p.Status.Conditions, func(c pod.Condition) bool {
		return c.Type == t && c.Status
	})
}

// A pod that was initialized stays so while its init containers run again in a new sandbox, also
// for an agent that was started again.
func TestInitializedStays(t *testing.T) {
	p := newPod(v1.RestartPolicyAlways, newRun(0, pod.Running, 0))
	p.Spec.Spec.InitContainers = []v1.Container{{Name: "setup", Image: "i"}}
	before := hasCondition(p, v1.PodInitialized)
	p.Containers, p.Sandboxes[0].ID = nil, "s2"
	if !before || !hasCondition(p, v1.PodInitialized) {
		t.Errorf("initialized %v, and in a new sandbox it is not", before)
	}
	p.Status.Conditions = nil
	if hasCondition(p, v1.PodInitialized) {
		t.Error("initialized without any run and any earlier report")
	}
	p.Status.Conditions = nil
	p.Spec.Status.Conditions = []v1.PodCondition{{Type: v1.PodInitialized, Status: v1.ConditionTrue}}
	if !hasCondition(p, v1.PodInitialized) {
		t.Error("what an earlier agent reported is lost")
	}
}

// A pod is not ready to start containers before its volumes are set up. Volumes that an agent which
// was started again has yet to look at change nothing for containers that run.
func TestReadyToStartContainers(t *testing.T) {
	p := newPod(v1.RestartPolicyAlways)
	if !hasCondition(p, v1.PodReadyToStartContainers) {
		t.Error("a pod without volumes is not ready to start containers")
	}
	p.Spec.Spec.Volumes = []v1.Volume{{Name: "v"}}
	if hasCondition(p, v1.PodReadyToStartContainers) {
		t.Error("ready to start containers without a volume")
	}
	p.Storage.Volumes.Volumes = []volume.Volume{{Name: "v", Ready: true}}
	if !hasCondition(p, v1.PodReadyToStartContainers) {
		t.Error("not ready to start containers with the volume")
	}
	p.Storage.Volumes.Volumes, p.Containers = nil, []pod.Container{newRun(0, pod.Running, 0)}
	if !hasCondition(p, v1.PodReadyToStartContainers) {
		t.Error("not ready to start containers while one runs")
	}
}

// The time of a condition's last transition changes with its status alone.
func TestLastTransition(t *testing.T) {
	p := newPod(v1.RestartPolicyAlways, newRun(0, pod.Running, 0))
	since := func() time.Time {
		for _, c := range p.Status.Conditions {
			if c.Type == v1.PodReady {
				return c.Since
			}
		}
		return time.Time{}
	}
	Update(p, t0)
	if Update(p, t0.Add(time.Minute)); !since().Equal(t0) {
		t.Errorf("the last transition of a pod that stays ready is %v", since())
	}
	p.Containers[0] = newRun(0, pod.Exited, 1)
	if Update(p, t0.Add(time.Hour)); !since().Equal(t0.Add(time.Hour)) {
		t.Errorf("the last transition of a pod that is not ready any more is %v", since())
	}
}

// A status is about to change while something is created or an image has neither a problem nor a
// pull yet, while the exit of a container is inspected, and when nothing of a terminating pod is
// live; not while an image is pulled or has a problem, and not while containers end.
func TestIsAboutToChange(t *testing.T) {
	for _, c := range []struct {
		name string
		pod  pod.Pod
		want bool
	}{
		{"idle", pod.Pod{Stage: pod.Syncing}, false},
		{"creation", pod.Pod{Stage: pod.Syncing, Op: 1}, true},
		{"an image is looked for", pod.Pod{Stage: pod.Syncing,
			PendingImages: []pod.PendingImage{{}}}, true},
		{"it is pulled", pod.Pod{Stage: pod.Syncing,
			PendingImages: []pod.PendingImage{{PullReported: t0}}}, false},
		{"it cannot be had", pod.Pod{Stage: pod.Syncing,
			PendingImages: []pod.PendingImage{{Problem: &image.Problem{}}}}, false},
		{"a container ends", pod.Pod{Stage: pod.Terminating, Op: 1,
			Containers: []pod.Container{newRun(0, pod.Running, 0)}}, false},
		{"all have ended", pod.Pod{Stage: pod.Terminating,
			Containers: []pod.Container{newRun(0, pod.Exited, 1)}}, true},
		{"an exit is inspected", pod.Pod{Stage: pod.Syncing,
			Containers: []pod.Container{{State: pod.Exited, Inspected: pod.Running}}}, true},
		{"the end", pod.Pod{Stage: pod.Terminated,
			Containers: []pod.Container{newRun(0, pod.Exited, 1)}}, false},
	} {
		if got := IsAboutToChange(&c.pod); got != c.want {
			t.Errorf("%s: about to change %t", c.name, got)
		}
	}
}

// The containers of a pod share twelve kilobytes.
func TestMessagesAreLimited(t *testing.T) {
	pod := &v1.Pod{}
	for i := range 4 {
		name := fmt.Sprint("c", i)
		pod.Spec.Containers = append(pod.Spec.Containers, v1.Container{Name: name})
		state := v1.ContainerState{Terminated: &v1.ContainerStateTerminated{
			Message: strings.Repeat("ä", 2000)}}
		pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, v1.ContainerStatus{
			Name: name, State: state, LastTerminationState: *state.DeepCopy()})
	}
	Limit(pod)
	for _, s := range pod.Status.ContainerStatuses {
		for _, text := range []string{
			s.State.Terminated.Message, s.LastTerminationState.Terminated.Message,
		} {
			if want := strings.Repeat("ä", 1536); text != want {
				t.Fatalf("%d bytes, want %d", len(text), len(want))
			}
		}
	}
}

// No message, and not all of them together, makes a status that the API server does not take.
func TestStatusIsLimited(t *testing.T) {
	long := strings.Repeat("ä", 1<<20)
	p := newPod(v1.RestartPolicyAlways)
	p.Spec.Spec.Containers = nil
	for i := range 200 {
		name := fmt.Sprint("c", i)
		p.Spec.Spec.Containers = append(p.Spec.Spec.Containers, v1.Container{Name: name,
			Image: long[:2000]})
		p.Problems = append(p.Problems, pod.Problem{Container: name, Reason: "CreateContainerError",
			Message: long})
		common := v1.EphemeralContainerCommon{Name: "e" + name, Image: "i"}
		p.Spec.Spec.EphemeralContainers = append(p.Spec.Spec.EphemeralContainers,
			v1.EphemeralContainer{EphemeralContainerCommon: common})
		run := newRun(0, pod.Exited, 1)
		run.Name, run.Message = common.Name, long
		p.Containers = append(p.Containers, run)
	}
	p.Resize.Pending = &pod.ResizeState{Reason: "Infeasible", Message: long}
	Update(p, t0)
	p.Termination = pod.Termination{Reason: "Evicted", Message: long}
	p.Status.Phase = v1.PodFailed
	served := ServedPod(p, &pod.Node{}, "c")
	encoded, err := json.Marshal(served.Status)
	if err != nil || len(encoded) > 600<<10 {
		t.Errorf("a status of %d bytes, %v", len(encoded), err)
	}
	status := &served.Status
	first, ephemeral := &status.ContainerStatuses[0], &status.EphemeralContainerStatuses[0]
	for i, c := range []struct {
		got   string
		bytes int
	}{
		{status.Message, 12 << 10}, {first.State.Waiting.Message, 326}, {first.Image, 162},
		{ephemeral.State.Terminated.Message, 326},
		{status.Conditions[len(status.Conditions)-1].Message, 12 << 10},
	} {
		if len(c.got) != c.bytes || !strings.HasPrefix(long, c.got) {
			t.Errorf("%d: %d bytes, want %d", i, len(c.got), c.bytes)
		}
	}
}

// What an image or the runtime may have of any length is limited for each container, and does not
// change the facts of the pod.
func TestImagesAndGroupsAreLimited(t *testing.T) {
	long := strings.Repeat("i", 5000)
	p := newPod(v1.RestartPolicyAlways)
	run := newRun(1, pod.Running, 0)
	run.Image, run.ImageID = "x"+long, long
	earlier := newRun(0, pod.Exited, 1)
	earlier.Reason = strings.Repeat("r", 1<<20)
	run.User = &v1.ContainerUser{Linux: &v1.LinuxContainerUser{
		SupplementalGroups: make([]int64, budget.ContainerGroupsMax)}}
	p.Containers = []pod.Container{earlier, run}
	check := func(containers, bytes, groups int) {
		t.Helper()
		for i := len(p.Spec.Spec.Containers); i < containers; i++ {
			p.Spec.Spec.Containers = append(p.Spec.Spec.Containers,
				v1.Container{Name: fmt.Sprint("z", i)}) // after the first one by name
		}
		Update(p, t0)
		c := &ServedPod(p, &pod.Node{}, "c").Status.ContainerStatuses[0]
		if len(c.Image) != bytes || c.ImageID != "" {
			t.Errorf("an image of %d bytes, want %d; an ID of %d, want none, as a part of it would be "+
				"another image's", len(c.Image), bytes, len(c.ImageID))
		}
		if got := len(c.User.Linux.SupplementalGroups); got != groups {
			t.Errorf("%d groups, want %d", got, groups)
		}
		if got := len(c.LastTerminationState.Terminated.Reason); got == 0 || got > 12<<10 {
			t.Errorf("a reason of %d bytes", got)
		}
	}
	check(1, 1024, 256)
	check(16, 1024, 256)
	check(256, 256, 16)
	if len(run.User.Linux.SupplementalGroups) != budget.ContainerGroupsMax {
		t.Error("the facts have fewer groups")
	}
}

// A pod that is at all bounds at once has a status of less than 1 MiB.
func TestStatusAtAllBounds(t *testing.T) {
	text := func(bytes, i int) string { return fmt.Sprintf("%0*d", bytes, i) }
	const containers = budget.ContainersMax
	p := newPod(v1.RestartPolicyAlways)
	p.Spec.Spec.Containers, p.Containers = nil, nil
	for i := range containers {
		c := v1.Container{Name: text(63, i), Image: text(budget.ImageReferenceMax, 0)}
		for k := range budget.MountsOfPodMax / containers {
			c.VolumeMounts = append(c.VolumeMounts, v1.VolumeMount{Name: text(63, k), ReadOnly: true,
				MountPath: text(budget.MountPathsMax/budget.MountsOfPodMax, k)})
		}
		c.Resources.Requests = v1.ResourceList{}
		for k := range budget.ResourcesMax / containers {
			name := text(budget.ResourceNamesMax/budget.ResourcesMax/2, k)
			c.Resources.Requests[v1.ResourceName(name)] = resource.MustParse("999999999999999999m")
		}
		c.Resources.Limits = c.Resources.Requests
		p.Spec.Spec.Containers = append(p.Spec.Spec.Containers, c)
		for attempt := range uint32(2) {
			run := newRun(attempt, pod.Exited, 1)
			run.Name, run.ID, run.Message = c.Name, text(64, i), text(budget.MessageMax, i)
			run.Reason, run.Image, run.ImageID = text(100, 0), "i"+c.Image, c.Image
			run.User = &v1.ContainerUser{Linux: &v1.LinuxContainerUser{SupplementalGroups: slices.Repeat(
				[]int64{math.MaxInt32}, budget.ContainerGroupsMax)}}
			p.Containers = append(p.Containers, run)
		}
	}
	if err := budget.CheckSpec(&p.Spec.Spec, 0, 0); err != nil {
		t.Fatal(err)
	}
	p.Termination = pod.Termination{Reason: "Evicted", Message: text(budget.MessageMax, 0)}
	Update(p, t0)
	encoded, err := json.Marshal(ServedPod(p, &pod.Node{}, "containerd").Status)
	if err != nil || len(encoded) < 700<<10 || len(encoded) > 1<<20 {
		t.Errorf("a status of %d bytes, %v", len(encoded), err)
	}
}

// Containers of every kind have their volume mounts in the status.
func TestVolumeMounts(t *testing.T) {
	p := newPod(v1.RestartPolicyAlways)
	mounts := []v1.VolumeMount{{Name: "v", MountPath: "/v", ReadOnly: true}}
	p.Spec.Spec.InitContainers = []v1.Container{{Name: "setup", VolumeMounts: mounts}}
	p.Spec.Spec.Containers[0].VolumeMounts = mounts
	p.Spec.Spec.EphemeralContainers = []v1.EphemeralContainer{{
		EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: "debug", VolumeMounts: mounts}}}
	Update(p, t0)
	status := ServedPod(p, &pod.Node{}, "containerd").Status
	for _, list := range [][]v1.ContainerStatus{status.InitContainerStatuses,
		status.ContainerStatuses, status.EphemeralContainerStatuses} {
		if len(list) != 1 || len(list[0].VolumeMounts) != 1 ||
			list[0].VolumeMounts[0].MountPath != "/v" || !list[0].VolumeMounts[0].ReadOnly {
			t.Errorf("statuses %+v", list)
		}
	}
}

// A pod that was ended for a critical pod, for the node or for its shutdown has the condition
// together with its terminal phase, also if that is not durable yet. One that was over a limit of
// its own has not.
func TestDisruptionTarget(t *testing.T) {
	for _, test := range []struct {
		end     func(p *pod.Pod)
		message string // empty: no condition
	}{
		{func(p *pod.Pod) { p.Preempt(t0) },
			"Pod was preempted by Kubelet to accommodate a critical pod."},
		{func(p *pod.Pod) { p.ShutDown(time.Second, t0) },
			"Pod was terminated in response to imminent node shutdown."},
		{func(p *pod.Pod) { p.Evict("The node was low", time.Second, t0) }, "The node was low"},
		{func(p *pod.Pod) { p.ClearDesired(t0) }, ""},
		{func(p *pod.Pod) { // evicted while it ends for another reason
			p.Stage = pod.Terminating
			p.Termination = pod.Termination{Reason: "DeadlineExceeded", Message: "too long", Since: t0}
			p.Evict("The node was low", time.Second, t0)
		}, "The node was low"},
		{func(p *pod.Pod) { // the API server has it as ended already
			p.ShutDown(time.Second, t0)
			p.Spec.Status.Phase = v1.PodFailed
		}, ""},
	} {
		p := newPod(v1.RestartPolicyAlways, newRun(0, pod.Running, 0))
		disruption := func() *v1.PodCondition {
			Update(p, t0)
			for _, c := range ServedPod(p, &pod.Node{}, "c").Status.Conditions {
				if c.Type == v1.DisruptionTarget {
					return &c
				}
			}
			return nil
		}
		if test.end(p); disruption() != nil {
			t.Errorf("%q is reported while the pod terminates", test.message)
		}
		p.Containers[0] = newRun(0, pod.Exited, 143)
		p.Sandboxes[0].Ready, p.Stage = false, pod.Terminated
		if (disruption() != nil) != (test.message != "") {
			t.Errorf("%q: %+v with a terminal phase that is not durable", test.message, disruption())
		}
		p.Record.Termination = &p.Termination
		got := disruption()
		if test.message == "" {
			if got != nil {
				t.Errorf("condition %+v of a pod that was deleted", got)
			}
			continue
		}
		if got == nil || got.Status != v1.ConditionTrue || got.Reason != "TerminationByKubelet" ||
			got.Message != test.message {
			t.Errorf("condition %+v of phase %s, want %q", got, p.Status.Phase, test.message)
		}
	}
}

// A container whose postStart hook has failed waits with that reason: while it is being stopped,
// and until it backs off or runs again.
func TestFailedPostStartHookIsReported(t *testing.T) {
	hook := &v1.Lifecycle{PostStart: &v1.LifecycleHandler{Exec: &v1.ExecAction{}}}
	for _, c := range []struct {
		state   pod.State
		backoff time.Duration
		want    string
	}{
		{pod.Running, 0, "PostStartHookError"}, {pod.Exited, 0, "PostStartHookError"},
		{pod.Exited, 10 * time.Second, "CrashLoopBackOff"},
	} {
		run := newRun(0, c.state, 137)
		run.PostStart.Failure, run.Backoff = "command exited with 1", c.backoff
		p := newPod(v1.RestartPolicyAlways, run)
		p.Spec.Spec.Containers[0].Lifecycle = hook
		Update(p, t0)
		waiting := ServedPod(p, &pod.Node{}, "c").Status.ContainerStatuses[0].State.Waiting
		if waiting == nil || waiting.Reason != c.want {
			t.Errorf("%s, back-off %v: %+v, want %s", c.state, c.backoff, waiting, c.want)
		}
	}
}

// A pod of more containers than one may have is not started. Its status has those within the bound
// of each kind, and conditions that name some of the others.
func TestStatusOfTooManyContainers(t *testing.T) {
	p := newPod(v1.RestartPolicyAlways)
	spec := &p.Spec.Spec
	spec.Containers = nil
	for i := range 5000 {
		name := fmt.Sprint("c", i)
		spec.InitContainers = append(spec.InitContainers, v1.Container{Name: "init-" + name})
		spec.Containers = append(spec.Containers, v1.Container{Name: name})
		spec.ReadinessGates = append(spec.ReadinessGates, v1.PodReadinessGate{
			ConditionType: v1.PodConditionType("example.com/" + name)})
	}
	p.Containers = []pod.Container{newRun(0, pod.Running, 0)} // of another agent
	p.Containers[0].Name = "c4000"
	Update(p, t0)
	status := ServedPod(p, &pod.Node{}, "c").Status
	apps := status.ContainerStatuses
	hasRun := func(c v1.ContainerStatus) bool { return c.Name == "c4000" }
	if len(status.InitContainerStatuses) != 256 || len(apps) != 257 ||
		!slices.ContainsFunc(apps, hasRun) {
		t.Errorf("%d init and %d app containers", len(status.InitContainerStatuses), len(apps))
	}
	for _, c := range status.Conditions {
		if len(c.Message) > 4200 || c.Message != "" && !strings.Contains(c.Message, " more") {
			t.Errorf("%s: %d bytes: %s", c.Type, len(c.Message), c.Message)
		}
	}
	if gates := unmetReadinessGates(p); len(gates) > 4200 || !strings.HasSuffix(gates, " more") {
		t.Errorf("%d bytes: %s", len(gates), gates)
	}
}

// Reason and message come with the terminal phase: a pod that is being evicted is served as
// running.
func TestReasonComesWithThePhase(t *testing.T) {
	p := newPod(v1.RestartPolicyAlways)
	p.Termination = pod.Termination{Reason: "Evicted", Message: "low"}
	for _, phase := range []v1.PodPhase{v1.PodRunning, v1.PodFailed} {
		Update(p, t0)
		p.Status.Phase = phase
		status := &ServedPod(p, &pod.Node{}, "c").Status
		if has := status.Reason == "Evicted" && status.Message == "low"; has != (phase == v1.PodFailed) {
			t.Errorf("in phase %s the reason is %q, the message %q", phase, status.Reason, status.Message)
		}
	}
}

package oracle

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"seedlet.dev/core/manifest"
	"seedlet.dev/sim/truth"
)

const (
	podsDir = "/var/lib/kubelet/pods"
	logsDir = "/var/log/pods"
)

var begin = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// story tells a panel what happens to the pod "u1", and to others by name. Ids say what they name:
// sandbox "s0", container "app#2".
type story struct {
	*Panel
	now   time.Time
	round int // that containers are made in
	pods  map[string]*v1.Pod
}

func tell() *story {
	return &story{Panel: NewPanel(Options{PodsDir: podsDir, LogsDir: logsDir}), now: begin,
		pods: map[string]*v1.Pod{}}
}

func (s *story) wait(seconds float64) {
	s.now = s.now.Add(time.Duration(seconds * float64(time.Second)))
}

// spec is a pod with containers, of which those whose names begin with "init" are init containers.
func spec(uid string, policy v1.RestartPolicy, containers ...string) *v1.Pod {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: types.UID(uid), Namespace: "ns", Name: "web"}}
	grace := int64(30)
	p.Spec.RestartPolicy, p.Spec.TerminationGracePeriodSeconds = policy, &grace
	for _, name := range containers {
		c := v1.Container{Name: name, Image: "image:1"}
		if strings.HasPrefix(name, "init") {
			p.Spec.InitContainers = append(p.Spec.InitContainers, c)
		} else {
			p.Spec.Containers = append(p.Spec.Containers, c)
		}
	}
	return p
}

func (s *story) want(p *v1.Pod) {
	s.pods[string(p.UID)] = p
	s.Wanted(s.now, p)
}

func (s *story) fact(kind truth.Kind, f truth.Fact) {
	f.Time, f.Kind, f.PodNamespace = s.now, kind, "ns"
	if f.PodUID == "" {
		f.PodUID = "u1"
	}
	if f.PodName == "" {
		f.PodName = "web"
		if p := s.pods[f.PodUID]; p != nil {
			f.PodName = p.Name
		}
	}
	s.Fact(f)
}

// sandbox makes a sandbox that is ready.
func (s *story) sandbox(uid string, attempt uint32) string {
	f := truth.Fact{PodUID: uid, SandboxID: fmt.Sprintf("%s-s%d", uid, attempt), Attempt: attempt}
	s.fact(truth.SandboxCreated, f)
	s.fact(truth.SandboxReady, f)
	return f.SandboxID
}

func (s *story) sandboxIs(kind truth.Kind, id string) {
	uid, _, _ := strings.Cut(id, "-")
	s.fact(kind, truth.Fact{PodUID: uid, SandboxID: id, Cause: truth.CauseStop})
}

// container is a run that the story is about.
type run struct {
	s *story
	f truth.Fact
}

// create makes a container as the agent should: of the spec, with its number written on it.
func (s *story) create(sandbox, name string, attempt uint32) run {
	uid, _, _ := strings.Cut(sandbox, "-")
	f := truth.Fact{PodUID: uid, SandboxID: sandbox, Container: name, Attempt: attempt,
		ContainerID: fmt.Sprintf("%s-%s#%d", uid, name, attempt)}
	created := f
	created.Annotations = map[string]string{
		annotationRound:    fmt.Sprint(s.round),
		annotationHash:     manifest.ContainerHash(&v1.Container{Name: name, Image: "image:1"}),
		annotationRestarts: fmt.Sprint(attempt), annotationGrace: "30",
	}
	s.fact(truth.ContainerCreated, created)
	return run{s, f}
}

func (s *story) start(sandbox, name string, attempt uint32) run {
	r := s.create(sandbox, name, attempt)
	r.is(truth.ContainerStarted, "")
	return r
}

func (r run) is(kind truth.Kind, cause string) {
	f := r.f
	f.Cause = cause
	r.s.fact(kind, f)
}

func (r run) exit(code int32, cause string) {
	f := r.f
	f.ExitCode, f.Cause = code, cause
	r.s.fact(truth.ContainerExited, f)
}

// path is something on the disk.
func (s *story) path(kind truth.Kind, path, cause string) {
	s.Fact(truth.Fact{Time: s.now, Kind: kind, Path: path, Cause: cause})
}

// shows has the API show a pod, with the given runs as they are ("app#2 ready", "app#2 waiting").
func (s *story) shows(uid string, phase v1.PodPhase, runs ...string) {
	s.Answer(s.now, []*v1.Pod{s.shown(uid, phase, runs...)})
}

func (s *story) shown(uid string, phase v1.PodPhase, runs ...string) *v1.Pod {
	p := s.pods[uid].DeepCopy()
	p.Status.Phase = phase
	for _, text := range runs {
		var name, is string
		var count int32
		if _, err := fmt.Sscanf(strings.Replace(text, "#", " ", 1), "%s %d %s",
			&name, &count, &is); err != nil {
			panic(err)
		}
		status := v1.ContainerStatus{Name: name, RestartCount: count,
			ContainerID: fmt.Sprintf("sim://%s-%s#%d", uid, name, count)}
		switch is {
		case "ready":
			status.Ready, status.State.Running = true, &v1.ContainerStateRunning{}
		case "running":
			status.State.Running = &v1.ContainerStateRunning{}
		case "completed":
			status.Ready, status.State.Terminated = true, &v1.ContainerStateTerminated{}
		case "terminated":
			status.State.Terminated = &v1.ContainerStateTerminated{}
		case "waiting":
			status.State.Waiting = &v1.ContainerStateWaiting{}
		default:
			panic(text)
		}
		if strings.HasPrefix(name, "init") {
			p.Status.InitContainerStatuses = append(p.Status.InitContainerStatuses, status)
		} else {
			p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, status)
		}
	}
	return p
}

// fired are the names of the oracles that have, in order.
func (s *story) fired() string {
	var names []string
	for _, v := range s.Violations() {
		names = append(names, v.Oracle)
	}
	return strings.Join(names, " ")
}

func (s *story) unsettled() string {
	return strings.Join(slices.Compact(slices.Sorted(s.Unsettled(s.now))), "\n")
}

// runs is the usual beginning: a pod with one container that runs.
func (s *story) runs(policy v1.RestartPolicy) run {
	s.AgentStarted(s.now)
	s.want(spec("u1", policy, "app"))
	return s.start(s.sandbox("u1", 0), "app", 0)
}

// tale is a story and the oracle that should fire at its end, empty for none.
type tale struct {
	name  string
	fires string
	tell  func(s *story)
}

func judge(t *testing.T, tales []tale) {
	t.Helper()
	for _, tale := range tales {
		t.Run(tale.name, func(t *testing.T) {
			s := tell()
			tale.tell(s)
			s.wait(60)
			s.Answer(s.now, nil)
			if got := s.fired(); got != tale.fires {
				t.Errorf("fired %q, want %q: %v", got, tale.fires, s.Violations())
			}
		})
	}
}

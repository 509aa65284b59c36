package oracle

import (
	"cmp"
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"seedlet.dev/sim/truth"
	"seedlet.dev/world"
)

const (
	podsDir = "/var/lib/kubelet/pods"
	logsDir = "/var/log/pods"
)

var begin = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// script feeds facts to a set of oracles, about the pod "u1" unless another one is named. IDs say
// what they are of: sandbox "u1-s0", container "u1-app#2".
type script struct {
	*Set
	now   time.Time
	round int    // of the containers that are created
	image string // of the containers that are created; empty: image:1
	pods  map[string]*v1.Pod
}

func newScript() *script {
	return &script{Set: NewSet(Options{PodsDir: podsDir, LogsDir: logsDir}), now: begin,
		pods: map[string]*v1.Pod{}}
}

// loseCall has a fault apply to the calls of one name that are in flight now, and to no others.
func (s *script) loseCall(name string) {
	at := s.now
	s.model.opts.FaultPossible = func(call string, from, to time.Time) bool {
		return call == name && !at.Before(from) && !at.After(to)
	}
}

// timeOut has a call end without an answer.
func (s *script) timeOut(call string) {
	s.EventReceived(s.now, &world.Event{Err: world.Errorf(world.KindTimeout, call, "late")})
}

func (s *script) wait(seconds float64) {
	s.now = s.now.Add(time.Duration(seconds * float64(time.Second)))
}

// spec returns a pod with containers, of which those named "init…" are init containers.
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

func (s *script) setDesired(p *v1.Pod) {
	s.pods[string(p.UID)] = p
	s.PodDesired(s.now, p)
}

func (s *script) addFact(kind truth.Kind, f truth.Fact) {
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
	s.CheckFact(f)
}

// sandbox adds a sandbox that is ready.
func (s *script) sandbox(uid string, attempt uint32) string {
	f := truth.Fact{PodUID: uid, SandboxID: fmt.Sprintf("%s-s%d", uid, attempt), Attempt: attempt}
	s.addFact(truth.SandboxCreated, f)
	s.addFact(truth.SandboxReady, f)
	return f.SandboxID
}

func (s *script) changeSandbox(kind truth.Kind, id string) {
	uid, _, _ := strings.Cut(id, "-")
	s.addFact(kind, truth.Fact{PodUID: uid, SandboxID: id, Cause: truth.CauseStop})
}

// run is one run of a container.
type run struct {
	script *script
	fact   truth.Fact
}

// create adds a container as the agent should create it: from the spec, with its annotations.
func (s *script) create(sandbox, name string, attempt uint32) run {
	uid, _, _ := strings.Cut(sandbox, "-")
	f := truth.Fact{PodUID: uid, SandboxID: sandbox, Container: name, Attempt: attempt,
		ContainerID: fmt.Sprintf("%s-%s#%d", uid, name, attempt)}
	created := f
	created.Annotations = map[string]string{
		annotationRound:    fmt.Sprint(s.round),
		annotationHash:     containerHash(&v1.Container{Name: name, Image: cmp.Or(s.image, "image:1")}),
		annotationRestarts: fmt.Sprint(attempt), annotationGrace: "30",
	}
	s.addFact(truth.ContainerCreated, created)
	return run{s, f}
}

func (s *script) start(sandbox, name string, attempt uint32) run {
	r := s.create(sandbox, name, attempt)
	r.change(truth.ContainerStarted, "")
	return r
}

func (r run) change(kind truth.Kind, cause string) {
	f := r.fact
	f.Cause = cause
	r.script.addFact(kind, f)
}

func (r run) exit(code int32, cause string) {
	f := r.fact
	f.ExitCode, f.Cause = code, cause
	r.script.addFact(truth.ContainerExited, f)
}

// changePath adds a change on the disk.
func (s *script) changePath(kind truth.Kind, path, cause string) {
	s.CheckFact(truth.Fact{Time: s.now, Kind: kind, Path: path, Cause: cause})
}

// losePower adds a loss of power, after which the disk has these directories of volumes.
func (s *script) losePower(directories ...string) {
	s.haveFiles(directories...)
	s.changePath(truth.PowerLost, "", "")
}

// haveFiles has the disk have these files and directories.
func (s *script) haveFiles(directories ...string) {
	s.model.opts.ListFiles = func(dir string) iter.Seq[File] {
		return func(yield func(File) bool) {
			for _, d := range directories {
				below, found := strings.CutPrefix(d, dir+"/")
				name, _, _ := strings.Cut(below, "/")
				if found && !yield(File{Name: name}) {
					return
				}
			}
		}
	}
}

// serve adds a response with one pod, with runs such as "app#2 ready" or "app#2 waiting".
func (s *script) serve(uid string, phase v1.PodPhase, runs ...string) {
	s.CheckServed(s.now, []*v1.Pod{s.served(uid, phase, runs...)})
}

func (s *script) served(uid string, phase v1.PodPhase, runs ...string) *v1.Pod {
	p := s.pods[uid].DeepCopy()
	p.Status.Phase = phase
	for _, text := range runs {
		var name, state string
		var count int32
		if _, err := fmt.Sscanf(strings.Replace(text, "#", " ", 1), "%s %d %s",
			&name, &count, &state); err != nil {
			panic(err)
		}
		status := v1.ContainerStatus{Name: name, RestartCount: count,
			ContainerID: fmt.Sprintf("sim://%s-%s#%d", uid, name, count)}
		switch state {
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

// violated returns the names of the oracles that have fired, in order.
func (s *script) violated() string {
	var names []string
	for _, v := range s.Violations() {
		names = append(names, v.Oracle)
	}
	return strings.Join(names, " ")
}

func (s *script) unsettled() string {
	return strings.Join(slices.Compact(slices.Sorted(s.Unsettled(s.now))), "\n")
}

// startPod starts the agent and a pod with one container that runs.
func (s *script) startPod(policy v1.RestartPolicy) run {
	s.AgentStarted(s.now)
	s.setDesired(spec("u1", policy, "app"))
	return s.start(s.sandbox("u1", 0), "app", 0)
}

// testCase is a script and the oracles that fire on it; empty for none.
type testCase struct {
	name  string
	want  string
	build func(s *script)
}

func runCases(t *testing.T, cases []testCase) {
	t.Helper()
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			s := newScript()
			c.build(s)
			s.wait(60)
			s.CheckServed(s.now, nil)
			if got := s.violated(); got != c.want {
				t.Errorf("violated %q, want %q: %v", got, c.want, s.Violations())
			}
		})
	}
}

const (
	always    = v1.RestartPolicyAlways
	onFailure = v1.RestartPolicyOnFailure
	never     = v1.RestartPolicyNever
)

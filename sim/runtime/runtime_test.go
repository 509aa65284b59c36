package runtime

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/sim/truth"
	"seedlet.dev/world"
)

// sandboxConfig returns the configuration of a pod's sandbox.
func (w *simWorld) sandboxConfig(uid string) *runtimeapi.PodSandboxConfig {
	config := w.Sandbox()
	config.Metadata = &runtimeapi.PodSandboxMetadata{Name: "web", Namespace: "default", Uid: uid}
	return config
}

func (w *simWorld) mustRun(t *testing.T, uid string) string {
	t.Helper()
	body, err := w.Call(&runtimeapi.RunPodSandboxRequest{Config: w.sandboxConfig(uid)})
	if err != nil {
		t.Fatal(err)
	}
	return body.(*runtimeapi.RunPodSandboxResponse).PodSandboxId
}

func (w *simWorld) createRequest(sandbox, uid, name string, attempt uint32) any {
	config := w.Container("")
	config.Metadata = &runtimeapi.ContainerMetadata{Name: name, Attempt: attempt}
	config.LogPath = name + "/0.log"
	return &runtimeapi.CreateContainerRequest{
		PodSandboxId: sandbox, Config: config, SandboxConfig: w.sandboxConfig(uid)}
}

func (w *simWorld) mustCreate(t *testing.T, sandbox, uid, name string, attempt uint32) string {
	t.Helper()
	body, err := w.Call(w.createRequest(sandbox, uid, name, attempt))
	if err != nil {
		t.Fatal(err)
	}
	return body.(*runtimeapi.CreateContainerResponse).ContainerId
}

func (w *simWorld) mustStart(t *testing.T, id string) {
	t.Helper()
	if _, err := w.Call(&runtimeapi.StartContainerRequest{ContainerId: id}); err != nil {
		t.Fatal(err)
	}
}

// factSummary summarizes the facts so far.
func (w *simWorld) factSummary() string {
	words := make([]string, 0, len(w.facts))
	for _, f := range w.facts {
		s := strings.TrimPrefix(string(f.Kind), "Container")
		if f.Kind == truth.ContainerExited {
			s += fmt.Sprintf("(%d %s)", f.ExitCode, f.Cause)
		} else if f.Cause != "" {
			s += "(" + f.Cause + ")"
		}
		words = append(words, s)
	}
	return strings.Join(words, " ")
}

func (w *simWorld) state(id string) runtimeapi.ContainerState {
	for _, c := range w.runtime.Containers() {
		if c.ID == id {
			return c.State
		}
	}
	return runtimeapi.ContainerState_CONTAINER_UNKNOWN
}

func TestTruthOfAPodLifecycle(t *testing.T) {
	var logs []string
	w := newWorld(1, func(o *Options) {
		o.OpenFile = func(path string) File {
			logs = append(logs, path)
			return &memoryFile{}
		}
		o.Behaviour = func(i Instance) Script {
			if i.PodUID != "u1" || i.Container != "app" || i.Attempt != 4 || i.Starts != 0 {
				t.Errorf("instance %+v", i)
			}
			return Script{IgnoresTerm: true}
		}
	})
	s := w.mustRun(t, "u1")
	c := w.mustCreate(t, s, "u1", "app", 4)
	w.mustStart(t, c)
	started := w.Now()
	if _, err := w.Call(&runtimeapi.StopContainerRequest{ContainerId: c, Timeout: 5}); err != nil {
		t.Fatal(err)
	}
	if took := w.Now().Sub(started); took < 5*time.Second || took > 6*time.Second {
		t.Errorf("the stop took %v", took)
	}
	if _, err := w.Call(&runtimeapi.RemovePodSandboxRequest{PodSandboxId: s}); err != nil {
		t.Fatal(err)
	}
	want := "SandboxCreated SandboxReady Created Started StopRequested KillRequested(stop) " +
		"Exited(137 stop) SandboxStopped(remove) Removed SandboxRemoved"
	if got := w.factSummary(); got != want {
		t.Errorf("facts: %s\nwant:  %s", got, want)
	}
	if !slices.Equal(logs, []string{"/var/log/pods/parity/app/0.log"}) {
		t.Errorf("logs %q", logs)
	}
	for i, f := range w.facts {
		if i > 0 && f.Time.Before(w.facts[i-1].Time) || f.PodUID != "u1" || f.SandboxID != s {
			t.Errorf("fact %+v", f)
		}
	}
}

func TestProcessesEndByThemselves(t *testing.T) {
	w := newWorld(1, func(o *Options) {
		o.Behaviour = func(i Instance) Script {
			return Script{RunsFor: time.Minute, ExitCode: int32(i.Starts), OOM: i.Starts == 2}
		}
	})
	s := w.mustRun(t, "u1")
	for attempt := range uint32(3) {
		w.mustStart(t, w.mustCreate(t, s, "u1", "app", attempt))
		w.Sleep(59 * time.Second)
		if !w.runtime.Containers()[0].FinishedAt.IsZero() && attempt == 0 {
			t.Error("the process ended too early")
		}
		w.Sleep(2 * time.Second)
	}
	want := "SandboxCreated SandboxReady Created Started Exited(0 own) " +
		"Created Started Exited(1 own) Created Started Exited(137 oom)"
	if got := w.factSummary(); got != want {
		t.Errorf("facts: %s", got)
	}
	reasons := map[string]int{}
	for _, c := range w.runtime.Containers() {
		reasons[c.Reason]++
	}
	if fmt.Sprint(reasons) != "map[Completed:1 Error:1 OOMKilled:1]" {
		t.Errorf("reasons %v", reasons)
	}
}

func TestUnchangedListsAreShared(t *testing.T) {
	w := newWorld(1, nil)
	w.populate(3)
	list := func() *runtimeapi.ListContainersResponse {
		body, _ := w.Call(&runtimeapi.ListContainersRequest{})
		return body.(*runtimeapi.ListContainersResponse)
	}
	first := list()
	if list() != first {
		t.Error("an unchanged list was rebuilt")
	}
	changed := w.runtime.Containers()[2]
	w.runtime.Kill(changed.PodUID, changed.Name, truth.CauseKilled, 9)
	second := list()
	if second == first || first.Containers[2].State != running ||
		second.Containers[2].State != exited {
		t.Error("a response was modified after it was sent, or is not current")
	}
	for i := range first.Containers {
		if (first.Containers[i] == second.Containers[i]) != (i != 2) {
			t.Errorf("item %d: not only the changed items were rebuilt", i)
		}
	}
	if !slices.IsSortedFunc(second.Containers, func(a, b *runtimeapi.Container) int {
		return strings.Compare(a.Id, b.Id)
	}) {
		t.Error("the list is not sorted by ID")
	}
}

func TestImagesByPlan(t *testing.T) {
	w := newWorld(1, func(o *Options) {
		o.Images = func(ref string, pulls int) Image {
			img := Image{Absent: true, PullDuration: 7 * time.Second}
			if pulls < 2 {
				img.PullError = &world.Error{Kind: world.KindUnavailable, Message: "registry down"}
			}
			return img
		}
	})
	spec := &runtimeapi.ImageSpec{Image: "registry.test/app:1"}
	for i := range 3 {
		started := w.Now()
		_, err := w.Call(&runtimeapi.PullImageRequest{Image: spec})
		if (err == nil) != (i == 2) || w.Now().Sub(started) < 7*time.Second {
			t.Errorf("pull %d: %v after %v", i, err, w.Now().Sub(started))
		}
		body, _ := w.Call(&runtimeapi.ImageStatusRequest{Image: spec})
		if present := body.(*runtimeapi.ImageStatusResponse).Image != nil; present != (i == 2) {
			t.Errorf("after pull %d: present %v", i, present)
		}
	}
	if w.factSummary() != "ImagePulled" {
		t.Errorf("facts: %s", w.factSummary())
	}
}

func TestSameSeedSameWorld(t *testing.T) {
	run := func(seed uint64) string {
		w := newWorld(seed, nil)
		w.populate(4)
		return fmt.Sprint(w.facts, w.runtime.Containers(), w.runtime.Sandboxes(), w.Now())
	}
	if run(7) != run(7) {
		t.Error("two runs of a seed differ")
	}
	if run(7) == run(8) {
		t.Error("two seeds led to the same run")
	}
}

package pod

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/core/logs"
	"seedlet.dev/core/op"
	"seedlet.dev/world"
)

const messageHost = "/var/lib/kubelet/pods/u/containers/web/0"

// died is how the runtime tells of the end of a container.
func died(code int32, policy v1.TerminationMessagePolicy) *runtimeapi.ContainerStatus {
	return &runtimeapi.ContainerStatus{
		State: runtimeapi.ContainerState_CONTAINER_EXITED, ExitCode: code, StartedAt: 1,
		Annotations: map[string]string{
			annotationMessagePath: "/dev/termination-log", annotationMessagePolicy: string(policy),
		},
		Mounts: []*runtimeapi.Mount{{ContainerPath: "/etc/hosts", HostPath: "/x"},
			{ContainerPath: "/dev/termination-log", HostPath: messageHost}},
	}
}

// dead is a pod whose container has exited so, at t0, and an environment for its plans.
func dead(status *runtimeapi.ContainerStatus) (*Pod, *Env, *op.Table) {
	c := run("web", 0, Exited)
	c.Inspected = Running
	p := facts(spec(v1.RestartPolicyNever, "", "web"), c)
	env := &Env{Node: &Node{LogsDir: "/logs", PodsDir: "/pods", LinksDir: "/links"},
		Out: &op.Out{}}
	p.containerInspected(op.Record{Subject: c.ID}, world.Event{Time: t0,
		Body: &runtimeapi.ContainerStatusResponse{Status: status}}, env)
	return p, env, &op.Table{}
}

// reads has the pod read what it wants to at a time, and answers; it is the path, or empty.
func reads(p *Pod, env *Env, table *op.Table, now time.Time, answer any) string {
	env.Out.Begin(table, now)
	w := waits{now: now}
	p.readMessages(env, &w)
	effects := env.Out.Take()
	if len(effects) == 0 {
		return ""
	}
	rec, _ := table.Settle(effects[0].Op)
	ev := world.Event{Time: now, Body: answer}
	if err, is := answer.(*world.Error); is {
		ev.Body, ev.Err = nil, err
	}
	p.messageRead(rec, ev)
	return effects[0].Body.(*world.ReadTail).Path
}

func TestMessageIsReadFromItsFile(t *testing.T) {
	p, env, table := dead(died(1, v1.TerminationMessageReadFile))
	c := p.container("web0")
	if c.ended() {
		t.Error("the container has ended before its message is known")
	}
	said := &world.TailRead{Data: []byte("out of \xff cheese")}
	if got := reads(p, env, table, t0, said); got != messageHost {
		t.Errorf("read from %q", got)
	}
	if !c.ended() || c.lastWords() != "out of \uFFFD cheese" {
		t.Errorf("ended %t, message %q", c.ended(), c.lastWords())
	}
	if got := reads(p, env, table, t0, nil); got != "" {
		t.Errorf("read again from %q", got)
	}
	if c.Message = "OOM"; c.lastWords() != "OOM: out of \uFFFD cheese" {
		t.Errorf("with the runtime's: %q", c.lastWords())
	}
}

func TestMessageFallsBackToTheLog(t *testing.T) {
	notThere := world.Errorf(world.KindNotFound, "ReadTail", "no such file")
	log := &world.TailRead{Data: []byte("2026-01-01T00:00:00Z stderr F panic\n")}
	fallback := v1.TerminationMessageFallbackToLogsOnError
	unstarted := died(128, fallback)
	unstarted.StartedAt = 0
	for _, test := range []struct {
		name   string
		status *runtimeapi.ContainerStatus
		file   any
		want   string
	}{
		{"nothing written", died(1, fallback), &world.TailRead{}, "panic\n"},
		{"no file", died(1, fallback), notThere, "panic\n"},
		{"something written", died(1, fallback), &world.TailRead{Data: []byte("x")}, "x"},
		{"it ended well", died(0, fallback), &world.TailRead{}, ""},
		{"not asked for", died(1, v1.TerminationMessageReadFile), notThere, ""},
		{"it never ran", unstarted, &world.TailRead{}, ""},
	} {
		p, env, table := dead(test.status)
		reads(p, env, table, t0, test.file)
		if path := reads(p, env, table, t0, log); path != "" && path != "/logs/default_p_u/web/0.log" {
			t.Errorf("%s: read from %q", test.name, path)
		}
		if c := p.container("web0"); !c.ended() || c.lastWords() != test.want {
			t.Errorf("%s: ended %t, message %q, want %q", test.name, c.ended(), c.lastWords(),
				test.want)
		}
	}
}

// A message that cannot be read holds nothing up for ever, and is shown when it is read after all.
func TestMessageThatCannotBeRead(t *testing.T) {
	p, env, table := dead(died(1, v1.TerminationMessageReadFile))
	c, now := p.container("web0"), t0
	for n := range messageTries {
		if c.ended() {
			t.Fatalf("given up after %d failures", n)
		}
		reads(p, env, table, now, world.Errorf(world.KindInternal, "ReadTail", "I/O error"))
		if got := reads(p, env, table, now, nil); got != "" {
			t.Error("read again at once")
		}
		now = now.Add(waitAfter(n + 1))
	}
	if want := "Error on reading termination log " + messageHost + ": I/O error"; !c.ended() ||
		c.lastWords() != want {
		t.Errorf("ended %t with %q", c.ended(), c.lastWords())
	}
	reads(p, env, table, now, &world.TailRead{Data: []byte("late")})
	if c.lastWords() != "late" {
		t.Errorf("message %q", c.lastWords())
	}
	p, env, table = dead(died(1, v1.TerminationMessageFallbackToLogsOnError))
	reads(p, env, table, t0, &world.TailRead{})
	c, now = p.container("web0"), t0
	for range messageTries + 1 { // its log is being rotated, or has gone
		reads(p, env, table, now, world.Errorf(world.KindNotFound, "ReadTail", "not there"))
		now = now.Add(time.Minute)
	}
	if got := reads(p, env, table, now, nil); got != "" || !c.ended() || c.lastWords() != "" {
		t.Errorf("a log that is not there: read again %q, says %q", got, c.lastWords())
	}
	p, env, table = dead(died(1, v1.TerminationMessageReadFile))
	reads(p, env, table, t0, world.Errorf(world.KindInvalid, "ReadTail", "it is a pipe"))
	if got := reads(p, env, table, t0.Add(time.Hour), nil); got != "" {
		t.Errorf("what is no file is read again: %s", got)
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
	limitMessages(pod)
	for _, s := range pod.Status.ContainerStatuses {
		for _, text := range []string{
			s.State.Terminated.Message, s.LastTerminationState.Terminated.Message,
		} {
			if want := strings.Repeat("ä", 1536); text != want {
				t.Fatalf("%d bytes, want %d", len(text), len(want))
			}
		}
	}
	if got := cut("aää", 4); got != "aä" {
		t.Errorf("cut within a character: %q", got)
	}
}

// A new run has an empty file to write to, made before the container is.
func TestMessageFileIsMade(t *testing.T) {
	p := facts(spec(v1.RestartPolicyAlways, "", "web"), run("web", 0, Exited))
	want := p.want("web")
	want.TerminationMessagePath = "/dev/termination-log"
	env, table := &Env{Node: &Node{PodsDir: "/pods"}, Out: &op.Out{}}, &op.Table{}
	var asked []any
	for range 3 {
		env.Out.Begin(table, t0)
		if !p.makeMessageFile(want, env) {
			break
		}
		asked = append(asked, env.Out.Take()[0].Body)
		rec, _ := table.Settle(p.Op)
		p.made(p.Op, rec, world.Event{Time: t0, Body: &world.Done{}}, env)
	}
	expected := []any{&world.MakeDir{Path: "/pods/u/containers/web", Mode: 0o755},
		&world.WriteFile{Path: "/pods/u/containers/web/1", Mode: 0o666, Volatile: true}}
	if diff := cmp.Diff(expected, asked); diff != "" {
		t.Error(diff)
	}
	next := p.run(want, env.Node)
	mounts := p.messageMount(want, &next, env.Node)
	if len(mounts) != 1 || mounts[0].HostPath != "/pods/u/containers/web/1" {
		t.Errorf("mounted are %v", mounts)
	}
	if p.LogDirs != nil || p.problem("web") != nil {
		t.Errorf("the directory was taken for another: %v", p.LogDirs)
	}
	p.forgetMessageFiles("web")
	if !p.makeMessageFile(want, env) {
		t.Error("the file is not made anew for the run after")
	}
}

// What a run has left goes before its record, and so does what a log was renamed to meanwhile.
func TestARunLeavesNothing(t *testing.T) {
	p := facts(spec(v1.RestartPolicyAlways, "", "web"), run("web", 0, Exited), run("web", 1, Exited),
		run("web", 2, Running))
	for i := range p.Containers {
		p.Containers[i].Restarts = int32(p.Containers[i].Attempt)
	}
	if got, want := removal(p, "web0"), []string{
		"/links/p_default_web-web0.log", "/logs/default_p_u/web",
		"/logs/default_p_u/web/0.log", "/logs/default_p_u/web/0.log.20250101-000000.gz",
		"/logs/default_p_u/web", "/logs/default_p_u/web/0.log.20250101-000001",
		"/logs/default_p_u/web", "/pods/u/containers/web/0", "record web0",
	}; !cmp.Equal(want, got) {
		t.Error(cmp.Diff(want, got))
	}
	p.Gone = true // then the directories go as a whole
	if got, want := removal(p, "web1"), []string{
		"/links/p_default_web-web1.log", "record web1",
	}; !cmp.Equal(want, got) {
		t.Error(cmp.Diff(want, got))
	}
}

// A record that never ran, or shares its number with another, takes nothing along.
func TestAStrayLeavesNothingBehind(t *testing.T) {
	p := facts(spec(v1.RestartPolicyAlways, "", "web"), run("web", 0, Created))
	if got, want := removal(p, "web0"), []string{"record web0"}; !cmp.Equal(want, got) {
		t.Error(cmp.Diff(want, got))
	}
	twin := run("web", 0, Exited)
	twin.ID = "other"
	p = facts(spec(v1.RestartPolicyAlways, "", "web"), run("web", 0, Exited), twin)
	if got, want := removal(p, "web0"), []string{"record web0"}; !cmp.Equal(want, got) {
		t.Error(cmp.Diff(want, got))
	}
}

// removal has a container removed and says what was removed or looked at, in order.
func removal(p *Pod, id string) []string {
	env := &Env{Node: &Node{LogsDir: "/logs", PodsDir: "/pods", LinksDir: "/links"},
		Out: &op.Out{}}
	table := &op.Table{}
	files := []string{"0.log", "0.log.20250101-000000.gz", "1.log", "10.log"}
	var all []string
	for range 12 {
		env.Out.Begin(table, t0)
		w := waits{now: t0}
		if p.container(id) == nil {
			break
		}
		p.remove(p.container(id), env, &w)
		ev := world.Event{Time: t0, Body: &world.Done{}}
		eff := env.Out.Take()[0]
		switch body := eff.Body.(type) {
		case *world.RemoveTree:
			all = append(all, body.Path)
			i := slices.Index(files, strings.TrimPrefix(body.Path, "/logs/default_p_u/web/"))
			if i >= 0 && files[i] == "0.log" {
				files[i] = "0.log.20250101-000001"
			} else if i >= 0 {
				files = slices.Delete(files, i, i+1)
			}
		case *world.ListDir:
			all = append(all, body.Path)
			listed := &world.DirListed{}
			for _, name := range files {
				listed.Entries = append(listed.Entries, world.DirEntry{Name: name})
			}
			ev.Body = listed
		case *runtimeapi.RemoveContainerRequest:
			all = append(all, "record "+body.ContainerId)
			ev.Body = &runtimeapi.RemoveContainerResponse{}
		}
		rec, _ := table.Settle(eff.Op)
		p.Answered(eff.Op, rec, ev, env)
	}
	return all
}

// What cannot be removed is tried again later, and the record stays until then.
func TestLeavingsThatStay(t *testing.T) {
	p := facts(spec(v1.RestartPolicyAlways, "", "web"), run("web", 0, Exited))
	env, table := &Env{Node: &Node{LinksDir: "/links"}, Out: &op.Out{}}, &op.Table{}
	env.Out.Begin(table, t0)
	c, w := p.container("web0"), waits{now: t0}
	p.remove(c, env, &w)
	id := c.Left.Op
	rec, _ := table.Settle(id)
	p.Answered(id, rec, world.Event{Time: t0,
		Err: world.Errorf(world.KindInternal, "RemoveTree", "I/O error")}, env)
	env.Out.Begin(table, t0)
	p.remove(c, env, &w)
	if effects := env.Out.Take(); len(effects) > 0 || !w.until.Equal(t0.Add(time.Second)) {
		t.Errorf("tried again at once: %v, or not woken: %v", effects, w.until)
	}
}

func TestLinks(t *testing.T) {
	p := facts(spec(v1.RestartPolicyAlways, "", "web"), run("web", 0, Exited), run("web", 1, Running))
	p.container("web1").Restarts = 1
	env, table := &Env{Node: &Node{LogsDir: "/logs", LinksDir: "/links"}, Out: &op.Out{}}, &op.Table{}
	env.Out.Begin(table, t0)
	w := waits{now: t0}
	p.linkLogs(env, &w)
	p.linkLogs(env, &w) // what is in flight is not begun twice
	effects := env.Out.Take()
	want := &world.MakeLink{Path: "/links/p_default_web-web1.log",
		Target: "/logs/default_p_u/web/1.log"}
	if len(effects) != 1 || !cmp.Equal(want, effects[0].Body) {
		t.Fatalf("asked for %v, want one link", effects)
	}
	rec, _ := table.Settle(effects[0].Op)
	p.Answered(effects[0].Op, rec, world.Event{Time: t0, Body: &world.Done{}}, env)
	env.Out.Begin(table, t0)
	if p.linkLogs(env, &w); len(env.Out.Take()) > 0 {
		t.Error("it is made again")
	}
	if got := logs.LinkPath("/d", "p", "ns", "c", "id"); got != "/d/p_ns_c-id.log" {
		t.Errorf("the kubelet's name is p_ns_c-id.log, this is %s", got)
	}
}

package pod

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/core/criconfig"
	"seedlet.dev/core/logs"
	"seedlet.dev/core/op"
	"seedlet.dev/world"
)

const (
	podsDir     = "/var/lib/kubelet/pods"
	messageHost = podsDir + "/u/containers/web/0"
)

// exitedStatus returns the runtime's status of a container that has exited.
func exitedStatus(code int32, policy v1.TerminationMessagePolicy) *runtimeapi.ContainerStatus {
	return &runtimeapi.ContainerStatus{
		State: runtimeapi.ContainerState_CONTAINER_EXITED, ExitCode: code, StartedAt: 1,
		Annotations: map[string]string{
			criconfig.AnnotationMessagePath:   "dev/termination-log",
			criconfig.AnnotationMessagePolicy: string(policy),
		},
		Mounts: []*runtimeapi.Mount{{ContainerPath: "/etc/hosts", HostPath: "/x"},
			{ContainerPath: "/dev/termination-log", HostPath: messageHost}},
	}
}

// exitedPod returns a pod whose container has exited with the status at t0, and an environment for
// its plans.
func exitedPod(status *runtimeapi.ContainerStatus) (*Pod, *Env, *op.Table) {
	c := run("web", 0, Exited)
	c.Inspected = Running
	p := podWith(spec(v1.RestartPolicyNever, "", "web"), c)
	env := &Env{Node: &Node{Node: criconfig.Node{LogsDir: "/logs", PodsDir: podsDir},
		LogLinksDir: "/links"},
		Effects: &op.Effects{}}
	p.handleContainerStatus(op.Record{Subject: c.ID}, world.Event{Time: t0,
		Body: &runtimeapi.ContainerStatusResponse{Status: status}}, env)
	return p, env, &op.Table{}
}

// readMessage completes the read of a termination message that the pod issues at a time. It returns
// the path that is read; empty if none is.
func readMessage(p *Pod, env *Env, table *op.Table, now time.Time, result any) string {
	env.Effects.Reset(table, now)
	w := wakeTimer{now: now}
	p.readTerminationMessages(env, &w)
	effects := env.Effects.List()
	if len(effects) == 0 {
		return ""
	}
	rec, _ := table.Complete(effects[0].Op)
	ev := world.Event{Time: now, Body: result}
	if err, ok := result.(*world.Error); ok {
		ev.Body, ev.Err = nil, err
	}
	p.handleMessageRead(rec, ev)
	return effects[0].Body.(*world.ReadTail).Path
}

func TestMessageIsReadFromFile(t *testing.T) {
	p, env, table := exitedPod(exitedStatus(1, v1.TerminationMessageReadFile))
	c := p.containerByID("web0")
	if c.HasKnownExit() {
		t.Error("the exit is known before its message is")
	}
	tail := &world.TailRead{Data: []byte("out of \xff cheese")}
	if got := readMessage(p, env, table, t0, tail); got != messageHost {
		t.Errorf("read from %q", got)
	}
	if !c.HasKnownExit() || c.ExitMessage() != "out of \uFFFD cheese" {
		t.Errorf("known exit %t, message %q", c.HasKnownExit(), c.ExitMessage())
	}
	if got := readMessage(p, env, table, t0, nil); got != "" {
		t.Errorf("read again from %q", got)
	}
	if c.Message = "OOM"; c.ExitMessage() != "OOM: out of \uFFFD cheese" {
		t.Errorf("with the runtime's: %q", c.ExitMessage())
	}
}

// Whatever path the runtime names, only files in the directory of the pod are read.
func TestMessageOutsideOfPodIsNotRead(t *testing.T) {
	const policy = v1.TerminationMessageReadFile
	for host, want := range map[string]string{
		messageHost: messageHost,
		podsDir + "/u/volume-subpaths/data/web/0":    podsDir + "/u/volume-subpaths/data/web/0",
		"/mnt/kubelet/pods/u/containers/web/5f3a":    podsDir + "/u/containers/web/5f3a",
		podsDir + "/other/containers/web/0":          "",
		podsDir + "/u/../other/containers/web/0":     "",
		podsDir + "/u/containers/../../other/secret": "",
		podsDir + "/u/": "",
		podsDir + "/u":  "",
		"/etc/shadow":   "",
		"":              "",
	} {
		status := exitedStatus(1, policy)
		status.Mounts[1].HostPath = host
		p, env, table := exitedPod(status)
		if got := readMessage(p, env, table, t0, &world.TailRead{Data: []byte("x")}); got != want {
			t.Errorf("%q: read from %q, want %q", host, got, want)
		}
		message := "x"
		if want == "" {
			message = "Error on reading termination log " + host +
				": it is not in the directory of the pod"
		}
		if c := p.containerByID("web0"); !c.HasKnownExit() || c.ExitMessage() != message {
			t.Errorf("%q: known exit %t, message %q", host, c.HasKnownExit(), c.ExitMessage())
		}
	}
	status := exitedStatus(1, v1.TerminationMessageFallbackToLogsOnError)
	status.Mounts[1].HostPath = "/etc/shadow"
	p, env, table := exitedPod(status)
	if got := readMessage(p, env, table, t0, &world.TailRead{}); got != "/logs/default_p_u/web/0.log" {
		t.Errorf("read from %q, want the log", got)
	}
}

func TestMessageFallsBackToLog(t *testing.T) {
	notFound := world.Errorf(world.KindNotFound, "ReadTail", "no such file")
	log := &world.TailRead{Data: []byte("2026-01-01T00:00:00Z stderr F panic\n")}
	fallback := v1.TerminationMessageFallbackToLogsOnError
	unstarted := exitedStatus(128, fallback)
	unstarted.StartedAt = 0
	for _, test := range []struct {
		name   string
		status *runtimeapi.ContainerStatus
		file   any
		want   string
	}{
		{"nothing written", exitedStatus(1, fallback), &world.TailRead{}, "panic\n"},
		{"no file", exitedStatus(1, fallback), notFound, "panic\n"},
		{"something written", exitedStatus(1, fallback), &world.TailRead{Data: []byte("x")}, "x"},
		{"it ended well", exitedStatus(0, fallback), &world.TailRead{}, ""},
		{"not asked for", exitedStatus(1, v1.TerminationMessageReadFile), notFound, ""},
		{"it never ran", unstarted, &world.TailRead{}, ""},
	} {
		p, env, table := exitedPod(test.status)
		readMessage(p, env, table, t0, test.file)
		path := readMessage(p, env, table, t0, log)
		if path != "" && path != "/logs/default_p_u/web/0.log" {
			t.Errorf("%s: read from %q", test.name, path)
		}
		if c := p.containerByID("web0"); !c.HasKnownExit() || c.ExitMessage() != test.want {
			t.Errorf("%s: known exit %t, message %q, want %q", test.name, c.HasKnownExit(), c.ExitMessage(),
				test.want)
		}
	}
}

// The pod does not wait for ever for a message that cannot be read; the message is reported if a
// later read succeeds.
func TestUnreadableMessage(t *testing.T) {
	p, env, table := exitedPod(exitedStatus(1, v1.TerminationMessageReadFile))
	c, now := p.containerByID("web0"), t0
	for n := range messageAttemptsMax {
		if c.HasKnownExit() {
			t.Fatalf("given up after %d failures", n)
		}
		readMessage(p, env, table, now, world.Errorf(world.KindInternal, "ReadTail", "I/O error"))
		if got := readMessage(p, env, table, now, nil); got != "" {
			t.Error("read again at once")
		}
		now = now.Add(failureBackoff(n + 1))
	}
	if want := "Error on reading termination log " + messageHost + ": I/O error"; !c.HasKnownExit() ||
		c.ExitMessage() != want {
		t.Errorf("known exit %t, message %q", c.HasKnownExit(), c.ExitMessage())
	}
	readMessage(p, env, table, now, &world.TailRead{Data: []byte("late")})
	if c.ExitMessage() != "late" {
		t.Errorf("message %q", c.ExitMessage())
	}
	p, env, table = exitedPod(exitedStatus(1, v1.TerminationMessageFallbackToLogsOnError))
	readMessage(p, env, table, t0, &world.TailRead{})
	c, now = p.containerByID("web0"), t0
	for range messageAttemptsMax + 1 { // the log is being rotated, or was removed
		readMessage(p, env, table, now, world.Errorf(world.KindNotFound, "ReadTail", "not there"))
		now = now.Add(time.Minute)
	}
	if got := readMessage(p, env, table, now, nil); got != "" || !c.HasKnownExit() ||
		c.ExitMessage() != "" {
		t.Errorf("a log that does not exist: read again %q, message %q", got, c.ExitMessage())
	}
	p, env, table = exitedPod(exitedStatus(1, v1.TerminationMessageReadFile))
	readMessage(p, env, table, t0, world.Errorf(world.KindInvalid, "ReadTail", "it is a pipe"))
	if got := readMessage(p, env, table, t0.Add(time.Hour), nil); got != "" {
		t.Errorf("a pipe is read again: %s", got)
	}
}

// A new run has an empty message file, which is created before the container.
func TestMessageFileIsCreated(t *testing.T) {
	p := podWith(spec(v1.RestartPolicyAlways, "", "web"), run("web", 0, Exited))
	container := p.specContainer("web")
	container.TerminationMessagePath = "/dev/termination-log"
	env := &Env{Node: &Node{Node: criconfig.Node{PodsDir: "/pods"}}, Effects: &op.Effects{}}
	table := &op.Table{}
	var issued []any
	for range 3 {
		env.Effects.Reset(table, t0)
		if !p.createMessageFile(container, env) {
			break
		}
		issued = append(issued, env.Effects.List()[0].Body)
		rec, _ := table.Complete(p.Op)
		p.handleCreation(p.Op, rec, world.Event{Time: t0, Body: &world.Done{}}, env)
	}
	expected := []any{&world.MakeDir{Path: "/pods/u/containers/web", Mode: 0o755},
		&world.WriteFile{Path: "/pods/u/containers/web/1", Mode: 0o666, Volatile: true}}
	if diff := cmp.Diff(expected, issued); diff != "" {
		t.Error(diff)
	}
	if p.LogDirs != nil || p.ProblemOf("web") != nil {
		t.Errorf("the message directory counts as a log directory: %v", p.LogDirs)
	}
	p.forgetMessageFiles("web")
	if !p.createMessageFile(container, env) {
		t.Error("the file is not created again for the next run")
	}
}

// The files of a run are removed before its record, including a log that was rotated meanwhile.
func TestFilesOfRemovedRunAreRemoved(t *testing.T) {
	p := podWith(spec(v1.RestartPolicyAlways, "", "web"), run("web", 0, Exited), run("web", 1, Exited),
		run("web", 2, Running))
	for i := range p.Containers {
		p.Containers[i].Restarts = int32(p.Containers[i].Attempt)
	}
	if got, want := removalCalls(p, "web0"), []string{
		"/links/p_default_web-web0.log", "/logs/default_p_u/web",
		"/logs/default_p_u/web/0.log", "/logs/default_p_u/web/0.log.20250101-000000.gz",
		"/logs/default_p_u/web", "/logs/default_p_u/web/0.log.20250101-000001",
		"/logs/default_p_u/web", "/pods/u/containers/web/0", "record web0",
	}; !cmp.Equal(want, got) {
		t.Error(cmp.Diff(want, got))
	}
	p.NoLongerDesired = true // then the directories are removed as a whole
	if got, want := removalCalls(p, "web1"), []string{
		"/links/p_default_web-web1.log", "record web1",
	}; !cmp.Equal(want, got) {
		t.Error(cmp.Diff(want, got))
	}
}

// Logs that appear again and again do not keep the agent busy.
func TestLogsThatAppearAgain(t *testing.T) {
	p := podWith(spec(v1.RestartPolicyAlways, "", "web"), run("web", 0, Exited))
	c, node := p.containerByID("web0"), &Node{Node: criconfig.Node{LogsDir: "/logs"}}
	list := world.Event{Time: t0, Body: &world.DirListed{Entries: []world.DirEntry{{Name: "0.log"}}}}
	for i, want := range []time.Duration{0, 0, 1, 2, 4} {
		c.NotBefore = t0
		p.handleFileCleanup(op.Record{Call: "ListDir", Subject: cleanupSubject + "web0"}, list, node)
		if got := c.NotBefore.Sub(t0); got != want*time.Second {
			t.Errorf("list %d: a wait of %v, want %v s", i, got, want)
		}
	}
}

// The removal of a container that never ran, or that shares its restart count with another one,
// removes no files.
func TestFilesOfLeftoverAreKept(t *testing.T) {
	p := podWith(spec(v1.RestartPolicyAlways, "", "web"), run("web", 0, Created))
	if got, want := removalCalls(p, "web0"), []string{"record web0"}; !cmp.Equal(want, got) {
		t.Error(cmp.Diff(want, got))
	}
	other := run("web", 0, Exited)
	other.ID = "other"
	p = podWith(spec(v1.RestartPolicyAlways, "", "web"), run("web", 0, Exited), other)
	if got, want := removalCalls(p, "web0"), []string{"record web0"}; !cmp.Equal(want, got) {
		t.Error(cmp.Diff(want, got))
	}
}

// removalCalls removes a container and returns the paths that were removed or listed, in order.
func removalCalls(p *Pod, id string) []string {
	env := &Env{Node: &Node{Node: criconfig.Node{LogsDir: "/logs", PodsDir: "/pods"},
		LogLinksDir: "/links"},
		Effects: &op.Effects{}}
	table := &op.Table{}
	files := []string{"0.log", "0.log.20250101-000000.gz", "1.log", "10.log"}
	var all []string
	for range 12 {
		env.Effects.Reset(table, t0)
		w := wakeTimer{now: t0}
		if p.containerByID(id) == nil {
			break
		}
		p.removeContainer(p.containerByID(id), env, &w)
		ev := world.Event{Time: t0, Body: &world.Done{}}
		eff := env.Effects.List()[0]
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
		rec, _ := table.Complete(eff.Op)
		p.HandleCompletion(eff.Op, rec, ev, env)
	}
	return all
}

// A failed removal is retried later, and the record of the run stays until then.
func TestFailedFileRemovalIsRetried(t *testing.T) {
	p := podWith(spec(v1.RestartPolicyAlways, "", "web"), run("web", 0, Exited))
	env, table := &Env{Node: &Node{LogLinksDir: "/links"}, Effects: &op.Effects{}}, &op.Table{}
	env.Effects.Reset(table, t0)
	c, w := p.containerByID("web0"), wakeTimer{now: t0}
	p.removeContainer(c, env, &w)
	id := c.Cleanup.Op
	rec, _ := table.Complete(id)
	p.HandleCompletion(id, rec, world.Event{Time: t0,
		Err: world.Errorf(world.KindInternal, "RemoveTree", "I/O error")}, env)
	env.Effects.Reset(table, t0)
	p.removeContainer(c, env, &w)
	if effects := env.Effects.List(); len(effects) > 0 || !w.wakeAt.Equal(t0.Add(time.Second)) {
		t.Errorf("retried at once: %v, or not woken: %v", effects, w.wakeAt)
	}
}

func TestLogLinks(t *testing.T) {
	p := podWith(spec(v1.RestartPolicyAlways, "", "web"), run("web", 0, Exited),
		run("web", 1, Running))
	p.containerByID("web1").Restarts = 1
	env, table := &Env{Node: &Node{Node: criconfig.Node{LogsDir: "/logs"},
		LogLinksDir: "/links"}, Effects: &op.Effects{}}, &op.Table{}
	env.Effects.Reset(table, t0)
	w := wakeTimer{now: t0}
	p.linkLogs(env, &w)
	p.linkLogs(env, &w) // an operation in flight is not issued twice
	effects := env.Effects.List()
	want := &world.MakeLink{Path: "/links/p_default_web-web1.log",
		Target: "/logs/default_p_u/web/1.log"}
	if len(effects) != 1 || !cmp.Equal(want, effects[0].Body) {
		t.Fatalf("issued %v, want one link", effects)
	}
	rec, _ := table.Complete(effects[0].Op)
	p.HandleCompletion(effects[0].Op, rec, world.Event{Time: t0, Body: &world.Done{}}, env)
	env.Effects.Reset(table, t0)
	if p.linkLogs(env, &w); len(env.Effects.List()) > 0 {
		t.Error("the link is created again")
	}
	if got := logs.LinkName("p", "ns", "c", "id"); got != "p_ns_c-id.log" {
		t.Errorf("the kubelet's name is p_ns_c-id.log, this is %s", got)
	}
}

// The links of two runs may have the same name, because that was cut. The link of the run that goes
// on is kept, and created again after the removal of the other one.
func TestLogLinksOfOneName(t *testing.T) {
	old, live, other := run("web", 0, Exited), run("web", 1, Running), run("other", 0, Running)
	live.Restarts = 1
	old.Link.Created, live.Link.Created, other.Link.Created = true, true, true
	p := podWith(spec(v1.RestartPolicyAlways, "other", "web"), old, live, other)
	p.Name = strings.Repeat("p", 240) // beside a shorter log directory of another agent
	env, table := &Env{Node: &Node{LogLinksDir: "/links"}, Effects: &op.Effects{}}, &op.Table{}
	c := p.containerByID("web0")
	if name := p.linkName(c); name != p.linkName(p.containerByID("web1")) || len(name) != 255 {
		t.Fatalf("the links of both runs are not %s", name)
	}
	for _, dangling := range []bool{false, true} {
		if !p.NeedsLink(logs.Link{Name: p.linkName(c), Container: "web", Dangling: dangling}) {
			t.Errorf("dangling %t: the link is not needed", dangling)
		}
	}
	env.Effects.Reset(table, t0)
	w := wakeTimer{now: t0}
	p.removeContainer(c, env, &w)
	eff := env.Effects.List()[0]
	rec, _ := table.Complete(eff.Op)
	p.HandleCompletion(eff.Op, rec, world.Event{Time: t0, Body: &world.Done{}}, env)
	env.Effects.Reset(table, t0)
	p.linkLogs(env, &w)
	effects := env.Effects.List()
	if len(effects) != 1 || effects[0].Body.(*world.MakeLink).Path != "/links/"+p.linkName(c) {
		t.Errorf("created again: %v, want the link of web1", effects)
	}
}

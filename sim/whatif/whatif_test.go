package whatif

import (
	"strings"
	"sync"
	"testing"
	"time"
)

// runAll runs an event with seeds 1 to 4, and returns the rows by workload.
func runAll(t *testing.T, in *Input, e Event) map[string]Row {
	t.Helper()
	rep, err := Run(in, Options{Event: e, Runs: 4, Seed: 1, Progress: func() {},
		Each: func(n int, do func(int)) {
			for i := range n {
				do(i)
			}
		}})
	if err != nil {
		t.Fatal(err)
	}
	if len(rep.Cut) > 0 {
		t.Errorf("an oracle reports %v", rep.Cut)
	}
	rows := map[string]Row{}
	for _, r := range rep.Rows {
		rows[r.Workload] = r
	}
	return rows
}

// behave gives the programs a behaviour, as a list of entries.
func behave(t *testing.T, in *Input, entries string) {
	t.Helper()
	text := "apiVersion: sim.seedlet.dev/v1alpha1\nkind: Behaviour\ncontainers: [" + entries + "]\n"
	if err := in.ReadBehaviour(File{"b.yaml", []byte(text)}); err != nil {
		t.Fatal(err)
	}
}

// withFields returns a Deployment whose pods have a grace period of 6 s and more fields of their
// container.
func withFields(fields string) string {
	text := strings.Replace(controller("Deployment", "  replicas: 2\n"), "containers:",
		"terminationGracePeriodSeconds: 6, containers:", 1)
	return strings.Replace(text, "{name: c,", "{name: c, "+fields, 1)
}

func TestDrainTellsCleanEndsFromKills(t *testing.T) {
	for _, test := range []struct {
		name, fields, behaviour string
		clean, killed           int
	}{
		{"ends at once", "", "", 8, 0},
		{"ends within the grace period", "", "{container: c, stopTakes: 5s}", 8, 0},
		{"ends after it", "", "{container: c, stopTakes: 7s}", 0, 8},
		{"ignores SIGTERM", "", "{container: c, ignoresTerm: true}", 0, 8},
		{"hook in time", "lifecycle: {preStop: {exec: {command: [sh, -c, sleep 4]}}},", "", 8, 0},
		{"hook too long", "lifecycle: {preStop: {exec: {command: [sleep, \"9\"]}}},", "", 0, 8},
		{"slow hook of a file", "lifecycle: {preStop: {exec: {command: [bye]}}},",
			"{preStopTakes: 9s}", 0, 8},
		{"hook and program too long", "lifecycle: {preStop: {exec: {command: [sleep, \"4\"]}}},",
			"{stopTakes: 4s}", 0, 8},
		{"sleep in time", "lifecycle: {preStop: {sleep: {seconds: 4}}},", "", 8, 0},
		{"HTTP hook too long", "lifecycle: {preStop: {httpGet: {path: /bye, port: 80}}},",
			"{preStopTakes: 9s}", 0, 8},
	} {
		t.Run(test.name, func(t *testing.T) {
			in := read(t, withFields(test.fields))
			if test.behaviour != "" {
				behave(t, in, test.behaviour)
			}
			r := runAll(t, in, Drain)["Deployment/a"]
			if r.Clean != test.clean || r.Killed != test.killed || len(r.Ready) > 0 {
				t.Errorf("%d clean, %d killed, Ready again %v; want %d, %d and none", r.Clean, r.Killed,
					r.Ready, test.clean, test.killed)
			}
			if r.IsWorse != (test.killed > 0) {
				t.Errorf("there is a worst run: %v, want %v", r.IsWorse, test.killed > 0)
			}
		})
	}
}

// A shutdown ends pods within the shorter of their grace period and the node's.
func TestNodeShutdown(t *testing.T) {
	const config = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n" +
		"shutdownGracePeriod: 4s\nshutdownGracePeriodCriticalPods: 1s\n"
	for _, test := range []struct {
		name, fields, behaviour, config string
		clean, killed, ready            int
	}{
		{"ends in time", "", "{container: c, stopTakes: 2s}", config, 8, 0, 0},
		{"ends after the node's period", "", "{container: c, stopTakes: 5s}", config, 0, 8, 0},
		{"sleep too long", "lifecycle: {preStop: {sleep: {seconds: 4}}},", "{}", config, 0, 8, 0},
		{"no period", "", "{container: c, stopTakes: 0s}", "", 0, 8, 8},
	} {
		t.Run(test.name, func(t *testing.T) {
			in := read(t, withFields(test.fields))
			behave(t, in, test.behaviour)
			if test.config != "" {
				if err := in.ReadNode(File{"node.yaml", []byte(test.config)}); err != nil {
					t.Fatal(err)
				}
			}
			r := runAll(t, in, NodeShutdown)["Deployment/a"]
			if r.Clean != test.clean || r.Killed != test.killed || len(r.Ready) != test.ready {
				t.Errorf("%d clean, %d killed, Ready again %v; want %d, %d and %d", r.Clean, r.Killed,
					r.Ready, test.clean, test.killed, test.ready)
			}
		})
	}
}

func TestDrainLeavesDaemonSets(t *testing.T) {
	r := runAll(t, read(t, controller("DaemonSet", "")), Drain)["DaemonSet/a"]
	if r.Clean+r.Killed+r.NotReady > 0 || len(r.Ready) != 4 || r.Ready[3] > 0 {
		t.Errorf("got %+v, want four pods that stayed Ready", r)
	}
}

func TestRebootKillsAndRestarts(t *testing.T) {
	in := read(t, withFields("readinessProbe: {exec: {command: [ready]}, periodSeconds: 1},")+
		"---\napiVersion: batch/v1\nkind: Job\nmetadata: {name: b}\nspec:\n  template:\n    spec: "+
		"{restartPolicy: Never, containers: [{name: c, image: \"registry.test/c:1\"}]}\n")
	behave(t, in, "{workload: a, readyIn: 30s}")
	rows := runAll(t, in, Reboot)
	a := rows["Deployment/a"]
	if a.Killed != 8 || a.NotReady != 0 || len(a.Ready) != 8 || a.Restarts[0] != 1 {
		t.Errorf("got %+v, want eight pods killed, restarted once and Ready again", a)
	}
	if len(a.Ready) > 0 && a.Ready[0] < machineDown.Least+30*time.Second {
		t.Errorf("Ready again after %v, want the boot and 30 s at least", a.Ready[0])
	}
	if b := rows["Job/b"]; b.Killed != 4 || b.NotReady != 4 {
		t.Errorf("got %+v, want four pods of the Job killed and never Ready again", b)
	}
}

func TestRestartsOfProcessesOfTheNodeLeavePodsReady(t *testing.T) {
	for _, e := range []Event{RuntimeRestart, AgentRestart} {
		r := runAll(t, read(t, withFields("")), e)["Deployment/a"]
		if r.Clean+r.Killed+r.NotReady > 0 || len(r.Ready) != 8 || r.Restarts[7] > 0 {
			t.Errorf("%s: got %+v, want eight pods that nothing happened to", e, r)
		}
	}
}

func TestPodsThatAreNeverReadyAreNamed(t *testing.T) {
	in := read(t, withFields("readinessProbe: {exec: {command: [ready]}},"))
	behave(t, in, "{readyIn: 3h}")
	rep, err := Run(in, Options{Event: Reboot, Runs: 1, Seed: 1, Progress: func() {},
		Each: func(_ int, do func(int)) { do(0) }})
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	if err := rep.Write(&text); err != nil {
		t.Fatal(err)
	}
	want := " of Deployment/a is never Ready, also without an event"
	if strings.Count(text.String(), want) != 2 {
		t.Errorf("got %s, want two lines with %q", &text, want)
	}
	want = "\nDeployment/a: 2 of 2 pods were not Ready when the event came\n"
	if !strings.Contains(text.String(), want) {
		t.Errorf("got %s, want %q", &text, want)
	}
}

func TestSelectorsOfTheNode(t *testing.T) {
	text := strings.Replace(controller("Deployment", ""), "containers:",
		"nodeSelector: {disk: ssd}, containers:", 1)
	runAll(t, read(t, text), AgentRestart) // the node has what its pods select
	in := read(t, text)
	if err := in.ReadNode(File{"n.yaml", []byte("apiVersion: v1\nkind: Node\n")}); err != nil {
		t.Fatal(err)
	}
	_, err := Run(in, Options{Event: AgentRestart})
	if err == nil || !strings.Contains(err.Error(), "the node does not match") {
		t.Errorf("error %v, want one about the node", err)
	}
}

// The report does not depend on how many runs are done at once, nor a run on the others.
func TestReportIsDeterministic(t *testing.T) {
	text := func(seed uint64, runs int, each func(n int, do func(int))) string {
		in := read(t, withFields("lifecycle: {preStop: {exec: {command: [bye]}}},"))
		behave(t, in, "{preStopTakes: 1s..5s, stopTakes: 0s..3s}")
		rep, err := Run(in, Options{Event: Drain, Runs: runs, Seed: seed, Each: each,
			Progress: func() {}})
		if err != nil {
			t.Fatal(err)
		}
		var b strings.Builder
		if err := rep.Write(&b); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	first := text(5, 6, func(n int, do func(int)) {
		for i := range n {
			do(i)
		}
	})
	second := text(5, 6, func(n int, do func(int)) {
		var group sync.WaitGroup
		for i := n - 1; i >= 0; i-- {
			group.Go(func() { do(i) })
		}
		group.Wait()
	})
	if first != second {
		t.Errorf("one after the other:\n%s\nat once:\n%s", first, second)
	}
}

// Under pressure the pods go that use more than they request, and then the others by priority; what
// is evicted does not count as not Ready.
func TestPressure(t *testing.T) {
	text := strings.Join([]string{
		deploymentWith("a", "", ""), deploymentWith("b", "", "resources: {requests: {memory: 300Mi}}"),
		deploymentWith("c", "priority: 7,", "resources: {requests: {memory: 300Mi}}")}, "---\n")
	for _, event := range []Event{MemoryPressure, DiskPressure} {
		in := read(t, text)
		behave(t, in, "{memoryMiB: 250, diskMiB: 2000}")
		rows := runAll(t, in, event)
		a, b, c := rows["Deployment/a"], rows["Deployment/b"], rows["Deployment/c"]
		if len(a.Turns) == 0 || len(a.Turns) < len(b.Turns) || len(b.Turns) < len(c.Turns) ||
			a.Turns[0] != 1 {
			t.Errorf("%s: evicted in turns %v, %v and %v", event, a.Turns, b.Turns, c.Turns)
		}
		if a.NotReady+b.NotReady+c.NotReady > 0 || len(c.Ready)+len(c.Turns) != 8 {
			t.Errorf("%s: %+v", event, rows)
		}
		calm := runAll(t, read(t, text), Drain)["Deployment/a"]
		if len(calm.Turns) > 0 {
			t.Errorf("a drain evicts in turns %v", calm.Turns)
		}
	}
}

func TestPressureThreshold(t *testing.T) {
	for config, want := range map[string][2]int{ //ordered: each by itself
		"evictionSoft: {}":                      {100, 15360},
		"evictionHard: {memory.available: 10%}": {1638, 0},
		"evictionHard: {nodefs.available: 1Gi}": {0, 1024},
		"evictionHard: {memory.available: 0%}":  {0, 0},
	} {
		in := read(t, deploymentWith("a", "", ""))
		err := in.ReadNode(File{"node.yaml", []byte("apiVersion: kubelet.config.k8s.io/v1beta1\n" +
			"kind: KubeletConfiguration\n" + config + "\n")})
		if err != nil {
			t.Fatal(err)
		}
		_, memory := in.Node.threshold(MemoryPressure)
		_, space := in.Node.threshold(DiskPressure)
		if got := [2]int{memory, space}; got != want {
			t.Errorf("%s: thresholds %v MiB, want %v", config, got, want)
		}
		if hasNote := in.Node.pressureNote(MemoryPressure) != ""; hasNote != (want[0] == 0) {
			t.Errorf("%s: there is a note: %t", config, hasNote)
		}
	}
}

func TestPodsThatDoNotFitBeforePressure(t *testing.T) {
	in := read(t, deploymentWith("a", "", ""))
	behave(t, in, "{memoryMiB: 9000}")
	_, err := Run(in, Options{Event: MemoryPressure, Runs: 1, Seed: 1})
	const want = "--event memory-pressure: the pods use 18000 MiB, but the node has 16384 MiB"
	if err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("error %v, want %q", err, want)
	}
}

// deploymentWith returns a Deployment of two pods with more fields of their spec and container.
func deploymentWith(name, spec, container string) string {
	return "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: " + name + "}\n" +
		"spec: {replicas: 2, selector: {matchLabels: {app: " + name + "}}, template: {metadata: " +
		"{labels: {app: " + name + "}}, spec: {" + spec + "containers: [{name: c, image: i, " +
		container + "}]}}}\n"
}

func TestParseEvent(t *testing.T) {
	for _, e := range Events {
		if got, err := ParseEvent(string(e)); got != e || err != nil {
			t.Errorf("%s: %s, %v", e, got, err)
		}
	}
	for name, want := range map[string]string{ //ordered: each by itself
		"": "want one of runtime-restart, reboot, drain, node-shutdown, memory-pressure, " +
			"disk-pressure, agent-restart, have \"\"",
	} {
		if _, err := ParseEvent(name); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", name, err, want)
		}
	}
}

func TestSleepsOfCommands(t *testing.T) {
	for text, want := range map[string]time.Duration{ //ordered: each by itself
		"sleep 5": 5 * time.Second, "sh -c sleep 5 && kill 1; sleep 0.5s": 5500 * time.Millisecond,
		"/bin/sleep 3": 3 * time.Second, "sleep": 0, "nosleep 5": 0, "sleep 5m": 0, "drain": 0,
	} {
		if got := sleepsIn(strings.Split(text, " ")); got != want {
			t.Errorf("%s: %v, want %v", text, got, want)
		}
	}
}

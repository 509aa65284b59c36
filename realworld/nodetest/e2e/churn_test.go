package e2e

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/realworld/nodetest"
)

const (
	churnKills    = 60
	churnPodCount = 20
)

var churnSeed = flag.Uint64("churn-seed", 0,
	"the seed of TestChurn and TestCluster; zero for a random one")

// TestChurn kills the agent sixty times at random moments, while twenty pods are added,
// replaced and removed. The connections that the containers hold show what really runs: no attempt
// of a container is started twice, and no two containers of one pod run at once. After the last
// kill every pod reaches its desired state. Removed pods leave nothing on the node.
func TestChurn(t *testing.T) {
	t.Parallel()
	seed := *churnSeed
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("churn-seed=%d", seed)
	s := &suite{node: nodetest.New(t, nodetest.V2)}
	// A start that a kill of the agent interrupts counts as a crash, so the back-off is kept short.
	s.agent = newAgent(t, s.node, "crashLoopBackOff: {maxContainerRestartPeriod: 3s}\n")
	defer func() {
		if t.Failed() {
			t.Logf("the end of the agent's log:\n%s", s.agent.logTail(t, 100))
		}
	}()
	c := &churnTest{
		suite: s, random: rand.New(rand.NewPCG(seed, 0)), connections: newConnectionRecorder(t),
		pods: make([]churnPodState, churnPodCount),
	}
	for i := range c.pods {
		c.writeManifest(t, i)
	}
	mean := 700 * time.Millisecond
	hasStarted := func() bool { return len(c.connections.allRuns()) >= churnPodCount }
	for kills := 0; kills < churnKills || kills < 2*churnKills && !hasStarted(); kills++ {
		if kills >= churnKills && kills%10 == 0 {
			mean *= 2 // on a busy machine the agent does not get as far
		}
		s.agent.startProcess(t)
		// The interval is mostly long enough for some steps, and sometimes too short to read the
		// manifests.
		end := time.Now().Add(time.Duration(c.random.ExpFloat64() * float64(mean)))
		for range c.random.IntN(3) {
			c.changeRandomPod(t)
			time.Sleep(time.Until(end) / time.Duration(1+c.random.IntN(4)))
		}
		time.Sleep(time.Until(end))
		s.agent.signalAndWait(t, syscall.SIGKILL)
	}
	startedDuringKills := len(c.connections.allRuns())
	if startedDuringKills < churnPodCount {
		t.Errorf("only %d containers were started between the kills", startedDuringKills)
	}
	s.agent.start(t)
	for i := range c.pods {
		c.waitSettled(t, i)
	}
	for i, p := range c.pods {
		if p.desired {
			s.agent.removeManifest(t, churnPodName(i))
		}
	}
	c.eventuallyAfterKill(t, "the pods are removed", func() bool { return c.isRemoved(t, "") })
	runs := endWithProcesses(c.connections.waitEnded(), processExits(s.runtimeLog(t)))
	for _, violation := range containerRunViolations(runs) {
		t.Error(violation)
	}
	s.checkNothingLeft(t)
	t.Logf("%d containers were started, %d of them between the kills",
		len(c.connections.allRuns()), startedDuringKills)
	s.agent.signalAndWait(t, syscall.SIGTERM)
}

// churnTest holds the desired pods of TestChurn and the recorded runs of their containers.
type churnTest struct {
	*suite
	random      *rand.Rand
	connections *connectionRecorder
	pods        []churnPodState
	serial      int
}

// churnPodState is the desired state of one pod: whether it has a manifest, and the serial number
// of its newest manifest.
type churnPodState struct {
	desired bool
	serial  int
}

// churnPodKinds are the kinds of pods. Each container sends the name of its pod, the serial number
// of the manifest, and what its name begins with; the name ends with the serial number, so that the
// log of the runtime tells the containers of all manifests apart. At most one container of each pod
// runs at a time.
var churnPodKinds = []string{"steady", "stubborn", "job", "crasher", "inits"}

func churnPodName(i int) string {
	return fmt.Sprintf("%s-%d", churnPodKinds[i%len(churnPodKinds)], i)
}

// changeRandomPod selects a pod: it removes or replaces a desired pod, and adds one that is not
// desired.
func (c *churnTest) changeRandomPod(t *testing.T) {
	i := c.random.IntN(len(c.pods))
	p := &c.pods[i]
	if p.desired && c.random.IntN(3) == 0 {
		p.desired = false
		c.agent.removeManifest(t, churnPodName(i))
		return
	}
	c.writeManifest(t, i)
}

// writeManifest writes a new manifest for a pod.
func (c *churnTest) writeManifest(t *testing.T, i int) {
	c.serial++
	c.pods[i] = churnPodState{true, c.serial}
	c.agent.addManifest(t, churnPodName(i), podManifest(churnPodName(i), c.podSpec(i)))
}

// podSpec returns the desired spec of a pod. The serial number makes each manifest a different pod.
func (c *churnTest) podSpec(i int) string {
	hold := func(container string, flags ...string) string {
		name := fmt.Sprintf("%s %d %s", churnPodName(i), c.pods[i].serial, container)
		args := append([]string{"hold"}, append(flags, c.connections.address(c.node), name)...)
		return fmt.Sprintf("\n  - {name: %s-%d, image: sample, args: [\"%s\"]}", container,
			c.pods[i].serial, strings.Join(args, `", "`))
	}
	grace := "  terminationGracePeriodSeconds: 5"
	switch churnPodKinds[i%len(churnPodKinds)] {
	case "stubborn":
		return grace + "\n  containers:" + hold("main", "--stop-takes", "1500ms")
	case "job":
		return grace + "\n  restartPolicy: Never\n  containers:" + hold("main", "--after", "2s")
	case "crasher":
		return grace + "\n  containers:" + hold("main", "--after", "1s", "--code", "1")
	case "inits":
		return grace + "\n  initContainers:" + hold("first", "--after", "300ms") +
			hold("second", "--after", "300ms") + "\n  containers:" + hold("main")
	}
	return grace + "\n  containers:" + hold("main")
}

// waitSettled waits until a pod is in the state that its manifest demands, or is removed if it has
// none.
func (c *churnTest) waitSettled(t *testing.T, i int) {
	name := churnPodName(i)
	c.eventuallyAfterKill(t, name+" is in its desired state", func() bool {
		if !c.pods[i].desired {
			return c.isRemoved(t, name)
		}
		last := c.connections.lastRun(fmt.Sprintf("%s %d ", name, c.pods[i].serial))
		phase := c.agent.servedPod(t, name).Status.Phase
		switch churnPodKinds[i%len(churnPodKinds)] {
		case "job": // a job fails if a kill of the agent interrupted the start of its container
			return phase == v1.PodSucceeded || phase == v1.PodFailed
		case "crasher":
			return phase == v1.PodRunning && last.name != ""
		}
		return phase == v1.PodRunning && last.ended.IsZero() && strings.Contains(last.name, " main ")
	})
}

// endWithProcesses returns runs that end no later than their processes. The network may lose the
// end of a connection, while pods come and go on the bridge, and it is not repeated once the
// network of the pod is removed. Then the connection ends by keep-alive, after two and a half
// minutes.
func endWithProcesses(runs []containerRun, exits map[string]time.Time) []containerRun {
	for i := range runs {
		r, name := &runs[i], parseRunName(runs[i].name)
		exit, known := exits[name.container+" "+name.attempt]
		if known && exit.After(r.started) && (r.ended.IsZero() || exit.Before(r.ended)) {
			r.ended = exit
		}
	}
	return runs
}

// TestEndWithProcesses gives endWithProcesses a process that has exited before, at and after the
// end of its connection, or before it has connected, as that of another run of the same name.
func TestEndWithProcesses(t *testing.T) {
	at := func(second int64) time.Time { return time.Unix(second, 0) }
	for _, c := range []struct{ ended, exit, want time.Time }{
		{at(9), at(5), at(5)}, {at(9), at(9), at(9)}, {at(9), at(10), at(9)},
		{at(9), at(1), at(9)}, {time.Time{}, at(5), at(5)}, {time.Time{}, at(1), time.Time{}},
	} {
		runs := []containerRun{{name: "a-1 8 main 2", started: at(2), ended: c.ended},
			{name: "a-1 8 main 3", started: at(2), ended: c.ended}}
		got := endWithProcesses(runs, map[string]time.Time{"main-8 2": c.exit})
		if !got[0].ended.Equal(c.want) || !got[1].ended.Equal(c.ended) {
			t.Errorf("%+v: the runs end at %v and %v", c, got[0].ended, got[1].ended)
		}
	}
}

// containerRunViolations returns the violations in the runs of all containers: attempts that were
// started twice, containers that still run, jobs that were restarted, and containers of one pod
// that ran at once.
func containerRunViolations(runs []containerRun) []string {
	var violations []string
	starts := map[string]int{}
	for i, r := range runs {
		if starts[r.name]++; starts[r.name] == 2 {
			violations = append(violations, r.name+" was started twice")
		}
		name := parseRunName(r.name)
		switch {
		case r.ended.IsZero():
			violations = append(violations, r.name+" still runs")
		case name.kind == "job" && name.attempt != "0":
			violations = append(violations, r.name+" is a restart of a job")
		}
		overlaps := func(o containerRun) bool {
			return parseRunName(o.name).pod == name.pod && o.started.Before(r.ended) &&
				r.started.Before(o.ended)
		}
		if j := slices.IndexFunc(runs[:i], overlaps); j >= 0 {
			violations = append(violations, runs[j].name+" and "+r.name+" ran at once")
		}
	}
	return violations
}

// TestContainerRunViolations gives containerRunViolations one bug of each kind.
func TestContainerRunViolations(t *testing.T) {
	ran := func(name string, from, to int) containerRun {
		at := func(second int) time.Time { return time.Unix(int64(second), 0) }
		return containerRun{name: name, started: at(from), ended: at(to)}
	}
	for _, c := range []struct {
		runs []containerRun
		want []string
	}{
		{[]containerRun{ran("a-1 1 main 0", 1, 2), ran("a-1 1 main 1", 3, 4),
			ran("a-1 2 main 0", 5, 6)}, nil},
		{[]containerRun{ran("a-1 1 main 0", 1, 2), ran("a-1 1 main 0", 3, 4)},
			[]string{"a-1 1 main 0 was started twice"}},
		{[]containerRun{ran("a-1 1 main 0", 1, 3), ran("a-1 2 main 0", 2, 4)},
			[]string{"a-1 1 main 0 and a-1 2 main 0 ran at once"}},
		{[]containerRun{ran("job-2 1 main 1", 1, 2)},
			[]string{"job-2 1 main 1 is a restart of a job"}},
		{[]containerRun{{name: "a-1 1 main 0", started: time.Unix(1, 0)}},
			[]string{"a-1 1 main 0 still runs"}},
	} {
		if got := containerRunViolations(c.runs); !slices.Equal(got, c.want) {
			t.Errorf("violations in %v are %q, want %q", c.runs, got, c.want)
		}
	}
}

// runName is what the name of a run consists of.
type runName struct{ pod, kind, container, attempt string }

// parseRunName splits the name of a run: a pod, a serial number, what the name of a container
// begins with, and an attempt.
func parseRunName(name string) runName {
	fields := strings.Fields(name)
	if len(fields) != 4 {
		return runName{pod: name}
	}
	kind, _, _ := strings.Cut(fields[0], "-")
	return runName{fields[0], kind, fields[2] + "-" + fields[1], fields[3]}
}

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
	churnKills = 100
	churnPods  = 20
)

var churnSeed = flag.Uint64("churn-seed", 0, "the seed of TestChurn, zero for another every time")

// TestChurn kills the agent a hundred times at random moments, while twenty pods come, go and
// change. What really runs is seen by the connections that the containers hold: no attempt of a
// container is started twice, no two containers of one pod run at once, and when the storm is
// over every pod gets where it should, and then leaves nothing.
func TestChurn(t *testing.T) {
	seed := *churnSeed
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("churn-seed=%d", seed)
	s := &scene{node: nodetest.New(t, nodetest.V2)}
	// A start that a kill interrupts counts as a crash.
	s.agent = newAgent(t, s.node, "crashLoopBackOff: {maxContainerRestartPeriod: 3s}\n")
	defer func() {
		if t.Failed() {
			t.Logf("the end of the agent's log:\n%s", s.agent.logTail(t, 100))
		}
	}()
	c := &churn{
		scene: s, random: rand.New(rand.NewPCG(seed, 0)), seen: witnesses(t),
		pods: make([]churned, churnPods),
	}
	for i := range c.pods {
		c.want(t, i)
	}
	for range churnKills {
		s.agent.launch(t)
		// Often long enough to get something done, sometimes too short to read the manifests.
		over := time.Now().Add(time.Duration(c.random.ExpFloat64() * float64(700*time.Millisecond)))
		for range c.random.IntN(3) {
			c.change(t)
			time.Sleep(time.Until(over) / time.Duration(1+c.random.IntN(4)))
		}
		time.Sleep(time.Until(over))
		s.agent.signal(t, syscall.SIGKILL)
	}
	stormy := len(c.seen.runs())
	if stormy < churnPods {
		t.Errorf("only %d containers were started during the storm", stormy)
	}
	s.agent.start(t)
	for i := range c.pods {
		c.settles(t, i)
	}
	for i, p := range c.pods {
		if p.there {
			s.agent.remove(t, churnName(i))
		}
	}
	c.recovers(t, "the pods are gone", func() bool { return c.gone(t, "") })
	for _, problem := range judge(c.seen.ended(soon)) {
		t.Error(problem)
	}
	s.leavesNothing(t)
	t.Logf("%d containers were started, %d of them during the storm", len(c.seen.runs()), stormy)
	s.agent.signal(t, syscall.SIGTERM)
}

// churn is the storm: the wanted pods and what was seen of them.
type churn struct {
	*scene
	random *rand.Rand
	seen   *witness
	pods   []churned
	serial int
}

// churned is what is wanted of one of the pods now.
type churned struct {
	there  bool
	serial int
}

// churnKinds are the kinds of pods. Each container says which pod it belongs to, the serial number
// of its manifest, and its name. Of each pod one container runs at a time.
var churnKinds = []string{"steady", "stubborn", "job", "crasher", "inits"}

func churnName(i int) string { return fmt.Sprintf("%s-%d", churnKinds[i%len(churnKinds)], i) }

// change adds a pod that is not there, and removes or replaces one that is.
func (c *churn) change(t *testing.T) {
	i := c.random.IntN(len(c.pods))
	p := &c.pods[i]
	if p.there && c.random.IntN(3) == 0 {
		p.there = false
		c.agent.remove(t, churnName(i))
		return
	}
	c.want(t, i)
}

// want writes a new manifest for a pod.
func (c *churn) want(t *testing.T, i int) {
	c.serial++
	c.pods[i] = churned{true, c.serial}
	c.agent.add(t, churnName(i), manifest(churnName(i), c.spec(i)))
}

// spec is the spec of a pod, as it is wanted now. The serial number makes it another pod each time.
func (c *churn) spec(i int) string {
	hold := func(container string, flags ...string) string {
		says := fmt.Sprintf("%s %d %s", churnName(i), c.pods[i].serial, container)
		args := append([]string{"hold"}, append(flags, c.seen.address(c.node), says)...)
		return fmt.Sprintf("\n  - {name: %s, image: sample, args: [\"%s\"]}", container,
			strings.Join(args, `", "`))
	}
	grace := "  terminationGracePeriodSeconds: 5"
	switch churnKinds[i%len(churnKinds)] {
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

// settles waits until a pod is what its manifest wants.
func (c *churn) settles(t *testing.T, i int) {
	name := churnName(i)
	c.recovers(t, name+" is as it should be", func() bool {
		if !c.pods[i].there {
			return c.gone(t, name)
		}
		now := c.seen.last(fmt.Sprintf("%s %d ", name, c.pods[i].serial))
		phase := c.agent.pod(t, name).Status.Phase
		switch churnKinds[i%len(churnKinds)] {
		case "job": // it fails if the runtime was interrupted while it started
			return phase == v1.PodSucceeded || phase == v1.PodFailed
		case "crasher":
			return phase == v1.PodRunning && now.name != ""
		}
		return phase == v1.PodRunning && now.ended.IsZero() && strings.Contains(now.name, " main ")
	})
}

// judge says what is wrong with everything that has run and ended.
func judge(runs []run) []string {
	var problems []string
	starts := map[string]int{}
	for i, r := range runs {
		if starts[r.name]++; starts[r.name] == 2 {
			problems = append(problems, r.name+" was started twice")
		}
		pod, kind, attempt := fieldsOf(r.name)
		switch {
		case r.ended.IsZero():
			problems = append(problems, r.name+" still runs")
		case kind == "job" && attempt != "0":
			problems = append(problems, r.name+" is a job that ran again")
		}
		overlaps := func(o run) bool {
			other, _, _ := fieldsOf(o.name)
			return other == pod && o.began.Before(r.ended) && r.began.Before(o.ended)
		}
		if j := slices.IndexFunc(runs[:i], overlaps); j >= 0 {
			problems = append(problems, runs[j].name+" and "+r.name+" ran at once")
		}
	}
	return problems
}

// The judge is shown one bug of each kind.
func TestJudge(t *testing.T) {
	lives := func(name string, from, to int) run {
		at := func(second int) time.Time { return time.Unix(int64(second), 0) }
		return run{name: name, began: at(from), ended: at(to)}
	}
	for _, c := range []struct {
		runs []run
		want []string
	}{
		{[]run{lives("a-1 1 main 0", 1, 2), lives("a-1 1 main 1", 3, 4), lives("a-1 2 main 0", 5, 6)},
			nil},
		{[]run{lives("a-1 1 main 0", 1, 2), lives("a-1 1 main 0", 3, 4)},
			[]string{"a-1 1 main 0 was started twice"}},
		{[]run{lives("a-1 1 main 0", 1, 3), lives("a-1 2 main 0", 2, 4)},
			[]string{"a-1 1 main 0 and a-1 2 main 0 ran at once"}},
		{[]run{lives("job-2 1 main 1", 1, 2)}, []string{"job-2 1 main 1 is a job that ran again"}},
		{[]run{{name: "a-1 1 main 0", began: time.Unix(1, 0)}},
			[]string{"a-1 1 main 0 still runs"}},
	} {
		if got := judge(c.runs); !slices.Equal(got, c.want) {
			t.Errorf("of %v the judge says %q, want %q", c.runs, got, c.want)
		}
	}
}

// fieldsOf takes what a container says apart.
func fieldsOf(name string) (pod, kind, attempt string) {
	fields := strings.Fields(name)
	if len(fields) != 4 {
		return name, "", ""
	}
	kind, _, _ = strings.Cut(fields[0], "-")
	return fields[0], kind, fields[3]
}

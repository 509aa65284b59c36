package e2e

import (
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"text/tabwriter"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/realworld/cluster"
)

const (
	onePodRounds     = 20               // single pods whose durations are taken
	idleSettleTime   = 30 * time.Second // until all work of the start is done
	idleMeasuredTime = time.Minute
	coldStarts       = 5
)

// BenchmarkPace prints the table of docs/pace.md: how long pods take to start and to end, and what
// the agent uses for it and at rest, beside the runtime's own calls for the same pods. If the
// variable KUBELET is the path of a kubelet, it has a column, too: both programs run in turns as
// the node of one cluster, each in a mount namespace of its own.
func BenchmarkPace(b *testing.B) {
	c := newPaceBenchmark(b)
	for b.Loop() {
		for range startupRounds {
			c.timePlain(b)
			for _, p := range c.programs {
				c.run(b, p)
				p.hundred = append(p.hundred, c.timeAgent(b, c.benchmarkPods(startupPods)))
				p.volumes = append(p.volumes, c.timeAgent(b, c.podsWithVolumes(startupPods)))
			}
		}
		for _, p := range c.programs {
			c.run(b, p)
			c.measureOnePods(b, p)
			c.measureRest(b, p)
		}
		c.measureColdStarts(b)
	}
	c.report(b)
	c.checkNothingLeft(b)
	c.agent.signalAndWait(b, syscall.SIGTERM)
}

// paceBenchmark is a cluster whose node one of several programs is, in turns.
type paceBenchmark struct {
	*takeOverSuite
	programs []*measured // the agent is the last one
	running  *measured
	plain    measured // the runtime's calls without a program
}

// measured are the figures of a program.
type measured struct {
	name, path       string
	hundred, volumes []pace // of a hundred pods: with a token, and with other volumes, too
	starts, ends     []time.Duration
	restCPU          float64 // of a core
	residentMiB      float64
	coldStarts       []time.Duration // until the first list of the runtime has arrived
}

func newPaceBenchmark(b *testing.B) *paceBenchmark {
	b.Helper()
	path, err := seedletBinary()
	if err != nil {
		b.Fatal(err)
	}
	agent := &measured{name: "seedlet", path: path}
	c := &paceBenchmark{takeOverSuite: &takeOverSuite{seedlet: path}, programs: []*measured{agent}}
	if kubelet := os.Getenv("KUBELET"); kubelet != "" {
		c.programs = []*measured{{name: "kubelet", path: kubelet}, agent}
		c.clusterSuite = newClusterSuiteWithoutAgent(b, cluster.Options{})
		c.history, c.connections = newWatchHistory(b, c.api), newConnectionRecorder(b)
		c.newIsolatedAgent(b, benchmarkConfiguration...)
		b.Cleanup(func() { c.agent.killIfRunning() })
		c.startIsolated(b, kubelet)
	} else {
		c.clusterSuite = newClusterSuite(b, benchmarkConfiguration...)
	}
	c.running = c.programs[0]
	c.prepareBenchmark(b)
	c.createVolumeSources(b)
	return c
}

// run makes a program the node.
func (c *paceBenchmark) run(b *testing.B, p *measured) {
	b.Helper()
	if c.running == p {
		return
	}
	c.agent.signalAndWait(b, syscall.SIGTERM)
	c.startIsolated(b, p.path)
	c.running = p
	time.Sleep(startupSettleTime)
}

func (c *paceBenchmark) timePlain(b *testing.B) {
	b.Helper()
	c.plain.hundred = append(c.plain.hundred, c.timePlainLoop(b, startupPods))
	c.plain.volumes = append(c.plain.volumes, c.timePlainLoop(b, startupPods,
		&runtimeapi.Mount{HostPath: b.TempDir(), ContainerPath: "/secret", Readonly: true},
		&runtimeapi.Mount{HostPath: b.TempDir(), ContainerPath: "/config", Readonly: true}))
}

// measureOnePods measures single pods on a node at rest, each beside the runtime's own calls.
func (c *paceBenchmark) measureOnePods(b *testing.B, p *measured) {
	b.Helper()
	for range onePodRounds {
		start, end := c.timeOnePod(b)
		p.starts, p.ends = append(p.starts, start), append(p.ends, end)
		start, end = c.timePlainPod(b)
		c.plain.starts, c.plain.ends = append(c.plain.starts, start), append(c.plain.ends, end)
	}
}

// measureRest measures what a program uses while a hundred pods run and nothing changes: it reports
// statuses and leases.
func (c *paceBenchmark) measureRest(b *testing.B, p *measured) {
	b.Helper()
	c.waitRuntimeSettled(b)
	c.startAll(b, c.benchmarkPods(startupPods))
	time.Sleep(idleSettleTime)
	pid := c.agent.cmd.Process.Pid
	before, start := cpuSeconds(b, pid), time.Now()
	time.Sleep(idleMeasuredTime)
	p.restCPU = (cpuSeconds(b, pid) - before) / time.Since(start).Seconds()
	p.residentMiB = residentMiB(b, pid)
	c.deleteAllPods(b)
}

// measureColdStarts measures how long the agent takes from its start until it knows the pods of the
// runtime, of which there are a hundred. A program in a mount namespace of its own waits for that
// first, so there is no such figure of two programs.
func (c *paceBenchmark) measureColdStarts(b *testing.B) {
	b.Helper()
	if len(c.programs) > 1 {
		return
	}
	c.waitRuntimeSettled(b)
	c.startAll(b, c.benchmarkPods(startupPods))
	metrics := strings.TrimSuffix(c.agent.podsURL, "/pods") + "/metrics"
	for range coldStarts {
		c.agent.signalAndWait(b, syscall.SIGTERM)
		began := time.Now()
		c.agent.startProcess(b)
		c.pollHistory(b, "the runtime's pods are known", func() bool {
			text, err := getText(metrics)
			return err == nil && hasListed.MatchString(text)
		})
		c.running.coldStarts = append(c.running.coldStarts, time.Since(began))
		time.Sleep(startupSettleTime)
	}
	c.deleteAllPods(b)
}

// hasListed matches metrics of an agent that has listed the runtime's pods.
var hasListed = regexp.MustCompile(`(?m)^kubelet_pleg_relist_duration_seconds_count [1-9]`)

func getText(url string) (string, error) {
	response, err := client.Get(url)
	if err != nil {
		return "", err
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	return string(text), err
}

// createVolumeSources creates what the volumes of podsWithVolumes are made from.
func (c *paceBenchmark) createVolumeSources(b *testing.B) {
	b.Helper()
	c.kubectl(b, "create", "secret", "generic", "pace", "--from-literal=password=x")
	c.kubectl(b, "create", "configmap", "pace", "--from-literal=level=info")
}

// podsWithVolumes returns pods that have a Secret and a ConfigMap each beside the token that all
// pods have.
func (c *paceBenchmark) podsWithVolumes(count int) []*v1.Pod {
	pods := c.benchmarkPods(count)
	for _, p := range pods {
		p.Spec.Volumes = []v1.Volume{
			{Name: "secret", VolumeSource: v1.VolumeSource{
				Secret: &v1.SecretVolumeSource{SecretName: "pace"}}},
			{Name: "config", VolumeSource: v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{
				LocalObjectReference: v1.LocalObjectReference{Name: "pace"}}}},
		}
		p.Spec.Containers[0].VolumeMounts = []v1.VolumeMount{
			{Name: "secret", MountPath: "/secret"}, {Name: "config", MountPath: "/config"}}
	}
	return pods
}

// report prints the table, and the agent's part of it as metrics.
func (c *paceBenchmark) report(b *testing.B) {
	b.Helper()
	var table strings.Builder
	w := tabwriter.NewWriter(&table, 0, 0, 2, ' ', 0)
	columns := append([]*measured{&c.plain}, c.programs...)
	fmt.Fprint(w, "\nfigure\tthe runtime's calls")
	for _, p := range c.programs {
		fmt.Fprintf(w, "\t%s\tratio", p.name)
	}
	fmt.Fprintln(w)
	for _, row := range paceRows {
		fmt.Fprint(w, row.name)
		plain := row.of(columns[0])
		for i, p := range columns {
			value := row.of(p)
			if value == 0 {
				fmt.Fprint(w, "\t-")
			} else {
				fmt.Fprintf(w, "\t%.*f %s", row.digits, value, row.unit)
			}
			if i > 0 && plain > 0 {
				fmt.Fprintf(w, "\t%.2f", value/plain)
			} else if i > 0 {
				fmt.Fprint(w, "\t")
			}
		}
		fmt.Fprintln(w)
	}
	_ = w.Flush()               // to memory
	fmt.Println(table.String()) // a benchmark's log is cut after ten lines
	agent := c.programs[len(c.programs)-1]
	b.ReportMetric(allStart.of(agent)/allStart.of(&c.plain), "ratio-start")
	b.ReportMetric(allEnd.of(agent)/allEnd.of(&c.plain), "ratio-end")
	b.ReportMetric(100*agent.restCPU, "%core")
	b.ReportMetric(agent.residentMiB, "MiB")
}

// paceRow is a row of the table; 0 is a figure that there is none of.
type paceRow struct {
	name   string
	unit   string
	digits int
	of     func(*measured) float64
}

var (
	allStart = paceRow{"100 pods: all run", "s", 2, func(m *measured) float64 {
		return median(m.hundred, func(p pace) float64 { return p.start.Seconds() })
	}}
	allEnd = paceRow{"100 pods: all gone", "s", 2, func(m *measured) float64 {
		return median(m.hundred, func(p pace) float64 { return p.end.Seconds() })
	}}
	paceRows = []paceRow{allStart, allEnd,
		{"CPU of their start", "s", 2, func(m *measured) float64 {
			return median(m.hundred, func(p pace) float64 { return p.startCPU })
		}},
		{"CPU of their end", "s", 2, func(m *measured) float64 {
			return median(m.hundred, func(p pace) float64 { return p.endCPU })
		}},
		{"with a Secret and a ConfigMap: all run", "s", 2, func(m *measured) float64 {
			return median(m.volumes, func(p pace) float64 { return p.start.Seconds() })
		}},
		{"with a Secret and a ConfigMap: all gone", "s", 2, func(m *measured) float64 {
			return median(m.volumes, func(p pace) float64 { return p.end.Seconds() })
		}},
		{"one pod: created until ready, p50", "ms", 0, percentile(50, startsOf)},
		{"one pod: created until ready, longest", "ms", 0, percentile(100, startsOf)},
		{"one pod: deleted until gone, p50", "ms", 0, percentile(50, endsOf)},
		{"one pod: deleted until gone, longest", "ms", 0, percentile(100, endsOf)},
		{"started until the runtime's pods are known, p50", "ms", 0,
			percentile(50, func(m *measured) []time.Duration { return m.coldStarts })},
		{"at rest with 100 pods", "% of a core", 2,
			func(m *measured) float64 { return 100 * m.restCPU }},
		{"resident with 100 pods", "MiB", 0, func(m *measured) float64 { return m.residentMiB }},
	}
)

func startsOf(m *measured) []time.Duration { return m.starts }
func endsOf(m *measured) []time.Duration   { return m.ends }

// median returns the middle of a figure of several rounds; 0 without any.
func median(rounds []pace, of func(pace) float64) float64 {
	if len(rounds) == 0 {
		return 0
	}
	var all []float64
	for _, r := range rounds {
		all = append(all, of(r))
	}
	slices.Sort(all)
	return all[len(all)/2]
}

// percentile returns a percentile of durations in milliseconds; 0 without any.
func percentile(percent int, of func(*measured) []time.Duration) func(*measured) float64 {
	return func(m *measured) float64 {
		all := slices.Sorted(slices.Values(of(m)))
		if len(all) == 0 {
			return 0
		}
		return all[min(len(all)-1, len(all)*percent/100)].Seconds() * 1000
	}
}

// podCounts are the numbers of pods of BenchmarkPodCounts.
var podCounts = []int{50, 100, 200, 500}

// BenchmarkPodCounts prints what a pod costs the agent on nodes of more and more pods. That must
// not grow.
func BenchmarkPodCounts(b *testing.B) {
	c := newBenchmarkCluster(b)
	pid := c.agent.cmd.Process.Pid
	for b.Loop() {
		for _, count := range podCounts {
			c.waitRuntimeSettled(b)
			before := cpuSeconds(b, pid)
			took := c.startAll(b, c.benchmarkPods(count))
			time.Sleep(startupSettleTime)
			started := cpuSeconds(b, pid)
			time.Sleep(idleMeasuredTime)
			rested := cpuSeconds(b, pid)
			resident := residentMiB(b, pid)
			c.deleteAllPods(b)
			ended := cpuSeconds(b, pid)
			perPod := func(seconds float64) float64 { return 1000 * seconds / float64(count) }
			b.Logf("%d pods: started in %.1f s; CPU of the agent for each: start %.1f ms, end %.1f ms, "+
				"a minute at rest %.2f ms; resident %.0f MiB", count, took.Seconds(),
				perPod(started-before), perPod(ended-rested), perPod(rested-started), resident)
			b.ReportMetric(perPod(started-before), fmt.Sprintf("ms-start-of-%d", count))
			b.ReportMetric(perPod(ended-rested), fmt.Sprintf("ms-end-of-%d", count))
		}
	}
	c.checkNothingLeft(b)
	c.agent.signalAndWait(b, syscall.SIGTERM)
}

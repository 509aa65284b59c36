package e2e

import (
	"slices"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// onePodRounds is of how many pods, one after the other, the durations are taken.
const onePodRounds = 20

// BenchmarkOnePod measures the start of a single pod, from its creation at the API server until
// that has it as ready, and its end, from the deletion until the object is gone. The process ends
// at TERM. Beside each pod it measures the runtime's own calls for the same.
func BenchmarkOnePod(b *testing.B) {
	c := newBenchmarkCluster(b)
	var starts, ends, plainStarts, plainEnds []time.Duration
	for b.Loop() {
		for range onePodRounds {
			start, end := c.timeOnePod(b)
			starts, ends = append(starts, start), append(ends, end)
			start, end = c.timePlainPod(b)
			plainStarts, plainEnds = append(plainStarts, start), append(plainEnds, end)
		}
	}
	report := func(name string, agent, plain []time.Duration) {
		slices.Sort(agent)
		slices.Sort(plain)
		half, last := len(agent)/2, len(agent)*99/100
		b.Logf("%s: p50 %v, p99 %v; the runtime's calls: p50 %v, p99 %v", name, agent[half],
			agent[last], plain[half], plain[last])
		b.ReportMetric(agent[half].Seconds()*1000, "ms-"+name)
		b.ReportMetric(float64((agent[half] - plain[half]).Milliseconds()), "ms-over-"+name)
	}
	report("start", starts, plainStarts)
	report("end", ends, plainEnds)
	c.checkNothingLeft(b)
	c.agent.signalAndWait(b, syscall.SIGTERM)
}

// timeOnePod creates and deletes a pod, and returns how long its start and its end took.
func (c *clusterSuite) timeOnePod(b *testing.B) (start, end time.Duration) {
	b.Helper()
	pods := c.api.CoreV1().Pods(testNamespace)
	began := time.Now()
	pod, err := pods.Create(b.Context(), c.benchmarkPod(0), metav1.CreateOptions{})
	if err != nil {
		b.Fatal(err)
	}
	c.pollHistory(b, "the pod is ready", func() bool {
		return isPodReady(c.history.lastState(pod.UID))
	})
	start = time.Since(began)
	time.Sleep(2 * time.Second) // the node comes to rest
	began = time.Now()
	if err := pods.Delete(b.Context(), pod.Name, metav1.DeleteOptions{}); err != nil {
		b.Fatal(err)
	}
	c.pollHistory(b, "the pod is gone", func() bool { return c.history.isDeleted(pod.UID) })
	end = time.Since(began)
	time.Sleep(time.Second)
	return start, end
}

// pollHistory waits until a condition of the recorded watch is met, and asks for it often enough to
// measure when it is.
func (c *clusterSuite) pollHistory(b *testing.B, what string, isMet func() bool) {
	b.Helper()
	for deadline := time.Now().Add(startupTimeout); !isMet(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			b.Fatalf("%s: not within %v", what, startupTimeout)
		}
	}
}

// timePlainPod makes and removes the same sandbox and container without the agent, and returns how
// long its start and its end took.
func (c *clusterSuite) timePlainPod(b *testing.B) (start, end time.Duration) {
	b.Helper()
	agent := c.agent.cmd.Process // a running agent would remove it as a pod of no source
	if err := agent.Signal(syscall.SIGSTOP); err != nil {
		b.Fatal(err)
	}
	began := time.Now()
	if err := c.startPlainPod(b.Context(), b.TempDir(), "plain"); err != nil {
		b.Fatal(err)
	}
	start = time.Since(began)
	time.Sleep(time.Second)
	began = time.Now()
	if err := c.endPlainPods(b.Context(), 1); err != nil {
		b.Fatal(err)
	}
	end = time.Since(began)
	if err := agent.Signal(syscall.SIGCONT); err != nil {
		b.Fatal(err)
	}
	time.Sleep(time.Second)
	return start, end
}

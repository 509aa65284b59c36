package e2e

import (
	"context"
	"errors"
	"fmt"
	"github.com/prometheus/procfs"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/realworld/nodetest"
)

const (
	startupPods       = 100
	startupParallel   = 64 // the agent's limit of concurrent requests to the runtime
	startupTimeout    = 5 * time.Minute
	benchmarkGrace    = 5 // seconds
	startupSettleTime = 10 * time.Second
	startupRounds     = 3 // rounds vary: other processes and work of the runtime disturb them
)

// comparePaces measures a plain loop and the agent in turns, and reports both.
func comparePaces(b *testing.B, timePlain, timeAgent func() pace) {
	b.Helper()
	var plain, agent pace
	rounds := time.Duration(0)
	for b.Loop() {
		for range startupRounds {
			p, a := timePlain(), timeAgent()
			b.Logf("started in %.2f s by the agent, %.2f s by a plain loop: %.2f; ended in %.2f s, "+
				"%.2f s: %.2f", a.start.Seconds(), p.start.Seconds(),
				a.start.Seconds()/p.start.Seconds(), a.end.Seconds(), p.end.Seconds(),
				a.end.Seconds()/p.end.Seconds())
			plain.add(p)
			agent.add(a)
			rounds++
		}
	}
	b.ReportMetric((agent.start / rounds).Seconds(), "s-agent")
	b.ReportMetric((plain.start / rounds).Seconds(), "s-plain")
	b.ReportMetric(agent.start.Seconds()/plain.start.Seconds(), "ratio")
	b.ReportMetric((agent.end / rounds).Seconds(), "s-agent-end")
	b.ReportMetric((plain.end / rounds).Seconds(), "s-plain-end")
	b.ReportMetric(agent.end.Seconds()/plain.end.Seconds(), "ratio-end")
}

// pace is how long the start and the end of all pods take, and the CPU time of the agent in them.
type pace struct {
	start, end       time.Duration
	startCPU, endCPU float64 // seconds
}

func (p *pace) add(o pace) { p.start, p.end = p.start+o.start, p.end+o.end }

// benchmarkConfiguration has the periods of the defaults, and so is what is measured; tests have
// others. The thresholds are lower, for a disk that is shared. Every cluster has a DNS server;
// without one there is one more Event for each pod.
var benchmarkConfiguration = []string{"clusterDNS: [10.96.0.10]\n",
	"containerLogMonitorInterval: 10s\n", "syncFrequency: 1m\n",
	"imageGCHighThresholdPercent: 97\n", "maxPods: 600\n",
	"evictionHard: {memory.available: 100Mi, nodefs.available: 1%, nodefs.inodesFree: 1%, " +
		"imagefs.available: 1%, imagefs.inodesFree: 1%}\n"}

// newBenchmarkCluster starts a cluster whose node is ready and has the images.
func newBenchmarkCluster(b *testing.B) *clusterSuite {
	b.Helper()
	c := newClusterSuite(b, benchmarkConfiguration...)
	c.prepareBenchmark(b)
	return c
}

// prepareBenchmark waits until the node is ready, and pulls the images.
func (c *clusterSuite) prepareBenchmark(b *testing.B) {
	b.Helper()
	c.kubectl(b, "create", "namespace", testNamespace)
	c.kubectl(b, "wait", "--for=create", patience, "serviceaccount/default")
	c.kubectl(b, "wait", "--for=condition=Ready", patience, "node/"+nodeName)
	c.apply(b, holderManifest("first", "")) // pulls the images
	c.waitUntil(b, "the first pod runs", func() bool {
		return isPodReady(c.apiPod(b, "first"))
	})
	c.kubectl(b, "delete", "pod", "first")
	// The scheduler and the controllers watch the pods, but are not measured.
	if err := c.cluster.StopClients(); err != nil {
		b.Fatal(err)
	}
}

// waitRuntimeSettled waits until the runtime and the kernel have removed everything of the pods
// before: the kernel takes down networks and cgroups long after it has reported their removal. So
// neither of the two measurements includes the end of the other.
func (c *clusterSuite) waitRuntimeSettled(b *testing.B) {
	b.Helper()
	c.waitRuntimeEmpty(b)
	time.Sleep(startupSettleTime)
}

func (c *clusterSuite) waitRuntimeEmpty(b *testing.B) {
	b.Helper()
	c.waitUntil(b, "the runtime has no sandbox", func() bool {
		return len(c.sandboxLines(b, "")) == 0
	})
}

// timeAgent creates the pods at the API server, waits until all run, and deletes them.
func (c *clusterSuite) timeAgent(b *testing.B, pods []*v1.Pod) pace {
	b.Helper()
	c.waitRuntimeSettled(b)
	before := cpuSeconds(b, c.agent.cmd.Process.Pid)
	took := pace{start: c.startAll(b, pods)}
	time.Sleep(startupSettleTime)
	between := cpuSeconds(b, c.agent.cmd.Process.Pid)
	start := time.Now()
	err := c.api.CoreV1().Pods(testNamespace).DeleteCollection(b.Context(), metav1.DeleteOptions{},
		metav1.ListOptions{})
	if err != nil {
		b.Fatal(err)
	}
	c.pollHistory(b, "all pods are gone", func() bool {
		return c.history.countPresent("pace-") == 0
	})
	took.end = time.Since(start)
	c.waitRuntimeEmpty(b)
	took.startCPU = between - before
	took.endCPU = cpuSeconds(b, c.agent.cmd.Process.Pid) - between
	return took
}

// startAll creates pods at the API server, and returns the time until all run.
func (c *clusterSuite) startAll(b *testing.B, all []*v1.Pod) time.Duration {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), startupTimeout)
	defer cancel()
	pods := c.api.CoreV1().Pods(testNamespace)
	start := time.Now()
	created := make(chan error, 1)
	go func() {
		created <- forEach(len(all), func(i int) error {
			_, err := pods.Create(ctx, all[i], metav1.CreateOptions{})
			return err
		})
	}()
	for running := 0; running < len(all); running = c.history.countRunning("pace-") {
		if ctx.Err() != nil {
			b.Fatalf("only %d pods run after %v\n%s", running, startupTimeout, c.podOverview(b))
		}
		time.Sleep(10 * time.Millisecond)
	}
	took := time.Since(start)
	if err := <-created; err != nil {
		b.Fatal(err)
	}
	return took
}

// deleteAllPods deletes all pods, and waits until the runtime has removed them.
func (c *clusterSuite) deleteAllPods(b *testing.B) {
	b.Helper()
	c.kubectl(b, "delete", "pods", "--all")
	c.waitRuntimeEmpty(b)
}

func (c *clusterSuite) benchmarkPods(count int) []*v1.Pod {
	pods := make([]*v1.Pod, count)
	for i := range pods {
		pods[i] = c.benchmarkPod(i)
	}
	return pods
}

func (c *clusterSuite) benchmarkPod(i int) *v1.Pod {
	grace := int64(benchmarkGrace)
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("pace-%d", i)},
		Spec: v1.PodSpec{
			NodeName: nodeName, TerminationGracePeriodSeconds: &grace,
			Containers: []v1.Container{{
				Name: "main", Image: c.agent.sampleImage, Args: []string{"sleep"},
			}},
		},
	}
}

// timePlainLoop creates the same sandboxes and containers without the agent, and removes them.
func (c *clusterSuite) timePlainLoop(b *testing.B, count int, mounts ...*runtimeapi.Mount) pace {
	b.Helper()
	logs := b.TempDir()
	return c.timeWithoutAgent(b, func() error {
		return forEach(count, func(i int) error {
			return c.startPlainPod(b.Context(), logs, fmt.Sprintf("plain-%d", i), mounts...)
		})
	}, func() error { return c.endPlainPods(b.Context(), count) })
}

// timeWithoutAgent measures the start and the end of pods while the agent is stopped.
func (c *clusterSuite) timeWithoutAgent(b *testing.B, startPods, endPods func() error) pace {
	b.Helper()
	c.waitRuntimeSettled(b)
	agent := c.agent.cmd.Process // a running agent would remove them as pods of no source
	if err := agent.Signal(syscall.SIGSTOP); err != nil {
		b.Fatal(err)
	}
	start := time.Now()
	err := startPods()
	took := pace{start: time.Since(start)}
	if err != nil {
		b.Fatal(err)
	}
	time.Sleep(startupSettleTime)
	start = time.Now()
	if err := endPods(); err != nil {
		b.Fatal(err)
	}
	took.end = time.Since(start)
	if err := agent.Signal(syscall.SIGCONT); err != nil {
		b.Fatal(err)
	}
	return took
}

// endPlainPods stops and removes all containers, of which there are so many, and their sandboxes.
func (c *clusterSuite) endPlainPods(ctx context.Context, count int) error {
	runtime := c.node.Runtime()
	list, err := runtime.ListContainers(ctx, &runtimeapi.ListContainersRequest{})
	if err != nil || len(list.Containers) != count {
		return fmt.Errorf("the runtime has %d containers, want %d: %w", len(list.GetContainers()),
			count, err)
	}
	return forEach(count, func(i int) error {
		container, sandbox := list.Containers[i].Id, list.Containers[i].PodSandboxId
		_, err := runtime.StopContainer(ctx,
			&runtimeapi.StopContainerRequest{ContainerId: container, Timeout: benchmarkGrace})
		if err == nil {
			_, err = runtime.StopPodSandbox(ctx,
				&runtimeapi.StopPodSandboxRequest{PodSandboxId: sandbox})
		}
		if err == nil {
			_, err = runtime.RemoveContainer(ctx,
				&runtimeapi.RemoveContainerRequest{ContainerId: container})
		}
		if err == nil {
			_, err = runtime.RemovePodSandbox(ctx,
				&runtimeapi.RemovePodSandboxRequest{PodSandboxId: sandbox})
		}
		return err
	})
}

// forEach calls do for every number below count, with the concurrency of the agent.
func forEach(count int, do func(i int) error) error {
	semaphore, errs := make(chan bool, startupParallel), make([]error, count)
	var group sync.WaitGroup
	for i := range count {
		group.Go(func() {
			semaphore <- true
			errs[i] = do(i)
			<-semaphore
		})
	}
	group.Wait()
	return errors.Join(errs...)
}

// startPlainPod creates a sandbox with a running container.
func (c *clusterSuite) startPlainPod(ctx context.Context, logs, name string,
	mounts ...*runtimeapi.Mount) error {
	logs = filepath.Join(logs, name)
	if err := os.MkdirAll(filepath.Join(logs, "main"), 0o755); err != nil {
		return err
	}
	namespaces := &runtimeapi.NamespaceOption{Pid: runtimeapi.NamespaceMode_CONTAINER}
	config := &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{Name: name, Uid: name, Namespace: testNamespace},
		Hostname: name, LogDirectory: logs,
		Linux: &runtimeapi.LinuxPodSandboxConfig{
			CgroupParent: nodetest.CgroupRoot(c.node.Dir) + "/kubepods/besteffort/pod" + name,
			SecurityContext: &runtimeapi.LinuxSandboxSecurityContext{
				NamespaceOptions: namespaces,
				Seccomp: &runtimeapi.SecurityProfile{ // the agent's default for sandboxes
					ProfileType: runtimeapi.SecurityProfile_RuntimeDefault}},
		},
	}
	runtime := c.node.Runtime()
	sandbox, err := runtime.RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{Config: config})
	if err != nil {
		return err
	}
	created, err := runtime.CreateContainer(ctx, &runtimeapi.CreateContainerRequest{
		PodSandboxId: sandbox.PodSandboxId, SandboxConfig: config,
		Config: &runtimeapi.ContainerConfig{
			Metadata: &runtimeapi.ContainerMetadata{Name: "main"},
			Image:    &runtimeapi.ImageSpec{Image: c.agent.sampleImage}, Args: []string{"sleep"},
			LogPath: "main/0.log", Mounts: mounts, Linux: &runtimeapi.LinuxContainerConfig{
				SecurityContext: &runtimeapi.LinuxContainerSecurityContext{
					NamespaceOptions: namespaces}},
		},
	})
	if err != nil {
		return err
	}
	_, err = runtime.StartContainer(ctx,
		&runtimeapi.StartContainerRequest{ContainerId: created.ContainerId})
	return err
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

// cpuSeconds returns the CPU time of a process since its start.
func cpuSeconds(b *testing.B, pid int) float64 { return processStat(b, pid).CPUTime() }

func residentMiB(b *testing.B, pid int) float64 {
	return float64(processStat(b, pid).ResidentMemory()) / (1 << 20)
}

func processStat(b *testing.B, pid int) procfs.ProcStat {
	b.Helper()
	process, err := procfs.NewProc(pid)
	if err != nil {
		b.Fatal(err)
	}
	stat, err := process.Stat()
	if err != nil {
		b.Fatal(err)
	}
	return stat
}

package e2e

import (
	"context"
	"errors"
	"fmt"
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
	startupSettleTime = 10 * time.Second
	startupRounds     = 3 // rounds vary: other processes and work of the runtime disturb them
)

// BenchmarkHundredPods measures the start of a hundred pods that are created at once, from the
// first request until the last pod is Running at the API server. In the same run it measures a
// plain loop over the CRI that creates as many sandboxes with a container, with the same
// concurrency. The ratio of both is the overhead of the agent and the API server over the runtime.
func BenchmarkHundredPods(b *testing.B) {
	c := newBenchmarkCluster(b)
	var plain, agent time.Duration
	rounds := 0
	for b.Loop() {
		for range startupRounds {
			p, a := c.timePlainLoop(b), c.timeAgent(b)
			b.Logf("%d pods: %.2f s by the agent, %.2f s by a plain loop: %.2f", startupPods,
				a.Seconds(), p.Seconds(), a.Seconds()/p.Seconds())
			plain, agent, rounds = plain+p, agent+a, rounds+1
		}
	}
	b.ReportMetric(agent.Seconds()/float64(rounds), "s-agent")
	b.ReportMetric(plain.Seconds()/float64(rounds), "s-plain")
	b.ReportMetric(agent.Seconds()/plain.Seconds(), "ratio")
	c.checkNothingLeft(b)
	c.agent.signalAndWait(b, syscall.SIGTERM)
}

// newBenchmarkCluster starts a cluster whose node is ready and has the images.
func newBenchmarkCluster(b *testing.B) *clusterSuite {
	b.Helper()
	// Every cluster has a DNS server; without one there is one more Event for each pod.
	c := newClusterSuite(b, "clusterDNS: [10.96.0.10]\n")
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
	return c
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

// timeAgent creates the pods at the API server, waits until all run, and deletes them. It returns
// the time until all ran.
func (c *clusterSuite) timeAgent(b *testing.B) time.Duration {
	b.Helper()
	took := c.startAllPods(b)
	c.deleteAllPods(b)
	return took
}

// startAllPods creates the pods at the API server, and returns the time until all run.
func (c *clusterSuite) startAllPods(b *testing.B) time.Duration {
	b.Helper()
	c.waitRuntimeSettled(b)
	ctx, cancel := context.WithTimeout(b.Context(), startupTimeout)
	defer cancel()
	pods := c.api.CoreV1().Pods(testNamespace)
	start := time.Now()
	created := make(chan error, 1)
	go func() {
		created <- forEachPod(func(i int) error {
			_, err := pods.Create(ctx, c.benchmarkPod(i), metav1.CreateOptions{})
			return err
		})
	}()
	for running := 0; running < startupPods; running = c.history.countRunning("pace-") {
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

func (c *clusterSuite) benchmarkPod(i int) *v1.Pod {
	grace := int64(5)
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

// timePlainLoop creates the same sandboxes and containers without the agent, and removes them. It
// returns the time until all ran.
func (c *clusterSuite) timePlainLoop(b *testing.B) time.Duration {
	b.Helper()
	c.waitRuntimeSettled(b)
	agent := c.agent.cmd.Process // a running agent would remove them as pods of no source
	if err := agent.Signal(syscall.SIGSTOP); err != nil {
		b.Fatal(err)
	}
	logs := b.TempDir()
	start := time.Now()
	err := forEachPod(func(i int) error {
		return c.startPlainPod(b.Context(), logs, fmt.Sprintf("plain-%d", i))
	})
	took := time.Since(start)
	if err != nil {
		b.Fatal(err)
	}
	if err := c.removePlainPods(b.Context()); err != nil {
		b.Fatal(err)
	}
	if err := agent.Signal(syscall.SIGCONT); err != nil {
		b.Fatal(err)
	}
	return took
}

func (c *clusterSuite) removePlainPods(ctx context.Context) error {
	runtime := c.node.Runtime()
	list, err := runtime.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{})
	if err != nil || len(list.Items) != startupPods {
		return fmt.Errorf("the runtime has %d sandboxes, want %d: %w", len(list.GetItems()),
			startupPods, err)
	}
	return forEachPod(func(i int) error {
		_, err := runtime.StopPodSandbox(ctx,
			&runtimeapi.StopPodSandboxRequest{PodSandboxId: list.Items[i].Id})
		if err == nil {
			_, err = runtime.RemovePodSandbox(ctx,
				&runtimeapi.RemovePodSandboxRequest{PodSandboxId: list.Items[i].Id})
		}
		return err
	})
}

// forEachPod calls do for every pod, with the concurrency of the agent.
func forEachPod(do func(i int) error) error {
	semaphore, errs := make(chan bool, startupParallel), make([]error, startupPods)
	var group sync.WaitGroup
	for i := range startupPods {
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
func (c *clusterSuite) startPlainPod(ctx context.Context, logs, name string) error {
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
			LogPath: "main/0.log", Linux: &runtimeapi.LinuxContainerConfig{
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

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
	pacePods     = 100
	paceParallel = 64 // how many things at once the agent asks the runtime to make
	paceTimeout  = 5 * time.Minute
	paceSettles  = 10 * time.Second
	paceRounds   = 3 // one is not worth much: others use the machine, the runtime's own chores too
)

// BenchmarkHundredPods is how long a hundred pods take that are made at once, from the first
// request until the API server says of the last that it runs; and how long a plain loop over the
// CRI takes, in the same run and with as much at once, to have as many sandboxes with a container.
// The ratio of both is what the agent, and the API server beside it, add to what the runtime needs.
func BenchmarkHundredPods(b *testing.B) {
	c := newPacedTown(b)
	var plain, agent time.Duration
	rounds := 0
	for b.Loop() {
		for range paceRounds {
			p, a := c.plainly(b), c.byAgent(b)
			b.Logf("%d pods: %.2f s by the agent, %.2f s by a plain loop: %.2f", pacePods,
				a.Seconds(), p.Seconds(), a.Seconds()/p.Seconds())
			plain, agent, rounds = plain+p, agent+a, rounds+1
		}
	}
	b.ReportMetric(agent.Seconds()/float64(rounds), "s-agent")
	b.ReportMetric(plain.Seconds()/float64(rounds), "s-plain")
	b.ReportMetric(agent.Seconds()/plain.Seconds(), "ratio")
	c.leavesNothing(b)
	c.agent.signal(b, syscall.SIGTERM)
}

// newPacedTown is a cluster whose node is ready and has the images.
func newPacedTown(b *testing.B) *town {
	b.Helper()
	// As every cluster has it; without, there is one more event of each pod.
	c := newTown(b, "clusterDNS: [10.96.0.10]\n")
	c.kubectl(b, "create", "namespace", townNamespace)
	c.kubectl(b, "wait", "--for=create", "--timeout=60s", "serviceaccount/default")
	c.kubectl(b, "wait", "--for=condition=Ready", "--timeout=60s", "node/"+nodeName)
	c.apply(b, holder("first", "")) // the images are pulled for it
	c.until(b, late, "the first pod runs", func() bool { return podReady(c.pod(b, "first")) })
	c.kubectl(b, "delete", "pod", "first")
	// They watch the pods, but have no part in what is measured.
	if err := c.cluster.StopClients(); err != nil {
		b.Fatal(err)
	}
	return c
}

// settle waits until what was ended before is gone from the kernel as well: it takes down networks
// and cgroups long after it has said that they are gone. Neither side is to pay for the other.
func (c *town) settle(b *testing.B) {
	b.Helper()
	c.until(b, late, "the runtime is empty", func() bool { return len(c.sandboxes(b, "")) == 0 })
	time.Sleep(paceSettles)
}

// byAgent makes the pods at the API server, waits until all run, and removes them.
func (c *town) byAgent(b *testing.B) time.Duration {
	b.Helper()
	took := c.fill(b)
	c.clear(b)
	return took
}

// fill makes the pods at the API server, and says how long it took until all run.
func (c *town) fill(b *testing.B) time.Duration {
	b.Helper()
	c.settle(b)
	ctx, cancel := context.WithTimeout(b.Context(), paceTimeout)
	defer cancel()
	pods := c.api.CoreV1().Pods(townNamespace)
	start := time.Now()
	made := make(chan error, 1)
	go func() {
		made <- atOnce(func(i int) error {
			_, err := pods.Create(ctx, c.pacePod(i), metav1.CreateOptions{})
			return err
		})
	}()
	for running := 0; running < pacePods; running = c.seen.running("pace-") {
		if ctx.Err() != nil {
			b.Fatalf("only %d pods run after %v\n%s", running, paceTimeout, c.overview(b))
		}
		time.Sleep(10 * time.Millisecond)
	}
	took := time.Since(start)
	if err := <-made; err != nil {
		b.Fatal(err)
	}
	return took
}

// clear removes all pods.
func (c *town) clear(b *testing.B) {
	b.Helper()
	c.kubectl(b, "delete", "pods", "--all")
	c.until(b, late, "the runtime is empty", func() bool { return len(c.sandboxes(b, "")) == 0 })
}

func (c *town) pacePod(i int) *v1.Pod {
	grace := int64(5)
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("pace-%d", i)},
		Spec: v1.PodSpec{
			NodeName: nodeName, TerminationGracePeriodSeconds: &grace,
			Containers: []v1.Container{{
				Name: "main", Image: c.agent.image, Args: []string{"sleep"},
			}},
		},
	}
}

// plainly makes the same sandboxes and containers with nothing around it, and removes them.
func (c *town) plainly(b *testing.B) time.Duration {
	b.Helper()
	c.settle(b)
	agent := c.agent.cmd.Process // it would take them for pods that nobody wants
	if err := agent.Signal(syscall.SIGSTOP); err != nil {
		b.Fatal(err)
	}
	logs := b.TempDir()
	start := time.Now()
	err := atOnce(func(i int) error {
		return c.makePlainly(b.Context(), logs, fmt.Sprintf("plain-%d", i))
	})
	took := time.Since(start)
	if err != nil {
		b.Fatal(err)
	}
	if err := c.removePlainly(b.Context()); err != nil {
		b.Fatal(err)
	}
	if err := agent.Signal(syscall.SIGCONT); err != nil {
		b.Fatal(err)
	}
	return took
}

func (c *town) removePlainly(ctx context.Context) error {
	runtime := c.node.Runtime()
	list, err := runtime.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{})
	if err != nil || len(list.Items) != pacePods {
		return fmt.Errorf("there are %d sandboxes, not %d: %w", len(list.GetItems()), pacePods, err)
	}
	return atOnce(func(i int) error {
		_, err := runtime.StopPodSandbox(ctx,
			&runtimeapi.StopPodSandboxRequest{PodSandboxId: list.Items[i].Id})
		if err == nil {
			_, err = runtime.RemovePodSandbox(ctx,
				&runtimeapi.RemovePodSandboxRequest{PodSandboxId: list.Items[i].Id})
		}
		return err
	})
}

// atOnce does something for every pod, as much at once as the agent would.
func atOnce(do func(i int) error) error {
	turns, problems := make(chan bool, paceParallel), make([]error, pacePods)
	var group sync.WaitGroup
	for i := range pacePods {
		group.Go(func() {
			turns <- true
			problems[i] = do(i)
			<-turns
		})
	}
	group.Wait()
	return errors.Join(problems...)
}

// makePlainly makes a sandbox with a container that runs.
func (c *town) makePlainly(ctx context.Context, logs, name string) error {
	logs = filepath.Join(logs, name)
	if err := os.MkdirAll(filepath.Join(logs, "main"), 0o755); err != nil {
		return err
	}
	namespaces := &runtimeapi.NamespaceOption{Pid: runtimeapi.NamespaceMode_CONTAINER}
	config := &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{Name: name, Uid: name, Namespace: townNamespace},
		Hostname: name, LogDirectory: logs,
		Linux: &runtimeapi.LinuxPodSandboxConfig{
			CgroupParent: nodetest.CgroupRoot(c.node.Dir) + "/kubepods/besteffort/pod" + name,
			SecurityContext: &runtimeapi.LinuxSandboxSecurityContext{
				NamespaceOptions: namespaces,
				Seccomp: &runtimeapi.SecurityProfile{ // as of every sandbox of a pod
					ProfileType: runtimeapi.SecurityProfile_RuntimeDefault}},
		},
	}
	runtime := c.node.Runtime()
	sandbox, err := runtime.RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{Config: config})
	if err != nil {
		return err
	}
	made, err := runtime.CreateContainer(ctx, &runtimeapi.CreateContainerRequest{
		PodSandboxId: sandbox.PodSandboxId, SandboxConfig: config,
		Config: &runtimeapi.ContainerConfig{
			Metadata: &runtimeapi.ContainerMetadata{Name: "main"},
			Image:    &runtimeapi.ImageSpec{Image: c.agent.image}, Args: []string{"sleep"},
			LogPath: "main/0.log", Linux: &runtimeapi.LinuxContainerConfig{
				SecurityContext: &runtimeapi.LinuxContainerSecurityContext{
					NamespaceOptions: namespaces}},
		},
	})
	if err != nil {
		return err
	}
	_, err = runtime.StartContainer(ctx,
		&runtimeapi.StartContainerRequest{ContainerId: made.ContainerId})
	return err
}

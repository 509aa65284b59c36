package e2e

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/remotecommand"

	"seedlet.dev/realworld/porttest"
)

const (
	streamingPods      = 10 // pods whose logs are followed and in which commands run
	streamingFollowers = 200
	streamingExecs     = 50
	streamingStarts    = 50 // pods that are started and deleted in each measurement
	streamingParallel  = 5  // how many of them at once
)

// BenchmarkPodStartUnderStreaming measures the start of pods while two hundred clients follow logs
// and fifty clients run a command, and the start of as many pods without clients in the same run.
// Each client checks that its stream is complete and in order.
func BenchmarkPodStartUnderStreaming(b *testing.B) {
	c := newBenchmarkCluster(b)
	for i := range streamingPods {
		// The scheduler is stopped, so the pods are bound to the node already.
		bound := holderManifest(talkerName(i), "\n  nodeName: "+nodeName)
		c.apply(b, strings.ReplaceAll(bound, "[hold, RECORDER, "+talkerName(i)+"]",
			"[talk, --lines=1000000, --bytes=60, --every=5s]"))
	}
	for i := range streamingPods {
		c.waitUntil(b, talkerName(i)+" is ready", func() bool {
			return isPodReady(c.apiPod(b, talkerName(i)))
		})
	}
	var without, with time.Duration
	for b.Loop() {
		without += c.startAndDeletePods(b, "quiet")
		clients := c.startStreamingClients(b)
		with += c.startAndDeletePods(b, "crowded")
		for _, err := range clients.stop() {
			b.Error(err)
		}
	}
	b.ReportMetric(without.Seconds()/float64(b.N), "s-quiet")
	b.ReportMetric(with.Seconds()/float64(b.N), "s-crowded")
	b.ReportMetric(with.Seconds()/without.Seconds(), "ratio")
	c.deleteAllPods(b)
	c.checkNothingLeft(b)
	c.agent.signalAndWait(b, syscall.SIGTERM)
}

func talkerName(i int) string { return fmt.Sprintf("talker-%d", i) }

// startAndDeletePods creates pods, a few at a time, and deletes each one once it runs. It returns
// the mean time from the request until the pod is Running at the API server.
func (c *clusterSuite) startAndDeletePods(b *testing.B, name string) time.Duration {
	b.Helper()
	pods := c.api.CoreV1().Pods(testNamespace)
	took, errs := make([]time.Duration, streamingStarts), make([]error, streamingStarts)
	semaphore := make(chan bool, streamingParallel)
	var group sync.WaitGroup
	for i := range streamingStarts {
		group.Go(func() {
			semaphore <- true
			defer func() { <-semaphore }()
			pod := c.benchmarkPod(i)
			pod.Name = fmt.Sprintf("%s-%d", name, i)
			start := time.Now()
			created, err := pods.Create(b.Context(), pod, metav1.CreateOptions{})
			if err != nil {
				errs[i] = err
				return
			}
			isRunning := func() bool {
				last := c.history.lastState(created.UID)
				return last != nil && last.Status.Phase == v1.PodRunning
			}
			for !isRunning() {
				if time.Since(start) > porttest.Patience {
					errs[i] = fmt.Errorf("%s does not run after %v", pod.Name, porttest.Patience)
					return
				}
				time.Sleep(5 * time.Millisecond)
			}
			took[i] = time.Since(start)
			errs[i] = pods.Delete(b.Context(), pod.Name, metav1.DeleteOptions{})
		})
	}
	group.Wait()
	if err := errors.Join(errs...); err != nil {
		b.Fatal(err)
	}
	var sum time.Duration
	for _, t := range took {
		sum += t
	}
	c.waitUntil(b, "the started pods are removed", func() bool {
		return len(c.sandboxLines(b, "")) == streamingPods
	})
	return sum / streamingStarts
}

// streamingClients are the clients that follow logs and run commands.
type streamingClients struct {
	cancel  context.CancelFunc
	clients sync.WaitGroup
	ready   sync.WaitGroup // until each client has received something

	mu   sync.Mutex
	errs []error
}

// startStreamingClients starts the clients, and waits until each has received something.
func (c *clusterSuite) startStreamingClients(b *testing.B) *streamingClients {
	b.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", c.cluster.AdminKubeconfig())
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(b.Context())
	s := &streamingClients{cancel: cancel}
	s.ready.Add(streamingFollowers + streamingExecs)
	client := func(kind string, i int, do func(ready func()) error) {
		s.clients.Go(func() {
			ready := sync.OnceFunc(s.ready.Done)
			defer ready()
			if err := do(ready); err != nil && ctx.Err() == nil {
				s.mu.Lock()
				defer s.mu.Unlock()
				s.errs = append(s.errs, fmt.Errorf("%s %d: %w", kind, i, err))
			}
		})
	}
	for i := range streamingFollowers {
		client("follower", i, func(ready func()) error {
			return c.followLog(ctx, talkerName(i%streamingPods), ready)
		})
	}
	for i := range streamingExecs {
		client("command", i, func(ready func()) error {
			return c.echoOverExec(ctx, config, talkerName(i%streamingPods), ready)
		})
	}
	s.ready.Wait()
	return s
}

// stop ends the clients and returns their errors.
func (s *streamingClients) stop() []error {
	s.cancel()
	s.clients.Wait()
	return s.errs
}

// followLog reads the log of a pod until the context is cancelled. Logs are rotated, so the stream
// may start at any line; from there on no line is missing.
func (c *clusterSuite) followLog(ctx context.Context, pod string, ready func()) error {
	stream, err := c.api.CoreV1().Pods(testNamespace).GetLogs(pod,
		&v1.PodLogOptions{Follow: true}).Stream(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = stream.Close() }() // the stream was only read
	lines := bufio.NewScanner(stream)
	for next := -1; lines.Scan(); next++ {
		var number int
		if _, err := fmt.Sscanf(lines.Text(), "line %d .", &number); err != nil ||
			next >= 0 && number != next {
			return fmt.Errorf("got %q, want line %d: %w", lines.Text(), next, err)
		}
		next = number
		ready()
	}
	return fmt.Errorf("the log of %s has ended: %w", pod, lines.Err())
}

// echoOverExec runs "sample echo" and exchanges lines with it until the context is cancelled.
func (c *clusterSuite) echoOverExec(ctx context.Context, config *rest.Config, pod string,
	ready func()) error {
	url := c.api.CoreV1().RESTClient().Post().Resource("pods").Namespace(testNamespace).Name(pod).
		SubResource("exec").VersionedParams(&v1.PodExecOptions{
		Command: []string{"/sample", "echo"}, Stdin: true, Stdout: true}, scheme.ParameterCodec).URL()
	executor, err := remotecommand.NewWebSocketExecutor(config, "GET", url.String())
	if err != nil {
		return err
	}
	stdin, stdinWriter := io.Pipe()
	stdoutReader, stdout := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		err := executor.StreamWithContext(ctx,
			remotecommand.StreamOptions{Stdin: stdin, Stdout: stdout})
		_ = stdout.CloseWithError(fmt.Errorf("the command has ended: %w", err)) // always nil
		ended <- err
	}()
	defer func() {
		_ = stdinWriter.Close() // always nil
		<-ended
	}()
	reader := bufio.NewReader(stdoutReader)
	for i := 0; ctx.Err() == nil; i++ {
		sent := fmt.Sprintf("%s %d\n", pod, i)
		if _, err := io.WriteString(stdinWriter, sent); err != nil {
			return err
		}
		received, err := reader.ReadString('\n')
		if err != nil || received != sent {
			return fmt.Errorf("got %q, want %q: %w", received, sent, err)
		}
		ready()
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
	return nil
}

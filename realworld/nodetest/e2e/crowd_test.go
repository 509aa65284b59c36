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
)

const (
	crowdTalkers   = 10 // pods whose logs are followed, and in which commands run
	crowdFollowers = 200
	crowdExecs     = 50
	crowdPods      = 50 // that come and go
	crowdParallel  = 5  // how many of them at once
)

// BenchmarkCrowd is how long pods take to run while two hundred clients follow logs and fifty have
// a command run, beside the time for as many pods without them, in one run. Each client sees that
// it gets everything, in order.
func BenchmarkCrowd(b *testing.B) {
	c := newPacedTown(b)
	for i := range crowdTalkers {
		bound := holder(talker(i), "\n  nodeName: "+nodeName) // there is no scheduler any more
		c.apply(b, strings.ReplaceAll(bound, "[hold, WITNESS, "+talker(i)+"]",
			"[talk, --lines=1000000, --bytes=60, --every=5s]"))
	}
	for i := range crowdTalkers {
		c.until(b, late, "it talks", func() bool { return podReady(c.pod(b, talker(i))) })
	}
	var quiet, crowded time.Duration
	for b.Loop() {
		quiet += c.comeAndGo(b, "quiet")
		crowd := c.gather(b)
		crowded += c.comeAndGo(b, "crowded")
		for _, problem := range crowd.disperse() {
			b.Error(problem)
		}
	}
	b.ReportMetric(quiet.Seconds()/float64(b.N), "s-quiet")
	b.ReportMetric(crowded.Seconds()/float64(b.N), "s-crowded")
	b.ReportMetric(crowded.Seconds()/quiet.Seconds(), "ratio")
	c.clear(b)
	c.leavesNothing(b)
	c.agent.signal(b, syscall.SIGTERM)
}

func talker(i int) string { return fmt.Sprintf("talker-%d", i) }

// comeAndGo makes pods, a few at a time, and removes each once it runs. It returns the mean time
// from the request to when the API server says that it runs.
func (c *town) comeAndGo(b *testing.B, name string) time.Duration {
	b.Helper()
	pods := c.api.CoreV1().Pods(townNamespace)
	took, problems := make([]time.Duration, crowdPods), make([]error, crowdPods)
	turns := make(chan bool, crowdParallel)
	var group sync.WaitGroup
	for i := range crowdPods {
		group.Go(func() {
			turns <- true
			defer func() { <-turns }()
			pod := c.pacePod(i)
			pod.Name = fmt.Sprintf("%s-%d", name, i)
			start := time.Now()
			made, err := pods.Create(b.Context(), pod, metav1.CreateOptions{})
			if err != nil {
				problems[i] = err
				return
			}
			runs := func() bool {
				last := c.seen.last(made.UID)
				return last != nil && last.Status.Phase == v1.PodRunning
			}
			for !runs() {
				if time.Since(start) > late {
					problems[i] = fmt.Errorf("%s does not run after %v", pod.Name, late)
					return
				}
				time.Sleep(5 * time.Millisecond)
			}
			took[i] = time.Since(start)
			problems[i] = pods.Delete(b.Context(), pod.Name, metav1.DeleteOptions{})
		})
	}
	group.Wait()
	if err := errors.Join(problems...); err != nil {
		b.Fatal(err)
	}
	var sum time.Duration
	for _, t := range took {
		sum += t
	}
	c.until(b, late, "they have gone", func() bool {
		return len(c.sandboxes(b, "")) == crowdTalkers
	})
	return sum / crowdPods
}

// crowd are the clients.
type crowd struct {
	cancel  context.CancelFunc
	clients sync.WaitGroup
	ready   sync.WaitGroup // until each has got something

	mu       sync.Mutex
	problems []error
}

// gather lets the clients come, and waits until each has got something.
func (c *town) gather(b *testing.B) *crowd {
	b.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", c.cluster.Admin())
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(b.Context())
	w := &crowd{cancel: cancel}
	w.ready.Add(crowdFollowers + crowdExecs)
	client := func(what string, i int, do func(ready func()) error) {
		w.clients.Go(func() {
			ready := sync.OnceFunc(w.ready.Done)
			defer ready()
			if err := do(ready); err != nil && ctx.Err() == nil {
				w.mu.Lock()
				defer w.mu.Unlock()
				w.problems = append(w.problems, fmt.Errorf("%s %d: %w", what, i, err))
			}
		})
	}
	for i := range crowdFollowers {
		client("follower", i, func(ready func()) error {
			return c.follows(ctx, talker(i%crowdTalkers), ready)
		})
	}
	for i := range crowdExecs {
		client("command", i, func(ready func()) error {
			return c.converses(ctx, config, talker(i%crowdTalkers), ready)
		})
	}
	w.ready.Wait()
	return w
}

// disperse lets the clients go, and says what went wrong for them.
func (w *crowd) disperse() []error {
	w.cancel()
	w.clients.Wait()
	return w.problems
}

// follows reads the log of a pod until it is told to end. Logs are rotated, so it may begin
// anywhere; from there on no line is missing.
func (c *town) follows(ctx context.Context, pod string, ready func()) error {
	stream, err := c.api.CoreV1().Pods(townNamespace).GetLogs(pod,
		&v1.PodLogOptions{Follow: true}).Stream(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = stream.Close() }() // it was read
	lines := bufio.NewScanner(stream)
	for next := -1; lines.Scan(); next++ {
		var number int
		if _, err := fmt.Sscanf(lines.Text(), "line %d .", &number); err != nil ||
			next >= 0 && number != next {
			return fmt.Errorf("%q instead of line %d: %w", lines.Text(), next, err)
		}
		next = number
		ready()
	}
	return fmt.Errorf("the log of %s has ended: %w", pod, lines.Err())
}

// converses runs a command that says all that it is told, until it is told to end.
func (c *town) converses(ctx context.Context, config *rest.Config, pod string,
	ready func()) error {
	url := c.api.CoreV1().RESTClient().Post().Resource("pods").Namespace(townNamespace).Name(pod).
		SubResource("exec").VersionedParams(&v1.PodExecOptions{
		Command: []string{"/sample", "echo"}, Stdin: true, Stdout: true}, scheme.ParameterCodec).URL()
	way, err := remotecommand.NewWebSocketExecutor(config, "GET", url.String())
	if err != nil {
		return err
	}
	stdin, say := io.Pipe()
	hear, stdout := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		err := way.StreamWithContext(ctx, remotecommand.StreamOptions{Stdin: stdin, Stdout: stdout})
		_ = stdout.CloseWithError(fmt.Errorf("it has ended: %w", err)) // always nil
		ended <- err
	}()
	defer func() {
		_ = say.Close() // always nil
		<-ended
	}()
	reader := bufio.NewReader(hear)
	for i := 0; ctx.Err() == nil; i++ {
		said := fmt.Sprintf("%s %d\n", pod, i)
		if _, err := io.WriteString(say, said); err != nil {
			return err
		}
		heard, err := reader.ReadString('\n')
		if err != nil || heard != said {
			return fmt.Errorf("%q instead of %q: %w", heard, said, err)
		}
		ready()
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
	return nil
}

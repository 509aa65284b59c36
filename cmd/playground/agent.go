package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

const (
	agentReadyMax = 30 * time.Second // from its start until it calls itself well
	agentStopMax  = 10 * time.Second // to end when asked to
)

// agent is the running seedlet.
type agent struct {
	manifests string // the directory that it takes pods from
	logFile   string
	pods      string // URL
	healthz   string // URL
	cmd       *exec.Cmd
	exited    chan struct{} // closed when the process has ended
}

// startAgent starts bin/seedlet standalone on a directory of manifests, on free loopback ports,
// with everything it writes below n.dir.
func startAgent(n *node) (*agent, error) {
	ports, err := freePorts(2)
	if err != nil {
		return nil, err
	}
	a := &agent{
		manifests: filepath.Join(n.dir, "manifests"),
		logFile:   filepath.Join(n.dir, "seedlet.log"),
		pods:      fmt.Sprintf("http://127.0.0.1:%d/pods", ports[0]),
		healthz:   fmt.Sprintf("http://127.0.0.1:%d/healthz", ports[1]),
		exited:    make(chan struct{}),
	}
	if err := os.Mkdir(a.manifests, 0o755); err != nil {
		return nil, fmt.Errorf("making the manifest directory: %w", err)
	}
	config := filepath.Join(n.dir, "config.yaml")
	if err := os.WriteFile(config, []byte(agentConfig(n, a, ports)), 0o644); err != nil {
		return nil, fmt.Errorf("writing the agent's configuration: %w", err)
	}
	log, err := os.Create(a.logFile)
	if err != nil {
		return nil, fmt.Errorf("opening the agent's log: %w", err)
	}
	defer func() { _ = log.Close() }() // the agent has its own copy
	a.cmd = exec.Command("bin/seedlet", "--config="+config, "--root-dir="+
		filepath.Join(n.dir, "kubelet"), "--container-log-links-dir="+
		filepath.Join(n.dir, "links"), "--hostname-override=playground", "-v=2")
	a.cmd.Stdout, a.cmd.Stderr = log, log
	// Its own group: a Ctrl-C is for the playground, which ends the pods before the agent.
	a.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := a.cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting the agent: %w", err)
	}
	go func() {
		_ = a.cmd.Wait() // how it ended is in its log
		close(a.exited)
	}()
	return a, nil
}

func agentConfig(n *node, a *agent, ports []int) string {
	return fmt.Sprintf(`apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
containerRuntimeEndpoint: %q
staticPodPath: %q
podLogsDir: %q
cgroupRoot: %q
address: 127.0.0.1
readOnlyPort: %d
healthzBindAddress: 127.0.0.1
healthzPort: %d
`, n.endpoint, a.manifests, filepath.Join(n.dir, "logs"), n.cgroupRoot(),
		ports[0], ports[1])
}

// freePorts asks the kernel for TCP ports that nobody listens on now.
func freePorts(count int) ([]int, error) {
	var ports []int
	for range count {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, fmt.Errorf("finding a free port: %w", err)
		}
		defer func() { _ = l.Close() }() // all at the end, so that no port comes twice
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
	}
	return ports, nil
}

// waitReady waits until the agent calls itself well.
func (a *agent) waitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, agentReadyMax)
	defer cancel()
	for {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, a.healthz, nil)
		if err != nil {
			return fmt.Errorf("asking the agent for its health: %w", err)
		}
		answer, err := http.DefaultClient.Do(request)
		if err == nil {
			_ = answer.Body.Close() // the code says it all
			if answer.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case <-a.exited:
			return fmt.Errorf("the agent ended by itself")
		case <-ctx.Done():
			return fmt.Errorf("the agent is not well after %v", agentReadyMax)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// stop asks the agent to end, and kills it when it does not.
func (a *agent) stop() {
	_ = a.cmd.Process.Signal(syscall.SIGTERM) // fails only when it has ended
	select {
	case <-a.exited:
	case <-time.After(agentStopMax):
		_ = a.cmd.Process.Kill() // likewise
		<-a.exited
	}
}

// logTail is the end of the agent's log.
func (a *agent) logTail(lines int) string {
	data, err := os.ReadFile(a.logFile)
	if err != nil {
		return err.Error()
	}
	all := strings.Split(strings.TrimSpace(string(data)), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

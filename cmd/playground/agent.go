package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"seedlet.dev/realworld/cleanup"
	"seedlet.dev/realworld/nodetest"
)

// agentReadyMax bounds the time from the start of the agent until /healthz succeeds.
const agentReadyMax = 3 * time.Minute

// agent is a running seedlet process.
type agent struct {
	*cleanup.Daemon
	manifests string // the directory of static pods
	pods      string // URL
	healthz   string // URL
}

// role is how an agent is started: standalone, or as the node of a cluster.
type role struct {
	name    string   // of the node
	address string   // of its servers
	flags   []string // of this role only
	config  string   // of this role only, YAML
}

// standalone is the role of an agent that runs static pods only.
var standalone = role{name: "playground", address: "127.0.0.1"}

// startAgent starts bin/seedlet with a directory of manifests, on free ports, with all its files
// below n.dir.
func startAgent(n *node, p role) (*agent, error) {
	ports, err := freePorts(3)
	if err != nil {
		return nil, err
	}
	a := &agent{
		manifests: filepath.Join(n.dir, "manifests"),
		pods:      fmt.Sprintf("http://%s:%d/pods", p.address, ports[0]),
		healthz:   fmt.Sprintf("http://127.0.0.1:%d/healthz", ports[1]),
	}
	if err := os.Mkdir(a.manifests, 0o755); err != nil {
		return nil, fmt.Errorf("making the manifest directory: %w", err)
	}
	config := filepath.Join(n.dir, "config.yaml")
	if err := os.WriteFile(config, []byte(agentConfig(n, a, p, ports)), 0o644); err != nil {
		return nil, fmt.Errorf("writing the agent's configuration: %w", err)
	}
	args := []string{"--config=" + config, "--root-dir=" + filepath.Join(n.dir, "kubelet"),
		"--container-log-links-dir=" + filepath.Join(n.dir, "links"), "--kernel-settings-root=",
		"--make-iptables-util-chains=false",
		"--cert-dir=" + filepath.Join(n.dir, "pki"), "--hostname-override=" + p.name, "-v=2"}
	// The agent has its own process group: a Ctrl-C reaches the playground only, which ends the pods
	// before the agent.
	a.Daemon = &cleanup.Daemon{Program: "bin/seedlet", Args: append(args, p.flags...),
		Env: os.Environ(), LogFile: filepath.Join(n.dir, "seedlet.log")}
	return a, a.Start()
}

func agentConfig(n *node, a *agent, p role, ports []int) string {
	return fmt.Sprintf(`apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
containerRuntimeEndpoint: %q
staticPodPath: %q
podLogsDir: %q
cgroupRoot: %q
address: %s
readOnlyPort: %d
healthzBindAddress: 127.0.0.1
healthzPort: %d
port: %d
%s`, n.endpoint, a.manifests, filepath.Join(n.dir, "logs"), n.cgroupRoot(),
		p.address, ports[0], ports[1], ports[2], nodetest.SharedDisk) + p.config
}

// freePorts returns unused TCP ports.
func freePorts(count int) ([]int, error) {
	var ports []int
	for range count {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, fmt.Errorf("finding a free port: %w", err)
		}
		defer func() { _ = l.Close() }() // closed at the end, so that no port is returned twice
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
	}
	return ports, nil
}

// waitReady waits until the agent's /healthz succeeds.
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
			_ = answer.Body.Close() // only the status code matters
			if answer.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case <-a.Exited():
			return fmt.Errorf("the agent ended by itself")
		case <-ctx.Done():
			return fmt.Errorf("the agent is not well after %v", agentReadyMax)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// logTail returns the last lines of the agent's log.
func (a *agent) logTail(lines int) string {
	data, err := os.ReadFile(a.LogFile)
	if err != nil {
		return err.Error()
	}
	all := strings.Split(strings.TrimSpace(string(data)), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

package main

import (
	"context"
	"path/filepath"

	v1 "k8s.io/api/core/v1"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"seedlet.dev/realworld/containerapi"
	"seedlet.dev/realworld/nodelog"
	"seedlet.dev/realworld/stats"
	"seedlet.dev/world"
)

// ask and pods put questions to the core. Those who ask are made before the port is that asks.
func (n *node) ask(ctx context.Context, m world.ContainerRequest) (*world.ContainerAnswer, error) {
	return n.requests.Ask(ctx, m)
}

func (n *node) pods(ctx context.Context) ([]*v1.Pod, error) { return n.requests.Pods(ctx) }

// containerAPI serves what clients want of containers: logs, exec and the like.
func (n *node) containerAPI(s settings) *containerapi.API {
	c := s.config
	checkpoints, set := c.FeatureGates["ContainerCheckpoint"]
	return containerapi.New(containerapi.Options{
		Ask: n.ask, Runtime: n.runtime.Runtime(),
		RuntimeTimeout: c.RuntimeRequestTimeout.Duration,
		IdleTimeout:    c.StreamingConnectionIdleTimeout.Duration,
		LogsDir:        c.PodLogsDir, CheckpointsDir: filepath.Join(s.rootDir, "checkpoints"),
		SplitStreams: c.FeatureGates["PodLogsQuerySplitStreams"], NoCheckpoints: set && !checkpoints,
	})
}

// systemLogDir is the only one that a kubelet shows, wherever the logs of pods are: the parent of
// those could be the root of the file system.
const systemLogDir = "/var/log"

// systemLogs serves the log files of the node.
func systemLogs(c *kubeletconfig.KubeletConfiguration) *nodelog.Server {
	return nodelog.New(nodelog.Options{
		Dir: systemLogDir, Query: *c.EnableSystemLogQuery,
		Patience: c.StreamingConnectionIdleTimeout.Duration,
	})
}

// statistics measures what the node and its pods use, when somebody asks.
func (n *node) statistics(s settings, nodeName string) *stats.Source {
	c := s.config
	return stats.New(stats.Options{
		NodeName: nodeName, Runtime: n.runtime.Runtime(), Images: n.runtime.Images(),
		Pods: n.pods, RootDir: s.rootDir, LogsDir: c.PodLogsDir,
		VolumeAge: c.VolumeStatsAggPeriod.Duration,
		Cgroups: stats.Cgroups{
			Root: c.CgroupRoot, Kubelet: c.KubeletCgroups, System: c.SystemCgroups,
			RuntimeEndpoint: c.ContainerRuntimeEndpoint,
		},
	})
}

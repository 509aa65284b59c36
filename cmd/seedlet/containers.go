package main

import (
	"context"
	"math"
	"path/filepath"
	"time"

	v1 "k8s.io/api/core/v1"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"seedlet.dev/realworld/containerapi"
	"seedlet.dev/realworld/nodelog"
	"seedlet.dev/realworld/stats"
	"seedlet.dev/world"
)

// resolveContainer, pods and volumeStats send requests to the core. They are methods because their
// users are created before n.requests is.
func (n *node) resolveContainer(ctx context.Context, m world.ContainerRequest) (
	*world.ContainerAnswer, error) {
	return n.requests.ResolveContainer(ctx, m)
}

func (n *node) pods(ctx context.Context) ([]*v1.Pod, error) { return n.requests.Pods(ctx) }

func (n *node) volumeStats(ctx context.Context) ([]world.VolumeUsage, error) {
	return n.requests.VolumeStats(ctx)
}

// newContainerAPI returns the handlers of requests to containers: logs, exec, attach and the like.
func (n *node) newContainerAPI(s settings) *containerapi.API {
	c := s.config
	checkpoints, set := c.FeatureGates["ContainerCheckpoint"]
	return containerapi.New(containerapi.Options{
		Resolve: n.resolveContainer, Runtime: n.runtime.Runtime(),
		RuntimeTimeout: c.RuntimeRequestTimeout.Duration,
		IdleTimeout:    idleTimeout(c),
		LogsDir:        c.PodLogsDir, CheckpointsDir: filepath.Join(s.rootDir, "checkpoints"),
		SplitStreams: c.FeatureGates["PodLogsQuerySplitStreams"], NoCheckpoints: set && !checkpoints,
	})
}

// idleTimeout returns how long a stream may be idle. As the kubelet's flag says, 0 means for ever.
func idleTimeout(c *kubeletconfig.KubeletConfiguration) time.Duration {
	if timeout := c.StreamingConnectionIdleTimeout.Duration; timeout > 0 {
		return timeout
	}
	return math.MaxInt64
}

// systemLogDir is the directory that the kubelet serves, whatever podLogsDir is: the parent of
// podLogsDir could be the root of the file system.
const systemLogDir = "/var/log"

// newSystemLogs returns the handlers of the node's log files.
func newSystemLogs(c *kubeletconfig.KubeletConfiguration) *nodelog.Server {
	return nodelog.New(nodelog.Options{
		Dir: systemLogDir, Query: *c.EnableSystemLogQuery,
		WriteTimeout: idleTimeout(c),
	})
}

// newStats returns the source of the stats of the node and its pods.
func (n *node) newStats(s settings, nodeName string) *stats.Source {
	c := s.config
	return stats.New(stats.Options{
		NodeName: nodeName, Runtime: n.runtime.Runtime(), Images: n.runtime.Images(),
		Pods: n.pods, Volumes: n.volumeStats, RootDir: s.rootDir, LogsDir: c.PodLogsDir,
		VolumeAge: c.VolumeStatsAggPeriod.Duration,
		Cgroups: stats.Cgroups{
			Root: c.CgroupRoot, Kubelet: c.KubeletCgroups, System: c.SystemCgroups,
			Runtime: s.runtimeCgroups, RuntimeEndpoint: c.ContainerRuntimeEndpoint,
		},
	})
}

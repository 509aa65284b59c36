package runtime

import (
	"hash/fnv"

	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/sim/truth"
	"seedlet.dev/sim/wire"
	"seedlet.dev/world"
)

// The resources of containers that run: what they use, and changes of their limits.

// updateContainerResources changes the limits of a container that runs, or was created. Like runc
// with cgroup v1, it refuses a limit of memory below what the container uses. Values that are zero
// stay as they are.
func (r *Runtime) updateContainerResources(call *wire.Call,
	req *runtimeapi.UpdateContainerResourcesRequest) {
	c := r.containers[req.ContainerId]
	switch {
	case c == nil:
		call.Fail(noContainer(call, req.ContainerId))
		return
	case c.State != running && c.State != created || c.removing:
		call.Fail(world.Errorf(world.KindInternal, call.Name,
			"failed to update resources: container %q is in %s state", c.ID, c.State))
		return
	}
	limit := req.GetLinux().GetMemoryLimitInBytes()
	if c.State == running && limit > 0 && limit < c.memoryUsage() {
		r.recordFact(c, truth.Fact{Kind: truth.LimitRefused, Bytes: c.memoryUsage()})
		call.Fail(world.Errorf(world.KindInternal, call.Name,
			"failed to update resources: failed to write %d: device or resource busy", limit))
		return
	}
	own := &runtimeapi.LinuxContainerResources{}
	proto.Merge(own, c.resources())
	own.HugepageLimits = nil         // the request has all of them
	proto.Merge(own, req.GetLinux()) // files that it does not name stay as they are
	c.updated = own
	r.invalidate(c)
	r.recordFact(c, truth.Fact{Kind: truth.ContainerResized, Limits: c.limits()})
	call.Reply(&runtimeapi.UpdateContainerResourcesResponse{})
}

// resources returns the limits of a container.
func (c *container) resources() *runtimeapi.LinuxContainerResources {
	if c.updated != nil {
		return c.updated
	}
	return c.config.GetLinux().GetResources()
}

// memoryUsage returns what a container that runs uses, in bytes: between a tenth and nine tenths of
// the memory that it was created with.
func (c *container) memoryUsage() int64 {
	if c.load.MemoryBytes > 0 {
		return c.load.MemoryBytes
	}
	limit := c.config.GetLinux().GetResources().GetMemoryLimitInBytes()
	if limit == 0 {
		limit = 64 << 20
	}
	h := fnv.New32a()
	h.Write([]byte(c.ID))
	return limit / 10 * int64(1+h.Sum32()%9)
}

func (r *Runtime) containerStats(call *wire.Call, req *runtimeapi.ContainerStatsRequest) {
	c := r.containers[req.ContainerId]
	if c == nil {
		call.Fail(noContainer(call, req.ContainerId))
		return
	}
	stats := &runtimeapi.ContainerStats{Attributes: &runtimeapi.ContainerAttributes{Id: c.ID,
		Metadata: c.config.Metadata, Labels: c.config.Labels, Annotations: c.config.Annotations},
		WritableLayer: c.layerUsage(r.now().UnixNano(), r.layerDirectory())}
	if c.State == running {
		stats.Memory = &runtimeapi.MemoryUsage{Timestamp: r.now().UnixNano(),
			UsageBytes: &runtimeapi.UInt64Value{Value: uint64(c.memoryUsage())}}
	}
	call.Reply(&runtimeapi.ContainerStatsResponse{Stats: stats})
}

// updateSandboxResources takes note of the resources of a pod, as containerd does without a sandbox
// controller of its own. containerd 1.6 does not have the call.
func (r *Runtime) updateSandboxResources(call *wire.Call,
	req *runtimeapi.UpdatePodSandboxResourcesRequest) {
	switch s := r.sandboxes[req.PodSandboxId]; {
	case r.opts.Containerd16:
		call.Fail(world.Errorf(world.KindUnimplemented, call.Name,
			"unknown method UpdatePodSandboxResources"))
	case s == nil:
		call.Fail(noSandbox(call, req.PodSandboxId))
	case s.State != ready:
		call.Fail(world.Errorf(world.KindInternal, call.Name, "sandbox %q is not running", s.ID))
	default:
		call.Reply(&runtimeapi.UpdatePodSandboxResourcesResponse{})
	}
}

package pod

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/core/devicemount"
	"seedlet.dev/core/objectcache"
	"seedlet.dev/core/volume"
	"seedlet.dev/world"
)

// endedWithDevice is a pod that has ended, and whose container may have had a device.
func endedWithDevice() (*Pod, *devicemount.Blocks, *Env) {
	p := withClaim()
	c := &p.Spec.Spec.Containers[0]
	c.VolumeMounts, c.VolumeDevices = nil, []v1.VolumeDevice{{Name: "data", DevicePath: "/dev/x"}}
	p.Stage, p.NoLongerDesired = Terminated, true
	p.Sandboxes[0].Ready, p.Sandboxes[0].Stopped = false, true
	blocks := &devicemount.Blocks{Dir: "/blocks", PodsDir: "/pods"}
	env := claimEnv(&objectcache.Store{})
	env.Devices = Devices{Blocks: blocks, Enqueue: func() {}}
	return p, blocks, env
}

// release completes operations of the pod until it waits or has none, and returns them.
func release(p *Pod, env *Env) string {
	var calls []string
	for range 20 {
		p.Plan(env)
		if p.Op == 0 {
			return strings.Join(calls, " ")
		}
		r, _ := env.Effects.Find(p.Op)
		calls = append(calls, r.Call)
		p.HandleCompletion(p.Op, r, world.Event{Time: t0, Op: p.Op, Body: &world.Done{}}, env)
	}
	return strings.Join(calls, " ")
}

// A pod waits with its volumes and its directory until it is known that nothing is bound for it,
// and what is bound is taken away. Its spec may not be known, or its claim.
func TestPodWaitsForItsDevices(t *testing.T) {
	const before, after = "Unmount", "Unmount RemoveTree RemoveTree"
	for _, hasSpec := range []bool{true, false} {
		p, blocks, env := endedWithDevice()
		if !hasSpec {
			p.Spec = nil
		}
		if got := release(p, env); got != before {
			t.Errorf("spec known %v: %s before anything was looked at", hasSpec, got)
		}
		blocks.Search.TableSeen = true
		blocks.Search.Complete = hasSpec
		blocks.Use(p.UID, "pv")
		if got := release(p, env); got != "" || !blocks.Volumes["pv"].Bound[p.UID].Released {
			t.Errorf("spec known %v: %s while a device is bound", hasSpec, got)
		}
		blocks.Volumes = nil
		if got := release(p, env); got != after {
			t.Errorf("spec known %v: then %s, want %s", hasSpec, got, after)
		}
	}
}

// A pod whose containers have no devices waits for none.
func TestPodWithoutDevicesWaitsForNone(t *testing.T) {
	p, blocks, env := endedWithDevice()
	c := &p.Spec.Spec.Containers[0]
	c.VolumeMounts, c.VolumeDevices = []v1.VolumeMount{{Name: "data", MountPath: "/data"}}, nil
	if got := release(p, env); !strings.HasPrefix(got, "Unmount Unmount") || blocks.IsActive() {
		t.Errorf("%s, searched: %v", got, blocks.IsActive())
	}
}

// Failures to map a device have the kubelet's reason, but for the check of the node's labels.
func TestReasonsOfDeviceFailures(t *testing.T) {
	for step, want := range map[string]string{"MapVolume.MapBlockVolume": "FailedMapVolume",
		"MapVolume.NodeAffinity check": "FailedMount", "MountVolume.SetUp": "FailedMount"} {
		p := withClaim()
		p.Storage.Volumes = volume.Set{Volumes: []volume.Volume{{Name: "data", Failures: 1,
			Problem: "EIO", FailedStep: step, Backing: &volume.Backing{Name: "pv"}}}}
		env := claimEnv(&objectcache.Store{})
		p.recordVolumeFailures(env)
		message := step + ` failed for volume "pv" : EIO`
		for _, e := range env.Effects.List() {
			if event, isEvent := e.Body.(*world.RecordEvent); !isEvent || event.Reason != want ||
				event.Message != message {
				t.Errorf("%+v, want %s: %s", e.Body, want, message)
			}
		}
		if len(env.Effects.List()) != 1 {
			t.Errorf("%s: %d events", step, len(env.Effects.List()))
		}
	}
}

package pod

import (
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/core/criconfig"
	"seedlet.dev/core/image"
	"seedlet.dev/core/localstorage"
	"seedlet.dev/core/op"
	"seedlet.dev/core/volume"
	"seedlet.dev/world"
)

func withVolume(mount v1.VolumeMount) *Pod {
	pod := spec(v1.RestartPolicyAlways, "", "web")
	mount.Name = "data"
	pod.Spec.Volumes = []v1.Volume{{Name: "data",
		VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}}}
	pod.Spec.Containers[0].VolumeMounts = []v1.VolumeMount{mount}
	return podWith(pod)
}

var volumesNode = &Node{Node: criconfig.Node{PodsDir: "/pods"}}

// plannedCalls plans the pod and returns the calls that it issues.
func plannedCalls(p *Pod, table *op.Table, now time.Time) ([]string, *Env) {
	env := &Env{Node: volumesNode, Effects: &op.Effects{}, Images: &image.Store{
		Images: map[string]*image.Image{"i": {ID: "sha", InspectedID: "sha", PulledAt: t0.Add(1)}},
	}}
	env.Effects.Reset(table, now)
	p.Plan(env)
	var calls []string
	for _, e := range env.Effects.List() {
		if e.Op != 0 {
			calls = append(calls, world.CallName(e.Body))
		}
	}
	return calls, env
}

// completeOp completes the operation Pod.Op.
func completeOp(p *Pod, table *op.Table, env *Env, ev world.Event) {
	id := p.Op
	record, _ := table.Complete(id)
	ev.Time = t0
	p.HandleCompletion(id, record, ev, env)
}

// A container is created only after its volumes, subpaths and /etc/hosts.
func TestContainerWaitsForVolumes(t *testing.T) {
	p := withVolume(v1.VolumeMount{MountPath: "/data", SubPath: "a"})
	p.Sandboxes[0].IPs = []string{"10.0.0.9"}
	var table op.Table
	var got []string
	for range 20 {
		calls, env := plannedCalls(p, &table, t0)
		if len(calls) != 1 {
			t.Fatalf("after %v: %v", got, calls)
		}
		if got = append(got, calls[0]); calls[0] == "CreateContainer" {
			break
		}
		ev := world.Event{Body: &world.Done{}}
		if calls[0] == "StatPath" {
			ev = world.Event{Err: world.Errorf(world.KindNotFound, "StatPath", "none")}
		}
		completeOp(p, &table, env, ev)
	}
	want := "StatPath MakeDir MakeDir MakeDir MakeDir BindSubPath WriteFile CreateContainer"
	if strings.Join(got, " ") != want {
		t.Errorf("%v, want %s", got, want)
	}
}

// A volume that fails is reported with the kubelet's message, and the container is not created.
func TestVolumeFailure(t *testing.T) {
	p := withVolume(v1.VolumeMount{MountPath: "/data"})
	var table op.Table
	_, env := plannedCalls(p, &table, t0)
	completeOp(p, &table, env, world.Event{Err: world.Errorf(world.KindInternal, "StatPath", "EIO")})
	want := `MountVolume.SetUp failed for volume "data" : EIO`
	if got := waiting(p); got.Reason != "ContainerCreating" || got.Message != want {
		t.Errorf("%+v, want %s", got, want)
	}
	if calls, _ := plannedCalls(p, &table, t0); len(calls) != 0 {
		t.Errorf("%v, want nothing before the back-off has passed", calls)
	}
	if calls, _ := plannedCalls(p, &table, t0.Add(time.Second)); len(calls) != 1 {
		t.Errorf("%v after the back-off", calls)
	}
}

// Mounts are unmounted after the last container has exited, subpaths first, and before any removal.
func TestVolumesAreReleased(t *testing.T) {
	for noLongerDesired, want := range map[bool]string{
		true:  "Unmount Unmount RemoveTree RemoveTree RemovePodSandbox",
		false: "Unmount Unmount RemoveTree RemoveTree RemoveTree", // sub-paths, /etc/hosts, volumes
	} {
		p := withVolume(v1.VolumeMount{MountPath: "/data"})
		p.Stage, p.NoLongerDesired = Terminated, noLongerDesired
		p.Sandboxes[0].Ready, p.Sandboxes[0].Stopped = false, true
		var table op.Table
		var got []string
		for range 8 {
			calls, env := plannedCalls(p, &table, t0)
			if got = append(got, calls...); p.Op == 0 {
				break
			}
			completeOp(p, &table, env, world.Event{Body: &world.Done{}})
		}
		if strings.Join(got, " ") != want {
			t.Errorf("no longer desired %v: %v, want %s", noLongerDesired, got, want)
		}
	}
}

func TestNothingIsReleasedUnderRunningContainer(t *testing.T) {
	p := withVolume(v1.VolumeMount{MountPath: "/data"})
	c := run("web", 0, Running)
	c.SandboxID = "s"
	p.addContainer(c)
	p.ClearDesired(t0)
	p.StaleSince = time.Time{}
	var table op.Table
	calls, _ := plannedCalls(p, &table, t0)
	if strings.Contains(strings.Join(calls, " "), "Unmount") || p.Op != 0 {
		t.Errorf("%v while a container runs", calls)
	}
}

// The limits of a pod are enforced while it ends, and while a changed container is stopped: that
// may take as long as the author of the pod likes. It is evicted once.
func TestLimitsWhileContainersAreStopped(t *testing.T) {
	for _, isDeleted := range []bool{true, false} {
		p := withVolume(v1.VolumeMount{MountPath: "/data"})
		limit, grace := resource.MustParse("1Mi"), int64(100_000)
		p.Spec.Spec.Volumes[0].EmptyDir.SizeLimit = &limit
		p.Spec.Spec.TerminationGracePeriodSeconds = &grace
		c := run("web", 0, Running)
		c.SandboxID, c.Hash = "s", "another"
		p.addContainer(c)
		if isDeleted {
			p.startTermination(Termination{Reason: reasonDeleted, Grace: p.GracePeriod()}, t0)
		}
		r := newHarness(t, p).planAt(0)
		if got := stopTimeout(r); got != 100_000 {
			t.Fatalf("deleted %t: %d s to stop", isDeleted, got)
		}
		r.planAt(time.Minute).complete("MeasureTree", &world.TreeMeasured{Bytes: 2 << 20}, nil)
		for i := range 3 {
			r.planAt(time.Minute + time.Duration(i)*time.Second)
		}
		if got := stopTimeout(r); got != 2 || !r.pod.IsEvicted() {
			t.Errorf("deleted %t: %d s to stop, evicted: %t", isDeleted, got, r.pod.IsEvicted())
		}
		evicted := 0
		for _, e := range r.events {
			if e.Reason == ReasonEvicted {
				evicted++
			}
		}
		if evicted != 1 {
			t.Errorf("deleted %t: %d events", isDeleted, evicted)
		}
	}
}

// With localStorageCapacityIsolation false nothing is measured, and no pod is evicted for a limit.
func TestStorageLimitsThatAreOff(t *testing.T) {
	for _, isOff := range []bool{false, true} {
		p := withVolume(v1.VolumeMount{MountPath: "/data"})
		limit := resource.MustParse("1Mi")
		p.Spec.Spec.Volumes[0].EmptyDir.SizeLimit = &limit
		c := run("web", 0, Running)
		c.Hash = containerHash(&p.Spec.Spec.Containers[0])
		p.addContainer(c)
		r := newHarness(t, p)
		r.env.Node.NoStorageLimits = isOff
		measured := 0
		for minute := range 5 {
			r.planAt(time.Duration(minute) * time.Minute)
			if r.findCall("MeasureTree") != nil {
				measured++
				r.complete("MeasureTree", &world.TreeMeasured{Bytes: 2 << 20}, nil)
			}
		}
		if (measured == 0) != isOff || p.IsEvicted() == isOff {
			t.Errorf("off %t: measured %d times, evicted %t", isOff, measured, p.IsEvicted())
		}
	}
}

// A pod whose volume exceeds its size limit is evicted, and has failed for that reason.
func TestEviction(t *testing.T) {
	p := withVolume(v1.VolumeMount{MountPath: "/data"})
	limit := resource.MustParse("1Mi")
	p.Spec.Spec.Volumes[0].EmptyDir.SizeLimit = &limit
	p.Storage.Usage.Exceeded = localstorage.Limit{Kind: localstorage.EmptyDirLimit, Name: "data"}
	critical := int32(2_000_000_000)
	p.Spec.Spec.Priority = &critical
	env := &Env{Node: volumesNode, Effects: &op.Effects{}}
	env.Effects.Reset(&op.Table{}, t0)
	if p.evictOverLimit(env) {
		t.Fatal("a critical pod is evicted")
	}
	p.Spec.Spec.Priority = nil
	if !p.evictOverLimit(env) || p.Termination.Grace != time.Second || p.Stage != Terminating {
		t.Fatalf("not evicted: %+v", p.Termination)
	}
	p.Stage, p.Record.Termination = Terminated, &p.Termination
	updateStatus(p, t0)
	served := servedPod(p, volumesNode, "containerd")
	want := `Usage of EmptyDir volume "data" exceeds the limit "1Mi". `
	if s := served.Status; s.Phase != v1.PodFailed || s.Reason != "Evicted" || s.Message != want {
		t.Errorf("status %s %s %q", s.Phase, s.Reason, s.Message)
	}
}

// The terminal phase of an evicted pod is reported once its termination is durable.
func TestTerminationIsDurableBeforeItIsReported(t *testing.T) {
	p := withVolume(v1.VolumeMount{MountPath: "/data"})
	limit := resource.MustParse("1Mi")
	p.Spec.Spec.Volumes[0].EmptyDir.SizeLimit = &limit
	c := run("web", 0, Running)
	c.Hash, c.SandboxID = containerHash(&p.Spec.Spec.Containers[0]), "s"
	p.addContainer(c)
	p.Storage.Usage.Exceeded = localstorage.Limit{Kind: localstorage.EmptyDirLimit, Name: "data"}
	r := newHarness(t, p).planAt(0)
	r.expectCall("WriteFile")
	r.pod.containerByID("web0").advanceState(Exited, r.now)
	r.pod.containerByID("web0").Inspected, r.pod.StaleSince = Exited, time.Time{}
	r.planAt(time.Second)
	if r.findCall("StopPodSandbox") != nil {
		r.complete("StopPodSandbox", &runtimeapi.StopPodSandboxResponse{}, nil)
		r.pod.StaleSince = time.Time{}
		r.planAt(2 * time.Second)
	}
	if p.Status.Phase == v1.PodFailed {
		t.Errorf("Failed, stage %s, before the termination is durable", p.Stage)
	}
	r.complete("WriteFile", &world.Done{}, nil).planAt(3 * time.Second)
	if p.Status.Phase != v1.PodFailed {
		t.Errorf("phase %s, stage %s, after the termination is durable", p.Status.Phase, p.Stage)
	}
}

// A volume that has changed is inspected, whatever the inspection of the old one has found.
func TestVolumeThatChangesDuringInspection(t *testing.T) {
	p := withVolume(v1.VolumeMount{MountPath: "/data"})
	must := v1.HostPathDirectory
	p.Spec.Spec.Volumes[0].VolumeSource = v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{
		Path: "/a", Type: &must}}
	r := newHarness(t, p).planAt(0)
	changed := p.Spec.DeepCopy()
	changed.Spec.Volumes[0].HostPath.Path = "/b"
	p.SetDesired(changed, nil, r.now)
	r.complete("StatPath", &world.PathInfo{Kind: world.PathDirectory}, nil)
	if got := r.expectCall("StatPath").Body.(*world.StatPath).Path; got != "/b" {
		t.Errorf("inspects %s", got)
	}
}

// Operations at a path that the pod's author chose carry the path; operations at the agent's own
// paths do not.
func TestEffectsNameTheirHostPath(t *testing.T) {
	must := v1.HostPathDirectory
	node := v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{Path: "/mnt/a/", Type: &must}}
	own := v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}
	for _, c := range []struct {
		source       v1.VolumeSource
		volume, bind string
	}{{node, "/mnt/a", "/mnt/a/b"}, {own, "", ""}} {
		p := withVolume(v1.VolumeMount{MountPath: "/data", SubPath: "b"})
		p.Spec.Spec.Volumes[0].VolumeSource = c.source
		p.DirCreated, p.LogDirs = true, []string{"web"}
		r := newHarness(t, p).planAt(0)
		if got := r.expectCall("StatPath").HostPath; got != c.volume {
			t.Errorf("inspects a volume at %q, want %q", got, c.volume)
		}
		r.complete("StatPath", &world.PathInfo{Kind: world.PathDirectory}, nil)
		if got := r.expectCall("BindSubPath").HostPath; got != c.bind {
			t.Errorf("binds a subpath at %q, want %q", got, c.bind)
		}
	}
}

// A subpath that has changed is mounted again.
func TestChangedSubPath(t *testing.T) {
	for _, early := range []bool{false, true} {
		p := withVolume(v1.VolumeMount{MountPath: "/data", SubPath: "a"})
		p.Storage.Volumes.NextOperation(p.volumeView(&Env{Node: volumesNode}), t0)
		p.Storage.Volumes.Volumes[0].UpToDate, p.Storage.Volumes.Volumes[0].Ready = true, true
		p.DirCreated, p.LogDirs = true, []string{"web"}
		r := newHarness(t, p).planAt(0)
		r.expectCall("BindSubPath")
		if !early {
			r.complete("BindSubPath", &world.Done{}, nil).expectCall("CreateContainer")
		}
		changed := p.Spec.DeepCopy()
		changed.Spec.Containers[0].VolumeMounts[0].SubPath = "b"
		p.SetDesired(changed, nil, r.now)
		if early {
			r.complete("BindSubPath", &world.Done{}, nil)
		} else {
			r.complete("CreateContainer", nil, world.Errorf(world.KindInternal, "", "no"))
			p.StaleSince = time.Time{}
			r.putImage()
		}
		for range 5 {
			r.planAt(time.Minute)
			switch {
			case r.findCall("StatPath") != nil:
				r.complete("StatPath", &world.PathInfo{Kind: world.PathDirectory}, nil)
			case r.findCall("MakeDir") != nil:
				r.complete("MakeDir", &world.Done{}, nil)
			}
		}
		if got := r.expectCall("BindSubPath").Body.(*world.BindSubPath).SubPath; got != "b" {
			t.Errorf("early %v: binds %s", early, got)
		}
	}
}

// An /etc/hosts that has changed during its write is written again.
func TestHostsThatChangeDuringWrite(t *testing.T) {
	p := withVolume(v1.VolumeMount{MountPath: "/data"})
	p.Sandboxes[0].IPs = []string{"10.0.0.9"}
	p.Storage.Volumes.Volumes = []volume.Volume{{Name: "data", UpToDate: true, Ready: true}}
	p.DirCreated, p.LogDirs = true, []string{"web"}
	r := newHarness(t, p).planAt(0)
	r.expectCall("WriteFile")
	changed := p.Spec.DeepCopy()
	changed.Spec.HostAliases = []v1.HostAlias{{IP: "10.1.2.3", Hostnames: []string{"db"}}}
	p.SetDesired(changed, nil, r.now)
	p.Storage.Volumes.Volumes[0].UpToDate = true
	r.complete("WriteFile", &world.Done{}, nil)
	if file := string(r.expectCall("WriteFile").Body.(*world.WriteFile).Data); !strings.Contains(
		file, "10.1.2.3\tdb") {
		t.Errorf("writes %s", file)
	}
}

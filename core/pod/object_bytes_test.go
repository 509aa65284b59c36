package pod

import (
	"fmt"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/core/budget"
	"seedlet.dev/world"
)

// mebibytes returns a ConfigMap of so many mebibytes. Its text is shared with all others.
func mebibytes(name, version string, size int) world.Object {
	return configMap(name, version, map[string]string{"k": manyBytes[:size<<20]})
}

var manyBytes = strings.Repeat("x", 32<<20)

// volumesOfConfigMaps returns volumes from ConfigMaps with the volumes' names.
func volumesOfConfigMaps(names ...string) []v1.Volume {
	var volumes []v1.Volume
	for _, name := range names {
		volumes = append(volumes, v1.Volume{Name: name, VolumeSource: v1.VolumeSource{
			ConfigMap: &v1.ConfigMapVolumeSource{LocalObjectReference: v1.LocalObjectReference{
				Name: name}}}})
	}
	return volumes
}

// expectHeld fails unless the store has so many watches of ConfigMaps, within the bound of a pod.
func (s *fakeServer) expectHeld(t *testing.T, watches int) {
	t.Helper()
	n, sum := 0, 0
	for _, w := range s.store.Watches {
		if w.HasBytes() {
			n++
			sum += w.Bytes
		}
	}
	if n != watches || sum > budget.ReferenceBytesMax {
		t.Errorf("%d objects of %d bytes are held, want %d", n, sum, watches)
	}
}

// A pod that refers to more bytes than it may have is not started: the agent reads the largest
// objects no more, says so once, and tries again later. It starts once the objects have become
// smaller.
func TestObjectsOfTooManyBytes(t *testing.T) {
	var names []string
	var large, small []world.Object
	for i := range 20 {
		names = append(names, fmt.Sprint("c", i))
		large = append(large, mebibytes(names[i], "1", 1))
		small = append(small, configMap(names[i], "2", nil))
	}
	r := newPodHarness(t, func(s *v1.PodSpec) { s.Volumes = volumesOfConfigMaps(names...) })
	api, refusals := &fakeServer{}, []string{}
	r.env.Objects = &api.store
	r.env.CountRefusal = func(name string) { refusals = append(refusals, name) }
	r.planAt(0)
	api.list(large...)
	r.complete("SetCgroup", &world.Done{}, nil).expectNoCall("RunPodSandbox")
	api.expectHeld(t, 15)
	sum := 20 * large[0].ConfigMap.Size()
	sum += 20*budget.ReferenceKey + 10 // of the ten names that are longer
	want := fmt.Sprintf("the ConfigMaps and Secrets that the pod refers to have %d bytes or more, "+
		"and those of one pod may have 16777216: the largest are not read", sum)
	r.expectEvents("BudgetExceeded: " + want)
	if got := waiting(r.pod); got.Message != want {
		t.Errorf("%+v", got)
	}
	if !r.wake.Equal(t0.Add(time.Minute)) {
		t.Errorf("planned again at %v", r.wake)
	}
	r.planAt(time.Minute).expectNoCall("RunPodSandbox")
	if n := len(api.store.Watches); n != 21 {
		t.Errorf("%d watches when all are read again", n)
	}
	api.list(large...)
	r.planAt(time.Minute + 1).expectNoCall("RunPodSandbox")
	api.expectHeld(t, 15)
	api.list(small...)
	r.planAt(2 * time.Minute).expectNoCall("RunPodSandbox")
	r.planAt(3*time.Minute + 1).expectNoCall("RunPodSandbox")
	api.list(small...)
	r.planAt(3*time.Minute + 2).expectCall("RunPodSandbox")
	if len(refusals) != 1 || refusals[0] != "reference_bytes" || len(r.events) > 0 {
		t.Errorf("refusals %v, events %v", refusals, r.events)
	}
}

// A pod that runs goes on when its objects grow, and when an agent that was started again finds
// them too large: other volumes are updated, that of the object keeps its content, and a container
// that takes variables from it is not created again.
func TestObjectThatGrows(t *testing.T) {
	for _, isRestart := range []bool{false, true} {
		p := withContent(v1.VolumeMount{MountPath: "/v"})
		more := volumesOfConfigMaps("b")
		p.Spec.Spec.Volumes = append(p.Spec.Spec.Volumes, more...)
		p.Spec.Spec.Containers[0].VolumeMounts = append(p.Spec.Spec.Containers[0].VolumeMounts,
			v1.VolumeMount{Name: more[0].Name, MountPath: "/b"})
		p.Spec.Spec.Containers[0].EnvFrom = []v1.EnvFromSource{{ConfigMapRef: &v1.ConfigMapEnvSource{
			LocalObjectReference: v1.LocalObjectReference{Name: "b"}}}}
		c := run("web", 0, Running)
		c.Hash, c.RunningSeenAt = containerHash(&p.Spec.Spec.Containers[0]), t0
		p.addContainer(c)
		p.Containers[0].SandboxID = "s"
		r := newContentHarness(t, p)
		r.planUntilIdle(0)
		settings := configMap("c", "1", map[string]string{"k": "1"})
		if !isRestart {
			r.api.list(settings, configMap("b", "1", map[string]string{"k": "small"}))
			r.planUntilIdle(0)
		}
		r.api.list(settings, mebibytes("b", "2", 17))
		r.planUntilIdle(time.Second)
		r.api.list(configMap("c", "2", map[string]string{"k": "2"}))
		r.planUntilIdle(2 * time.Second)
		want := map[bool]string{false: "1+t1,small,2+t1", true: "1+t1,2+t1"}[isRestart]
		if got := strings.Join(r.written, ","); got != want {
			t.Errorf("restart %v: written %s, want %s", isRestart, got, want)
		}
		if len(r.events) != 1 || r.events[0].Reason != reasonBudget {
			t.Errorf("restart %v: events %v", isRestart, r.events)
		}
		r.expectNoCall("StopContainer")
		if p.Stage != Syncing || status(p).State.Running == nil {
			t.Errorf("restart %v: %s, %+v", isRestart, p.Stage, status(p).State)
		}
		r.api.expectHeld(t, 1)
		exited := &p.Containers[0]
		exited.State, exited.Inspected, exited.ExitCode = Exited, Exited, 1
		exited.FinishedAt = t0.Add(2 * time.Second)
		r.planUntilIdle(3 * time.Second).expectNoCall("CreateContainer")
		if got := p.ProblemOf("web"); !isRestart && (got == nil ||
			got.Reason != "CreateContainerConfigError" || got.Message != p.Watches.Excess.Problem) {
			t.Errorf("%+v", got)
		}
	}
}

// An object that several pods refer to counts for each of them. It stays for the others if one of
// them drops it.
func TestLargeObjectOfSeveralPods(t *testing.T) {
	first := newPodHarness(t, func(s *v1.PodSpec) { s.Volumes = volumesOfConfigMaps("a", "b") })
	second := newPodHarness(t, func(s *v1.PodSpec) { s.Volumes = volumesOfConfigMaps("b") })
	second.pod.UID = "other"
	api := &fakeServer{}
	first.env.Objects, second.env.Objects = &api.store, &api.store
	first.planAt(0)
	second.planAt(0)
	api.list(mebibytes("a", "1", 5), mebibytes("b", "1", 12))
	first.planAt(1)
	second.planAt(1)
	if p := first.pod; len(p.Watches.Excess.Dropped) != 1 || !p.WaitsForBudget() {
		t.Errorf("the first pod: %+v", p.Watches)
	}
	if second.pod.WaitsForBudget() {
		t.Errorf("the second pod: %+v", second.pod.Watches)
	}
	o, isKnown := api.store.Get(world.ResourceConfigMaps, "default", "b")
	if !isKnown || o == nil {
		t.Error("the object is not held for the second pod")
	}
}

// Dropped objects stay dropped when the spec changes, unless it no longer refers to them.
func TestDroppedObjectsOfChangedSpec(t *testing.T) {
	r := newPodHarness(t, func(s *v1.PodSpec) { s.Volumes = volumesOfConfigMaps("a", "b", "c") })
	api := &fakeServer{}
	r.env.Objects = &api.store
	r.planAt(0)
	api.list(mebibytes("a", "1", 12), mebibytes("b", "1", 14), mebibytes("c", "1", 1))
	r.planAt(1)
	api.expectHeld(t, 2)
	changed := r.pod.Spec.DeepCopy()
	changed.Labels = map[string]string{"new": "label"}
	r.pod.SetDesired(changed, nil, t0)
	r.planAt(2)
	api.expectHeld(t, 2)
	changed = changed.DeepCopy()
	changed.Spec.Volumes = changed.Spec.Volumes[:1]
	r.pod.SetDesired(changed, nil, t0)
	r.planAt(3)
	api.expectHeld(t, 1)
	if r.pod.WaitsForBudget() {
		t.Errorf("%+v", r.pod.Watches)
	}
}

package volume

import (
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/world"
)

func TestPlugins(t *testing.T) {
	for want, source := range map[string]v1.VolumeSource{
		"kubernetes.io/configmap":    {ConfigMap: &v1.ConfigMapVolumeSource{}},
		"kubernetes.io/downward-api": {DownwardAPI: &v1.DownwardAPIVolumeSource{}},
		"kubernetes.io/empty-dir":    {EmptyDir: &v1.EmptyDirVolumeSource{}},
		"kubernetes.io/host-path":    {HostPath: &v1.HostPathVolumeSource{}},
		"kubernetes.io/image":        {Image: &v1.ImageVolumeSource{}},
		"kubernetes.io/projected":    {Projected: &v1.ProjectedVolumeSource{}},
		"kubernetes.io/secret":       {Secret: &v1.SecretVolumeSource{}},
		"kubernetes.io/nfs":          {NFS: &v1.NFSVolumeSource{}},
		"N/A":                        {RBD: &v1.RBDVolumeSource{}},
	} {
		if got := PluginLabels[PluginOf(&v1.Volume{VolumeSource: source})]; got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// A set-up lasts from its first operation until the volume is ready, or an operation fails. The
// back-off after a failure is no part of it, nor is what a set-up of earlier content took.
func TestSetupsAreTimed(t *testing.T) {
	var ended []time.Duration
	pod := newPod(emptyDir("", ""))
	pod.SetupEnded = func(_ *v1.Volume, took time.Duration, failed bool) {
		if failed {
			took = -1
		}
		ended = append(ended, took)
	}
	s := &Set{}
	next := func(second int) *Operation {
		operation, _ := s.NextOperation(pod, t0.Add(time.Duration(second)*time.Second))
		return operation
	}
	complete := func(second int, operation *Operation, err *world.Error) (time.Duration, bool) {
		ev := world.Event{Time: t0.Add(time.Duration(second) * time.Second), Err: err,
			Body: &world.Done{}}
		return s.HandleCompletion(operation.Volume, world.CallName(operation.Body), ev)
	}
	notFound := world.Errorf(world.KindNotFound, "StatPath", "none")
	broken := world.Errorf(world.KindInternal, "MakeDir", "EIO")
	if took, failed := complete(1, next(0), notFound); failed {
		t.Errorf("failed after %v: the path does not exist yet", took)
	}
	if took, failed := complete(3, next(2), broken); took != 3*time.Second || !failed {
		t.Errorf("took %v, failed: %t", took, failed)
	}
	complete(101, next(100), notFound)
	complete(103, next(102), nil)
	complete(105, next(104), nil)
	next(106)
	next(107) // nothing is left
	s.Recheck()
	complete(201, next(200), notFound)
	s.Recheck()
	complete(301, next(300), notFound)
	complete(303, next(302), nil)
	complete(305, next(304), nil)
	next(305)
	if want := []time.Duration{6 * time.Second, 5 * time.Second}; !slices.Equal(ended, want) {
		t.Errorf("set-ups took %v, want %v", ended, want)
	}
}

// A set-up that no operation can begin has failed at once; one that needs none succeeds at once.
func TestSetupsWithoutOperations(t *testing.T) {
	for _, c := range []struct {
		volume v1.Volume
		failed bool
	}{
		{hostPath(v1.HostPathUnset), false},
		{v1.Volume{Name: "v", VolumeSource: v1.VolumeSource{RBD: &v1.RBDVolumeSource{}}}, true},
	} {
		pod, ended := newPod(c.volume), 0
		pod.SetupEnded = func(_ *v1.Volume, took time.Duration, failed bool) {
			if ended++; took != 0 || failed != c.failed {
				t.Errorf("%+v: took %v, failed: %t", c.volume, took, failed)
			}
		}
		s := &Set{}
		s.NextOperation(pod, t0)
		s.NextOperation(pod, t0)
		if ended != 1 {
			t.Errorf("%+v: ended %d times", c.volume, ended)
		}
	}
}

package volume

import (
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/core/budget"
	"seedlet.dev/world"
)

// What volumes cost a step: a pod of few bytes can name many volumes, files and values.

// bytesOf returns how many bytes a call allocates.
func bytesOf(call func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	call()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

func volumesOf(count int, source v1.VolumeSource) []v1.Volume {
	volumes := make([]v1.Volume, count)
	for i := range volumes {
		volumes[i] = v1.Volume{Name: "v" + strconv.Itoa(i), VolumeSource: source}
	}
	return volumes
}

// fieldFiles returns a volume of so many files of one field of the pod.
func fieldFiles(files int) v1.VolumeSource {
	source := &v1.DownwardAPIVolumeSource{}
	for i := range files {
		source.Items = append(source.Items, v1.DownwardAPIVolumeFile{Path: strconv.Itoa(i),
			FieldRef: &v1.ObjectFieldSelector{FieldPath: "metadata.annotations"}})
	}
	return v1.VolumeSource{DownwardAPI: source}
}

// keyFiles returns a volume of so many files of one key.
func keyFiles(files int) v1.VolumeSource {
	source := &v1.ConfigMapVolumeSource{LocalObjectReference: refTo("a")}
	for i := range files {
		source.Items = append(source.Items, v1.KeyToPath{Key: "k", Path: strconv.Itoa(i)})
	}
	return v1.VolumeSource{ConfigMap: source}
}

// The files of volumes that are refused count as work of a step, and their bytes are not copied.
// The other volumes are looked at a moment later, not after the back-off.
func TestRefusedVolumesTakeSeveralSteps(t *testing.T) {
	const files = 512
	long := strings.Repeat("x", 1<<20)
	for name, source := range map[string]v1.VolumeSource{
		"fields": fieldFiles(files), "keys": keyFiles(files),
	} {
		pod, asked := withObjects(newPod(volumesOf(budget.VolumesMax, source)...),
			configMap("a", "1", map[string]string{"k": long})), 0
		pod.Value = func(*v1.DownwardAPIVolumeFile) (string, error) { asked++; return long, nil }
		s, now, refused := &Set{}, t0, 0
		for refused < budget.VolumesMax {
			asked = 0
			var step *Operation
			var wake time.Time
			allocated := bytesOf(func() { step, wake = s.NextOperation(pod, now) })
			before := refused
			refused = 0
			for i := range s.Volumes {
				refused += s.Volumes[i].Failures
			}
			looked := (refused - before) * files
			if step != nil || looked == 0 || looked > budget.FilesMax+files || asked > looked ||
				allocated > 8<<20 {
				t.Fatalf("%s: %v after %d files, %d values, %d bytes", name, step, looked, asked, allocated)
			}
			if refused < budget.VolumesMax && !wake.Equal(now.Add(partDelay)) {
				t.Fatalf("%s: %d volumes refused, the others are looked at after %s", name, refused,
					wake.Sub(now))
			}
			now = wake
		}
	}
}

// A volume costs the bytes of its values for no operation.
func TestValuesAreNotCopied(t *testing.T) {
	pod := withObjects(newPod(volumesOf(1, keyFiles(60))...),
		configMap("a", "1", map[string]string{"k": strings.Repeat("x", 1<<20)}))
	mounts := []v1.VolumeMount{{Name: "v0", MountPath: "/v"}, {Name: "w", MountPath: "/v/w"}}
	pod.Spec.Spec.Containers = []v1.Container{{VolumeMounts: mounts}}
	var done []any
	allocated := bytesOf(func() { done = runSteps(&Set{}, pod, "") })
	written := done[len(done)-1].(*world.WriteDir)
	if len(done) != 3 || len(written.Files) != 60 || len(written.Files[0].Bytes()) != 1<<20 ||
		allocated > 1<<20 {
		t.Errorf("%d operations, %d files, %d bytes", len(done), len(written.Files), allocated)
	}
}

// A problem of thousands of sources is no longer than what a message says of it.
func TestProblemsOfSourcesAreBounded(t *testing.T) {
	missing := v1.VolumeProjection{ConfigMap: &v1.ConfigMapProjection{
		LocalObjectReference: refTo("a"), Items: []v1.KeyToPath{{Key: "none", Path: "none"}}}}
	pod := withObjects(newPod(projected(slices.Repeat([]v1.VolumeProjection{missing}, 10_000)...)),
		configMap("a", "1", nil))
	s := &Set{}
	s.NextOperation(pod, t0)
	if n := len(s.Problem()); n < budget.MessageMax || n > 2*budget.MessageMax {
		t.Errorf("a problem of %d bytes", n)
	}
}

// Bundles are decoded once for all files of all volumes.
func TestTrustAnchorsAreDecodedOnce(t *testing.T) {
	pod := podWithTrustBundles(byName(nil))
	pod.Objects.HandleWatchEvent(&world.ObjectsListed{Watch: 1, Objects: []world.Object{
		bundle("root", "1", "", encodePEM(strings.Repeat("x", 100_000)))}}, t0)
	source := pod.Spec.Spec.Volumes[0].Projected
	for range 100 {
		again := *source.Sources[0].ClusterTrustBundle
		again.Path += strconv.Itoa(len(source.Sources))
		source.Sources = append(source.Sources, v1.VolumeProjection{ClusterTrustBundle: &again})
	}
	if allocated := bytesOf(func() { runSteps(&Set{}, pod, "") }); allocated > 10<<20 {
		t.Errorf("%d bytes", allocated)
	}
}

// Mounts that are nested in one another cost in proportion to their number.
func TestNestedMountsAreLookedAtOnce(t *testing.T) {
	allocations := func(mounts int) float64 {
		pod, at := newPod(), strings.Repeat("/x", 1000)
		c := v1.Container{}
		for range mounts {
			at += "/y"
			c.VolumeMounts = append(c.VolumeMounts, v1.VolumeMount{Name: "v", MountPath: at})
		}
		pod.Spec.Spec.Containers = []v1.Container{c}
		return testing.AllocsPerRun(5, func() {
			if points, err := pod.nestedMountPoints("v", nil); len(points) != 1 || err != nil {
				t.Fatal(points, err)
			}
		})
	}
	if n := allocations(budget.MountsMax); n > 8*budget.MountsMax {
		t.Errorf("%d mounts: %v allocations", budget.MountsMax, n)
	}
}

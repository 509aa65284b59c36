package budget_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"seedlet.dev/core/budget"
	"seedlet.dev/world/loop"
)

// Every bound has a row, with a name of its own.
func TestTableIsComplete(t *testing.T) {
	names := map[string]bool{}
	for i, b := range budget.Table {
		isComplete := b.Max > 0 && b.Counted != "" && b.When != "" && b.Reason != ""
		if b.Name == "" || names[b.Name] || !isComplete {
			t.Errorf("row %d: %+v", i, b)
		}
		names[b.Name] = true
	}
}

// The shares of the loop's lanes are those of the table.
func TestTableHasTheSharesOfLanes(t *testing.T) {
	for item, lane := range map[budget.Item]loop.Lane{
		budget.StopsInFlight: loop.LaneStop, budget.ProbesInFlight: loop.LaneProbe,
	} {
		if got, want := budget.Table[item].Max, loop.ShareMax(lane); got != want {
			t.Errorf("%s: %d, and the lane has %d", item.Name(), got, want)
		}
	}
}

func TestNameOf(t *testing.T) {
	err := fmt.Errorf("container a: %w", budget.Variables.Errorf("more than %d", 3))
	if got := budget.NameOf(err); got != "variables" || err.Error() != "container a: more than 3" {
		t.Errorf("%q of %q", got, err)
	}
	if got := budget.NameOf(nil) + budget.NameOf(fmt.Errorf("other")); got != "" {
		t.Errorf("%q of another error", got)
	}
}

// specOfBundles returns a spec of volumes, each with so many sources of trust bundles.
func specOfBundles(volumes, sources int) *v1.PodSpec {
	source := v1.VolumeProjection{ClusterTrustBundle: &v1.ClusterTrustBundleProjection{}}
	volume := v1.Volume{VolumeSource: v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{
		Sources: slices.Repeat([]v1.VolumeProjection{source}, sources)}}}
	return &v1.PodSpec{Volumes: slices.Repeat([]v1.Volume{volume}, volumes)}
}

// A spec at each bound is accepted, and one more is not. The error has the number and the bound.
func TestCheckSpec(t *testing.T) {
	containers := func(n int) []v1.Container { return make([]v1.Container, n) }
	probed := func(n int, periodSeconds int32) *v1.PodSpec {
		spec := &v1.PodSpec{Containers: containers(n)}
		for i := range spec.Containers {
			spec.Containers[i].ReadinessProbe = &v1.Probe{PeriodSeconds: periodSeconds}
		}
		return spec
	}
	mounts := func(n int) *v1.PodSpec {
		return &v1.PodSpec{Containers: []v1.Container{{Name: "a"},
			{Name: "b", VolumeMounts: make([]v1.VolumeMount, n-1),
				VolumeDevices: make([]v1.VolumeDevice, 1)}}}
	}
	for _, c := range []struct {
		spec               *v1.PodSpec
		tokens, references int
		want               string
	}{
		{&v1.PodSpec{Containers: containers(256)}, 64, 256, ""},
		{&v1.PodSpec{Containers: containers(100), InitContainers: containers(100),
			EphemeralContainers: make([]v1.EphemeralContainer, 57)}, 0, 0,
			"the pod has 257 containers, and one pod may have 256"},
		{&v1.PodSpec{Volumes: make([]v1.Volume, 256)}, 0, 0, ""},
		{&v1.PodSpec{Volumes: make([]v1.Volume, 257)}, 0, 0,
			"the pod has 257 volumes, and one pod may have 256"},
		{mounts(256), 0, 0, ""},
		{mounts(257), 0, 0,
			"container b has 257 volume mounts and devices, and one container may have 256"},
		{&v1.PodSpec{Containers: slices.Repeat(mounts(256).Containers, 8)}, 0, 0, ""},
		{&v1.PodSpec{Containers: append(slices.Repeat(mounts(256).Containers, 8),
			mounts(1).Containers...)}, 0, 0,
			"the containers of the pod have 2049 volume mounts and devices, and one pod may have 2048"},
		{specOfBundles(2, 128), 0, 0, ""},
		{specOfBundles(1, 257), 0, 0, "the volumes of the pod have 257 sources of trust bundles, and " +
			"those of one pod may have 256"},
		{specOfImages(256, 1), 0, 0, ""},
		{specOfImages(171, 2), 0, 0, "the pod needs 513 images, and one pod may need 512"},
		{probed(100, 1), 0, 0, ""},
		{probed(100, 0), 0, 0, ""},
		{probed(101, 1), 0, 0, "the pod has 101 probes per second, and one pod may have 100"},
		{probed(250, 10), 0, 0, ""},
		{&v1.PodSpec{Containers: []v1.Container{{Ports: make([]v1.ContainerPort, 4000)},
			{Ports: make([]v1.ContainerPort, 96)}}}, 0, 0, ""},
		{&v1.PodSpec{InitContainers: []v1.Container{{Ports: make([]v1.ContainerPort, 4000)}},
			Containers: []v1.Container{{Ports: make([]v1.ContainerPort, 97)}}}, 0, 0,
			"the containers of the pod have 4097 ports, and one pod may have 4096"},
		{specOfResources(512, 0, 512), 0, 0, ""},
		{specOfResources(512, 513, 0), 0, 0,
			"the pod and its containers name 1025 resources in requests and limits, and one pod may name " +
				"1024"},
		{specOfResources(0, 10, 1025), 0, 0,
			"the pod and its containers name 1035 resources in requests and limits, and one pod may name " +
				"1024"},
		{specOfSelectors(24, 100, 9), 0, 0, ""},
		{specOfSelectors(25, 100, 9), 0, 0,
			"the node selector and node affinity of the pod have 1025 labels, terms, expressions and " +
				"values, and one pod may have 1024"},
		{&v1.PodSpec{}, 65, 0, "the pod needs 65 service account tokens, and one pod may have 64"},
		{&v1.PodSpec{}, 0, 257, "the pod refers to 257 API objects, and one pod may refer to 256"},
	} {
		got := ""
		if err := budget.CheckSpec(c.spec, c.tokens, c.references); err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}

// The images of a spec have bounds as well.
func TestCheckSpecOfImages(t *testing.T) {
	for _, c := range []struct {
		spec *v1.PodSpec
		want string
	}{
		{specOfReferences(16, 1024), ""},
		{specOfReferences(17, 1024), "the references of the pod to images have 17408 bytes, and " +
			"those of one pod may have 16384"},
		{specOfReferences(100, 1025), ""}, // each is refused by itself
		{&v1.PodSpec{ImagePullSecrets: make([]v1.LocalObjectReference, 64)}, ""},
		{&v1.PodSpec{ImagePullSecrets: make([]v1.LocalObjectReference, 65)},
			"the pod names 65 image pull secrets, and one pod may name 64"},
	} {
		got := ""
		for _, err := range []error{budget.CheckSpec(c.spec, 0, 0),
			budget.CheckImageReferences(c.spec)} {
			if err != nil {
				got = err.Error()
			}
		}
		if got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}

// specOfResources returns a spec that names so many resources in the pod's limits, the requests of
// a container and the limits of an init container.
func specOfResources(ofPod, requests, limits int) *v1.PodSpec {
	list := func(n int) v1.ResourceList {
		list := v1.ResourceList{}
		for i := range n {
			list[v1.ResourceName(fmt.Sprint(i))] = resource.Quantity{}
		}
		return list
	}
	return &v1.PodSpec{
		Resources:      &v1.ResourceRequirements{Limits: list(ofPod)},
		InitContainers: []v1.Container{{Resources: v1.ResourceRequirements{Limits: list(limits)}}},
		Containers:     []v1.Container{{Resources: v1.ResourceRequirements{Requests: list(requests)}}},
	}
}

// specOfSelectors returns a spec with so many labels to select by, and terms of one requirement
// each, which counts together with its values.
func specOfSelectors(labels, terms, requirement int) *v1.PodSpec {
	spec := &v1.PodSpec{NodeSelector: map[string]string{}}
	for i := range labels {
		spec.NodeSelector[fmt.Sprint(i)] = ""
	}
	required := &v1.NodeSelector{NodeSelectorTerms: make([]v1.NodeSelectorTerm, terms)}
	for i := range terms {
		term := &required.NodeSelectorTerms[i]
		list := []v1.NodeSelectorRequirement{{Values: make([]string, requirement-1)}}
		if i%2 == 0 {
			term.MatchExpressions = list
		} else {
			term.MatchFields = list
		}
	}
	spec.Affinity = &v1.Affinity{NodeAffinity: &v1.NodeAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: required}}
	return spec
}

// specOfReferences returns a spec of so many different references of a length, each of them twice.
func specOfReferences(n, length int) *v1.PodSpec {
	spec := &v1.PodSpec{}
	for i := range n {
		ref := fmt.Sprintf("%0*d", length, i)
		switch i % 3 {
		case 0:
			spec.Volumes = append(spec.Volumes, v1.Volume{VolumeSource: v1.VolumeSource{
				Image: &v1.ImageVolumeSource{Reference: ref}}})
		case 1:
			spec.EphemeralContainers = append(spec.EphemeralContainers, v1.EphemeralContainer{
				EphemeralContainerCommon: v1.EphemeralContainerCommon{Image: ref}})
		}
		spec.Containers = append(spec.Containers, v1.Container{Image: ref})
	}
	return spec
}

// specOfImages returns a spec of so many containers, each of which mounts an image so many times.
func specOfImages(containers, mounts int) *v1.PodSpec {
	spec := &v1.PodSpec{Containers: make([]v1.Container, containers),
		Volumes: []v1.Volume{{Name: "e"}, {Name: "v",
			VolumeSource: v1.VolumeSource{Image: &v1.ImageVolumeSource{}}}}}
	for i := range spec.Containers {
		spec.Containers[i].VolumeMounts = append(slices.Repeat([]v1.VolumeMount{{Name: "v"}}, mounts),
			v1.VolumeMount{Name: "e"})
	}
	return spec
}

// What the status or the runtime repeats is bounded as well.
func TestCheckSpecOfWhatIsRepeated(t *testing.T) {
	groups := func(n int) *v1.PodSpec {
		return &v1.PodSpec{SecurityContext: &v1.PodSecurityContext{SupplementalGroups: make([]int64, n)}}
	}
	for _, c := range []struct {
		spec *v1.PodSpec
		want string
	}{
		{specOfPaths(256, 256), ""},
		{specOfPaths(256, 257), "the paths of the volume mounts and devices of the pod have 65792 " +
			"bytes, and those of one pod may have 65536"},
		{specOfNames(256, 64), ""},
		{specOfNames(256, 65), "the names of resources in the requests and limits of the pod have " +
			"33280 bytes, and those of one pod may have 32768"},
		{groups(4096), ""},
		{groups(4097), "the pod has 4097 supplemental groups, and one pod may have 4096"},
	} {
		got := ""
		if err := budget.CheckSpec(c.spec, 0, 0); err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}

// specOfPaths returns a spec of so many containers with a mount, whose path has so many bytes.
func specOfPaths(containers, bytes int) *v1.PodSpec {
	mounts := []v1.VolumeMount{{MountPath: strings.Repeat("/", bytes)}}
	return &v1.PodSpec{Containers: slices.Repeat([]v1.Container{{VolumeMounts: mounts}}, containers)}
}

// specOfNames returns a spec of so many containers with a request and a limit, of a resource whose
// name has so many bytes.
func specOfNames(containers, bytes int) *v1.PodSpec {
	list := v1.ResourceList{v1.ResourceName(strings.Repeat("r", bytes)): {}}
	return &v1.PodSpec{Containers: slices.Repeat([]v1.Container{{
		Resources: v1.ResourceRequirements{Requests: list, Limits: list}}}, containers)}
}

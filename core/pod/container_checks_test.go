package pod

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/core/budget"
	"seedlet.dev/core/image"
)

// expandingPod returns a pod of so many containers, each with 1.9 MiB of variables and as many
// arguments by references.
func expandingPod(containers int) *Pod {
	s := spec(v1.RestartPolicyAlways, "", "c0")
	c := &s.Spec.Containers[0]
	c.Env = []v1.EnvVar{{Name: "A", Value: strings.Repeat("x", 1<<10)},
		{Name: "B", Value: strings.Repeat("$(A)", 120)}}
	for k := range 15 {
		c.Env = append(c.Env, v1.EnvVar{Name: fmt.Sprint("C", k), Value: "$(B)"})
		c.Args = append(c.Args, "$(B)")
	}
	for i := 1; i < containers; i++ {
		s.Spec.Containers = append(s.Spec.Containers, *c.DeepCopy())
		s.Spec.Containers[i].Name = fmt.Sprint("c", i)
	}
	p := podWith(s)
	p.DirCreated, p.Sandboxes[0].Inspected = true, true
	for i := range containers {
		p.LogDirs = append(p.LogDirs, fmt.Sprint("c", i))
	}
	return p
}

// bytesOfPlan returns what a plan allocates.
func (r *harness) bytesOfPlan() uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	r.planAt(r.now.Sub(t0))
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// refused returns the containers that are not created for what all of them expand.
func (r *harness) refused() string {
	var names []string
	for i := range r.pod.Problems {
		if strings.Contains(r.pod.Problems[i].Message, fmt.Sprint(budget.ExpandedMax)) {
			names = append(names, r.pod.Problems[i].Container)
		}
	}
	return strings.Join(names, " ")
}

// Containers that wait for their images are expanded in the first plan, as many as the bound allows
// of them, and in no later one. When they are created, others take their place.
func TestContainersThatWaitAreExpandedOnce(t *testing.T) {
	refusals := map[string]int{}
	r := newHarness(t, expandingPod(20))
	r.env.CountRefusal = func(name string) { refusals[name]++ }
	present := r.env.Images
	r.env.Images = &image.Store{}
	if first := r.bytesOfPlan(); first > 4*budget.ExpandedMax {
		t.Errorf("the first plan allocates %d bytes", first)
	}
	var rest []string
	for i := 2; i < 20; i++ {
		rest = append(rest, fmt.Sprint("c", i))
	}
	want := strings.Join(rest, " ")
	if got := r.refused(); got != want || refusals["expanded_bytes_pod"] != 18 {
		t.Errorf("refused are %s, counted %v", got, refusals)
	}
	if again := r.bytesOfPlan(); again > 1<<20 {
		t.Errorf("another plan allocates %d bytes", again)
	}
	if got := r.refused(); got != want || refusals["expanded_bytes_pod"] != 18 {
		t.Errorf("then %s, counted %v", got, refusals)
	}
	r.env.Images = present
	r.planAt(0)
	for range 2 {
		r.completeWrites()
		config := r.expectCall("CreateContainer").Body.(*runtimeapi.CreateContainerRequest).Config
		if len(config.Envs) != 17 || len(config.Args) != 15 {
			t.Errorf("%s has %d variables", config.Metadata.Name, len(config.Envs))
		}
		r.putImage()
		r.complete("CreateContainer", &runtimeapi.CreateContainerResponse{
			ContainerId: "id-" + config.Metadata.Name}, nil)
		r.complete("StartContainer", &runtimeapi.StartContainerResponse{}, nil)
	}
	if got, _, _ := strings.Cut(r.refused(), " "); got == "c2" {
		t.Error("no container takes the place of those that were created")
	}
}

// A container that is misconfigured is not expanded again before something has changed.
func TestMisconfiguredContainerIsExpandedOnce(t *testing.T) {
	p := expandingPod(1)
	c := p.specContainer("c0")
	c.Env = append(c.Env, v1.EnvVar{Name: "F", ValueFrom: field("spec.unknown")})
	r := newHarness(t, p)
	if first := r.bytesOfPlan(); first < 1<<20 || p.ProblemOf("c0") == nil {
		t.Errorf("the first plan allocates %d bytes, problems %v", first, p.Problems)
	}
	for range 3 {
		if again := r.bytesOfPlan(); again > 1<<20 || p.ProblemOf("c0") == nil {
			t.Errorf("another plan allocates %d bytes, problems %v", again, p.Problems)
		}
	}
	mended := p.Spec.DeepCopy()
	mended.Spec.Containers[0].Env[len(c.Env)-1].ValueFrom = field("metadata.name")
	p.SetDesired(mended, nil, r.now)
	r.planAt(time.Second)
	if problem := p.ProblemOf("c0"); problem != nil {
		t.Errorf("after the change %v", problem)
	}
}

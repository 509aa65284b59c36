package oracle

import (
	"fmt"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"seedlet.dev/sim/truth"
	api "seedlet.dev/world"
)

// generation returns the pod of withPodCgroups as it asks for CPU.
func generation(number int64, cpu string) *v1.Pod {
	p := podWithLimits()
	p.Generation = number
	p.Spec.Containers[0].Resources.Requests = v1.ResourceList{"cpu": resource.MustParse(cpu)}
	return p
}

// tell adds an Event about the newest generation of the pod.
func (s *script) tell(reason string, p *v1.Pod) {
	s.addFact(truth.EventRecorded, truth.Fact{PodUID: "u1", Reason: reason, Message: fmt.Sprintf(
		`Pod resize: {"containers":[{"name":"app","resources":{"limits":{"memory":"64Mi"},`+
			`"requests":{"cpu":%q}}}],"generation":%d}`, p.Spec.Containers[0].Resources.Requests.Cpu(),
		p.Generation)})
}

func TestResizeAdmission(t *testing.T) {
	cases := []struct {
		name, want  string
		before      func(*script) // the resize is asked for
		cpu, reason string
	}{
		{"fits", "", func(*script) {}, "2", reasonResizeStarted},
		{"beyond the node", "resize-admission", func(*script) {}, "5", reasonResizeStarted},
		{"during a shutdown", "resize-admission", func(s *script) {
			s.addFact(truth.ShutdownAnnounced, truth.Fact{})
		}, "2", reasonResizeStarted},
		{"while process IDs are short", "resize-admission", func(s *script) {
			s.model.opts.NodeUsage = func() (n api.NodeMeasured) { return n }
			s.model.opts.Filesystem = func(string) (f api.FilesystemMeasured) { return f }
			s.model.opts.Pressure.Transition = 1 << 40
			s.model.pressure.lastMet[v1.NodePIDPressure] = s.now
			s.model.pressure.trueSince[v1.NodePIDPressure] = s.now
		}, "2", reasonResizeStarted},
		{"said to be complete", "resize-admission", func(*script) {}, "2", reasonResizeCompleted},
		{"unchanged and complete", "", func(*script) {}, "500m", reasonResizeCompleted},
	}
	var all []testCase
	for _, c := range cases {
		all = append(all, testCase{c.name, c.want, withPodCgroups(func(s *script) {
			s.model.opts.Allocatable = v1.ResourceList{"cpu": resource.MustParse("4"),
				"memory": resource.MustParse("1Gi"), "pods": resource.MustParse("9")}
			s.model.opts.Shutdown = &Shutdown{Groups: []ShutdownGroup{{Period: 1 << 40}}}
			s.resized(withinPod)
			c.before(s)
			s.wait(2)
			p := generation(2, c.cpu)
			s.setDesired(p)
			s.wait(1)
			s.tell(c.reason, p)
		})})
	}
	runCases(t, all)
}

// The limits in a status are among those that the container has had.
func TestResizeRecords(t *testing.T) {
	var all []testCase
	for _, c := range []struct{ name, memory, want string }{
		{"had", "64Mi", ""}, {"never had", "32Mi", "resize-records"}} {
		all = append(all, testCase{c.name, c.want, withPodCgroups(func(s *script) {
			s.resized(withinPod)
			p := podWithLimits()
			p.Status.ContainerStatuses = []v1.ContainerStatus{{Name: "app", ContainerID: "x://c",
				State: v1.ContainerState{Running: &v1.ContainerStateRunning{}},
				Resources: &v1.ResourceRequirements{
					Limits: v1.ResourceList{"memory": resource.MustParse(c.memory)}}}}
			s.CheckFact(truth.Fact{Time: s.now, Kind: truth.ObjectUpdated, Write: &truth.Write{
				Resource: api.ResourcePods, Namespace: "ns", Name: "web", Incarnation: 1, Status: true,
				Before: api.Object{Pod: podWithLimits()}, After: api.Object{Pod: p}}})
		})})
	}
	runCases(t, all)
}

package podstatus

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"seedlet.dev/core/allocation"
	"seedlet.dev/core/pod"
	"seedlet.dev/world"
)

// text returns amounts of CPU and memory, those of requests first.
func text(r *v1.ResourceRequirements) string {
	if r == nil {
		return "none"
	}
	join := func(l v1.ResourceList) (joined string) {
		for _, name := range []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory, "hugepages-2Mi"} {
			if q, exists := l[name]; exists {
				joined += " " + q.String()
			}
		}
		return joined
	}
	return join(r.Requests) + " /" + join(r.Limits)
}

func amounts(cpu, memory string) v1.ResourceList {
	l := v1.ResourceList{}
	for name, text := range map[v1.ResourceName]string{"cpu": cpu, "memory": memory} {
		if text != "" {
			l[name] = resource.MustParse(text)
		}
	}
	return l
}

// The status of a container has what is allocated, and of one that runs what it has.
func TestResourcesOfContainer(t *testing.T) {
	last := &allocation.Amounts{CPURequest: 500, CPULimit: 1000, MemoryRequest: 4 << 20,
		MemoryLimit: 8 << 20}
	allocated := v1.ResourceRequirements{Requests: amounts("1", "4Mi"), Limits: amounts("2", "16Mi")}
	for name, c := range map[string]struct {
		state     pod.State
		allocated v1.ResourceRequirements
		actuation pod.Actuation
		want      string
	}{
		"before it was created": {"", allocated, pod.Actuation{}, "none"},
		"nothing is known":      {pod.Running, allocated, pod.Actuation{}, " 1 4Mi / 2 16Mi"},
		"nothing is known, and something was reported": {pod.Running, allocated, pod.Actuation{},
			" 300m 2Mi /"},
		"taken": {pod.Running, allocated, pod.Actuation{Last: last},
			" 500m 4Mi / 1 8Mi"},
		"reported": {pod.Running, allocated, pod.Actuation{Last: last,
			Reported: &allocation.Amounts{CPURequest: 750, MemoryLimit: 12 << 20}},
			" 750m 4Mi / 1 12Mi"},
		"reported, and not recorded": {pod.Running, allocated, pod.Actuation{Recalled: true,
			Reported: &allocation.Amounts{CPURequest: 750, CPULimit: 1000, MemoryLimit: 12 << 20}},
			" 750m 4Mi / 1 12Mi"},
		"exited":           {pod.Exited, allocated, pod.Actuation{Last: last}, " 1 4Mi / 2 16Mi"},
		"asks for nothing": {pod.Running, v1.ResourceRequirements{}, pod.Actuation{Last: last}, " /"},
		"has its pod's CPU too": {pod.Running, v1.ResourceRequirements{Limits: amounts("", "8Mi")},
			pod.Actuation{Last: last}, " / 1 8Mi"},
		"less than the kernel tells apart": {pod.Running,
			v1.ResourceRequirements{Requests: amounts("1m", ""), Limits: amounts("5m", "")},
			pod.Actuation{Last: &allocation.Amounts{CPURequest: 1, CPULimit: 5},
				Reported: &allocation.Amounts{CPURequest: 2, CPULimit: 10}}, " 1m / 5m"},
		"no more than the kernel tells apart": {pod.Running,
			v1.ResourceRequirements{Requests: amounts("2m", ""), Limits: amounts("10m", "")},
			pod.Actuation{Last: &allocation.Amounts{CPURequest: 1, CPULimit: 5}}, " 2m / 10m"},
		"more, and has the least": {pod.Running,
			v1.ResourceRequirements{Requests: amounts("1", ""), Limits: amounts("2", "")},
			pod.Actuation{Last: &allocation.Amounts{CPURequest: 2, CPULimit: 10}}, " 2m / 10m"},
	} {
		p := newPod(v1.RestartPolicyAlways)
		p.Spec.Spec.Containers[0].Resources = c.allocated
		if c.state != "" {
			p.Containers = []pod.Container{newRun(0, c.state, 0)}
			p.Containers[0].Actuation = c.actuation
		}
		if strings.HasPrefix(name, "nothing is known, and") {
			p.Spec.Status.ContainerStatuses = []v1.ContainerStatus{{
				ContainerID: "containerd://" + p.Containers[0].ID,
				Resources:   &v1.ResourceRequirements{Requests: amounts("300m", "2Mi")}}}
		}
		Update(p, t0)
		status := ServedPod(p, &pod.Node{}, "c").Status.ContainerStatuses[0]
		if got := text(status.Resources); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
		if (status.AllocatedResources != nil) != (c.state != "" && c.allocated.Requests != nil) {
			t.Errorf("%s: allocated %v", name, status.AllocatedResources)
		}
	}
}

// The status of a pod has what its containers request in all, and of one that runs what its cgroup
// has.
func TestResourcesOfPod(t *testing.T) {
	huge := amounts("1", "4Mi")
	huge["hugepages-2Mi"] = resource.MustParse("2Mi")
	container := v1.ResourceRequirements{Requests: huge, Limits: amounts("2", "16Mi")}
	whole := &v1.ResourceRequirements{Requests: amounts("3", ""), Limits: amounts("4", "")}
	least := &v1.ResourceRequirements{Requests: amounts("1m", ""), Limits: amounts("5m", "")}
	set := &pod.CgroupSetting{Cgroup: world.SetCgroup{CPUShares: 512, CPUQuota: 150_000,
		CPUPeriod: 100_000, MemoryBytes: 8 << 20}}
	for name, c := range map[string]struct {
		state     pod.State
		whole     *v1.ResourceRequirements
		container v1.ResourceRequirements
		set       *pod.CgroupSetting
		want      string
	}{
		"starts":            {"", nil, container, set, " 1 4Mi 2Mi / 2 16Mi"},
		"runs":              {pod.Running, nil, container, set, " 500m 4Mi / 1500m 8Mi"},
		"runs as a whole":   {pod.Running, whole, container, set, " 500m 4Mi / 1500m 8Mi"},
		"has no cgroup":     {pod.Running, nil, container, nil, " 1 4Mi 2Mi / 2 16Mi"},
		"has no cgroup yet": {pod.Running, nil, container, nil, " 3 / 4"},
		"has no cgroup yet, and did not run": {pod.Running, nil, container, nil,
			" 1 4Mi 2Mi / 2 16Mi"},
		"has no cgroup yet, and ran without resources": {pod.Running, nil, container, nil,
			" 1 4Mi 2Mi / 2 16Mi"},
		"has ended, and ran": {pod.Exited, nil, container, nil, " 1 4Mi 2Mi / 2 16Mi"},
		"has no quota": {pod.Running, whole, container, &pod.CgroupSetting{
			Cgroup: world.SetCgroup{CPUShares: 1024, MemoryBytes: 8 << 20}}, " 1 4Mi / 4 8Mi"},
		"has less than the kernel tells apart": {pod.Running, least, container,
			&pod.CgroupSetting{Cgroup: world.SetCgroup{CPUShares: 2, CPUQuota: 1000,
				CPUPeriod: 100_000}}, " 1m 4Mi / 5m"},
		"has ended": {pod.Exited, nil, container, set, " 1 4Mi 2Mi / 2 16Mi"},
		"asks for nothing": {pod.Running, nil, v1.ResourceRequirements{},
			&pod.CgroupSetting{Cgroup: world.SetCgroup{CPUShares: 2}}, " /"},
	} {
		p := newPod(v1.RestartPolicyNever)
		p.Spec.Spec.Resources, p.Spec.Spec.Containers[0].Resources = c.whole, c.container
		p.Cgroup.Applied = c.set
		if c.state != "" {
			p.Containers = []pod.Container{newRun(0, c.state, 0)}
			p.Containers[0].Grace = 1
		}
		Update(p, t0)
		switch name {
		case "has no cgroup yet", "has ended, and ran":
			p.Spec.Status.Phase, p.Spec.Status.Resources = v1.PodRunning, whole
		case "has no cgroup yet, and did not run":
			p.Spec.Status.Phase, p.Spec.Status.Resources = v1.PodPending, whole
		case "has no cgroup yet, and ran without resources":
			p.Spec.Status.Phase = v1.PodRunning
		}
		if c.state == pod.Exited {
			p.Status.Phase = v1.PodFailed
		}
		status := ServedPod(p, &pod.Node{}, "c").Status
		if got := text(status.Resources); got != c.want {
			t.Errorf("%s (%s): %q, want %q", name, status.Phase, got, c.want)
		}
	}
}

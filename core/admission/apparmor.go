package admission

import v1 "k8s.io/api/core/v1"

// WantsAppArmor says whether a pod has a container that a profile is to confine. It cannot run
// where the kernel does not enforce profiles: it would run unconfined.
func WantsAppArmor(pod *v1.Pod) bool {
	of := func(p *v1.AppArmorProfile) bool {
		return p != nil && p.Type != v1.AppArmorProfileTypeUnconfined
	}
	spec := &pod.Spec
	wants := spec.SecurityContext != nil && of(spec.SecurityContext.AppArmorProfile)
	for _, list := range [][]v1.Container{spec.InitContainers, spec.Containers} {
		for i := range list {
			wants = wants || list[i].SecurityContext != nil && of(list[i].SecurityContext.AppArmorProfile)
		}
	}
	return wants
}

package admission

import v1 "k8s.io/api/core/v1"

// NeedsAppArmor reports whether a container of the pod has an AppArmor profile. Such a pod cannot
// run where the kernel does not enforce profiles, because it would run unconfined.
func NeedsAppArmor(pod *v1.Pod) bool {
	isConfining := func(p *v1.AppArmorProfile) bool {
		return p != nil && p.Type != v1.AppArmorProfileTypeUnconfined
	}
	spec := &pod.Spec
	needs := spec.SecurityContext != nil && isConfining(spec.SecurityContext.AppArmorProfile)
	for _, list := range [][]v1.Container{spec.InitContainers, spec.Containers} {
		for i := range list {
			security := list[i].SecurityContext
			needs = needs || security != nil && isConfining(security.AppArmorProfile)
		}
	}
	return needs
}

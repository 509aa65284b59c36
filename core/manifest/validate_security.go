package manifest

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// checkContainerSecurity checks the security context of a container.
func (v *validator) checkContainerSecurity(s *v1.SecurityContext, spec *v1.PodSpec, p *field.Path) {
	if s == nil {
		return
	}
	v.user(s.RunAsUser, p.Child("runAsUser"))
	v.group(s.RunAsGroup, p.Child("runAsGroup"))
	v.checkSeccomp(s.SeccompProfile, p.Child("seccompProfile"))
	v.checkAppArmor(s.AppArmorProfile, p.Child("appArmorProfile"))
	if s.WindowsOptions != nil {
		v.add(field.Forbidden(p.Child("windowsOptions"), "this is a Linux node"))
	}
	if mount := s.ProcMount; mount != nil {
		oneOf(v, p.Child("procMount"), *mount, v1.DefaultProcMount, v1.UnmaskedProcMount)
		if *mount == v1.UnmaskedProcMount && (spec.HostUsers == nil || *spec.HostUsers) {
			v.invalid(p.Child("procMount"), *mount, "needs hostUsers to be false")
		}
	}
	if s.AllowPrivilegeEscalation == nil || *s.AllowPrivilegeEscalation {
		return
	}
	q := p.Child("allowPrivilegeEscalation")
	if s.Privileged != nil && *s.Privileged {
		v.invalid(q, false, "cannot be false for a privileged container")
	}
	if s.Capabilities != nil && slices.Contains(s.Capabilities.Add, "CAP_SYS_ADMIN") {
		v.invalid(q, false, "cannot be false with the capability CAP_SYS_ADMIN")
	}
}

// checkPodSecurity checks the security context of the pod.
func (v *validator) checkPodSecurity(s *v1.PodSecurityContext, p *field.Path) {
	v.user(s.RunAsUser, p.Child("runAsUser"))
	v.group(s.RunAsGroup, p.Child("runAsGroup"))
	v.group(s.FSGroup, p.Child("fsGroup"))
	for i := range s.SupplementalGroups {
		v.group(&s.SupplementalGroups[i], p.Child("supplementalGroups").Index(i))
	}
	if policy := s.SupplementalGroupsPolicy; policy != nil {
		oneOf(v, p.Child("supplementalGroupsPolicy"), *policy,
			v1.SupplementalGroupsPolicyMerge, v1.SupplementalGroupsPolicyStrict)
	}
	if policy := s.FSGroupChangePolicy; policy != nil {
		oneOf(v, p.Child("fsGroupChangePolicy"), *policy,
			v1.FSGroupChangeOnRootMismatch, v1.FSGroupChangeAlways)
	}
	if s.WindowsOptions != nil {
		v.add(field.Forbidden(p.Child("windowsOptions"), "this is a Linux node"))
	}
	v.checkSeccomp(s.SeccompProfile, p.Child("seccompProfile"))
	v.checkAppArmor(s.AppArmorProfile, p.Child("appArmorProfile"))
	names := map[string]bool{}
	for i, sysctl := range s.Sysctls {
		q := p.Child("sysctls").Index(i).Child("name")
		v.required(q, sysctl.Name)
		v.noParent(q, sysctl.Name)
		v.unique(q, sysctl.Name, names)
	}
}

func (v *validator) user(id *int64, p *field.Path) {
	if id != nil {
		v.addInvalid(p, *id, validation.IsValidUserID(*id))
	}
}

func (v *validator) group(id *int64, p *field.Path) {
	if id != nil {
		v.addInvalid(p, *id, validation.IsValidGroupID(*id))
	}
}

func (v *validator) checkSeccomp(s *v1.SeccompProfile, p *field.Path) {
	if s == nil {
		return
	}
	oneOf(v, p.Child("type"), s.Type, v1.SeccompProfileTypeUnconfined,
		v1.SeccompProfileTypeRuntimeDefault, v1.SeccompProfileTypeLocalhost)
	v.checkLocalhostProfile(s.LocalhostProfile, s.Type == v1.SeccompProfileTypeLocalhost, p)
	if s.LocalhostProfile != nil {
		// The path is relative to the agent's directory.
		v.relativePath(p.Child("localhostProfile"), *s.LocalhostProfile)
	}
}

func (v *validator) checkAppArmor(s *v1.AppArmorProfile, p *field.Path) {
	if s == nil {
		return
	}
	oneOf(v, p.Child("type"), s.Type, v1.AppArmorProfileTypeUnconfined,
		v1.AppArmorProfileTypeRuntimeDefault, v1.AppArmorProfileTypeLocalhost)
	v.checkLocalhostProfile(s.LocalhostProfile, s.Type == v1.AppArmorProfileTypeLocalhost, p)
}

// checkLocalhostProfile checks that the name of a profile is set if, and only if, the type is
// Localhost.
func (v *validator) checkLocalhostProfile(profile *string, wanted bool, p *field.Path) {
	q := p.Child("localhostProfile")
	if wanted && (profile == nil || *profile == "") {
		v.add(field.Required(q, "type Localhost needs it"))
	}
	if !wanted && profile != nil {
		v.invalid(q, *profile, "is only for type Localhost")
	}
}

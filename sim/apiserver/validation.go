package apiserver

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"seedlet.dev/world"
)

// validateCreate returns why a new object is invalid, and the empty string if it is valid. It has
// the checks that a node agent can fail.
func validateCreate(o *world.Object) string {
	switch {
	case o.Pod != nil:
		_, mirror := o.Pod.Annotations[v1.MirrorPodAnnotationKey]
		switch {
		case len(o.Pod.Spec.Containers) == 0:
			return "spec.containers: Required value"
		case mirror && o.Pod.Spec.NodeName == "":
			return "metadata.annotations: must set spec.nodeName if mirror pod annotation is set"
		}
	case o.Lease != nil:
		return validateLease(o)
	case o.TrustBundle != nil:
		return validateTrustBundle(o.TrustBundle)
	case o.CertificateRequest != nil:
		return validateCertificateRequest(o.CertificateRequest)
	case o.CSINode != nil:
		return validateCSINode(o.CSINode)
	}
	return ""
}

func validateLease(o *world.Object) string {
	if d := o.Lease.Spec.LeaseDurationSeconds; d != nil && *d <= 0 {
		return fmt.Sprintf("spec.leaseDurationSeconds: Invalid value: %d: must be greater than 0",
			*d)
	}
	return ""
}

// validateUpdate returns why an update is invalid at a time.
func validateUpdate(o, old *world.Object, status bool, now time.Time) string {
	switch {
	case o.Pod != nil && status:
		if reason := validateMirrorAnnotation(o.Pod, old.Pod); reason != "" {
			return reason
		}
		return validateStatusUpdate(o.Pod, old.Pod)
	case o.Pod != nil:
		if reason := validateMirrorAnnotation(o.Pod, old.Pod); reason != "" {
			return reason
		}
		return validateSpecUpdate(&o.Pod.Spec, &old.Pod.Spec)
	case o.Node != nil:
		return validateNodeUpdate(o.Node, old.Node)
	case o.ConfigMap != nil:
		return validateImmutable(old.ConfigMap.Immutable,
			equality.Semantic.DeepEqual(o.ConfigMap.Data, old.ConfigMap.Data) &&
				equality.Semantic.DeepEqual(o.ConfigMap.BinaryData, old.ConfigMap.BinaryData) &&
				equality.Semantic.DeepEqual(o.ConfigMap.Immutable, old.ConfigMap.Immutable))
	case o.Secret != nil:
		return validateImmutable(old.Secret.Immutable,
			equality.Semantic.DeepEqual(o.Secret.Data, old.Secret.Data) &&
				equality.Semantic.DeepEqual(o.Secret.Immutable, old.Secret.Immutable))
	case o.Lease != nil:
		return validateLease(o)
	case o.TrustBundle != nil:
		if o.TrustBundle.Spec.SignerName != old.TrustBundle.Spec.SignerName {
			return "spec.signerName: Invalid value: field is immutable"
		}
		return validateTrustBundle(o.TrustBundle)
	case o.CSINode != nil:
		return validateCSINodeUpdate(o.CSINode, old.CSINode)
	case o.CertificateRequest != nil && status:
		return validateCertificateAnswer(o.CertificateRequest, old.CertificateRequest, now)
	case o.CertificateRequest != nil:
		if !equality.Semantic.DeepEqual(o.CertificateRequest.Spec, old.CertificateRequest.Spec) {
			return "spec: Invalid value: field is immutable"
		}
	case o.Attachment != nil:
		if !equality.Semantic.DeepEqual(o.Attachment.Spec, old.Attachment.Spec) {
			return "spec: Invalid value: field is immutable"
		}
	}
	return ""
}

func validateImmutable(immutable *bool, same bool) string {
	if immutable != nil && *immutable && !same {
		return "data: Forbidden: field is immutable when `immutable` is set"
	}
	return ""
}

func validateMirrorAnnotation(pod, old *v1.Pod) string {
	annotation, isMirror := pod.Annotations[v1.MirrorPodAnnotationKey]
	oldAnnotation, wasMirror := old.Annotations[v1.MirrorPodAnnotationKey]
	if isMirror != wasMirror || annotation != oldAnnotation {
		return "metadata.annotations[" + v1.MirrorPodAnnotationKey +
			"]: Forbidden: may not add, remove or update mirror pod annotation"
	}
	return ""
}

// validateSpecUpdate checks that only the mutable fields of a pod's spec change.
func validateSpecUpdate(spec, old *v1.PodSpec) string {
	s := spec.DeepCopy()
	if len(s.Containers) != len(old.Containers) || len(s.InitContainers) != len(old.InitContainers) {
		return "spec.containers: Forbidden: pod updates may not add or remove containers"
	}
	for i := range s.Containers {
		s.Containers[i].Image = old.Containers[i].Image
	}
	for i := range s.InitContainers {
		s.InitContainers[i].Image = old.InitContainers[i].Image
	}
	deadline, oldDeadline := s.ActiveDeadlineSeconds, old.ActiveDeadlineSeconds
	if oldDeadline != nil && (deadline == nil || *deadline > *oldDeadline) ||
		deadline != nil && *deadline < 0 {
		return "spec.activeDeadlineSeconds: Invalid value: must be less than or equal to " +
			"previous value"
	}
	s.ActiveDeadlineSeconds = old.ActiveDeadlineSeconds
	for _, t := range old.Tolerations {
		if !slices.ContainsFunc(s.Tolerations, func(o v1.Toleration) bool {
			return equality.Semantic.DeepEqual(o, t)
		}) {
			return "spec.tolerations: Forbidden: existing toleration can not be modified " +
				"except its tolerationSeconds"
		}
	}
	s.Tolerations = old.Tolerations
	if !equality.Semantic.DeepEqual(s, old) {
		return "spec: Forbidden: pod updates may not change fields other than " +
			"`spec.containers[*].image`, `spec.initContainers[*].image`, " +
			"`spec.activeDeadlineSeconds`, `spec.tolerations` (only additions to existing tolerations)"
	}
	return ""
}

// validateStatusUpdate checks an update of a pod's status. As on a real server any phase may follow
// any other: it is up to the agent that a terminal phase does not change.
func validateStatusUpdate(pod, old *v1.Pod) string {
	status, oldStatus := &pod.Status, &old.Status
	if status.QOSClass != oldStatus.QOSClass {
		return "status.qosClass: Invalid value: field is immutable"
	}
	if status.ObservedGeneration < 0 {
		return "status.observedGeneration: Invalid value: must be a non-negative integer"
	}
	spec := &old.Spec
	if reason := validateContainerTransitions("containerStatuses", status.ContainerStatuses,
		oldStatus.ContainerStatuses, spec, spec.Containers); reason != "" {
		return reason
	}
	if reason := validateContainerTransitions("initContainerStatuses", status.InitContainerStatuses,
		oldStatus.InitContainerStatuses, spec, spec.InitContainers); reason != "" {
		return reason
	}
	return validatePodIPs(status.PodIPs)
}

// validatePodIPs checks that there is at most one address of each family.
func validatePodIPs(ips []v1.PodIP) string {
	families := map[bool]int{}
	for i := range ips {
		ip, err := netip.ParseAddr(ips[i].IP)
		if err != nil {
			return fmt.Sprintf("status.podIPs[%d]: Invalid value: %q: must be a valid IP address",
				i, ips[i].IP)
		}
		families[ip.Is6()]++
	}
	for _, n := range slices.Sorted(maps.Values(families)) {
		if n > 1 {
			return "status.podIPs: Invalid value: may specify no more than one IP for each IP family"
		}
	}
	return ""
}

// validateContainerTransitions checks that a terminated container that may not restart stays
// terminated.
func validateContainerTransitions(field string, now, before []v1.ContainerStatus, spec *v1.PodSpec,
	containers []v1.Container) string {
	if hasRestartAllRule(spec.InitContainers) || hasRestartAllRule(spec.Containers) {
		return ""
	}
	for i := range before {
		terminated := before[i].State.Terminated
		k := slices.IndexFunc(now, func(s v1.ContainerStatus) bool { return s.Name == before[i].Name })
		if terminated == nil || k < 0 || now[k].State.Terminated != nil {
			continue
		}
		c := slices.IndexFunc(containers, func(c v1.Container) bool {
			return c.Name == before[i].Name
		})
		if c < 0 || !mayRestart(&containers[c], spec.RestartPolicy, terminated.ExitCode) {
			return fmt.Sprintf("status.%s[%d].state: Forbidden: may not be transitioned to "+
				"non-terminated state", field, i)
		}
	}
	return ""
}

func hasRestartAllRule(containers []v1.Container) bool {
	for i := range containers {
		for _, rule := range containers[i].RestartPolicyRules {
			if rule.Action == v1.ContainerRestartRuleActionRestartAllContainers {
				return true
			}
		}
	}
	return false
}

// mayRestart reports whether a terminated container may restart by its restart rules, its own
// restart policy, or that of its pod (KEP-5307).
func mayRestart(c *v1.Container, policy v1.RestartPolicy, code int32) bool {
	if c.RestartPolicy == nil {
		return policy == v1.RestartPolicyAlways || policy == v1.RestartPolicyOnFailure && code != 0
	}
	for _, rule := range c.RestartPolicyRules {
		if rule.Action == v1.ContainerRestartRuleActionRestart && matchesExitCode(rule.ExitCodes, code) {
			return true
		}
	}
	return *c.RestartPolicy == v1.ContainerRestartPolicyAlways ||
		*c.RestartPolicy == v1.ContainerRestartPolicyOnFailure && code != 0
}

func matchesExitCode(codes *v1.ContainerRestartRuleOnExitCodes, code int32) bool {
	if codes == nil {
		return false
	}
	in := slices.Contains(codes.Values, code)
	return in == (codes.Operator == v1.ContainerRestartRuleOnExitCodesOpIn)
}

func validateNodeUpdate(node, old *v1.Node) string {
	oldProviderID := old.Spec.ProviderID
	if oldProviderID != "" && node.Spec.ProviderID != oldProviderID {
		return "spec.providerID: Forbidden: node updates may not change providerID except from " +
			"\"\" to valid"
	}
	seen := map[v1.NodeAddress]bool{}
	for i, a := range node.Status.Addresses {
		if seen[a] {
			return fmt.Sprintf("status.addresses[%d]: Duplicate value", i)
		}
		seen[a] = true
	}
	return ""
}

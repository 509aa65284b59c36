package apiserver

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"seedlet.dev/world"
)

// badObject is what the server refuses in a new object, as far as a node agent can get it wrong.
func badObject(o *world.Object) string {
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
		return badLease(o)
	case o.TrustBundle != nil:
		return badBundle(o.TrustBundle)
	}
	return ""
}

func badLease(o *world.Object) string {
	if d := o.Lease.Spec.LeaseDurationSeconds; d != nil && *d <= 0 {
		return fmt.Sprintf("spec.leaseDurationSeconds: Invalid value: %d: must be greater than 0",
			*d)
	}
	return ""
}

// badChange is what the server refuses of a change.
func badChange(o, old *world.Object, status bool) string {
	switch {
	case o.Pod != nil && status:
		if why := badAnnotations(o.Pod, old.Pod); why != "" {
			return why
		}
		return badStatus(o.Pod, old.Pod)
	case o.Pod != nil:
		if why := badAnnotations(o.Pod, old.Pod); why != "" {
			return why
		}
		return badSpec(&o.Pod.Spec, &old.Pod.Spec)
	case o.Node != nil:
		return badNode(o.Node, old.Node)
	case o.ConfigMap != nil:
		return badConfig(old.ConfigMap.Immutable,
			equality.Semantic.DeepEqual(o.ConfigMap.Data, old.ConfigMap.Data) &&
				equality.Semantic.DeepEqual(o.ConfigMap.BinaryData, old.ConfigMap.BinaryData) &&
				equality.Semantic.DeepEqual(o.ConfigMap.Immutable, old.ConfigMap.Immutable))
	case o.Secret != nil:
		return badConfig(old.Secret.Immutable,
			equality.Semantic.DeepEqual(o.Secret.Data, old.Secret.Data) &&
				equality.Semantic.DeepEqual(o.Secret.Immutable, old.Secret.Immutable))
	case o.Lease != nil:
		return badLease(o)
	case o.TrustBundle != nil:
		if o.TrustBundle.Spec.SignerName != old.TrustBundle.Spec.SignerName {
			return "spec.signerName: Invalid value: field is immutable"
		}
		return badBundle(o.TrustBundle)
	}
	return ""
}

func badConfig(immutable *bool, same bool) string {
	if immutable != nil && *immutable && !same {
		return "data: Forbidden: field is immutable when `immutable` is set"
	}
	return ""
}

func badAnnotations(pod, old *v1.Pod) string {
	is, mirror := pod.Annotations[v1.MirrorPodAnnotationKey]
	was, wasMirror := old.Annotations[v1.MirrorPodAnnotationKey]
	if mirror != wasMirror || is != was {
		return "metadata.annotations[" + v1.MirrorPodAnnotationKey +
			"]: Forbidden: may not add, remove or update mirror pod annotation"
	}
	return ""
}

// badSpec checks that no more of a pod changes than may.
func badSpec(spec, old *v1.PodSpec) string {
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
	is, was := s.ActiveDeadlineSeconds, old.ActiveDeadlineSeconds
	if was != nil && (is == nil || *is > *was) || is != nil && *is < 0 {
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

// badStatus checks what a status may not become. A phase may become any other: that is the
// agent's to watch over.
func badStatus(pod, old *v1.Pod) string {
	s, was := &pod.Status, &old.Status
	if s.QOSClass != was.QOSClass {
		return "status.qosClass: Invalid value: field is immutable"
	}
	if s.ObservedGeneration < 0 {
		return "status.observedGeneration: Invalid value: must be a non-negative integer"
	}
	spec := &old.Spec
	if why := badTransition("containerStatuses", s.ContainerStatuses, was.ContainerStatuses, spec,
		spec.Containers); why != "" {
		return why
	}
	if why := badTransition("initContainerStatuses", s.InitContainerStatuses,
		was.InitContainerStatuses, spec, spec.InitContainers); why != "" {
		return why
	}
	return badIPs(s.PodIPs)
}

// badIPs checks that there is at most one address of each family.
func badIPs(ips []v1.PodIP) string {
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

// badTransition checks that no container that has ended for good is said to have come back.
func badTransition(field string, now, before []v1.ContainerStatus, spec *v1.PodSpec,
	containers []v1.Container) string {
	if restartsAll(spec.InitContainers) || restartsAll(spec.Containers) {
		return ""
	}
	for i := range before {
		ended := before[i].State.Terminated
		k := slices.IndexFunc(now, func(s v1.ContainerStatus) bool { return s.Name == before[i].Name })
		if ended == nil || k < 0 || now[k].State.Terminated != nil {
			continue
		}
		c := slices.IndexFunc(containers, func(c v1.Container) bool {
			return c.Name == before[i].Name
		})
		if c < 0 || !restarts(&containers[c], spec.RestartPolicy, ended.ExitCode) {
			return fmt.Sprintf("status.%s[%d].state: Forbidden: may not be transitioned to "+
				"non-terminated state", field, i)
		}
	}
	return ""
}

func restartsAll(containers []v1.Container) bool {
	for i := range containers {
		for _, rule := range containers[i].RestartPolicyRules {
			if rule.Action == v1.ContainerRestartRuleActionRestartAllContainers {
				return true
			}
		}
	}
	return false
}

// restarts says whether a container that has exited may come back: by its rules, its own policy,
// or its pod's (KEP-5307).
func restarts(c *v1.Container, policy v1.RestartPolicy, code int32) bool {
	if c.RestartPolicy == nil {
		return policy == v1.RestartPolicyAlways || policy == v1.RestartPolicyOnFailure && code != 0
	}
	for _, rule := range c.RestartPolicyRules {
		if rule.Action == v1.ContainerRestartRuleActionRestart && fits(rule.ExitCodes, code) {
			return true
		}
	}
	return *c.RestartPolicy == v1.ContainerRestartPolicyAlways ||
		*c.RestartPolicy == v1.ContainerRestartPolicyOnFailure && code != 0
}

func fits(codes *v1.ContainerRestartRuleOnExitCodes, code int32) bool {
	if codes == nil {
		return false
	}
	in := slices.Contains(codes.Values, code)
	return in == (codes.Operator == v1.ContainerRestartRuleOnExitCodesOpIn)
}

func badNode(node, old *v1.Node) string {
	was := old.Spec.ProviderID
	if was != "" && node.Spec.ProviderID != was {
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

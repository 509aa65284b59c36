package admission

import (
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/component-helpers/nodedeclaredfeatures"
	"k8s.io/component-helpers/nodedeclaredfeatures/types"
)

// ReasonFeatures is the reason of a pod that needs a feature which the node does not declare.
const ReasonFeatures = "PodFeatureUnsupported"

// kubernetes is the version whose features pods may need.
var kubernetes = version.MajorMinor(1, 36)

// MissingFeatures returns why a pod cannot run on a node that declares these features (KEP-5328);
// empty if it can. The scheduler asks the same, so only pods that it does not place are concerned.
func MissingFeatures(pod *v1.Pod, declared []string) string {
	framework := nodedeclaredfeatures.DefaultFramework
	needed, err := framework.InferForPodScheduling(&types.PodInfo{Spec: &pod.Spec,
		Status: &pod.Status}, kubernetes)
	if err != nil {
		return "Failed to infer pod's feature requirements: " + err.Error()
	}
	match, err := framework.MatchNodeFeatureSet(needed, framework.TryMap(declared))
	switch {
	case err != nil:
		return "Failed to match pod's feature requirements against the node: " + err.Error()
	case match.IsMatch:
		return ""
	}
	return "Pod requires node features that are not available: " +
		strings.Join(match.UnsatisfiedRequirements, ", ")
}

// NeedsStrictGroups reports whether the pod's processes must have no other groups than those of the
// spec, which a runtime may not support (KEP-3619).
func NeedsStrictGroups(pod *v1.Pod) bool {
	security := pod.Spec.SecurityContext
	return security != nil && security.SupplementalGroupsPolicy != nil &&
		*security.SupplementalGroupsPolicy == v1.SupplementalGroupsPolicyStrict
}

package manifest

import (
	"strings"

	v1 "k8s.io/api/core/v1"
)

// The annotations with the origin of a pod.
const (
	ConfigSourceAnnotation = "kubernetes.io/config.source" // of static pods: an Origin
	ConfigHashAnnotation   = "kubernetes.io/config.hash"   // the UID of the pod on this node
	ConfigSeenAnnotation   = "kubernetes.io/config.seen"   // when the agent first read the manifest
	ConfigMirrorAnnotation = "kubernetes.io/config.mirror" // only on the API server's copy
)

// Origin is the kind of a source of static pods: the value of ConfigSourceAnnotation.
type Origin string

// The origins of static pods.
const (
	OriginFile Origin = "file" // a directory or a file
	OriginHTTP Origin = "http" // a URL
)

// setIdentity sets the name, namespace, node and annotations of a static pod with a UID.
func setIdentity(pod *v1.Pod, from location) {
	pod.Name += "-" + strings.ToLower(from.node)
	if pod.Namespace == "" {
		pod.Namespace = v1.NamespaceDefault
	}
	pod.Spec.NodeName = from.node
	if pod.Annotations == nil {
		pod.Annotations = map[string]string{}
	}
	delete(pod.Annotations, ConfigSeenAnnotation)
	delete(pod.Annotations, ConfigMirrorAnnotation)
	pod.Annotations[ConfigSourceAnnotation] = string(from.origin)
	pod.Annotations[ConfigHashAnnotation] = string(pod.UID)
	tolerateTaints(pod)
}

// tolerateTaints adds a toleration of all NoExecute taints: nothing would start a static pod again
// after an eviction by a taint.
func tolerateTaints(pod *v1.Pod) {
	all := v1.Toleration{Operator: v1.TolerationOpExists, Effect: v1.TaintEffectNoExecute}
	for _, toleration := range pod.Spec.Tolerations {
		if toleration.MatchToleration(&all) {
			return
		}
	}
	pod.Spec.Tolerations = append(pod.Spec.Tolerations, all)
}

package manifest

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// The annotations that say where a pod comes from.
const (
	ConfigSourceAnnotation = "kubernetes.io/config.source" // of static pods: an Origin
	ConfigHashAnnotation   = "kubernetes.io/config.hash"   // the UID the pod has on this node
	ConfigSeenAnnotation   = "kubernetes.io/config.seen"   // when the agent first read it
	ConfigMirrorAnnotation = "kubernetes.io/config.mirror" // only on the API server's copy
)

// Origin is the kind of place that static pods are read from, as ConfigSourceAnnotation has it.
type Origin string

// The origins of static pods.
const (
	OriginFile Origin = "file" // a directory or a file
	OriginHTTP Origin = "http" // a URL
)

// identify makes a pod the one that this document, at this place, is on this node.
func identify(pod *v1.Pod, origin Origin, place string, doc []byte, nodeName string) {
	if pod.UID == "" {
		pod.UID = contentUID(place, doc, nodeName)
	}
	pod.Name += "-" + strings.ToLower(nodeName)
	if pod.Namespace == "" {
		pod.Namespace = v1.NamespaceDefault
	}
	pod.Spec.NodeName = nodeName
	if pod.Annotations == nil {
		pod.Annotations = map[string]string{}
	}
	delete(pod.Annotations, ConfigSeenAnnotation)
	delete(pod.Annotations, ConfigMirrorAnnotation)
	pod.Annotations[ConfigSourceAnnotation] = string(origin)
	pod.Annotations[ConfigHashAnnotation] = string(pod.UID)
	tolerateTaints(pod)
}

// contentUID is the UID of what a file, or a part of a page, says: 32 hex digits. It is over the
// document as it was written, in canonical JSON, and never over the pod made of it. So a comment,
// the order of keys and a change of the API's types or defaults with a new version leave it alone,
// and upgrading the agent restarts no static pod (kubernetes issues 63814 and 129385).
func contentUID(place string, doc []byte, nodeName string) types.UID {
	h := sha256.New()
	for _, part := range [][]byte{[]byte(nodeName), []byte(place), doc} {
		h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(part))))
		h.Write(part)
	}
	return types.UID(hex.EncodeToString(h.Sum(nil)[:16]))
}

// tolerateTaints keeps a static pod on its node whatever taints the node gets: nothing could
// bring it back.
func tolerateTaints(pod *v1.Pod) {
	all := v1.Toleration{Operator: v1.TolerationOpExists, Effect: v1.TaintEffectNoExecute}
	for _, toleration := range pod.Spec.Tolerations {
		if toleration.MatchToleration(&all) {
			return
		}
	}
	pod.Spec.Tolerations = append(pod.Spec.Tolerations, all)
}

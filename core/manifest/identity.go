package manifest

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
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

// setIdentity sets the UID, name, namespace, node and annotations of a static pod from its
// document, the address of the document and the node.
func setIdentity(pod *v1.Pod, origin Origin, address string, doc []byte, nodeName string) {
	if pod.UID == "" {
		pod.UID = contentUID(address, doc, nodeName)
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

// contentUID returns the UID of a document without one: 32 hex digits. It is a hash of the document
// as written, as canonical JSON, never of the decoded pod. So comments, the order of keys, and
// changes of the API's types or defaults in a new version do not change the UID, and an upgrade of
// the agent restarts no static pod (kubernetes issues 63814 and 129385).
func contentUID(address string, doc []byte, nodeName string) types.UID {
	h := sha256.New()
	for _, part := range [][]byte{[]byte(nodeName), []byte(address), doc} {
		h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(part))))
		h.Write(part)
	}
	return types.UID(hex.EncodeToString(h.Sum(nil)[:16]))
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

package kubelet

import (
	"bytes"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"strconv"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/dump"
)

// The names of the kubelet's labels and annotations.
const (
	labelName      = "io.kubernetes.pod.name"
	labelNamespace = "io.kubernetes.pod.namespace"
	labelUID       = "io.kubernetes.pod.uid"
	labelContainer = "io.kubernetes.container.name"

	annotationHash          = "io.kubernetes.container.hash"
	annotationRestarts      = "io.kubernetes.container.restartCount"
	annotationMessagePath   = "io.kubernetes.container.terminationMessagePath"
	annotationMessagePolicy = "io.kubernetes.container.terminationMessagePolicy"
	annotationPreStop       = "io.kubernetes.container.preStopHandler"
	annotationPorts         = "io.kubernetes.container.ports"
	annotationGrace         = "io.kubernetes.pod.terminationGracePeriod"
	annotationDeletion      = "io.kubernetes.pod.deletionGracePeriod"

	annotationSource = "kubernetes.io/config.source"
	annotationSeen   = "kubernetes.io/config.seen"
	annotationConfig = "kubernetes.io/config.hash"
	annotationMirror = "kubernetes.io/config.mirror"
)

// podLabels returns the labels of a sandbox.
func podLabels(p *v1.Pod) map[string]string {
	labels := map[string]string{}
	for key, text := range p.Labels { //ordered: into a map
		labels[key] = text
	}
	labels[labelName], labels[labelNamespace] = p.Name, p.Namespace
	labels[labelUID] = string(p.UID)
	return labels
}

// podAnnotations returns the annotations of a sandbox: those of the pod, and where the kubelet had
// it from.
func podAnnotations(p *pod) map[string]string {
	annotations := map[string]string{annotationSource: "api"}
	for key, text := range p.object.Annotations { //ordered: into a map
		annotations[key] = text
	}
	annotations[annotationSeen] = p.seenAt.UTC().Format("2006-01-02T15:04:05.000000000Z07:00")
	return annotations
}

// containerAnnotations returns the annotations of a run of a container.
func containerAnnotations(p *v1.Pod, c *v1.Container, restarts uint32) map[string]string {
	annotations := map[string]string{
		annotationHash:          containerHash(c),
		annotationRestarts:      strconv.Itoa(int(restarts)),
		annotationMessagePath:   c.TerminationMessagePath,
		annotationMessagePolicy: string(c.TerminationMessagePolicy),
	}
	if grace := p.DeletionGracePeriodSeconds; grace != nil {
		annotations[annotationDeletion] = strconv.FormatInt(*grace, 10)
	}
	if grace := p.Spec.TerminationGracePeriodSeconds; grace != nil {
		annotations[annotationGrace] = strconv.FormatInt(*grace, 10)
	}
	if c.Lifecycle != nil && c.Lifecycle.PreStop != nil {
		annotations[annotationPreStop] = encode(c.Lifecycle.PreStop)
	}
	if len(c.Ports) > 0 {
		annotations[annotationPorts] = encode(c.Ports)
	}
	return annotations
}

// containerHash returns the kubelet's hash of a container: that of the text into which its dump
// turns the bytes of a JSON object of image and name.
func containerHash(c *v1.Container) string {
	sum := fnv.New32a()
	fmt.Fprint(sum, dump.ForHash([]byte(encode(map[string]string{"name": c.Name, "image": c.Image}))))
	return strconv.FormatUint(uint64(sum.Sum32()), 16)
}

// checksum returns the kubelet's checksum of the data of a checkpoint.
func checksum(data any) uint64 {
	sum := fnv.New32a()
	fmt.Fprint(sum, dump.ForHash(data))
	return uint64(sum.Sum32())
}

// RecordedUID returns the UID that a kubelet 1.36.3 gives a static pod on the node "sim" by its
// manifest, which is in a file of its name; empty if it was not recorded. The UIDs are those of
// scenarios/take-over.yaml, printed by realworld/cluster/tools/podtypes with that name of the node.
func RecordedUID(manifest []byte) string {
	if bytes.HasPrefix(manifest, []byte("#")) { // a comment, which changes nothing
		_, manifest, _ = bytes.Cut(manifest, []byte("\n"))
	}
	return recordedUIDs[checksum(string(manifest))]
}

var recordedUIDs = map[uint64]string{
	3710028080: "7fb35861e6d8b4b58383816e3a27822f", // addon-0
	2906681355: "0e02999b2e0edfa36a92eb66b5cc9d99", // addon-1
}

func encode(value any) string {
	data, err := json.Marshal(value)
	if err != nil {
		panic("kubelet: " + err.Error())
	}
	return string(data)
}

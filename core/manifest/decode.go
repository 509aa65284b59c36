// Package manifest reads static pods from the manifest directory and the manifest URL: it decodes a
// manifest, sets the pod's name and UID, applies the API server's defaults and validates the
// result, since no API server does that for a static pod.
//
// Facts: for each source (directory or file, URL) the files as last read, with their pods or
// errors. Plan: reads a source when its content may have changed, and periodically. Events: the
// content of a source, and changes of the manifest path.
//
// Manifests are not trusted: a name or UID that could leave its directory, a reference to an object
// that only the API server has, and a field that the API server would reject are errors with the
// file and the field. The UID of a pod stays the same as long as its manifest does. Start reading
// at Decode, which has the order of these steps, and at Sources.
package manifest

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"seedlet.dev/core/document"
	"seedlet.dev/world/yamljson"
)

// DecodeText returns the static pod of a manifest file, as Decode does of its document. It is for
// callers that have no port to convert the file.
func DecodeText(file string, text []byte, nodeName string) (*v1.Pod, []string, error) {
	doc, err := yamljson.Parse(text)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", file, err)
	}
	return Decode(file, doc, nodeName)
}

// Decode returns the static pod of the document of a manifest file for the node with that name. An
// empty file, which has no document, has neither a pod nor an error. Each warning is one line about
// an ignored field. The caller adds the annotation kubernetes.io/config.seen.
func Decode(file string, doc []byte, nodeName string) (*v1.Pod, []string, error) {
	if doc == nil {
		return nil, nil, nil
	}
	pod, warnings, err := decodePod(doc, location{OriginFile, file, nodeName}, metav1.TypeMeta{})
	for i := range warnings {
		warnings[i] = file + ": " + warnings[i]
	}
	if err != nil {
		return nil, warnings, fmt.Errorf("%s: %w", file, err)
	}
	return pod, warnings, nil
}

// location is where a document was found, and for which node.
type location struct {
	origin  Origin
	address string
	node    string
}

// errorsMax bounds the errors about one pod. To join them takes quadratic time, and only the first
// ones fit in the error.
const errorsMax = 16

// decodePod returns the static pod of a document. A document without a type has defaultType.
func decodePod(doc []byte, from location, defaultType metav1.TypeMeta) (*v1.Pod, []string, error) {
	pod := &v1.Pod{TypeMeta: defaultType}
	unknown, err := document.Decode(doc, pod)
	switch {
	case err != nil:
		return nil, nil, err
	case pod.APIVersion != "v1" || pod.Kind != "Pod":
		return nil, nil, fmt.Errorf("want apiVersion v1, kind Pod; have apiVersion %q, kind %q",
			pod.APIVersion, pod.Kind)
	case pod.Name == "":
		return nil, nil, field.Required(field.NewPath("metadata", "name"), "a static pod has a name")
	}
	SetDefaults(pod)
	if pod.UID == "" {
		pod.UID = contentUID(pod, from)
	}
	warnings := clearIgnored(pod, unknown)
	setIdentity(pod, from)
	if errs := Validate(pod); len(errs) > 0 {
		errs = errs[:min(len(errs), errorsMax)]
		return nil, warnings, yamljson.Shorten(errs.ToAggregate())
	}
	return pod, warnings, nil
}

// clearIgnored clears the fields that a manifest cannot set, and returns warnings for them and for
// unknown fields. A static pod with a deletion time would terminate as soon as it starts.
func clearIgnored(pod *v1.Pod, unknown []string) []string {
	var warnings []string
	for _, path := range unknown {
		warnings = append(warnings, path+": unknown field is ignored")
	}
	if pod.DeletionTimestamp != nil || pod.DeletionGracePeriodSeconds != nil {
		warnings = append(warnings, "metadata.deletionTimestamp: is ignored")
	}
	pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds = nil, nil
	pod.GenerateName, pod.SelfLink, pod.ResourceVersion, pod.Generation = "", "", "", 0
	pod.ManagedFields, pod.OwnerReferences, pod.Finalizers = nil, nil, nil
	pod.CreationTimestamp.Reset()
	pod.Status = v1.PodStatus{}
	return warnings
}

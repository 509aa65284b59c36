// Package manifest turns a file of the manifest directory, or the page of the manifest URL, into
// static pods: decoded, named, with the UID that each keeps for as long as its manifest says the
// same, with the API server's defaults, and validated, for there is no API server that would have
// done it.
//
// It trusts nothing that a manifest says: a name or UID that could leave its directory, a
// reference to an object that only the API server has, a field that the server would refuse is an
// error that names the file and the field. Start reading at Decode, which is the order of things,
// and at Sources for where manifests are read.
package manifest

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"seedlet.dev/core/document"
)

// Decode makes the static pod of a manifest file for the node of that name. A file with nothing
// in it gives no pod and no error. Warnings are of one line and about what is ignored. The pod
// lacks only the annotation kubernetes.io/config.seen, which is the caller's.
func Decode(file string, data []byte, nodeName string) (*v1.Pod, []string, error) {
	doc, err := document.Parse(data)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", file, err)
	}
	if doc == nil {
		return nil, nil, nil
	}
	pod, warnings, err := decodePod(doc, source{OriginFile, file, nodeName}, metav1.TypeMeta{})
	for i := range warnings {
		warnings[i] = file + ": " + warnings[i]
	}
	if err != nil {
		return nil, warnings, fmt.Errorf("%s: %w", file, err)
	}
	return pod, warnings, nil
}

// source is where a document was found, and for which node.
type source struct {
	origin Origin
	place  string
	node   string
}

// decodePod makes the static pod of a document. Type is what it is if it does not say so.
func decodePod(doc []byte, from source, typ metav1.TypeMeta) (*v1.Pod, []string, error) {
	pod := &v1.Pod{TypeMeta: typ}
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
	warnings := ignored(pod, unknown)
	identify(pod, from.origin, from.place, doc, from.node)
	SetDefaults(pod)
	if errs := Validate(pod); len(errs) > 0 {
		return nil, warnings, errs.ToAggregate()
	}
	return pod, warnings, nil
}

// ignored clears what a manifest cannot decide, and says so, as it does for fields there are not.
// A static pod with a deletion time would be one that ends as soon as it starts.
func ignored(pod *v1.Pod, unknown []string) []string {
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

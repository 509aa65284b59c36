// Package manifest turns a file of the manifest directory into a static pod: decoded, named,
// with the UID that it keeps for as long as the file says the same, with the API server's
// defaults, and validated, for there is no API server that would have done it.
//
// It trusts nothing that a file says: a name or UID that could leave its directory, a reference
// to an object that only the API server has, a field that the server would refuse is an error
// that names the file and the field. Start reading at Decode, which is the order of things.
package manifest

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
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
	pod := &v1.Pod{}
	unknown, err := document.Decode(doc, pod)
	switch {
	case err != nil:
		return nil, nil, fmt.Errorf("%s: %w", file, err)
	case pod.APIVersion != "v1" || pod.Kind != "Pod":
		return nil, nil, fmt.Errorf("%s: want apiVersion v1, kind Pod; have apiVersion %q, kind %q",
			file, pod.APIVersion, pod.Kind)
	case pod.Name == "":
		return nil, nil, fmt.Errorf("%s: %w", file,
			field.Required(field.NewPath("metadata", "name"), "a static pod has a name"))
	}
	warnings := ignored(file, pod, unknown)
	identify(pod, file, doc, nodeName)
	SetDefaults(pod)
	if errs := Validate(pod); len(errs) > 0 {
		return nil, warnings, fmt.Errorf("%s: %w", file, errs.ToAggregate())
	}
	return pod, warnings, nil
}

// ignored clears what a file cannot decide, and says so, as it does for fields there are not.
// A static pod with a deletion time would be one that ends as soon as it starts.
func ignored(file string, pod *v1.Pod, unknown []string) []string {
	var warnings []string
	for _, path := range unknown {
		warnings = append(warnings, fmt.Sprintf("%s: %s: unknown field is ignored", file, path))
	}
	if pod.DeletionTimestamp != nil || pod.DeletionGracePeriodSeconds != nil {
		warnings = append(warnings, file+": metadata.deletionTimestamp: is ignored")
	}
	pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds = nil, nil
	pod.GenerateName, pod.SelfLink, pod.ResourceVersion, pod.Generation = "", "", "", 0
	pod.ManagedFields, pod.OwnerReferences, pod.Finalizers = nil, nil, nil
	pod.CreationTimestamp.Reset()
	pod.Status = v1.PodStatus{}
	return warnings
}

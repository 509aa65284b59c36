package criconfig

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"seedlet.dev/core/volume"
)

// The downward API: fields of the pod and resources of its containers, as values of environment
// variables and of files in volumes.
// https://kubernetes.io/docs/concepts/workloads/pods/downward-api/

const (
	fieldPodIP  = "status.podIP"
	fieldPodIPs = "status.podIPs"
)

// NeedsPodIPs reports whether a variable of a container holds the pod's IPs.
func NeedsPodIPs(container *v1.Container) bool {
	return slices.ContainsFunc(container.Env, func(v v1.EnvVar) bool {
		if v.ValueFrom == nil || v.ValueFrom.FieldRef == nil {
			return false
		}
		path := v.ValueFrom.FieldRef.FieldPath
		return path == fieldPodIP || path == fieldPodIPs
	})
}

// DownwardAPIFile returns the content of a file of a downward API volume.
func (p *Pod) DownwardAPIFile(file *v1.DownwardAPIVolumeFile) (string, error) {
	if ref := file.ResourceFieldRef; ref != nil {
		container := FindContainer(p.Spec, ref.ContainerName)
		if container == nil {
			return "", fmt.Errorf("container %s not found", ref.ContainerName)
		}
		return p.resourceFieldValue(ref, container)
	}
	switch path := file.FieldRef.FieldPath; path {
	case "metadata.labels":
		return formatOnce(&p.labelLines, p.Spec.Labels), nil
	case "metadata.annotations":
		return formatOnce(&p.annotationLines, p.Spec.Annotations), nil
	default:
		return p.fieldValue(path)
	}
}

// formatOnce returns a map in the format of downward API files, and keeps it: thousands of files
// can hold the same annotations, and to quote 256 KiB of them takes milliseconds.
func formatOnce(kept **string, m map[string]string) string {
	if *kept == nil {
		*kept = new(volume.FormatMap(m))
	}
	return **kept
}

// fieldValue returns the value of a field of the pod; empty for a label or annotation that the pod
// does not have.
func (p *Pod) fieldValue(path string) (string, error) {
	switch path {
	case "metadata.name":
		return p.Spec.Name, nil
	case "metadata.namespace":
		return p.Spec.Namespace, nil
	case "metadata.uid":
		return string(p.Spec.UID), nil
	case "spec.nodeName":
		return p.Spec.Spec.NodeName, nil
	case "spec.serviceAccountName":
		return p.Spec.Spec.ServiceAccountName, nil
	case "status.hostIP":
		return firstOrEmpty(p.Node.IPs), nil
	case "status.hostIPs":
		return strings.Join(p.Node.IPs, ","), nil
	case fieldPodIP:
		return firstOrEmpty(p.IPs), nil
	case fieldPodIPs:
		return strings.Join(p.IPs, ","), nil
	}
	if name, subscript := strings.CutSuffix(path, "']"); subscript {
		switch object, key, _ := strings.Cut(name, "['"); object {
		case "metadata.labels":
			return p.Spec.Labels[key], nil
		case "metadata.annotations":
			return p.Spec.Annotations[key], nil
		}
	}
	return "", fmt.Errorf("unsupported fieldPath: %s", path)
}

func firstOrEmpty(list []string) string {
	if len(list) == 0 {
		return ""
	}
	return list[0]
}

// resourceFieldValue returns a request or limit, divided by the divisor and rounded up. The
// container is the given one, unless the selector names another one of the pod.
func (p *Pod) resourceFieldValue(ref *v1.ResourceFieldSelector,
	container *v1.Container) (string, error) {
	if ref.ContainerName != "" {
		if container = FindContainer(p.Spec, ref.ContainerName); container == nil {
			return "", fmt.Errorf("container %s not found", ref.ContainerName)
		}
	}
	kind, text, _ := strings.Cut(ref.Resource, ".")
	name := v1.ResourceName(text)
	var quantity resource.Quantity
	switch {
	case kind == "requests" && hasResourceField(name):
		quantity = container.Resources.Requests[name]
	case kind == "limits" && hasResourceField(name):
		quantity = p.limitOrAllocatable(container, name)
	default:
		return "", fmt.Errorf("unsupported container resource : %s", ref.Resource)
	}
	divisor := ref.Divisor
	if divisor.IsZero() {
		divisor = resource.MustParse("1")
	}
	if name == v1.ResourceCPU {
		return ceilQuotient(quantity.MilliValue(), divisor.MilliValue()), nil
	}
	return ceilQuotient(quantity.Value(), divisor.Value()), nil
}

// hasResourceField reports whether the downward API has the requests and limits of a resource.
func hasResourceField(name v1.ResourceName) bool {
	switch name {
	case v1.ResourceCPU, v1.ResourceMemory, v1.ResourceEphemeralStorage:
		return true
	}
	return strings.HasPrefix(string(name), v1.ResourceHugePagesPrefix)
}

// limitOrAllocatable returns the limit of a container. Without one it is the pod's, or else what
// pods can have of the node; of huge pages it is zero. Upstream: MergeContainerResourceLimits in
// pkg/api/v1/resource/helpers.go.
func (p *Pod) limitOrAllocatable(c *v1.Container, name v1.ResourceName) resource.Quantity {
	limit := p.containerLimit(c, name)
	switch {
	case !limit.IsZero() || strings.HasPrefix(string(name), v1.ResourceHugePagesPrefix):
		return limit
	case name == v1.ResourceCPU:
		return *resource.NewMilliQuantity(p.Node.Allocatable[name], resource.DecimalSI)
	}
	return *resource.NewQuantity(p.Node.Allocatable[name], resource.BinarySI)
}

// ceilQuotient returns a/b rounded up, for a that is not negative and b that is positive.
func ceilQuotient(a, b int64) string {
	q := a / b
	if a%b > 0 {
		q++
	}
	return strconv.FormatInt(q, 10)
}

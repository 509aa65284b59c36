package manifest

import (
	"maps"
	"slices"
	"strings"

	"github.com/distribution/reference"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	podresources "k8s.io/component-helpers/resource"

	"seedlet.dev/core/budget"
)

// SetDefaults sets the defaults that the API server of v1.36 sets when a pod is created.
// SetDefaults is idempotent.
func SetDefaults(pod *v1.Pod) {
	spec := &pod.Spec
	setString(&spec.RestartPolicy, v1.RestartPolicyAlways)
	setString(&spec.DNSPolicy, v1.DNSClusterFirst)
	setString(&spec.SchedulerName, v1.DefaultSchedulerName)
	setString(&spec.ServiceAccountName, spec.DeprecatedServiceAccount)
	setPointer(&spec.TerminationGracePeriodSeconds, v1.DefaultTerminationGracePeriodSeconds)
	setPointer(&spec.EnableServiceLinks, v1.DefaultEnableServiceLinks)
	setPointer(&spec.SecurityContext, v1.PodSecurityContext{})
	for i := range spec.Volumes {
		defaultVolume(&spec.Volumes[i])
	}
	for i := range spec.InitContainers {
		defaultContainer(&spec.InitContainers[i], spec.HostNetwork)
	}
	for i := range spec.Containers {
		defaultContainer(&spec.Containers[i], spec.HostNetwork)
	}
	defaultPodResources(pod) // after those of the containers
	roundUpAll(spec)         // after sums of them
}

func defaultContainer(c *v1.Container, hostNetwork bool) {
	if c.ImagePullPolicy == "" {
		c.ImagePullPolicy = pullPolicy(c.Image)
	}
	setString(&c.TerminationMessagePath, v1.TerminationMessagePathDefault)
	setString(&c.TerminationMessagePolicy, v1.TerminationMessageReadFile)
	for i := range c.Ports {
		port := &c.Ports[i]
		setString(&port.Protocol, v1.ProtocolTCP)
		if hostNetwork && port.HostPort == 0 {
			port.HostPort = port.ContainerPort
		}
	}
	for i := range c.Env {
		if from := c.Env[i].ValueFrom; from != nil && from.FieldRef != nil {
			setString(&from.FieldRef.APIVersion, "v1")
		}
	}
	for _, probe := range []*v1.Probe{c.LivenessProbe, c.ReadinessProbe, c.StartupProbe} {
		defaultProbe(probe)
	}
	if c.Lifecycle != nil {
		for _, hook := range []*v1.LifecycleHandler{c.Lifecycle.PostStart, c.Lifecycle.PreStop} {
			if hook != nil {
				defaultHTTPGet(hook.HTTPGet)
			}
		}
	}
	defaultRequestsToLimits(&c.Resources)
}

// pullPolicy returns the default pull policy of an image: Always for the tag latest. A reference
// over its bound, which package image reports, is not parsed: that may take seconds.
func pullPolicy(image string) v1.PullPolicy {
	if len(image) > budget.ImageReferenceMax {
		return v1.PullIfNotPresent
	}
	named, err := reference.ParseNormalizedNamed(image)
	if err != nil {
		return v1.PullIfNotPresent // an invalid reference is reported by package image
	}
	tagged, ok := reference.TagNameOnly(named).(reference.Tagged)
	if ok && tagged.Tag() == "latest" {
		return v1.PullAlways
	}
	return v1.PullIfNotPresent
}

func defaultProbe(probe *v1.Probe) {
	if probe == nil {
		return
	}
	setNumber(&probe.TimeoutSeconds, 1)
	setNumber(&probe.PeriodSeconds, 10)
	setNumber(&probe.SuccessThreshold, 1)
	setNumber(&probe.FailureThreshold, 3)
	defaultHTTPGet(probe.HTTPGet)
	if probe.GRPC != nil {
		setPointer(&probe.GRPC.Service, "")
	}
}

func defaultHTTPGet(get *v1.HTTPGetAction) {
	if get != nil {
		setString(&get.Path, "/")
		setString(&get.Scheme, v1.URISchemeHTTP)
	}
}

func defaultVolume(volume *v1.Volume) {
	source := &volume.VolumeSource
	if *source == (v1.VolumeSource{}) {
		source.EmptyDir = &v1.EmptyDirVolumeSource{}
	}
	if source.HostPath != nil {
		setPointer(&source.HostPath.Type, v1.HostPathUnset)
	}
	if source.ISCSI != nil {
		setString(&source.ISCSI.ISCSIInterface, "default")
	}
	if source.Image != nil {
		setString(&source.Image.PullPolicy, pullPolicy(source.Image.Reference))
	}
	if source.DownwardAPI != nil {
		setPointer(&source.DownwardAPI.DefaultMode, v1.DownwardAPIVolumeSourceDefaultMode)
		defaultDownwardFiles(source.DownwardAPI.Items)
	}
	if source.Projected != nil {
		setPointer(&source.Projected.DefaultMode, v1.ProjectedVolumeSourceDefaultMode)
		for _, projection := range source.Projected.Sources {
			if projection.DownwardAPI != nil {
				defaultDownwardFiles(projection.DownwardAPI.Items)
			}
		}
	}
}

func defaultDownwardFiles(files []v1.DownwardAPIVolumeFile) {
	for i := range files {
		if files[i].FieldRef != nil {
			setString(&files[i].FieldRef.APIVersion, "v1")
		}
	}
}

// defaultPodResources sets resources of a pod that has some for the whole pod. Its limits of huge
// pages are the sums of its containers' limits. If it has limits, its requests are the sums of its
// containers' requests, or else the limits.
func defaultPodResources(pod *v1.Pod) {
	own := pod.Spec.Resources
	if own == nil || len(own.Limits)+len(own.Requests) == 0 {
		return
	}
	sum := podresources.AggregateContainerLimits(pod, podresources.PodResourcesOptions{})
	for _, name := range slices.Sorted(maps.Keys(sum)) {
		_, limited := own.Limits[name]
		_, requested := own.Requests[name]
		if strings.HasPrefix(string(name), v1.ResourceHugePagesPrefix) && !limited && !requested {
			setResource(&own.Limits, name, sum[name])
		}
	}
	if len(own.Limits) == 0 {
		return
	}
	sum = podresources.AggregateContainerRequests(pod, podresources.PodResourcesOptions{})
	for _, name := range slices.Sorted(maps.Keys(sum)) {
		_, set := own.Requests[name]
		if !set && (name == v1.ResourceCPU || name == v1.ResourceMemory) {
			setResource(&own.Requests, name, sum[name])
		}
	}
	for _, name := range slices.Sorted(maps.Keys(own.Limits)) {
		_, set := own.Requests[name]
		if !set && podresources.IsSupportedPodLevelResource(name) {
			setResource(&own.Requests, name, own.Limits[name])
		}
	}
}

// defaultRequestsToLimits sets requests of a container that are missing to its limits.
func defaultRequestsToLimits(r *v1.ResourceRequirements) {
	if r.Limits != nil && r.Requests == nil {
		r.Requests = v1.ResourceList{} // also if there are no limits in the list, for the UID
	}
	for _, name := range slices.Sorted(maps.Keys(r.Limits)) {
		if _, set := r.Requests[name]; !set {
			setResource(&r.Requests, name, r.Limits[name])
		}
	}
}

func setResource(list *v1.ResourceList, name v1.ResourceName, amount resource.Quantity) {
	if *list == nil {
		*list = v1.ResourceList{}
	}
	(*list)[name] = amount.DeepCopy()
}

// roundUpAll rounds all resources of a pod.
func roundUpAll(spec *v1.PodSpec) {
	for _, containers := range [][]v1.Container{spec.InitContainers, spec.Containers} {
		for i := range containers {
			roundUp(containers[i].Resources.Limits)
			roundUp(containers[i].Resources.Requests)
		}
	}
	roundUp(spec.Overhead)
	if spec.Resources != nil {
		roundUp(spec.Resources.Limits)
		roundUp(spec.Resources.Requests)
	}
}

// roundUp rounds quantities up to thousandths, the precision of the API.
func roundUp(list v1.ResourceList) {
	for _, name := range slices.Sorted(maps.Keys(list)) {
		amount := list[name]
		amount.RoundUp(resource.Milli)
		list[name] = amount
	}
}

func setString[T ~string](field *T, value T) {
	if *field == "" {
		*field = value
	}
}

func setNumber(field *int32, value int32) {
	if *field == 0 {
		*field = value
	}
}

func setPointer[T any](field **T, value T) {
	if *field == nil {
		*field = &value
	}
}

package manifest

import (
	"net/netip"
	"regexp"

	v1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Validate returns the errors of a static pod with defaults, by field: fields that the API server
// would reject and a node agent must not accept, and fields that no static pod may have.
func Validate(pod *v1.Pod) field.ErrorList {
	v := &validator{static: true, volumes: map[string]*v1.Volume{}}
	v.checkPod(pod)
	return v.errs
}

// ValidateAPIPod returns the errors of a pod with defaults that a client sends to the API server,
// by field: those that the API server and Validate both find.
func ValidateAPIPod(pod *v1.Pod) field.ErrorList {
	v := &validator{volumes: map[string]*v1.Volume{}}
	v.checkPod(pod)
	return v.errs
}

func (v *validator) checkPod(pod *v1.Pod) {
	v.checkMetadata(pod)
	if v.static {
		v.checkReferences(pod)
	}
	spec, p := &pod.Spec, field.NewPath("spec")
	v.checkLifecycle(spec, p)
	v.checkVolumes(spec.Volumes, p.Child("volumes"))
	v.checkContainers(spec, p)
	v.checkNetwork(spec, p)
	v.checkHostNamespaces(spec, p)
	v.checkScheduling(spec, p)
	v.checkPodResources(spec, p)
}

// validator collects the errors of one pod.
type validator struct {
	static  bool                  // the pod must not be one that only an API server can have
	volumes map[string]*v1.Volume // by name
	errs    field.ErrorList
}

// uidFormat is the format of a UID in a manifest: the UID becomes the name of directories and of
// cgroups.
var uidFormat = regexp.MustCompile(`^[A-Za-z0-9]([-A-Za-z0-9_.]{0,126}[A-Za-z0-9])?$`)

func (v *validator) checkMetadata(pod *v1.Pod) {
	p := field.NewPath("metadata")
	v.addInvalid(p.Child("name"), pod.Name, validation.IsDNS1123Subdomain(pod.Name))
	v.addInvalid(p.Child("namespace"), pod.Namespace, validation.IsDNS1123Label(pod.Namespace))
	if v.static && !uidFormat.MatchString(string(pod.UID)) {
		v.invalid(p.Child("uid"), pod.UID, "must be at most 128 letters, digits, '-', '_' and '.', "+
			"with a letter or digit at both ends")
	}
	v.errs = append(v.errs, metavalidation.ValidateLabels(pod.Labels, p.Child("labels"))...)
	v.errs = append(v.errs,
		apivalidation.ValidateAnnotations(pod.Annotations, p.Child("annotations"))...)
}

// checkLifecycle checks how long the pod runs and how it terminates.
func (v *validator) checkLifecycle(spec *v1.PodSpec, p *field.Path) {
	oneOf(v, p.Child("restartPolicy"), spec.RestartPolicy,
		v1.RestartPolicyAlways, v1.RestartPolicyOnFailure, v1.RestartPolicyNever)
	v.notNegative(p.Child("terminationGracePeriodSeconds"), *spec.TerminationGracePeriodSeconds)
	if deadline := spec.ActiveDeadlineSeconds; deadline != nil {
		v.inRange(p.Child("activeDeadlineSeconds"), *deadline, 1, 1<<31-1)
	}
	for i, gate := range spec.ReadinessGates {
		v.addInvalid(p.Child("readinessGates").Index(i).Child("conditionType"), gate.ConditionType,
			validation.IsQualifiedName(string(gate.ConditionType)))
	}
}

func (v *validator) checkNetwork(spec *v1.PodSpec, p *field.Path) {
	oneOf(v, p.Child("dnsPolicy"), spec.DNSPolicy, v1.DNSClusterFirstWithHostNet,
		v1.DNSClusterFirst, v1.DNSDefault, v1.DNSNone)
	if spec.Hostname != "" {
		v.addInvalid(p.Child("hostname"), spec.Hostname, validation.IsDNS1123Label(spec.Hostname))
	}
	if spec.Subdomain != "" {
		v.addInvalid(p.Child("subdomain"), spec.Subdomain, validation.IsDNS1123Label(spec.Subdomain))
	}
	if name := spec.HostnameOverride; name != nil {
		v.addInvalid(p.Child("hostnameOverride"), *name, validation.IsDNS1123Subdomain(*name))
		v.inRange(p.Child("hostnameOverride"), int64(len(*name)), 1, hostnameLengthMax)
		if spec.HostNetwork {
			v.add(field.Forbidden(p.Child("hostnameOverride"), "hostNetwork is set"))
		}
	}
	for i, alias := range spec.HostAliases {
		q := p.Child("hostAliases").Index(i)
		v.ip(q.Child("ip"), alias.IP)
		for j, name := range alias.Hostnames {
			v.addInvalid(q.Child("hostnames").Index(j), name, validation.IsDNS1123Subdomain(name))
		}
	}
	if spec.DNSConfig != nil {
		v.checkDnsConfig(spec.DNSConfig, p.Child("dnsConfig"))
	}
	if spec.DNSPolicy == v1.DNSNone &&
		(spec.DNSConfig == nil || len(spec.DNSConfig.Nameservers) == 0) {
		v.add(field.Required(p.Child("dnsConfig", "nameservers"), "dnsPolicy None needs one"))
	}
}

// hostnameLengthMax is Linux' limit of a host name, in bytes.
const hostnameLengthMax = 64

// The API server's limits of the content of a resolv.conf.
const (
	nameserversMax  = 3
	searchPathsMax  = 32
	searchLengthMax = 2048
)

func (v *validator) checkDnsConfig(c *v1.PodDNSConfig, p *field.Path) {
	if len(c.Nameservers) > nameserversMax {
		v.add(field.TooMany(p.Child("nameservers"), len(c.Nameservers), nameserversMax))
	}
	for i, server := range c.Nameservers {
		v.ip(p.Child("nameservers").Index(i), server)
	}
	if len(c.Searches) > searchPathsMax {
		v.add(field.TooMany(p.Child("searches"), len(c.Searches), searchPathsMax))
	}
	length := 0
	for i, search := range c.Searches {
		length += len(search) + 1
		q := p.Child("searches").Index(i)
		if search != "." {
			v.addInvalid(q, search, validation.IsDNS1123SubdomainWithUnderscore(trimTrailingDot(search)))
		}
	}
	if length > searchLengthMax+1 {
		v.invalid(p.Child("searches"), len(c.Searches), "must not be longer than 2048 together")
	}
	for i, option := range c.Options {
		v.required(p.Child("options").Index(i).Child("name"), option.Name)
	}
}

// checkHostNamespaces checks the namespaces that the pod shares with its node, its OS, and its
// security context.
func (v *validator) checkHostNamespaces(spec *v1.PodSpec, p *field.Path) {
	shares := spec.ShareProcessNamespace != nil && *spec.ShareProcessNamespace
	if spec.HostPID && shares {
		v.invalid(p.Child("shareProcessNamespace"), true, "cannot be set together with hostPID")
	}
	if spec.HostUsers != nil && !*spec.HostUsers {
		for _, shared := range []struct {
			name string
			set  bool
		}{
			{"hostNetwork", spec.HostNetwork}, {"hostPID", spec.HostPID}, {"hostIPC", spec.HostIPC},
		} {
			if shared.set {
				v.add(field.Forbidden(p.Child(shared.name), "hostUsers is false"))
			}
		}
	}
	if spec.OS != nil {
		oneOf(v, p.Child("os", "name"), spec.OS.Name, v1.Linux)
	}
	v.checkPodSecurity(spec.SecurityContext, p.Child("securityContext"))
}

// checkScheduling checks the fields that a scheduler reads: a static pod is on its node already.
func (v *validator) checkScheduling(spec *v1.PodSpec, p *field.Path) {
	if v.static && len(spec.SchedulingGates) > 0 {
		v.add(field.Forbidden(p.Child("schedulingGates"), "a static pod is on its node already"))
	}
	v.errs = append(v.errs,
		metavalidation.ValidateLabels(spec.NodeSelector, p.Child("nodeSelector"))...)
	for i, toleration := range spec.Tolerations {
		q := p.Child("tolerations").Index(i)
		oneOf(v, q.Child("operator"), toleration.Operator, "", v1.TolerationOpExists,
			v1.TolerationOpEqual, v1.TolerationOpLt, v1.TolerationOpGt)
		oneOf(v, q.Child("effect"), toleration.Effect, "", v1.TaintEffectNoSchedule,
			v1.TaintEffectPreferNoSchedule, v1.TaintEffectNoExecute)
		if toleration.Key != "" {
			v.addInvalid(q.Child("key"), toleration.Key, validation.IsQualifiedName(toleration.Key))
		}
	}
	if name := spec.RuntimeClassName; name != nil {
		v.addInvalid(p.Child("runtimeClassName"), *name, validation.IsDNS1123Subdomain(*name))
	}
	if name := spec.PriorityClassName; name != "" {
		v.addInvalid(p.Child("priorityClassName"), name, validation.IsDNS1123Subdomain(name))
	}
}

func (v *validator) ip(p *field.Path, value string) {
	if addr, err := netip.ParseAddr(value); err != nil || addr.Zone() != "" {
		v.invalid(p, value, "must be an IP address")
	}
}

package manifest

import (
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// checkContainers checks each container, and the names and host ports of all together.
func (v *validator) checkContainers(spec *v1.PodSpec, p *field.Path) {
	if len(spec.Containers) == 0 {
		v.add(field.Required(p.Child("containers"), "a pod has at least one"))
	}
	names, hostPorts := map[string]bool{}, map[string]bool{}
	for i := range spec.InitContainers {
		c, q := &spec.InitContainers[i], p.Child("initContainers").Index(i)
		v.checkContainer(c, spec, q)
		v.unique(q.Child("name"), c.Name, names)
		sidecar := c.RestartPolicy != nil && *c.RestartPolicy == v1.ContainerRestartPolicyAlways
		if !sidecar {
			v.checkInitContainer(c, q)
			continue
		}
		v.checkHostPorts(c, hostPorts, q)
	}
	for i := range spec.Containers {
		c, q := &spec.Containers[i], p.Child("containers").Index(i)
		v.checkContainer(c, spec, q)
		v.unique(q.Child("name"), c.Name, names)
		v.checkHostPorts(c, hostPorts, q)
	}
}

func (v *validator) unique(p *field.Path, name string, seen map[string]bool) {
	if seen[name] && name != "" {
		v.add(field.Duplicate(p, name))
	}
	seen[name] = true
}

// checkInitContainer rejects fields that have no meaning in an init container that is not a
// sidecar.
func (v *validator) checkInitContainer(c *v1.Container, p *field.Path) {
	for _, given := range []struct {
		name string
		set  bool
	}{
		{"lifecycle", c.Lifecycle != nil && *c.Lifecycle != (v1.Lifecycle{})},
		{"livenessProbe", c.LivenessProbe != nil},
		{"readinessProbe", c.ReadinessProbe != nil},
		{"startupProbe", c.StartupProbe != nil},
	} {
		if given.set {
			v.add(field.Forbidden(p.Child(given.name),
				"is only for init containers with restartPolicy Always"))
		}
	}
}

// checkContainer checks one container of either list.
func (v *validator) checkContainer(c *v1.Container, spec *v1.PodSpec, p *field.Path) {
	if c.Name == "" {
		v.add(field.Required(p.Child("name"), "a container has a name"))
	} else {
		v.addInvalid(p.Child("name"), c.Name, validation.IsDNS1123Label(c.Name))
	}
	if c.Image == "" {
		v.add(field.Required(p.Child("image"), "a container has an image"))
	} else if strings.TrimSpace(c.Image) != c.Image {
		v.invalid(p.Child("image"), c.Image, "must not begin or end with a space")
	}
	oneOf(v, p.Child("imagePullPolicy"), c.ImagePullPolicy,
		v1.PullAlways, v1.PullIfNotPresent, v1.PullNever)
	oneOf(v, p.Child("terminationMessagePolicy"), c.TerminationMessagePolicy,
		v1.TerminationMessageReadFile, v1.TerminationMessageFallbackToLogsOnError)
	v.checkRestartPolicy(c, p)
	v.checkPorts(c.Ports, spec.HostNetwork, p.Child("ports"))
	v.checkEnv(c, spec.Volumes, p)
	v.checkMounts(c, p)
	v.checkResources(&c.Resources, p.Child("resources"))
	v.checkProbes(c, spec, p)
	v.checkContainerSecurity(c.SecurityContext, spec, p.Child("securityContext"))
}

// checkRestartPolicy checks the restart policy of one container (KEP-5307).
func (v *validator) checkRestartPolicy(c *v1.Container, p *field.Path) {
	if c.RestartPolicy != nil {
		oneOf(v, p.Child("restartPolicy"), *c.RestartPolicy, v1.ContainerRestartPolicyAlways,
			v1.ContainerRestartPolicyOnFailure, v1.ContainerRestartPolicyNever)
	}
	if len(c.RestartPolicyRules) > 0 && c.RestartPolicy == nil {
		v.add(field.Required(p.Child("restartPolicy"), "restartPolicyRules need it"))
	}
	for i, rule := range c.RestartPolicyRules {
		q := p.Child("restartPolicyRules").Index(i)
		oneOf(v, q.Child("action"), rule.Action, v1.ContainerRestartRuleActionRestart,
			v1.ContainerRestartRuleActionRestartAllContainers)
		if rule.ExitCodes == nil {
			v.add(field.Required(q.Child("exitCodes"), "a rule is about exit codes"))
			continue
		}
		oneOf(v, q.Child("exitCodes", "operator"), rule.ExitCodes.Operator,
			v1.ContainerRestartRuleOnExitCodesOpIn, v1.ContainerRestartRuleOnExitCodesOpNotIn)
	}
}

func (v *validator) checkPorts(ports []v1.ContainerPort, hostNetwork bool, p *field.Path) {
	names := map[string]bool{}
	for i, port := range ports {
		q := p.Index(i)
		v.inRange(q.Child("containerPort"), int64(port.ContainerPort), 1, 65535)
		v.inRange(q.Child("hostPort"), int64(port.HostPort), 0, 65535)
		oneOf(v, q.Child("protocol"), port.Protocol, v1.ProtocolTCP, v1.ProtocolUDP, v1.ProtocolSCTP)
		if hostNetwork && port.HostPort != port.ContainerPort {
			v.invalid(q.Child("hostPort"), port.HostPort,
				"must be the containerPort, for the pod uses the host's network")
		}
		if port.HostIP != "" {
			v.ip(q.Child("hostIP"), port.HostIP)
		}
		if port.Name != "" {
			v.addInvalid(q.Child("name"), port.Name, validation.IsValidPortName(port.Name))
			v.unique(q.Child("name"), port.Name, names)
		}
	}
}

// checkHostPorts checks that no two containers that run at the same time use the same host port.
func (v *validator) checkHostPorts(c *v1.Container, seen map[string]bool, p *field.Path) {
	for i, port := range c.Ports {
		if port.HostPort == 0 {
			continue
		}
		key := string(port.Protocol) + "/" + port.HostIP + "/" + strconv.Itoa(int(port.HostPort))
		v.unique(p.Child("ports").Index(i).Child("hostPort"), key, seen)
	}
}

// podFields are the fields of a pod that environment variables of its containers can read.
var podFields = map[string]bool{
	"metadata.name": true, "metadata.namespace": true, "metadata.uid": true,
	"metadata.labels": true, "metadata.annotations": true, "spec.nodeName": true,
	"spec.serviceAccountName": true, "status.hostIP": true, "status.hostIPs": true,
	"status.podIP": true, "status.podIPs": true,
}

func (v *validator) checkEnv(c *v1.Container, volumes []v1.Volume, p *field.Path) {
	for i, env := range c.Env {
		q := p.Child("env").Index(i)
		if env.Name == "" {
			v.add(field.Required(q.Child("name"), "a variable has a name"))
		} else {
			v.addInvalid(q.Child("name"), env.Name, validation.IsRelaxedEnvVarName(env.Name))
		}
		from := env.ValueFrom
		if from == nil {
			continue
		}
		if env.Value != "" {
			v.invalid(q.Child("valueFrom"), "", "cannot be set together with value")
		}
		if ref := from.FileKeyRef; ref != nil {
			v.checkFileKeyRef(ref, volumes, q.Child("valueFrom", "fileKeyRef"))
		}
		v.exactlyOne(q.Child("valueFrom"), "fieldRef or resourceFieldRef", from.FieldRef != nil,
			from.ResourceFieldRef != nil, from.ConfigMapKeyRef != nil, from.SecretKeyRef != nil,
			from.FileKeyRef != nil)
		if from.FieldRef != nil {
			v.checkFieldRef(from.FieldRef, q.Child("valueFrom", "fieldRef"))
		}
		if ref := from.ResourceFieldRef; ref != nil {
			v.checkResourceFieldRef(ref, q.Child("valueFrom", "resourceFieldRef"))
		}
	}
	for i, from := range c.EnvFrom {
		q := p.Child("envFrom").Index(i)
		v.exactlyOne(q, "a source", from.ConfigMapRef != nil, from.SecretRef != nil)
	}
}

// checkFileKeyRef checks the source of a variable that is a file. The file is in an emptyDir: other
// volumes may have files that the pod may not read.
func (v *validator) checkFileKeyRef(ref *v1.FileKeySelector, volumes []v1.Volume, p *field.Path) {
	v.addInvalid(p.Child("key"), ref.Key, validation.IsRelaxedEnvVarName(ref.Key))
	v.relativePath(p.Child("path"), ref.Path)
	if ref.Path == "" {
		v.add(field.Required(p.Child("path"), "the file has a path"))
	}
	isEmptyDir := func(o v1.Volume) bool { return o.Name == ref.VolumeName && o.EmptyDir != nil }
	if !slices.ContainsFunc(volumes, isEmptyDir) {
		v.invalid(p.Child("volumeName"), ref.VolumeName, "is not an emptyDir volume of the pod")
	}
}

func (v *validator) checkFieldRef(ref *v1.ObjectFieldSelector, p *field.Path) {
	oneOf(v, p.Child("apiVersion"), ref.APIVersion, "v1")
	base, key, subscript := strings.Cut(strings.TrimSuffix(ref.FieldPath, "']"), "['")
	switch {
	case subscript && (base == "metadata.labels" || base == "metadata.annotations") &&
		strings.HasSuffix(ref.FieldPath, "']"):
		v.addInvalid(p.Child("fieldPath"), ref.FieldPath,
			validation.IsQualifiedName(strings.ToLower(key)))
	case !podFields[ref.FieldPath]:
		v.invalid(p.Child("fieldPath"), ref.FieldPath, "is not a field that a container may read")
	}
}

func (v *validator) checkResourceFieldRef(ref *v1.ResourceFieldSelector, p *field.Path) {
	kind, name, ok := strings.Cut(ref.Resource, ".")
	known := name == "cpu" || name == "memory" || name == "ephemeral-storage" ||
		strings.HasPrefix(name, v1.ResourceHugePagesPrefix)
	if !ok || kind != "limits" && kind != "requests" || !known {
		v.invalid(p.Child("resource"), ref.Resource, "must be as limits.cpu or requests.memory")
	}
	if ref.Divisor.Sign() < 0 {
		v.invalid(p.Child("divisor"), ref.Divisor.String(), "must not be negative")
	}
}

func decimal(n int64) string { return strconv.FormatInt(n, 10) }

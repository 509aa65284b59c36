package pod

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// What a container finds in its environment: values of the spec, what it is told of its pod and its
// resources (the downward API), and, in keys.go and services.go, what comes from the API server.

// environment is the variables of a container: of whole ConfigMaps and Secrets, then its own, then
// those that tell of services; of one name there is one. References to earlier ones and to those
// of services are expanded in what the spec gives as a value, and not in what comes from
// elsewhere. It fails if a variable has no value. All is there once envReady says so.
func (p *Pod) environment(want *v1.Container, env *Env) ([]*runtimeapi.KeyValue, error) {
	services := p.serviceVariables(env)
	if len(services) == 0 && !p.servicesKnown(env) {
		return nil, errors.New(
			"services have not yet been read at least once, cannot construct envvars")
	}
	var variables []*runtimeapi.KeyValue
	for i := range want.EnvFrom {
		var err error
		if variables, err = p.envFrom(&want.EnvFrom[i], variables, env); err != nil {
			return nil, err
		}
	}
	for i := range want.Env {
		v := &want.Env[i]
		value, found := []byte(expand(v.Value, variables, services)), true
		if v.ValueFrom != nil {
			var err error
			if value, found, err = p.valueFrom(v, want, env); err != nil {
				return nil, err
			}
		}
		if found {
			variables = set(variables, v.Name, value)
		}
	}
	for _, s := range services {
		if _, own := lookup(s.Key, variables); !own {
			variables = append(variables, s)
		}
	}
	return variables, nil
}

// set gives a variable a value, in the place of what it had.
func set(variables []*runtimeapi.KeyValue, name string, value []byte) []*runtimeapi.KeyValue {
	same := func(v *runtimeapi.KeyValue) bool { return v.Key == name }
	if i := slices.IndexFunc(variables, same); i >= 0 {
		variables[i].Value = value
		return variables
	}
	return append(variables, &runtimeapi.KeyValue{Key: name, Value: value})
}

// envReady says whether all that the variables are taken from is known, or known not to be had:
// the IPs of the pod are when the sandbox has been inspected.
func (p *Pod) envReady(want *v1.Container, env *Env) bool {
	return (p.current().Inspected || !slices.ContainsFunc(want.Env, needsPodIP)) &&
		p.referencesKnown(want, env)
}

func needsPodIP(v v1.EnvVar) bool {
	return v.ValueFrom != nil && v.ValueFrom.FieldRef != nil &&
		isPodIP(v.ValueFrom.FieldRef.FieldPath)
}

func isPodIP(path string) bool { return path == fieldPodIP || path == fieldPodIPs }

// callConfigure stands, in problems, for what comes before the request that makes a container.
const callConfigure = "ConfigureContainer"

// misconfigured reports whether a container cannot be made as the spec wants it, and notes why.
// That follows from the spec, and from objects whose changes have the pod planned again, so nothing
// is tried again by itself.
func (p *Pod) misconfigured(want *v1.Container, env *Env) bool {
	err := p.asRoot(want)
	if err == nil {
		var variables []*runtimeapi.KeyValue
		if variables, err = p.environment(want, env); err == nil {
			_, err = p.mounts(want, variables, nil, env.Node)
		}
	}
	var was Problem
	if pr := p.problem(want.Name); pr != nil {
		was = *pr
	}
	p.solved(want.Name, callConfigure)
	if err == nil {
		return false
	}
	pr := p.problem(want.Name)
	if pr == nil {
		p.Problems = append(p.Problems, Problem{})
		pr = &p.Problems[len(p.Problems)-1]
	}
	*pr = Problem{
		Container: want.Name, Call: callConfigure,
		Reason: "CreateContainerConfigError", Message: err.Error(),
	}
	if *pr != was {
		p.tellFailure(pr, env)
	}
	return true
}

// valueFrom is what a variable is taken from elsewhere. One that is optional may not be found.
func (p *Pod) valueFrom(v *v1.EnvVar, want *v1.Container, env *Env) (value []byte, found bool,
	err error) {
	var text string
	switch from := v.ValueFrom; {
	case from.ConfigMapKeyRef != nil, from.SecretKeyRef != nil:
		return p.keyOf(from, env)
	case from.FieldRef != nil:
		text, err = p.field(from.FieldRef.FieldPath, env.Node)
	case from.ResourceFieldRef != nil:
		text, err = p.resourceField(from.ResourceFieldRef, want, env.Node)
	default:
		err = errors.New("its source is not supported")
	}
	if err != nil {
		return nil, false, fmt.Errorf("environment variable %s: %w", v.Name, err)
	}
	return []byte(text), true, nil
}

const (
	fieldPodIP  = "status.podIP"
	fieldPodIPs = "status.podIPs"
)

// field is the value of a field of the pod. A label or annotation that there is not is empty.
func (p *Pod) field(path string, node *Node) (string, error) {
	switch path {
	case "metadata.name":
		return p.Name, nil
	case "metadata.namespace":
		return p.Namespace, nil
	case "metadata.uid":
		return p.UID, nil
	case "spec.nodeName":
		return p.Spec.Spec.NodeName, nil
	case "spec.serviceAccountName":
		return p.Spec.Spec.ServiceAccountName, nil
	case "status.hostIP":
		return firstOf(node.IPs), nil
	case "status.hostIPs":
		return strings.Join(node.IPs, ","), nil
	case fieldPodIP:
		return firstOf(p.ips(node)), nil
	case fieldPodIPs:
		return strings.Join(p.ips(node), ","), nil
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

// ips are the pod's, which are the node's if it has the node's network.
func (p *Pod) ips(node *Node) []string {
	if p.Spec != nil && p.Spec.Spec.HostNetwork {
		return node.IPs
	}
	if s := p.current(); s != nil {
		return s.IPs
	}
	return nil
}

func firstOf(list []string) string {
	if len(list) == 0 {
		return ""
	}
	return list[0]
}

// resourceField is a request or limit of a container, this one or another of the pod, divided by
// the divisor and rounded up.
func (p *Pod) resourceField(ref *v1.ResourceFieldSelector, want *v1.Container,
	node *Node) (string, error) {
	if ref.ContainerName != "" {
		if want = p.want(ref.ContainerName); want == nil {
			return "", fmt.Errorf("container %s not found", ref.ContainerName)
		}
	}
	kind, text, _ := strings.Cut(ref.Resource, ".")
	name := v1.ResourceName(text)
	var quantity resource.Quantity
	switch kind {
	case "requests":
		quantity = want.Resources.Requests[name]
	case "limits":
		quantity = p.limit(want, name, node)
	default:
		return "", fmt.Errorf("unsupported container resource: %s", ref.Resource)
	}
	divisor := ref.Divisor
	if divisor.IsZero() {
		divisor = resource.MustParse("1")
	}
	if name == v1.ResourceCPU {
		return quotient(quantity.MilliValue(), divisor.MilliValue()), nil
	}
	return quotient(quantity.Value(), divisor.Value()), nil
}

// limit is the limit of a container. Without one it is the pod's, or else what the node has.
func (p *Pod) limit(c *v1.Container, name v1.ResourceName, node *Node) resource.Quantity {
	set := p.ownLimit(c, name)
	switch {
	case !set.IsZero():
		return set
	case name == v1.ResourceCPU:
		return *resource.NewQuantity(int64(node.CPUs), resource.DecimalSI)
	case name == v1.ResourceMemory:
		return *resource.NewQuantity(node.MemoryBytes, resource.BinarySI)
	}
	return set
}

// quotient is a/b rounded up, for a that is not negative and b that is positive.
func quotient(a, b int64) string {
	q := a / b
	if a%b > 0 {
		q++
	}
	return strconv.FormatInt(q, 10)
}

func expandAll(texts []string, variables []*runtimeapi.KeyValue) []string {
	var expanded []string
	for _, text := range texts {
		expanded = append(expanded, expand(text, variables))
	}
	return expanded
}

// expand replaces $(NAME) by the variable's value, from the first list that has it. A name that is
// not known stays as it is, and $$ is a dollar sign that begins no reference.
func expand(text string, from ...[]*runtimeapi.KeyValue) string {
	var b strings.Builder
	for {
		before, after, found := strings.Cut(text, "$")
		b.WriteString(before)
		if !found {
			return b.String()
		}
		name, rest, closed := strings.Cut(strings.TrimPrefix(after, "("), ")")
		switch {
		case strings.HasPrefix(after, "$"):
			b.WriteByte('$')
			text = after[1:]
		case !strings.HasPrefix(after, "(") || !closed:
			b.WriteByte('$')
			text = after
		default:
			b.WriteString(resolve(name, from))
			text = rest
		}
	}
}

func resolve(name string, from [][]*runtimeapi.KeyValue) string {
	for _, variables := range from {
		if value, is := lookup(name, variables); is {
			return value
		}
	}
	return "$(" + name + ")"
}

func lookup(name string, variables []*runtimeapi.KeyValue) (string, bool) {
	for _, v := range variables {
		if v.Key == name {
			return string(v.Value), true
		}
	}
	return "", false
}

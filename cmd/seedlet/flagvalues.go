package main

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
	utilversion "k8s.io/apimachinery/pkg/util/version"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
)

// Values of flags with types of their own. The names of the types are the kubelet's.

// ipValue is an IP address.
type ipValue struct{ address *string }

func (v *ipValue) Type() string   { return "ip" }
func (v *ipValue) String() string { return *v.address }

// Set ignores an empty text, as the kubelet does.
func (v *ipValue) Set(text string) error {
	if text == "" {
		return nil
	}
	if _, err := netip.ParseAddr(text); err != nil {
		return errors.New("is not an IP address")
	}
	*v.address = text
	return nil
}

// taintsValue is a list of taints; the last flag counts.
type taintsValue struct{ taints *[]v1.Taint }

func (v *taintsValue) Type() string { return "[]v1.Taint" }

func (v *taintsValue) String() string {
	var texts []string
	for _, t := range *v.taints {
		texts = append(texts, fmt.Sprintf("%s=%s:%s", t.Key, t.Value, t.Effect))
	}
	return strings.Join(texts, ",")
}

func (v *taintsValue) Set(text string) error {
	*v.taints = nil
	if text == "" {
		return nil
	}
	for part := range strings.SplitSeq(text, ",") {
		if strings.HasSuffix(part, "-") {
			continue // takes a taint away, of which there is none yet
		}
		taint, err := parseTaint(part)
		if err != nil {
			return err
		}
		if slices.ContainsFunc(*v.taints, func(t v1.Taint) bool { return t.MatchTaint(&taint) }) {
			return fmt.Errorf("%q: there is a taint with this key and effect already", part)
		}
		*v.taints = append(*v.taints, taint)
	}
	return nil
}

// parseTaint parses key=value:effect or key:effect.
func parseTaint(text string) (v1.Taint, error) {
	rest, effect, _ := strings.Cut(text, ":")
	key, value, _ := strings.Cut(rest, "=")
	switch v1.TaintEffect(effect) {
	case v1.TaintEffectNoSchedule, v1.TaintEffectPreferNoSchedule, v1.TaintEffectNoExecute:
	default:
		return v1.Taint{}, fmt.Errorf("%q has no effect: want NoSchedule, PreferNoSchedule or "+
			"NoExecute after a colon", text)
	}
	problems := append(validation.IsQualifiedName(key), validation.IsValidLabelValue(value)...)
	if len(problems) > 0 {
		return v1.Taint{}, fmt.Errorf("%q: %s", text, strings.Join(problems, "; "))
	}
	return v1.Taint{Key: key, Value: value, Effect: v1.TaintEffect(effect)}, nil
}

// memoryValue is a list of the memory that is reserved on NUMA nodes. The first flag replaces the
// list of the file, further ones add to it.
type memoryValue struct {
	list  *[]kubeletconfig.MemoryReservation
	isSet bool
}

func (v *memoryValue) Type() string { return "reserved-memory" }

func (v *memoryValue) String() string {
	var texts []string
	for _, r := range *v.list {
		var limits []string
		for _, name := range slices.Sorted(maps.Keys(r.Limits)) {
			q := r.Limits[name]
			limits = append(limits, string(name)+"="+q.String())
		}
		texts = append(texts, fmt.Sprintf("%d:%s", r.NumaNode, strings.Join(limits, ",")))
	}
	slices.Sort(texts)
	return strings.Join(texts, ",")
}

func (v *memoryValue) Set(text string) error {
	if text == "" {
		return nil
	}
	if !v.isSet {
		*v.list, v.isSet = nil, true
	}
	for part := range strings.SplitSeq(text, ";") {
		reservation, err := parseReservation(part)
		if err != nil {
			return fmt.Errorf("%q: %w", part, err)
		}
		*v.list = append(*v.list, reservation)
	}
	return nil
}

// parseReservation parses what is reserved on one NUMA node: 0:memory=1Gi,hugepages-2Mi=4Mi.
func parseReservation(text string) (kubeletconfig.MemoryReservation, error) {
	r := kubeletconfig.MemoryReservation{Limits: v1.ResourceList{}}
	node, limits, hasNode := strings.Cut(text, ":")
	n, err := strconv.ParseInt(node, 10, 32)
	if err != nil || !hasNode {
		return r, errors.New("want the number of a NUMA node and a colon first, as 0:memory=1Gi")
	}
	r.NumaNode = int32(n)
	for part := range strings.SplitSeq(limits, ",") {
		name, amount, _ := strings.Cut(part, "=")
		if name != string(v1.ResourceMemory) && !strings.HasPrefix(name, v1.ResourceHugePagesPrefix) {
			return r, fmt.Errorf("%q is neither memory nor hugepages-SIZE", name)
		}
		q, err := resource.ParseQuantity(amount)
		if err != nil {
			return r, fmt.Errorf("%s: %q is not a quantity, as 1Gi", name, amount)
		}
		r.Limits[v1.ResourceName(name)] = q
	}
	return r, nil
}

// versionValue is the value of --version: "false", "true" and "raw", of which the last two print
// the version, or another version to report.
type versionValue string

func (v *versionValue) Type() string   { return "version" }
func (v *versionValue) String() string { return string(*v) }

// Set accepts a version that differs from the agent's only after the number of the patch: kubeadm
// and the control plane decide by the numbers what the node can do.
func (v *versionValue) Set(text string) error {
	if on, err := strconv.ParseBool(text); err == nil {
		*v = versionValue(strconv.FormatBool(on))
		return nil
	}
	if text != "raw" {
		reported, err := utilversion.ParseSemantic(text)
		if err != nil || !strings.HasPrefix(text, "v") {
			return errors.New("is neither true, false, raw nor a version, as " + version + "+mine")
		}
		own := utilversion.MustParseSemantic(version)
		if reported.WithPreRelease("").WithBuildMetadata("").String() != own.String() {
			return errors.New("must be a form of " + version)
		}
	}
	*v = versionValue(text)
	return nil
}

// reported returns the version that the agent reports.
func (v *versionValue) reported() string {
	if strings.HasPrefix(string(*v), "v") {
		return string(*v)
	}
	return version
}

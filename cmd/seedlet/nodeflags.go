package main

import (
	"fmt"
	"strings"

	"github.com/spf13/pflag"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	nodeobject "seedlet.dev/core/node"
)

// nodeFlags are the flags about the Node object.
type nodeFlags struct {
	labels        []string
	ips           string
	cloudProvider string
	providerID    string
	register      bool
	taints        []string
}

func (f *nodeFlags) addTo(fs *pflag.FlagSet) {
	fs.StringSliceVar(&f.labels, "node-labels", nil,
		"labels of the node when it is registered, as key=value,key=value")
	fs.StringVar(&f.ips, "node-ip", "",
		"address of the node, or one of each IP family, instead of the detected ones; "+
			"0.0.0.0 or :: chooses the family only")
	fs.StringVar(&f.cloudProvider, "cloud-provider", "",
		"external if a cloud controller manager initializes the Node, else empty")
	fs.StringVar(&f.providerID, "provider-id", "",
		"providerID of the Node: the machine's ID at the cloud provider")
	fs.BoolVar(&f.register, "register-node", true, "create the Node object if there is none")
	fs.StringSliceVar(&f.taints, "register-with-taints", nil,
		"taints of the node when it is registered, as key=value:effect")
}

// options returns the values of flags that have no field in the configuration.
func (f *nodeFlags) options() (nodeobject.Options, error) {
	labels, err := nodeobject.ParseLabels(strings.Join(f.labels, ","))
	if err != nil {
		return nodeobject.Options{}, fmt.Errorf("--node-labels: %w", err)
	}
	ips, err := nodeobject.ParseIPs(f.ips)
	if err != nil {
		return nodeobject.Options{}, fmt.Errorf("--node-ip: %w", err)
	}
	if f.cloudProvider != "" && f.cloudProvider != "external" {
		return nodeobject.Options{}, fmt.Errorf("--cloud-provider: %q is neither empty nor external",
			f.cloudProvider)
	}
	return nodeobject.Options{Labels: labels, IPs: ips, Version: version,
		ExternalCloud: f.cloudProvider == "external"}, nil
}

// override sets the fields whose flags are on the command line.
func (f *nodeFlags) override(fs *pflag.FlagSet, c *kubeletconfig.KubeletConfiguration) error {
	if fs.Changed("provider-id") {
		c.ProviderID = f.providerID
	}
	if fs.Changed("register-node") {
		c.RegisterNode = &f.register
	}
	if !fs.Changed("register-with-taints") {
		return nil
	}
	c.RegisterWithTaints = nil
	for _, text := range f.taints {
		taint, err := parseTaint(text)
		if err != nil {
			return fmt.Errorf("--register-with-taints: %w", err)
		}
		c.RegisterWithTaints = append(c.RegisterWithTaints, taint)
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

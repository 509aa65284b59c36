package main

import (
	"fmt"

	"github.com/spf13/pflag"
	cliflag "k8s.io/component-base/cli/flag"

	nodeobject "seedlet.dev/core/node"
)

// nodeFlags are the flags about the Node object that have no field in the configuration.
type nodeFlags struct {
	labels           cliflag.ConfigurationMap
	ips              string
	cloudProvider    string
	ignoreThresholds bool
}

func (f *nodeFlags) addTo(fs *pflag.FlagSet) {
	f.labels = cliflag.ConfigurationMap{}
	fs.Var(&f.labels, "node-labels",
		"labels of the node when it is registered, as key=value,key=value")
	fs.StringVar(&f.ips, "node-ip", "",
		"address of the node, or one of each IP family, instead of the detected ones; "+
			"0.0.0.0 or :: chooses the family only")
	fs.StringVar(&f.cloudProvider, "cloud-provider", "",
		"external if a cloud controller manager initializes the Node, else empty")
	fs.BoolVar(&f.ignoreThresholds, "experimental-allocatable-ignore-eviction", false,
		"let pods have what is under the hard eviction thresholds")
	fs.Lookup("experimental-allocatable-ignore-eviction").Deprecated = "a later release will not " +
		"know it"
}

// options returns the values of the flags.
func (f *nodeFlags) options(reported string) (nodeobject.Options, error) {
	labels, err := nodeobject.ParseLabels(f.labels.String())
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
	return nodeobject.Options{Labels: labels, IPs: ips, Version: reported,
		ExternalCloud:    f.cloudProvider == "external",
		IgnoreThresholds: f.ignoreThresholds}, nil
}

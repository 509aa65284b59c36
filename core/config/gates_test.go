package config

import (
	"slices"
	"strings"
	"testing"
)

// The gates that the agent acts on are gates of the kubelet, and the table can be searched.
func TestGateTable(t *testing.T) {
	for _, name := range gatesInEffect {
		if findGate(name) == nil {
			t.Errorf("the kubelet has no feature gate %s", name)
		}
	}
	if !slices.IsSortedFunc(gateTable, func(a, b gateSpec) int {
		return strings.Compare(a.name, b.name)
	}) {
		t.Error("the gates are not sorted")
	}
	for _, gate := range gateTable {
		for _, needed := range gate.depends {
			if findGate(needed) == nil {
				t.Errorf("%s needs %s, which is not there", gate.name, needed)
			}
		}
	}
}

func TestGates(t *testing.T) {
	const removed = "feature gates that are set, and that a later release of Kubernetes will not " +
		"know any more: "
	const inert = "feature gates that have no effect, since the agent does not have the feature, or " +
		"has it always: "
	for text, want := range map[string]string{
		"EventedPLEG: true":               "",
		"NodeSwap: true":                  removed + "NodeSwap",
		"CustomCPUCFSQuotaPeriod: true":   removed + "CustomCPUCFSQuotaPeriod",
		"CSIVolumeHealth: false":          "",
		"CSIVolumeHealth: true":           "",
		"CoordinatedLeaderElection: true": "", // for another component
		"Frobnicate: true": "invalid configuration: featureGates[Frobnicate]: Invalid value: true: " +
			"there is no such feature gate in Kubernetes 1.36",
		"NodeSwap: false": "invalid configuration: featureGates[NodeSwap]: Invalid value: false: " +
			"is locked to true",
		"ContainerRestartRules: false": "invalid configuration: " +
			"featureGates[RestartAllContainersOnContainerExits]: Invalid value: true: needs the " +
			"feature gate ContainerRestartRules",
	} {
		base := configFile("/c", "featureGates: {"+text+"}\n")
		l, err := Load(&base, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		if err := l.Finish(); err != nil {
			got = err.Error()
		} else {
			got = strings.Join(l.Warnings, "; ")
		}
		if got != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}

// AllAlpha and AllBeta set the gates of a stage that are not set themselves.
func TestGatesOfStages(t *testing.T) {
	base := configFile("/c", "featureGates: {AllAlpha: true}\n")
	c := loadAndFinish(t, &base).Config
	if !MemoryQoSEnabled(c) || !c.FeatureGates["EventedPLEG"] || !GracefulShutdownEnabled(c) {
		t.Errorf("gates %v", c.FeatureGates)
	}
	base = configFile("/c", "featureGates: {AllBeta: false, EnvFiles: true}\n")
	c = loadAndFinish(t, &base).Config
	if MemoryQoSEnabled(c) || GracefulShutdownEnabled(c) || !EnvFilesEnabled(c) ||
		c.FeatureGates["ComponentFlagz"] {
		t.Errorf("gates %v", c.FeatureGates)
	}
}

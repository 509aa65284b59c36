package config

import (
	"strconv"
	"strings"
)

// Feature gates that are on by default since v1.36.
const (
	gateRestartAllContainers = "RestartAllContainersOnContainerExits"    // KEP-5532
	gateDeclaredFeatures     = "NodeDeclaredFeatures"                    // KEP-5328
	gateExtendWebSockets     = "ExtendWebSocketsToKubelet"               // KEP-4006
	gateEnvFiles             = "EnvFiles"                                // KEP-3721
	gateInitResize           = "InPlacePodVerticalScalingInitContainers" // KEP-1287
	gatePodLevelResize       = FeaturePodLevelResize
	gateQuotaPeriod          = "CustomCPUCFSQuotaPeriod"                // kubernetes#63437
	gateShutdown             = "GracefulNodeShutdown"                   // KEP-2000
	gateShutdownByPriority   = "GracefulNodeShutdownBasedOnPodPriority" // KEP-2712
)

// FeaturePodLevelResize is the feature, and the gate, of the resize of pod-level resources
// (KEP-5419).
const FeaturePodLevelResize = "InPlacePodLevelResourcesVerticalScaling"

// Feature gates that are off by default in v1.36.
const (
	gateMemoryQoS   = "MemoryQoS"   // KEP-2570
	gateQOSReserved = "QOSReserved" // kubernetes/enhancements#5
)

// isGateOn reports whether a feature gate is on; byDefault is its default in v1.36.
func isGateOn(c *configuration, gate string, byDefault bool) bool {
	if on, isSet := c.FeatureGates[gate]; isSet {
		return on
	}
	return byDefault
}

// GracefulShutdownEnabled reports whether a shutdown of the machine is delayed until pods have
// ended (KEP-2000).
func GracefulShutdownEnabled(c *configuration) bool { return isGateOn(c, gateShutdown, true) }

// RestartAllContainersEnabled reports whether the exit of a container may restart all containers of
// its pod.
func RestartAllContainersEnabled(c *configuration) bool {
	return isGateOn(c, gateRestartAllContainers, true)
}

// EnvFilesEnabled reports whether variables of containers may be taken from files in volumes.
func EnvFilesEnabled(c *configuration) bool { return isGateOn(c, gateEnvFiles, true) }

// MemoryQoSEnabled reports whether the memory that pods request is protected from reclaim.
func MemoryQoSEnabled(c *configuration) bool { return isGateOn(c, gateMemoryQoS, false) }

// ReservedMemoryPercent returns the percentage in qosReserved of memory; zero without the feature
// gate QOSReserved.
func ReservedMemoryPercent(c *configuration) int64 {
	percent, err := strconv.ParseInt(strings.TrimSuffix(c.QOSReserved["memory"], "%"), 10, 64)
	if err != nil || !isGateOn(c, gateQOSReserved, false) {
		return 0
	}
	return percent
}

// ChecksDeclaredFeatures reports whether pods are held against the features that the node declares.
func ChecksDeclaredFeatures(c *configuration) bool {
	return isGateOn(c, gateDeclaredFeatures, true)
}

// DeclaredFeatures returns the features that the node declares in its status, sorted (KEP-5328).
// The scheduler places pods that need a feature only on nodes that declare it, and the API server
// opens WebSockets, and resizes init containers and pod-level resources, only there. User
// namespaces with the network of the host are never declared: the agent lacks them. The kubelet's
// list is features/registry.go of k8s.io/component-helpers/nodedeclaredfeatures.
func DeclaredFeatures(c *configuration) []string {
	if !ChecksDeclaredFeatures(c) {
		return nil
	}
	var declared []string
	for _, gate := range []string{gateExtendWebSockets, gatePodLevelResize, gateInitResize,
		gateRestartAllContainers} {
		if isGateOn(c, gate, true) {
			declared = append(declared, gate)
		}
	}
	return declared
}

package config

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// gateSpec is a feature gate of the kubelet.
type gateSpec struct {
	name    string
	stage   gateStage
	on      bool     // by default
	locked  bool     // to its default
	asked   bool     // by the kubelet's code; the others are for other components
	depends []string // the gates that must be on if this one is
}

// gateStage is the stage of a feature gate.
type gateStage int

const (
	stagePreAlpha gateStage = iota
	stageAlpha
	stageBeta
	stageGA
	stageDeprecated
)

// The gates that set all gates of a stage which are not set themselves.
const (
	gateAllAlpha = "AllAlpha"
	gateAllBeta  = "AllBeta"
)

// gatesInEffect are the feature gates that the agent acts on.
var gatesInEffect = []string{gateAllAlpha, gateAllBeta, "ComponentFlagz", "ComponentStatusz",
	"ContainerCheckpoint", "EventedPLEG", gateLoggingAlpha, "LoggingBetaOptions",
	"PodLogsQuerySplitStreams", "RotateKubeletServerCertificate", gateDeclaredFeatures,
	gateCrashLoopMax, gateEnsureSecretPulled, gateEnvFiles, gateExtendWebSockets, gateInitResize,
	gateMemoryQoS, gatePodCertificates, gatePodLevelResize, gateQOSReserved, gateQuotaPeriod,
	gateRestartAllContainers, gateShutdown, gateShutdownByPriority, gateTokensForPlugins,
	gateVolumeHealth, gateSELinuxMount}

// findGate returns the gate with a name; nil if a kubelet does not know it.
func findGate(name string) *gateSpec {
	at, found := slices.BinarySearchFunc(gateTable, name, func(g gateSpec, name string) int {
		return strings.Compare(g.name, name)
	})
	if !found {
		return nil
	}
	gate := gateTable[at]
	return &gate
}

// isGateOn reports whether a feature gate is on.
func isGateOn(c *configuration, name string) bool {
	if on, isSet := c.FeatureGates[name]; isSet {
		return on
	}
	gate := findGate(name)
	if gate == nil {
		panic("config: there is no feature gate " + name)
	}
	all := map[gateStage]string{stageAlpha: gateAllAlpha, stageBeta: gateAllBeta}[gate.stage]
	if on, isSet := c.FeatureGates[all]; isSet && name != gateAllAlpha && name != gateAllBeta {
		return on
	}
	return gate.on
}

// setGatesOfStages sets the gates that the agent acts on and that AllAlpha or AllBeta changes, so
// that code which reads a gate need not know of those two.
func setGatesOfStages(c *configuration) {
	for _, name := range gatesInEffect {
		if on := isGateOn(c, name); on != findGate(name).on {
			c.FeatureGates[name] = on
		}
	}
}

// checkGates checks that the gates that are set exist and can have their values, and that the gates
// that one depends on are on (featuregate of k8s.io/component-base). Gates whose gates are not on
// are looked for only if all values are possible, as the kubelet does.
func (v *validator) checkGates() {
	before := len(v.errs)
	for _, name := range slices.Sorted(maps.Keys(v.config.FeatureGates)) {
		gate, on := findGate(name), v.config.FeatureGates[name]
		at := fieldPath("featureGates").Key(name)
		switch {
		case gate == nil:
			v.add(field.Invalid(at, on, "there is no such feature gate in Kubernetes 1.36"))
		case gate.locked && on != gate.on:
			v.add(field.Invalid(at, on, "is locked to "+strconv.FormatBool(gate.on)))
		case gate.stage == stagePreAlpha:
			v.add(field.Invalid(at, on, "cannot be set before its alpha stage"))
		}
	}
	if len(v.errs) > before {
		return
	}
	for _, gate := range gateTable {
		for _, needed := range gate.depends {
			if isGateOn(v.config, gate.name) && !isGateOn(v.config, needed) {
				v.add(field.Invalid(fieldPath("featureGates").Key(gate.name), true,
					"needs the feature gate "+needed))
			}
		}
	}
}

// gateWarnings returns the warnings about the gates that are set: those that will be removed, and
// those that a kubelet asks for and the agent does not.
func gateWarnings(c *configuration) []string {
	var removed, inert []string
	for _, name := range slices.Sorted(maps.Keys(c.FeatureGates)) {
		gate, on := findGate(name), c.FeatureGates[name]
		if gate == nil {
			continue // an error
		}
		if gate.stage == stageGA || gate.stage == stageDeprecated {
			removed = append(removed, name)
		}
		if gate.asked && on != gate.on && !slices.Contains(gatesInEffect, name) {
			inert = append(inert, name+"="+strconv.FormatBool(on))
		}
	}
	var warnings []string
	if len(removed) > 0 {
		warnings = append(warnings, "feature gates that are set, and that a later release of "+
			"Kubernetes will not know any more: "+strings.Join(removed, ", "))
	}
	if len(inert) > 0 {
		warnings = append(warnings, "feature gates that have no effect, since the agent does not have "+
			"the feature, or has it always: "+strings.Join(inert, ", "))
	}
	return warnings
}

// Feature gates that are on by default since v1.36.
const (
	gateRestartAllContainers = "RestartAllContainersOnContainerExits"             // KEP-5532
	gateDeclaredFeatures     = "NodeDeclaredFeatures"                             // KEP-5328
	gateExtendWebSockets     = "ExtendWebSocketsToKubelet"                        // KEP-4006
	gateEnvFiles             = "EnvFiles"                                         // KEP-3721
	gateEnsureSecretPulled   = "KubeletEnsureSecretPulledImages"                  // KEP-2535
	gateTokensForPlugins     = "KubeletServiceAccountTokenForCredentialProviders" // KEP-4412
	gateInitResize           = "InPlacePodVerticalScalingInitContainers"          // KEP-1287
	gatePodLevelResize       = FeaturePodLevelResize
	gateQuotaPeriod          = "CustomCPUCFSQuotaPeriod"                // kubernetes#63437
	gateCrashLoopMax         = "KubeletCrashLoopBackOffMax"             // KEP-4603
	gateShutdown             = "GracefulNodeShutdown"                   // KEP-2000
	gateShutdownByPriority   = "GracefulNodeShutdownBasedOnPodPriority" // KEP-2712
)

// FeaturePodLevelResize is the feature, and the gate, of the resize of pod-level resources
// (KEP-5419).
const FeaturePodLevelResize = "InPlacePodLevelResourcesVerticalScaling"

// Feature gates that are off by default in v1.36.
const (
	gateLoggingAlpha    = "LoggingAlphaOptions"
	gateMemoryQoS       = "MemoryQoS"             // KEP-2570
	gateVolumeHealth    = "CSIVolumeHealth"       // KEP-1432
	gateQOSReserved     = "QOSReserved"           // kubernetes/enhancements#5
	gatePodCertificates = "PodCertificateRequest" // KEP-4317
	gateSELinuxMount    = "SELinuxMount"          // KEP-1710
)

// GracefulShutdownEnabled reports whether a shutdown of the machine is delayed until pods have
// ended (KEP-2000).
func GracefulShutdownEnabled(c *configuration) bool { return isGateOn(c, gateShutdown) }

// RestartAllContainersEnabled reports whether the exit of a container may restart all containers of
// its pod.
func RestartAllContainersEnabled(c *configuration) bool {
	return isGateOn(c, gateRestartAllContainers)
}

// EnvFilesEnabled reports whether variables of containers may be taken from files in volumes.
func EnvFilesEnabled(c *configuration) bool { return isGateOn(c, gateEnvFiles) }

// SetMissingGates sets feature gates that the configuration does not have.
func SetMissingGates(c *configuration, gates map[string]bool) {
	for name, on := range gates { //ordered: into a map
		if _, isSet := c.FeatureGates[name]; isSet {
			continue
		}
		if c.FeatureGates == nil {
			c.FeatureGates = map[string]bool{}
		}
		c.FeatureGates[name] = on
	}
}

// PullRecordsEnabled reports whether it is recorded with which credentials images were pulled
// (KEP-2535).
func PullRecordsEnabled(c *configuration) bool { return isGateOn(c, gateEnsureSecretPulled) }

// TokensForPluginsEnabled reports whether plugins that provide credentials for images may get
// tokens of service accounts (KEP-4412).
func TokensForPluginsEnabled(c *configuration) bool { return isGateOn(c, gateTokensForPlugins) }

// MemoryQoSEnabled reports whether the memory that pods request is protected from reclaim.
func MemoryQoSEnabled(c *configuration) bool { return isGateOn(c, gateMemoryQoS) }

// VolumeHealthEnabled reports whether the conditions of volumes are reported (KEP-1432).
func VolumeHealthEnabled(c *configuration) bool { return isGateOn(c, gateVolumeHealth) }

// SELinuxMountEnabled reports whether volumes of all access modes are mounted with the SELinux
// label of their pod (KEP-1710).
func SELinuxMountEnabled(c *configuration) bool { return isGateOn(c, gateSELinuxMount) }

// PodCertificatesEnabled reports whether certificates are requested for the volumes of pods
// (KEP-4317).
func PodCertificatesEnabled(c *configuration) bool { return isGateOn(c, gatePodCertificates) }

// ReservedMemoryPercent returns the percentage in qosReserved of memory; zero without the feature
// gate QOSReserved.
func ReservedMemoryPercent(c *configuration) int64 {
	percent, err := strconv.ParseInt(strings.TrimSuffix(c.QOSReserved["memory"], "%"), 10, 64)
	if err != nil || !isGateOn(c, gateQOSReserved) {
		return 0
	}
	return percent
}

// ChecksDeclaredFeatures reports whether pods are held against the features that the node declares.
func ChecksDeclaredFeatures(c *configuration) bool {
	return isGateOn(c, gateDeclaredFeatures)
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
		if isGateOn(c, gate) {
			declared = append(declared, gate)
		}
	}
	return declared
}

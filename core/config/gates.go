package config

// Feature gates that are on by default since v1.36.
const (
	gateRestartAllContainers = "RestartAllContainersOnContainerExits" // KEP-5532
	gateDeclaredFeatures     = "NodeDeclaredFeatures"                 // KEP-5328
	gateExtendWebSockets     = "ExtendWebSocketsToKubelet"            // KEP-4006
	gateEnvFiles             = "EnvFiles"                             // KEP-3721
)

// isGateOn reports whether a feature gate is on; byDefault is its default in v1.36.
func isGateOn(c *configuration, gate string, byDefault bool) bool {
	if on, isSet := c.FeatureGates[gate]; isSet {
		return on
	}
	return byDefault
}

// RestartAllContainersEnabled reports whether the exit of a container may restart all containers of
// its pod.
func RestartAllContainersEnabled(c *configuration) bool {
	return isGateOn(c, gateRestartAllContainers, true)
}

// EnvFilesEnabled reports whether variables of containers may be taken from files in volumes.
func EnvFilesEnabled(c *configuration) bool { return isGateOn(c, gateEnvFiles, true) }

// ChecksDeclaredFeatures reports whether pods are held against the features that the node declares.
func ChecksDeclaredFeatures(c *configuration) bool {
	return isGateOn(c, gateDeclaredFeatures, true)
}

// DeclaredFeatures returns the features that the node declares in its status, sorted (KEP-5328).
// The scheduler places pods that need a feature only on nodes that declare it, and the API server
// opens WebSockets only to those. Features that the agent lacks are never declared: the resize of
// init containers and of pod-level resources, and user namespaces with the network of the host. The
// kubelet's list is features/registry.go of k8s.io/component-helpers/nodedeclaredfeatures.
func DeclaredFeatures(c *configuration) []string {
	if !ChecksDeclaredFeatures(c) {
		return nil
	}
	var declared []string
	for _, gate := range []string{gateExtendWebSockets, gateRestartAllContainers} {
		if isGateOn(c, gate, true) {
			declared = append(declared, gate)
		}
	}
	return declared
}

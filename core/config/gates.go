package config

// Feature gates that are on by default since v1.36.
const (
	gateRestartAllContainers = "RestartAllContainersOnContainerExits" // KEP-5532
	gateDeclaredFeatures     = "NodeDeclaredFeatures"                 // KEP-5328
	gateExtendWebSockets     = "ExtendWebSocketsToKubelet"            // KEP-4006
)

// isGateOn reports whether a gate that is on by default is on.
func isGateOn(c *configuration, gate string) bool {
	on, set := c.FeatureGates[gate]
	return on || !set
}

// RestartAllContainersEnabled reports whether the exit of a container may restart all containers of
// its pod.
func RestartAllContainersEnabled(c *configuration) bool {
	return isGateOn(c, gateRestartAllContainers)
}

// ChecksDeclaredFeatures reports whether pods are held against the features that the node declares.
func ChecksDeclaredFeatures(c *configuration) bool { return isGateOn(c, gateDeclaredFeatures) }

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
		if isGateOn(c, gate) {
			declared = append(declared, gate)
		}
	}
	return declared
}

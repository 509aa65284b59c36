package e2e

import (
	"strings"
)

// The differences that a program makes by itself when it takes over a node, and that affect no
// workload.

// isExpected reports whether a line of changes is one of them.
func (c *takeOverSuite) isExpected(bySeedlet bool, change string) bool {
	kind, text, _ := strings.Cut(change, ": ")
	isOneOf := func(parts ...string) bool {
		for _, part := range parts {
			if strings.Contains(text, part) {
				return true
			}
		}
		return false
	}
	switch kind {
	case "files":
		// Its sockets; what a kubelet notes about volumes that it finds; the agent's records, and what it
		// removes of pods that have ended.
		return isOneOf("/pod-resources/kubelet.sock") ||
			!bySeedlet && (isOneOf("/plugins/kubernetes.io~empty-dir") ||
				strings.HasSuffix(text, "/plugins")) || bySeedlet &&
			(isOneOf("/seedlet.json", "/device-plugins") ||
				c.isOfEndedPod(text) && isOneOf("/volumes", "/etc-hosts"))
	case "cgroups":
		// A kubelet that has just started gives the tier the least, until a minute later.
		return isOneOf("/kubepods/burstable cpu.shares=")
	case "event":
		return isOneOf("Node "+nodeName+" Starting:", "Node "+nodeName+" CgroupV1:",
			"Node "+nodeName+" NodeAllocatableEnforced:", "Node "+nodeName+" NodeHas",
			"Pod sick Unhealthy:", "Pod starting Unhealthy:")
	case "pod status":
		return !bySeedlet && isOfKubelet(text)
	}
	return false
}

// isOfEndedPod reports whether a path has the UID of a pod that has a terminal phase.
func (c *takeOverSuite) isOfEndedPod(path string) bool {
	c.history.mu.Lock()
	defer c.history.mu.Unlock()
	for uid, states := range c.history.podStates { //ordered: one is enough
		if strings.Contains(path, string(uid)) && hasTerminalPhase(states[len(states)-1]) {
			return true
		}
	}
	return false
}

// isOfKubelet reports whether a change of the status of a pod is one that a kubelet makes after its
// own restart as well: it forgets the readiness and the start of static pods, that a startup probe
// has not succeeded yet, and the addresses of pods that have ended.
func isOfKubelet(change string) bool {
	name, what, _ := strings.Cut(change, ": ")
	switch {
	case strings.HasSuffix(name, "-"+nodeName):
		return strings.HasPrefix(what, "ready") || strings.HasPrefix(what, "condition") ||
			strings.HasPrefix(what, "start")
	case name == "starting":
		return strings.HasPrefix(what, "ready") || strings.HasPrefix(what, "condition") ||
			strings.HasPrefix(what, "started")
	}
	return strings.HasPrefix(what, "IPs of an ended pod")
}

package core

import (
	v1 "k8s.io/api/core/v1"

	"seedlet.dev/core/containergc"
	nodeobject "seedlet.dev/core/node"
)

func (a *Agent) containerGCEnv() *containergc.Env {
	return &containergc.Env{Effects: &a.effects, Failures: a.collectionFailures,
		Warn: func(reason, message string) {
			a.effects.RecordEvent(nodeobject.Reference(a.state.Node.Name), v1.EventTypeWarning, reason,
				"%s", message)
		}}
}

// collectionFailures returns what fails of the collection of containers: the lists of the runtime,
// removals of containers and sandboxes, and the directories of logs.
func (a *Agent) collectionFailures() []containergc.Failure {
	failures := []containergc.Failure{a.state.Relist.Failing}
	for _, uid := range a.podUIDs {
		failures = a.state.Pods[uid].AppendRemovalFailures(failures)
	}
	return append(failures, a.state.Housekeeping.Failures()...)
}

package core

import "seedlet.dev/core/containergc"

func (a *Agent) containerGCEnv() *containergc.Env {
	return &containergc.Env{Effects: &a.effects, Failures: a.collectionFailures, Warn: a.warnOfNode}
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

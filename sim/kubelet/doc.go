// Package kubelet is the kubelet of Kubernetes 1.36 that has run the simulated node before the
// agent did, and the one that may run it afterwards.
//
// Contract: the first only makes state. It calls the simulated ports as a kubelet does, step by
// step, and leaves at the take-over what a kubelet leaves: sandboxes, containers, files, cgroups,
// and objects at the API server. What it does next follows from the true state of the node alone,
// so it can be stopped at any moment. It detects no faults, because none applies before the
// take-over, and it does only what the pods of scenarios of take-overs need.
//
// The second only reads: Read says what a kubelet would do to what the agent has left.
//
// Both are written after the kubelet's documentation and behaviour, and share no code with the
// core: an error there must be seen.
//
// Start reading at Kubelet.Run in kubelet.go, then read.go.
package kubelet

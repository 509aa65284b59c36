// Package e2e tests the whole node agent: bin/seedlet runs as a separate process on a real private
// containerd of every supported version. The tests check real state: the runtime's CRI, what
// containers report about their environment and write to their logs, the connections that they
// hold, files and processes. The agent's own view (/pods) is only compared with that state.
//
// TestAgent (agent_lifecycle_test.go) takes one agent through the life of a node. TestPods
// (pods_test.go) is a table of the features of a pod: each part is a manifest of a few lines and
// the checks of its effects, in the file of its subject; all parts run in parallel on one node.
// TestChurn kills the agent again and again. TestCluster takes one agent through the life of a node
// of a real cluster, and BenchmarkPace compares the start of a hundred pods there with the
// time that the runtime alone needs for them. TestTakeOver has a kubelet and the agent replace each
// other there. TestCSI gives pods of a cluster volumes of a real CSI driver with the real sidecars,
// and kills the agent and the driver. TestSystemd and TestSystemdCluster run on a machine where
// systemd makes the cgroups. TestPackage installs the agent as a service, by the commands of
// docs/install.md. The containers run cmd/sample.
//
// Start reading at TestPods. The helpers are methods of suite (suite_test.go), which is a node with
// an agent, and of clusterSuite (cluster_test.go), which adds a cluster.
package e2e

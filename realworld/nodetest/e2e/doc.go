// Package e2e holds the tests of the whole node agent: bin/seedlet as a process of its own, on a
// real private containerd of every supported version. They judge by what really happened: by the
// runtime's CRI, by what containers found around them and wrote to their logs, by the connections
// that they held, by files and processes. The agent's own word (/pods) is only compared with that.
//
// TestAgent takes one agent through the life of a node. TestPods is a table of what pods can ask
// for: a part is a manifest of a few lines and what has to be seen of it, in the file of its
// subject; all parts run side by side on one node. TestChurn kills the agent again and again.
// TestCluster takes one through the life of a node of a real cluster, and BenchmarkHundredPods is
// how much longer pods take there than the runtime needs for them.
// What runs in the containers is cmd/sample.
package e2e

// Package e2e holds the tests of the whole node agent: bin/seedlet as a process of its own, on a
// real private containerd of every supported version. They judge by what the runtime's CRI says
// and by what is on the disk; the agent's own word (/pods) is only compared with that.
//
// Start reading at TestAgent.
package e2e

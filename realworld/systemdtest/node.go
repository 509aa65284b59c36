package systemdtest

import (
	"context"
	"os/exec"
	"path/filepath"
	"testing"
)

// NodeOptions configure the machine of a node.
type NodeOptions struct {
	HostName string
	Bridge   string // of this machine; the node's only interface, host0, is attached to it

	// DiskDirs are directories of the node that are on a disk, not in memory: the file system for
	// what the machine writes is an overlay, and containerd's snapshots cannot be overlays on it.
	DiskDirs []string
}

// Node is a running machine that a test has from outside, as a node of a cluster of several.
type Node struct {
	HostName string
	machine  *machine
}

// StartNode boots a machine as a node, which is removed when the test ends. The test fails where no
// machine can be booted, unlike those of Inside: it runs only if it is asked for.
func StartNode(t *testing.T, o NodeOptions) *Node {
	t.Helper()
	// The name of the interface on this machine's side is made from the name of the machine.
	m := &machine{diskDirs: o.DiskDirs, options: []string{"--machine=" + o.HostName,
		"--hostname=" + o.HostName, "--network-bridge=" + o.Bridge}}
	if err := CheckBootable(); err != nil {
		t.Fatal(err)
	}
	m.startFor(t)
	return &Node{HostName: o.HostName, machine: m}
}

// Command returns a command that runs a program on the node.
func (n *Node) Command(ctx context.Context, program string, args ...string) *exec.Cmd {
	return n.machine.command(ctx, program, args...)
}

// RunLines runs a program on the node, and calls a function with each line that it prints.
func (n *Node) RunLines(ctx context.Context, each func(line string), program string,
	args ...string) error {
	return runLines(ctx, func(ctx context.Context) *exec.Cmd {
		return n.Command(ctx, program, args...)
	}, each)
}

// Path returns the path by which this machine reaches a file of the node. A link of the node in it
// is not resolved as the node does.
func (n *Node) Path(path string) string {
	return filepath.Join("/proc", n.machine.leader, "root", path)
}

package nodetest

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"seedlet.dev/realworld/cleanup"
)

// PowerOff takes away what a machine loses when its power fails: the runtime, all processes of pods
// and those of agents and CSI drivers on the node's directory, all mounts in it, the cgroups of
// pods, and the runtime's state, which is on /run of a machine. Files stay, images and addresses of
// pods among them, and so does the bridge, which other tests see. Restart is the next boot.
func (n *Node) PowerOff() error {
	if err := n.daemon.Kill(); err != nil {
		return err
	}
	err := cleanup.Sweep(func() (cleanup.Leftovers, error) {
		r, err := findLeftovers(n.Dir)
		r.bridge, r.dirExists = "", false
		r.files = slices.DeleteFunc(r.files, func(path string) bool {
			return !strings.HasPrefix(path, "/sys/") && !strings.HasPrefix(path, "/run/")
		})
		return r, err
	})
	if err != nil {
		return fmt.Errorf("powering off the node at %s: %w", n.Dir, err)
	}
	if err := os.RemoveAll(statePath(n.Dir)); err != nil {
		return fmt.Errorf("removing the runtime's state: %w", err)
	}
	return CreateCgroups(n.Dir)
}

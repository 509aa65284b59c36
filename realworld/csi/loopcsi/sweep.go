package loopcsi

import "seedlet.dev/realworld/cleanup"

// GuardKind is the kind of the guard process of a driver's directory, as in
// cleanup.StartGuard(GuardKind, dir). It removes loop devices and mounts, not files.
const GuardKind = "loopcsi"

func init() { cleanup.RunGuard(GuardKind, Sweep) }

// Sweep unmounts all volumes of a directory and detaches them from their loop devices. The driver
// must have ended.
func Sweep(dir string) error {
	return cleanup.Sweep(func() (cleanup.Leftovers, error) { return findLeftovers(dir) })
}

// Leftovers lists the loop devices of a directory and their mounts, a line for each.
func Leftovers(dir string) ([]string, error) {
	left, err := findLeftovers(dir)
	return left.Lines(), err
}

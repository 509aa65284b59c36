package config

import "slices"

// The entries of enforceNodeAllocatable.
const (
	EnforcePods               = "pods"
	EnforceSystem             = "system-reserved"
	EnforceSystemCompressible = "system-reserved-compressible"
	EnforceKube               = "kube-reserved"
	EnforceKubeCompressible   = "kube-reserved-compressible"
)

// Enforces reports whether enforceNodeAllocatable has an entry.
func Enforces(c *configuration, entry string) bool {
	return slices.Contains(c.EnforceNodeAllocatable, entry)
}

package manifest

import (
	"encoding/hex"

	v1 "k8s.io/api/core/v1"
)

// ContainerHash returns the hash of a container's definition that the agent records with a running
// container: 8 hex digits. The hash covers the name and the image alone: no default touches these
// fields, and a change of them needs a new container. A hash of the whole definition would change
// with every field that a new API version adds, and restart every container on the node (kubernetes
// issues 63814, 129385).
func ContainerHash(c *v1.Container) string {
	sum := fnv1a(fnv1a(fnv1a(2166136261, c.Name), "\x00"), c.Image)
	var text [8]byte
	hex.Encode(text[:], []byte{byte(sum >> 24), byte(sum >> 16), byte(sum >> 8), byte(sum)})
	return string(text[:])
}

// fnv1a returns the 32-bit FNV-1a hash as in hash/fnv, without its heap allocation: the hash is
// computed for each container whenever a pod is planned.
func fnv1a(sum uint32, text string) uint32 {
	for i := range len(text) {
		sum = (sum ^ uint32(text[i])) * 16777619
	}
	return sum
}

package manifest

import (
	"encoding/hex"

	v1 "k8s.io/api/core/v1"
)

// ContainerHash says which definition a running container was made from: 8 hex digits. It is
// over the name and the image alone, the two fields that no default touches and whose change
// needs another container. A hash over the whole definition changes with every field that a new
// API version adds, and restarts every container on the node (kubernetes issues 63814, 129385).
func ContainerHash(c *v1.Container) string {
	sum := fnv1a(fnv1a(fnv1a(2166136261, c.Name), "\x00"), c.Image)
	var text [8]byte
	hex.Encode(text[:], []byte{byte(sum >> 24), byte(sum >> 16), byte(sum >> 8), byte(sum)})
	return string(text[:])
}

// fnv1a is the 32-bit FNV-1a hash, as of hash/fnv, which needs the heap for it: a pod has its
// containers compared whenever it is planned.
func fnv1a(sum uint32, text string) uint32 {
	for i := range len(text) {
		sum = (sum ^ uint32(text[i])) * 16777619
	}
	return sum
}

package manifest

import (
	"encoding/hex"
	"hash/fnv"

	v1 "k8s.io/api/core/v1"
)

// ContainerHash says which definition a running container was made from: 8 hex digits. It is
// over the name and the image alone, the two fields that no default touches and whose change
// needs another container. A hash over the whole definition changes with every field that a new
// API version adds, and restarts every container on the node (kubernetes issues 63814, 129385).
func ContainerHash(c *v1.Container) string {
	h := fnv.New32a()
	h.Write([]byte(c.Name))
	h.Write([]byte{0})
	h.Write([]byte(c.Image))
	return hex.EncodeToString(h.Sum(nil))
}

package manifest

import (
	"encoding/json"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// ContainerHash returns the hash of a container's definition that the agent records with a running
// container, in hex digits. It is the kubelet's, so that neither restarts the containers of the
// other when one replaces the other on a node: the hash of the text into which its dump turns the
// JSON of image and name, "([]uint8)[123 34 ...]" (HashContainer in pkg/kubelet/container/helpers.go).
// The hash covers the name and the image alone: no default touches these fields, and a change of
// them needs a new container. A hash of the whole definition would change with every field that a
// new API version adds, and restart every container on the node (kubernetes issues 63814, 129385).
func ContainerHash(c *v1.Container) string {
	sum := fnv1a(2166136261, "([]uint8)[123") // the opening brace
	sum = hashJSON(hashJSON(sum, `"image":`, c.Image), `,"name":`, c.Name)
	return strconv.FormatUint(uint64(fnv1a(sum, " 125]")), 16)
}

// hashJSON adds the numbers of the bytes of a field and of the JSON of its text.
func hashJSON(sum uint32, field, text string) uint32 {
	sum = hashBytes(sum, field)
	isPlain := !strings.ContainsFunc(text, func(r rune) bool {
		return r < ' ' || r > '~' || r == '"' || r == '\\' || r == '<' || r == '>' || r == '&'
	})
	if isPlain {
		return hashBytes(hashBytes(hashBytes(sum, `"`), text), `"`)
	}
	quoted, _ := json.Marshal(text) // a text has JSON
	return hashBytes(sum, string(quoted))
}

// hashBytes adds the number of each byte, after a space.
func hashBytes(sum uint32, text string) uint32 {
	var number [4]byte
	for i := range len(text) {
		for _, digit := range strconv.AppendUint(append(number[:0], ' '), uint64(text[i]), 10) {
			sum = (sum ^ uint32(digit)) * 16777619
		}
	}
	return sum
}

// fnv1a returns the 32-bit FNV-1a hash as in hash/fnv, without its heap allocation: the hash is
// computed for each container whenever a pod is planned.
func fnv1a(sum uint32, text string) uint32 {
	for i := range len(text) {
		sum = (sum ^ uint32(text[i])) * 16777619
	}
	return sum
}

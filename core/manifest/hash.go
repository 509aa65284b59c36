package manifest

import (
	"encoding/json"
	"strconv"
	"unicode/utf8"

	v1 "k8s.io/api/core/v1"
)

// ContainerHash returns the hash of a container's definition that the agent records with a running
// container, in hex. It is the one of a kubelet (HashContainer in its pkg/kubelet/container), so
// that an agent takes over the containers of the other. The hash covers the name and the image
// alone: no default touches these fields, and a change of them needs a new container. A hash of the
// whole definition would change with every field that a new API version adds, and restart every
// container on the node (kubernetes issues 63814, 129385).
//
// What the kubelet hashes is the text that its package for hashes makes of a JSON object: the
// decimal numbers of its bytes.
func ContainerHash(c *v1.Container) string {
	h := jsonHash{sum: 2166136261, separator: "([]uint8)["}
	h.addText(`{"image":`)
	h.addString(c.Image)
	h.addText(`,"name":`)
	h.addString(c.Name)
	h.addText("}")
	h.addRaw("]")
	return strconv.FormatUint(uint64(h.sum), 16)
}

// jsonHash is the 32-bit FNV-1a hash of numbers. It is as in hash/fnv, without its heap allocation:
// the hash is computed for each container whenever a pod is planned.
type jsonHash struct {
	sum       uint32
	separator string // what comes before the next number
}

// addString adds the bytes of a JSON string.
func (h *jsonHash) addString(text string) {
	if isPlain(text) {
		h.addText(`"`)
		h.addText(text)
		h.addText(`"`)
		return
	}
	quoted, _ := json.Marshal(text) // strings can always be encoded
	h.addText(string(quoted))
}

// isPlain reports whether JSON escapes nothing of a text.
func isPlain(text string) bool {
	for i := range len(text) {
		switch c := text[i]; {
		case c < ' ', c >= utf8.RuneSelf, c == '"', c == '\\', c == '<', c == '>', c == '&':
			return false
		}
	}
	return true
}

// addText adds the numbers of bytes.
func (h *jsonHash) addText(text string) {
	var digits [3]byte
	for i := range len(text) {
		h.addRaw(h.separator)
		h.separator = " "
		for _, digit := range strconv.AppendUint(digits[:0], uint64(text[i]), 10) {
			h.sum = (h.sum ^ uint32(digit)) * 16777619
		}
	}
}

// addRaw adds a text as it is.
func (h *jsonHash) addRaw(text string) {
	for i := range len(text) {
		h.sum = (h.sum ^ uint32(text[i])) * 16777619
	}
}

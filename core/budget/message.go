package budget

import "strings"

// Cut returns the first bytes of a text, and ends between two characters.
func Cut(text string, bytesMax int) string {
	if len(text) <= bytesMax {
		return text
	}
	return strings.ToValidUTF8(text[:bytesMax], "")
}

// CutIdentifier returns an identifier of an image that the runtime gives; empty if it is longer
// than a reference may be. A cut identifier would be another image's, and no image has such a long
// one.
func CutIdentifier(id string) string {
	if len(id) > ImageReferenceMax {
		return ""
	}
	return id
}

// CutMessage returns as much of a message as a status or an event may have.
func CutMessage(text string) string { return Cut(text, MessageMax) }

package budget

import "strings"

// Cut returns the first bytes of a text, and ends between two characters.
func Cut(text string, bytesMax int) string {
	if len(text) <= bytesMax {
		return text
	}
	return strings.ToValidUTF8(text[:bytesMax], "")
}

// CutMessage returns as much of a message as a status or an event may have.
func CutMessage(text string) string { return Cut(text, MessageMax) }

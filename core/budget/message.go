package budget

import "strings"

// Cut returns the first bytes of a text, and ends between two characters.
func Cut(text string, bytesMax int) string {
	if len(text) <= bytesMax {
		return text
	}
	return strings.ToValidUTF8(text[:bytesMax], "")
}

// IdentifierWithin returns an identifier, or nothing if it has more bytes: a part of it would
// identify something else.
func IdentifierWithin(id string, bytesMax int) string {
	if len(id) > bytesMax {
		return ""
	}
	return id
}

// CutMessage returns as much of a message as a status or an event may have.
func CutMessage(text string) string { return Cut(text, MessageMax) }

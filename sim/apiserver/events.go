package apiserver

import (
	"strings"
	"time"

	"seedlet.dev/sim/truth"
	"seedlet.dev/world"
)

// Told is the fact that an event was told. What the port makes of it is not played: objects that
// nobody waits for and nobody of the node reads.
func Told(e *world.RecordEvent, now time.Time) truth.Fact {
	f := truth.Fact{Time: now, Kind: truth.EventTold, Reason: e.Reason, Message: e.Message}
	if e.Regarding.Kind != "Pod" {
		return f
	}
	f.PodUID, f.PodNamespace = string(e.Regarding.UID), e.Regarding.Namespace
	f.PodName = e.Regarding.Name
	if _, name, in := strings.Cut(e.Regarding.FieldPath, "{"); in {
		f.Container = strings.TrimSuffix(name, "}")
	} else {
		f.Container = strings.TrimPrefix(e.Regarding.FieldPath, "implicitly required container ")
	}
	return f
}

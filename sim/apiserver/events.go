package apiserver

import (
	"strings"
	"time"

	"seedlet.dev/sim/truth"
	"seedlet.dev/world"
)

// EventFact returns the truth fact of a recorded event. The Event objects themselves are not
// simulated, because the agent never reads them.
func EventFact(e *world.RecordEvent, now time.Time) truth.Fact {
	f := truth.Fact{Time: now, Kind: truth.EventRecorded, Reason: e.Reason, Message: e.Message}
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

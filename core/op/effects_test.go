package op

import (
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/world"
)

// The effects of a pod's operations name the pod, and no other effects do.
func TestEffectsHaveTheirPod(t *testing.T) {
	var out Effects
	out.Reset(&Table{}, time.Unix(0, 0))
	out.Issue(Owner{Component: "pod", Name: "u1"}, "", time.Second, &world.MakeDir{})
	out.Issue(Owner{Component: "image", Name: "i"}, "", time.Second, &world.MakeDir{})
	out.Log(world.LevelInfo, "done")
	for i, want := range []string{"u1", "", ""} {
		if got := out.List()[i].Pod; got != want {
			t.Errorf("effect %d is for pod %q, want %q", i, got, want)
		}
	}
}

// An event has as much of a message as the API server takes.
func TestEventMessagesAreCut(t *testing.T) {
	var out Effects
	out.Reset(&Table{}, time.Unix(0, 0))
	out.RecordEvent(v1.ObjectReference{}, "Normal", "A", "%s", strings.Repeat("ä", 1<<20))
	out.RecordEvent(v1.ObjectReference{}, "Normal", "A", "%s", "short")
	for i, want := range []string{strings.Repeat("ä", 6<<10), "short"} {
		if got := out.List()[i].Body.(*world.RecordEvent).Message; got != want {
			t.Errorf("a message of %d bytes, want %d", len(got), len(want))
		}
	}
}

// Operations of a pod and writes of its status are of one tenant. The node's operations have none.
func TestTenants(t *testing.T) {
	var out Effects
	out.Reset(&Table{}, time.Unix(0, 0))
	for _, owner := range []Owner{{Component: "pod", Name: "u1"}, {Component: "status", Name: "u1"},
		{Component: "mirror", Name: "a/b"}, {Component: "lease"}, {Component: "logs", Name: "rotation"}} {
		out.Issue(owner, "", time.Second, &world.MakeDir{})
	}
	out.IssueFor("u2", Owner{Component: "logs", Name: "rotation"}, "", time.Second, &world.MakeDir{})
	out.IssueAt("/a", Owner{Component: "pod", Name: "u3"}, "", time.Second, &world.MakeDir{})
	for i, want := range []string{"u1", "u1", "mirror/a/b", "", "", "u2", "u3"} {
		if got := out.List()[i].Tenant; got != want {
			t.Errorf("effect %d is of tenant %q, want %q", i, got, want)
		}
	}
}

// A canceled operation is forgotten, and its port hears of it. A refused one was never issued, and
// an unknown one has completed.
func TestCancel(t *testing.T) {
	var table Table
	var out Effects
	out.Reset(&table, t0)
	id := out.Issue(Owner{Component: "pod", Name: "u"}, "", time.Hour, &world.MakeDir{})
	out.Cancel(id)
	out.Cancel(id)
	list := out.List()
	if len(list) != 2 || len(table.Records) != 0 {
		t.Fatalf("%d effects, %d records", len(list), len(table.Records))
	}
	if c, ok := list[1].Body.(*world.CancelOperation); !ok || c.Operation != id || list[1].Op != 0 {
		t.Errorf("the effect is %+v", list[1])
	}
	table.InFlight = InFlightMax
	out.Cancel(out.Issue(Owner{Component: "pod", Name: "u"}, "", time.Hour, &world.MakeDir{}))
	if len(out.List()) != 2 || len(table.Records) != 0 {
		t.Errorf("a refused operation: %d effects, %d records", len(out.List()), len(table.Records))
	}
}

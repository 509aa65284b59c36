package op

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/core/budget"
	"seedlet.dev/world"
)

var t0 = time.Unix(0, 0)

func issue(t *Table, owner Owner, body any) (world.OpID, bool) {
	var out Effects
	out.Reset(t, t0)
	id := out.Issue(owner, "", time.Hour, body)
	return id, len(out.List()) == 1
}

// An owner has a bounded number of operations in flight. One more is not issued, and completes with
// KindExhausted, also after the table was read from a snapshot. Releasing operations have no bound.
func TestOwnerOverBound(t *testing.T) {
	var table Table
	pod, other := Owner{Component: "pod", Name: "u"}, Owner{Component: "pod", Name: "v"}
	var first world.OpID
	for i := range budget.OperationsMax {
		id, issued := issue(&table, pod, &world.MakeDir{})
		if !issued {
			t.Fatalf("operation %d is refused", i)
		}
		if i == 0 {
			first = id
		}
	}
	data, err := json.Marshal(&table)
	if err != nil {
		t.Fatal(err)
	}
	table = Table{}
	if err := json.Unmarshal(data, &table); err != nil {
		t.Fatal(err)
	}
	refused, issued := issue(&table, pod, &world.MakeDir{})
	if issued {
		t.Fatal("no operation is refused")
	}
	if _, issued := issue(&table, other, &world.MakeDir{}); !issued {
		t.Error("an operation of another pod is refused")
	}
	if _, issued := issue(&table, pod, &runtimeapi.StopContainerRequest{}); !issued {
		t.Error("a stop is refused")
	}
	if _, known := table.Complete(refused); known {
		t.Error("the port completed an operation that it never had")
	}
	if _, _, _, due := table.Expire(t0); due {
		t.Error("the refused operation completes in its own step")
	}
	id, r, failure, due := table.Expire(t0.Add(RefusalDelay))
	if !due || id != refused || !r.Refused || !failure.Has(world.KindExhausted) {
		t.Errorf("%v: %+v, %v", id, r, failure)
	}
	if table.Refused != 1 || table.Expired != 0 || table.InFlight != budget.OperationsMax+2 {
		t.Errorf("%d refused, %d expired, %d in flight", table.Refused, table.Expired, table.InFlight)
	}
	table.Complete(first)
	table.Remove(id)
	if _, issued := issue(&table, pod, &world.MakeDir{}); issued {
		t.Error("the stop does not count")
	}
	if table.InFlightOfOne() != budget.OperationsMax {
		t.Errorf("%d operations of one owner", table.InFlightOfOne())
	}
}

// However many pods take what they can get, one that comes later has a share.
func TestManyOwnersLeaveAShare(t *testing.T) {
	var table Table
	for i := range 256 { // more pods than a node has
		owner := Owner{Component: "pod", Name: fmt.Sprint(i)}
		issued := true
		for issued && table.InFlightByOwner[owner] <= budget.OperationsMax {
			_, issued = issue(&table, owner, &world.MakeDir{})
		}
		least := 1
		if i < 110 {
			least = 24
		}
		if got := table.InFlightByOwner[owner]; got < least || got > budget.OperationsMax {
			t.Fatalf("pod %d has %d operations, want %d at least", i, got, least)
		}
	}
}

// A full table refuses every operation, and does not panic.
func TestFullTable(t *testing.T) {
	var table Table
	image, lease := Owner{Component: "image", Name: "i"}, Owner{Component: "lease"}
	for range InFlightMax - ReservedMax {
		if _, issued := issue(&table, lease, &world.MakeDir{}); !issued {
			t.Fatal("an operation of the agent is refused")
		}
	}
	if _, issued := issue(&table, image, &world.MakeDir{}); issued {
		t.Error("an image has a part of the reserve")
	}
	for range ReservedMax {
		if _, issued := issue(&table, lease, &world.MakeDir{}); !issued {
			t.Fatal("an operation of the agent is refused")
		}
	}
	if _, issued := issue(&table, lease, &world.MakeDir{}); issued {
		t.Error("a full table takes an operation")
	}
	if table.HighWater != InFlightMax || table.Refused != 2 {
		t.Errorf("high water %d, %d refused", table.HighWater, table.Refused)
	}
}

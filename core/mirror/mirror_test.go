package mirror

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"seedlet.dev/core/manifest"
	"seedlet.dev/core/op"
	"seedlet.dev/world"
)

var (
	t0   = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	node = &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "n1"}}
)

func static(hash string) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "p", UID: "s",
		Annotations: map[string]string{manifest.ConfigHashAnnotation: hash}}}
}

// object is the mirror of a static pod, as the API server has it.
func object(hash string) *v1.Pod {
	m := of(static(hash), node)
	m.UID = "m"
	return m
}

func TestPlan(t *testing.T) {
	doomed := object("h")
	doomed.DeletionTimestamp = &metav1.Time{Time: t0}
	orphan := object("h")
	orphan.OwnerReferences[0].UID = "n0"
	stranger := static("h")
	for _, c := range []struct {
		name           string
		static, object *v1.Pod
		node           *v1.Node
		want           string
	}{
		{"missing", static("h"), nil, node, "CreateObject"},
		{"the node is not there yet", static("h"), nil, nil, ""},
		{"as it should be", static("h"), object("h"), node, ""},
		{"of another state of the pod", static("h2"), object("h"), node, "DeleteObject"},
		{"marked for deletion", static("h"), doomed, node, "DeleteObject"},
		{"of a node that has gone", static("h"), orphan, node, "DeleteObject"},
		{"the static pod has gone", nil, object("h"), node, "DeleteObject"},
		{"another pod has the name", static("h"), stranger, node, ""},
		{"another pod, and no static one", nil, stranger, node, ""},
	} {
		var m Pods
		var table op.Table
		var out op.Out
		out.Begin(&table, t0)
		m.Plan("a/p", c.static, c.object, c.node, &out)
		got := ""
		if effects := out.Take(); len(effects) > 0 {
			got = world.Call(effects[0].Body)
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

func TestFailureIsTriedAgain(t *testing.T) {
	var m Pods
	var table op.Table
	var out op.Out
	out.Begin(&table, t0)
	m.Plan("a/p", static("h"), nil, node, &out)
	id := out.Take()[0].Op
	r, _ := table.Settle(id)
	m.Answered(id, r, world.Event{Time: t0, Op: id,
		Err: world.Errorf(world.KindUnavailable, "CreateObject", "away")}, &out)
	out.Begin(&table, t0)
	if wake := m.Plan("a/p", static("h"), nil, node, &out); !wake.Equal(t0.Add(time.Second)) {
		t.Errorf("wants to be called at %v", wake)
	}
	if m.Plan("a/p", nil, nil, node, &out); len(m.Writes) > 0 {
		t.Errorf("left: %v", m.Writes)
	}
}

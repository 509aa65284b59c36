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

func staticPod(hash string) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "p", UID: "s",
		Annotations: map[string]string{manifest.ConfigHashAnnotation: hash}}}
}

// mirrorOf returns the mirror pod of a static pod as the API server has it.
func mirrorOf(hash string) *v1.Pod {
	m := newMirror(staticPod(hash), node)
	m.UID = "m"
	return m
}

func TestPlan(t *testing.T) {
	deleted := mirrorOf("h")
	deleted.DeletionTimestamp = &metav1.Time{Time: t0}
	orphan := mirrorOf("h")
	orphan.OwnerReferences[0].UID = "n0"
	unrelated := staticPod("h")
	for _, c := range []struct {
		name           string
		static, object *v1.Pod
		node           *v1.Node
		want           string
	}{
		{"missing", staticPod("h"), nil, node, "CreateObject"},
		{"no Node yet", staticPod("h"), nil, nil, ""},
		{"up to date", staticPod("h"), mirrorOf("h"), node, ""},
		{"of another version of the pod", staticPod("h2"), mirrorOf("h"), node, "DeleteObject"},
		{"marked for deletion", staticPod("h"), deleted, node, "DeleteObject"},
		{"of a Node that no longer exists", staticPod("h"), orphan, node, "DeleteObject"},
		{"the static pod is no longer desired", nil, mirrorOf("h"), node, "DeleteObject"},
		{"another pod has the name", staticPod("h"), unrelated, node, ""},
		{"another pod, and no static one", nil, unrelated, node, ""},
	} {
		var m Writer
		var table op.Table
		var effects op.Effects
		effects.Reset(&table, t0)
		m.Plan("a/p", c.static, c.object, c.node, &effects)
		got := ""
		if issued := effects.List(); len(issued) > 0 {
			got = world.CallName(issued[0].Body)
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

func TestRetryAfterFailure(t *testing.T) {
	var m Writer
	var table op.Table
	var effects op.Effects
	effects.Reset(&table, t0)
	m.Plan("a/p", staticPod("h"), nil, node, &effects)
	id := effects.List()[0].Op
	r, _ := table.Complete(id)
	m.HandleCompletion(id, r, world.Event{Time: t0, Op: id,
		Err: world.Errorf(world.KindUnavailable, "CreateObject", "away")}, &effects)
	effects.Reset(&table, t0)
	if wake := m.Plan("a/p", staticPod("h"), nil, node, &effects); !wake.Equal(t0.Add(time.Second)) {
		t.Errorf("planned again at %v, want a second later", wake)
	}
	if m.Plan("a/p", nil, nil, node, &effects); len(m.Writes) > 0 {
		t.Errorf("writes left: %v", m.Writes)
	}
}

package oracle

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"seedlet.dev/sim/truth"
	api "seedlet.dev/world"
)

// storeDeleted adds a pod that is marked for deletion and has a finalizer.
func storeDeleted(phase v1.PodPhase, grace int64) func(*script) {
	return func(s *script) {
		p := spec("u1", always, "app")
		p.DeletionTimestamp, p.DeletionGracePeriodSeconds = &metav1.Time{Time: s.now}, &grace
		p.Finalizers, p.Status.Phase = []string{"example.com/keep"}, phase
		s.store(0, nil, p)
	}
}

// The API server has to be right in the end.
func TestUnsettledObjects(t *testing.T) {
	node := metav1.ObjectMeta{UID: "node"}
	static := func(s *script) {
		p := spec("u1", always, "app")
		p.Annotations = map[string]string{annotationSource: "file",
			annotationUID: "h1"}
		s.setDesired(p)
		s.CheckFact(truth.Fact{Time: s.now, Kind: truth.ObjectCreated, Write: &truth.Write{
			Resource: api.ResourceNodes, After: api.Object{Node: &v1.Node{ObjectMeta: node}}}})
	}
	mirrored := func(s *script, hash, owner string) {
		m := spec("m1", always, "app")
		m.Annotations = map[string]string{v1.MirrorPodAnnotationKey: hash}
		m.OwnerReferences = []metav1.OwnerReference{{Kind: "Node", UID: types.UID(owner)}}
		s.store(1, nil, m)
	}
	for _, c := range []struct {
		name, want string
		tell       func(*script)
	}{
		{"no mirror", "there is no mirror of it", static},
		{"a mirror", "", func(s *script) { static(s); mirrored(s, "h1", "node") }},
		{"a mirror of an old manifest", "it mirrors h0, the manifest is h1",
			func(s *script) { static(s); mirrored(s, "h0", "node") }},
		{"a mirror of an old Node", "it does not belong to the Node",
			func(s *script) { static(s); mirrored(s, "h1", "other") }},
		{"a mirror without a static pod", "it is the mirror of nothing",
			func(s *script) { mirrored(s, "h1", "node") }},
		{"rejected without a reason", "it is served as Failed, but is Running", func(s *script) {
			s.setDesired(spec("u1", always, "app"))
			s.storePhase(1, v1.PodPending, v1.PodFailed)
			s.create(s.sandbox("u1", 0), "app", 0).change(truth.ContainerStarted, "")
		}},
		{"rejected for a taint", "", func(s *script) {
			s.setDesired(spec("u1", always, "app"))
			s.CheckFact(truth.Fact{Time: s.now, Kind: truth.ObjectCreated, Write: &truth.Write{
				Resource: api.ResourceNodes, After: api.Object{Node: &v1.Node{Spec: v1.NodeSpec{
					Taints: []v1.Taint{{Effect: v1.TaintEffectNoExecute}}}}}}})
			s.storePhase(1, v1.PodPending, v1.PodFailed)
		}},
		{"deleted, and still there", "it is marked for deletion, and still exists", func(s *script) {
			p := spec("u1", always, "app")
			p.DeletionTimestamp = &metav1.Time{Time: s.now}
			s.store(0, nil, p)
		}},
		{"deleted, and not reported as terminal", "not reported in a terminal phase",
			storeDeleted(v1.PodRunning, 0)},
		{"deleted, and not removed", "something other than its finalizers keeps it",
			storeDeleted(v1.PodFailed, 8)},
		{"deleted, and kept by finalizers", "", storeDeleted(v1.PodFailed, 0)},
		{"an old phase", "it is served as Pending, but is Running", func(s *script) {
			s.startPod(always)
			s.store(1, s.served("u1", v1.PodPending), s.served("u1", v1.PodPending))
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newScript()
			s.model.opts.HasAPIServer = true
			c.tell(s)
			s.wait(60)
			got := strings.Join(s.model.unsettledObjects(s.now), "\n")
			if c.want == "" && got != "" || !strings.HasSuffix(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestUnsettledNode(t *testing.T) {
	s := newScript()
	if got := s.model.unsettledNode(); got != nil {
		t.Errorf("without a Node: %q", got)
	}
	for _, c := range []struct {
		status v1.ConditionStatus
		want   int
	}{{v1.ConditionTrue, 0}, {v1.ConditionFalse, 1}, {v1.ConditionUnknown, 1}} {
		s.CheckFact(truth.Fact{Time: s.now, Kind: truth.ObjectCreated, Write: &truth.Write{
			Resource: api.ResourceNodes, After: api.Object{Node: &v1.Node{Status: v1.NodeStatus{
				Conditions: []v1.NodeCondition{{Type: v1.NodeReady, Status: c.status}}}}}}})
		if got := s.model.unsettledNode(); len(got) != c.want {
			t.Errorf("%s: %q, want %d lines", c.status, got, c.want)
		}
	}
}

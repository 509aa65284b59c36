package oracle

import (
	"strings"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"seedlet.dev/core/manifest"
	"seedlet.dev/sim/truth"
	api "seedlet.dev/world"
)

// stored has the API server store a state of a pod, written by a life of the agent, or, with none,
// by somebody else.
func (s *story) stored(life int, before, after *v1.Pod) {
	w := &truth.Write{Resource: api.ResourcePods, Life: life,
		Before: api.Object{Pod: before}, After: api.Object{Pod: after}}
	kind, is := truth.ObjectWritten, after
	switch {
	case before == nil:
		kind = truth.ObjectMade
	case after == nil:
		kind, is = truth.ObjectRemoved, before
	}
	w.Namespace, w.Name = is.Namespace, is.Name
	s.Fact(truth.Fact{Time: s.now, Kind: kind, Write: w})
}

// becomes stores another phase of the pod "u1", with containers as shown has them.
func (s *story) becomes(life int, was, is v1.PodPhase, runs ...string) {
	s.stored(life, s.shown("u1", was), s.shown("u1", is, runs...))
}

func TestAPITerminal(t *testing.T) {
	judge(t, []tale{
		{"once", "", func(s *story) {
			s.runs(never).exit(0, truth.CauseOwn)
			s.becomes(1, v1.PodRunning, v1.PodSucceeded)
			s.becomes(1, v1.PodSucceeded, v1.PodSucceeded)
		}},
		{"taken back", "api-terminal", func(s *story) {
			s.runs(never).exit(0, truth.CauseOwn)
			s.becomes(1, v1.PodRunning, v1.PodSucceeded)
			s.becomes(2, v1.PodSucceeded, v1.PodFailed)
		}},
		{"by somebody else", "", func(s *story) {
			s.want(spec("u1", never, "app"))
			s.becomes(0, v1.PodFailed, v1.PodRunning)
		}},
	})
}

func TestAPIStopped(t *testing.T) {
	judge(t, []tale{
		{"while it runs", "api-stopped", func(s *story) {
			s.runs(never)
			s.becomes(1, v1.PodRunning, v1.PodFailed)
		}},
		{"and started again", "api-stopped", func(s *story) {
			s.want(spec("u1", always, "app"))
			s.becomes(1, v1.PodPending, v1.PodFailed)
			s.start(s.sandbox("u1", 0), "app", 0)
		}},
	})
}

func TestAPIIdentity(t *testing.T) {
	told := func(life int, uid string) func(*story) {
		return func(s *story) {
			s.want(spec("u2", always, "app"))
			s.runs(always)
			other := s.shown("u1", v1.PodRunning, "app#0 running")
			other.UID = s.pods[uid].UID
			s.stored(life, s.shown(uid, v1.PodPending), other)
		}
	}
	judge(t, []tale{
		{"its own", "", told(1, "u1")},
		{"another's", "api-identity", told(1, "u2")},
		{"another's, by somebody else", "", told(0, "u2")},
	})
}

func TestAPIRemoved(t *testing.T) {
	judge(t, []tale{
		{"when it is over", "", func(s *story) {
			s.runs(always).exit(143, truth.CauseStop)
			s.Unwanted(s.now, "u1")
			s.stored(1, s.shown("u1", v1.PodFailed), nil)
		}},
		{"while it runs", "api-removed", func(s *story) {
			s.runs(always)
			s.Unwanted(s.now, "u1")
			s.stored(1, s.shown("u1", v1.PodFailed), nil)
		}},
		{"while it is wanted", "api-removed", func(s *story) {
			s.runs(always).exit(143, truth.CauseStop)
			s.stored(1, s.shown("u1", v1.PodFailed), nil)
		}},
		{"without a last word", "api-removed", func(s *story) {
			s.want(spec("u1", always, "app"))
			s.Unwanted(s.now, "u1")
			s.stored(1, s.shown("u1", v1.PodPending), nil)
		}},
		{"by force", "", func(s *story) {
			s.runs(always)
			s.Unwanted(s.now, "u1")
			s.stored(0, s.shown("u1", v1.PodRunning), nil)
		}},
	})
}

func TestHeartbeat(t *testing.T) {
	join := func(s *story) {
		s.AgentStarted(s.now)
		s.Fact(truth.Fact{Time: s.now, Kind: truth.ObjectMade, Write: &truth.Write{
			Resource: api.ResourceNodes, After: api.Object{Node: &v1.Node{}}}})
	}
	renew := func(s *story) {
		s.Fact(truth.Fact{Time: s.now, Kind: truth.ObjectWritten, Write: &truth.Write{Life: 1,
			Resource: api.ResourceLeases, After: api.Object{Lease: &coordinationv1.Lease{}}}})
	}
	beats := func(seconds ...float64) func(*story) {
		return func(s *story) {
			join(s)
			renew(s)
			for _, wait := range seconds {
				s.wait(wait)
				renew(s)
			}
			s.AgentKilled(s.now)
		}
	}
	judge(t, []tale{
		{"in time", "", beats(10, 39, 10)},
		{"late", "heartbeat", beats(10, 41)},
		{"never, as nobody has a lease", "", func(s *story) { s.runs(always) }},
		{"no more", "heartbeat", func(s *story) { join(s); renew(s) }},
	})
}

// kept tells of a pod that is to be deleted, and has a finalizer.
func kept(phase v1.PodPhase, grace int64) func(*story) {
	return func(s *story) {
		p := spec("u1", always, "app")
		p.DeletionTimestamp, p.DeletionGracePeriodSeconds = &metav1.Time{Time: s.now}, &grace
		p.Finalizers, p.Status.Phase = []string{"example.com/keep"}, phase
		s.stored(0, nil, p)
	}
}

// What is wrong at the API server in the end.
func TestObjectsUnsettled(t *testing.T) {
	node := metav1.ObjectMeta{UID: "node"}
	static := func(s *story) {
		p := spec("u1", always, "app")
		p.Annotations = map[string]string{manifest.ConfigSourceAnnotation: "file",
			manifest.ConfigHashAnnotation: "h1"}
		s.want(p)
		s.Fact(truth.Fact{Time: s.now, Kind: truth.ObjectMade, Write: &truth.Write{
			Resource: api.ResourceNodes, After: api.Object{Node: &v1.Node{ObjectMeta: node}}}})
	}
	mirrored := func(s *story, hash, owner string) {
		m := spec("m1", always, "app")
		m.Annotations = map[string]string{v1.MirrorPodAnnotationKey: hash}
		m.OwnerReferences = []metav1.OwnerReference{{Kind: "Node", UID: types.UID(owner)}}
		s.stored(1, nil, m)
	}
	for _, c := range []struct {
		name, want string
		tell       func(*story)
	}{
		{"no mirror", "there is no mirror of it", static},
		{"a mirror", "", func(s *story) { static(s); mirrored(s, "h1", "node") }},
		{"a mirror of an old manifest", "it mirrors h0, the manifest is h1",
			func(s *story) { static(s); mirrored(s, "h0", "node") }},
		{"a mirror of a Node that has gone", "it does not belong to the Node",
			func(s *story) { static(s); mirrored(s, "h1", "other") }},
		{"a mirror of nothing", "it is the mirror of nothing",
			func(s *story) { mirrored(s, "h1", "node") }},
		{"refused for no reason", "it is shown as Failed, but is Running", func(s *story) {
			s.want(spec("u1", always, "app"))
			s.becomes(1, v1.PodPending, v1.PodFailed)
			s.create(s.sandbox("u1", 0), "app", 0).is(truth.ContainerStarted, "")
		}},
		{"refused by a Node that is no place for it", "", func(s *story) {
			s.want(spec("u1", always, "app"))
			s.Fact(truth.Fact{Time: s.now, Kind: truth.ObjectMade, Write: &truth.Write{
				Resource: api.ResourceNodes, After: api.Object{Node: &v1.Node{Spec: v1.NodeSpec{
					Taints: []v1.Taint{{Effect: v1.TaintEffectNoExecute}}}}}}})
			s.becomes(1, v1.PodPending, v1.PodFailed)
		}},
		{"what is to be deleted", "it is marked for deletion, and still there", func(s *story) {
			p := spec("u1", always, "app")
			p.DeletionTimestamp = &metav1.Time{Time: s.now}
			s.stored(0, nil, p)
		}},
		{"what is not told to be over", "not told to be over", kept(v1.PodRunning, 0)},
		{"what is not removed", "more than its finalizers keeps it", kept(v1.PodFailed, 8)},
		{"what only others keep", "", kept(v1.PodFailed, 0)},
		{"an old phase", "it is shown as Pending, but is Running", func(s *story) {
			s.runs(always)
			s.stored(1, s.shown("u1", v1.PodPending), s.shown("u1", v1.PodPending))
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := tell()
			s.world.opts.API = true
			c.tell(s)
			s.wait(60)
			got := strings.Join(s.world.objectsUnsettled(s.now), "\n")
			if c.want == "" && got != "" || !strings.HasSuffix(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

package trace

import (
	"regexp"
	"strings"

	"seedlet.dev/sim/plan"
	"seedlet.dev/sim/truth"
	"seedlet.dev/world"
)

// relation says which lines are about a pod: those that name it, its UIDs, its sandboxes or its
// containers, and the completions of such effects.
type relation struct {
	pod  string         // its name in the plan; empty: all lines are related
	name *regexp.Regexp // of its name, also as a static pod
	ids  map[string]bool
	ops  map[world.OpID]bool
	uids map[string]bool
}

func newRelation(pod string) relation {
	name := regexp.MustCompile(
		`(^|[^a-z0-9.-])` + regexp.QuoteMeta(pod) + `(-` + plan.NodeName + `)?([^a-z0-9-]|$)`)
	return relation{pod: pod, name: name, ids: map[string]bool{}, ops: map[world.OpID]bool{},
		uids: map[string]bool{}}
}

// forgetOps forgets the operations in flight of an agent that has ended.
func (r *relation) forgetOps() { clear(r.ops) }

// learn notes the IDs in a fact about the pod.
func (r *relation) learn(f *truth.Fact) {
	if r.pod == "" || strings.TrimSuffix(f.PodName, "-"+plan.NodeName) != r.pod {
		return
	}
	for _, id := range []string{f.PodUID, f.SandboxID, f.ContainerID} {
		if id != "" {
			r.ids[shortID(id)] = true
		}
	}
	r.uids[f.PodUID] = true
}

// has reports whether a line is about the pod.
func (r *relation) has(line *Row) bool {
	if r.pod == "" {
		return true
	}
	related := r.uids[line.Pod] && line.Pod != "" || r.ops[line.Op] || r.name.MatchString(line.Text)
	for id := range r.ids { //ordered: whether there is one
		related = related || strings.Contains(line.Text, id)
	}
	if line.Op != 0 {
		if line.Kind == KindEffect && related {
			r.ops[line.Op] = true
		} else if line.Kind == KindEvent {
			delete(r.ops, line.Op)
		}
	}
	return related
}

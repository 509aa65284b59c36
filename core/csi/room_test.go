package csi

import (
	"fmt"
	"strings"
	"testing"

	"seedlet.dev/core/budget"
)

// inTree returns the use of a volume that the author of a pod has named, with a long name.
func inTree(uid string, i int) Use {
	u := use(uid)
	u.Inline, u.Migrated, u.Claim = true, true, ""
	u.SpecName = fmt.Sprint("v", i)
	u.Handle = fmt.Sprintf("%s-%d-", uid, i)
	u.Handle += strings.Repeat("x", budget.VolumeNameMax-len(encodedName(u.Driver, u.Handle)))
	return u
}

// usesAll has a pod use volumes with long names until it is refused, and returns how many it has.
func (n *node) usesAll(uid string) (count int, last UseState) {
	n.pods[uid] = true
	for count < budget.VolumesMax {
		u := inTree(uid, count)
		if last, _ = n.node.Use(u, n.now); last.Problem != "" {
			break
		}
		n.queue = append(n.queue, VolumeKey(UniqueName(u.Driver, u.Handle)))
		count++
	}
	return count, last
}

// The names of volumes that authors of pods choose are within a bound of the pod, and of the node:
// the status of the Node has all of them, and its conditions.
func TestNamesOfInlineVolumes(t *testing.T) {
	n := newNode(t)
	n.run().register()
	count, refused := n.usesAll("a")
	if count != budget.VolumeNamesMax/budget.VolumeNameMax ||
		refused.OverBudget != "volume_name_bytes" ||
		!strings.Contains(refused.Problem, fmt.Sprint(budget.VolumeNamesMax)) {
		t.Errorf("a pod has %d volumes, then %+v", count, refused)
	}
	for i := range 4 {
		n.usesAll(fmt.Sprint("greedy-", i))
	}
	small, refused := n.usesAll("small")
	if small != budget.CSIVolumesSmallMax || refused.OverBudget != "csi_volumes_small_pod" {
		t.Errorf("a pod with few volumes has %d of them, then %+v", small, refused)
	}
	names, _ := n.node.VolumesInUse(n.object, n.env())
	bytes := 0
	for _, name := range names {
		bytes += len(name)
	}
	if bytes > budget.VolumeNamesOfNodeMax || bytes < budget.VolumeNamesOfNodeMax/2 {
		t.Errorf("the names of %d volumes have %d bytes", len(names), bytes)
	}
	if state, _ := n.node.Use(use("claim"), n.now); state.Problem != "" {
		t.Errorf("a claim is refused for what authors of pods have named: %s", state.Problem)
	}
}

// What a pod has named counts no more once it has gone, also after a restart.
func TestNamesAreForgotten(t *testing.T) {
	n := newReady(t)
	n.attach()
	n.usesAll("a")
	n.usesAll("b")
	n.end("a")
	if got := n.node.Names; got.Inline != budget.VolumeNamesMax {
		t.Errorf("counted are %+v, want one pod", got)
	}
	n.end("b")
	if got := n.node.Names; got != (NamesOfNode{}) || len(n.node.Volumes) != 0 {
		t.Errorf("counted are %+v for %d volumes", got, len(n.node.Volumes))
	}
}

// A volume that a claim names as well counts as that of a claim.
func TestNamesOfClaims(t *testing.T) {
	n := newReady(t)
	u := use("a")
	u.Inline = true
	n.node.Use(u, n.now)
	if got := n.node.Names; got.Inline == 0 || got.Others != 0 {
		t.Errorf("counted are %+v", got)
	}
	n.node.Use(use("b"), n.now)
	if got := n.node.Names; got.Inline != 0 || got.Others == 0 {
		t.Errorf("counted are %+v after a claim has named it", got)
	}
	for i := range budget.CSIVolumesMax {
		u := use(fmt.Sprint("c", i))
		u.Handle = fmt.Sprint(i, strings.Repeat("y", 1000))
		if state, _ := n.node.Use(u, n.now); state.Problem != "" {
			if !strings.Contains(state.Problem, fmt.Sprint(budget.ClaimNamesOfNodeMax)) || i < 300 {
				t.Errorf("volume %d: %s", i, state.Problem)
			}
			return
		}
	}
	t.Error("no claim is refused")
}

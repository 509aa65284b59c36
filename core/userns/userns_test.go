package userns

import (
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
	"pgregory.net/rapid"
)

// What is picked is always free, and a multiple after the host's own ids; when nothing is picked
// nothing is free.
func TestPick(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := Layout{Length: 65536 * rapid.Uint32Range(1, 3).Draw(t, "length"),
			Count: rapid.IntRange(0, 20).Draw(t, "count")}
		var taken []Range
		for range rapid.IntRange(0, 30).Draw(t, "taken") {
			if len(taken) > 0 && rapid.Bool().Draw(t, "gives one back") {
				taken = taken[1:]
				continue
			}
			r := l.Pick(taken)
			if r.None() {
				if len(taken) < l.Count {
					t.Fatalf("nothing is free of %+v with %v", l, taken)
				}
				return
			}
			if !r.Free(taken) || r.Length != l.Length || r.First < 65536 || r.First%65536 != 0 {
				t.Fatalf("picked %v with %v", r, taken)
			}
			taken = append(taken, r)
		}
	})
}

func TestLayoutOf(t *testing.T) {
	ids := func(n int64) *kubeletconfig.KubeletConfiguration {
		return &kubeletconfig.KubeletConfiguration{MaxPods: 110,
			UserNamespaces: &kubeletconfig.UserNamespaces{IDsPerPod: &n}}
	}
	for n, want := range map[int64]Layout{
		65536: {65536, 110}, 1 << 25: {1 << 25, 110}, 1 << 30: {1 << 30, 3},
		1<<32 - 65536: {1<<32 - 65536, 1},
	} {
		if got := LayoutOf(ids(n)); got != want {
			t.Errorf("%d ids each: %+v, want %+v", n, got, want)
		}
	}
	last := Layout{1 << 30, 3}.Pick([]Range{{65536, 1 << 30}, {65536 + 1<<30, 1 << 30}})
	if last != (Range{65536 + 2<<30, 1 << 30}) {
		t.Errorf("the last range is %v", last)
	}
}

func TestParse(t *testing.T) {
	for text, want := range map[string]Range{
		"65536+65536": {65536, 65536}, "": {}, "1": {}, "a+b": {}, "1+2 ": {}, "01+2": {},
		"-1+2": {}, "4294967295+2": {}, "4294967295+1": {4294967295, 1},
	} {
		if got := Parse(text); got != want {
			t.Errorf("%q: %v", text, got)
		}
		if !want.None() && want.String() != text {
			t.Errorf("%v is written as %s", want, want)
		}
	}
}

func TestMapped(t *testing.T) {
	r := Range{131072, 65536}
	if got := Mapped(r.Options()); got != r {
		t.Errorf("read as %v", got)
	}
	odd := r.Options()
	odd.Gids = []*runtimeapi.IDMapping{{HostId: 1, Length: 65536}}
	host := &runtimeapi.UserNamespace{Mode: runtimeapi.NamespaceMode_NODE}
	if !Mapped(odd).None() || !Mapped(host).None() || !Mapped(nil).None() {
		t.Error("what nobody here would have asked for is taken for a range")
	}
	if (Range{}).Options() != nil {
		t.Error("a pod with the host's ids asks for a user namespace")
	}
}

func TestOverlaps(t *testing.T) {
	a, b, c := Range{0, 10}, Range{9, 1}, Range{10, 10}
	if !a.Overlaps(b) || !b.Overlaps(a) || a.Overlaps(c) || c.Overlaps(a) || a.Overlaps(Range{}) {
		t.Error("ranges overlap if they have an id in common")
	}
	top := Range{1<<32 - 1, 1}
	if !top.Overlaps(Range{1<<32 - 2, 2}) || top.Overlaps(a) {
		t.Error("at the end of all ids")
	}
}

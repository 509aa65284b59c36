package userns

import (
	"strings"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
	"pgregory.net/rapid"
)

// A range that is picked is free, and begins at a multiple of 65536 above the host's own IDs. A
// range is always found unless all are taken.
func TestFirstFree(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := Layout{First: 65536 * rapid.Uint32Range(1, 3).Draw(t, "first"),
			IDsPerPod: 65536 * rapid.Uint32Range(1, 3).Draw(t, "length"),
			RangesMax: rapid.IntRange(0, 20).Draw(t, "count")}
		var taken []Range
		for range rapid.IntRange(0, 30).Draw(t, "taken") {
			if len(taken) > 0 && rapid.Bool().Draw(t, "gives one back") {
				taken = taken[1:]
				continue
			}
			r := l.FirstFree(taken)
			if r.IsEmpty() {
				if len(taken) < l.RangesMax {
					t.Fatalf("nothing is free of %+v with %v", l, taken)
				}
				return
			}
			if !r.IsFree(taken) || r.Length != l.IDsPerPod || r.First < l.First || r.First%65536 != 0 {
				t.Fatalf("picked %v with %v", r, taken)
			}
			taken = append(taken, r)
		}
	})
}

func TestLayoutFromConfig(t *testing.T) {
	ids := func(n int64) *kubeletconfig.KubeletConfiguration {
		return &kubeletconfig.KubeletConfiguration{MaxPods: 110,
			UserNamespaces: &kubeletconfig.UserNamespaces{IDsPerPod: &n}}
	}
	for n, want := range map[int64]Layout{
		65536: {65536, 65536, 110}, 1 << 25: {65536, 1 << 25, 110}, 1 << 30: {65536, 1 << 30, 3},
		1<<32 - 65536: {65536, 1<<32 - 65536, 1},
	} {
		if got := LayoutFromConfig(ids(n), Range{}); got != want {
			t.Errorf("%d ids each: %+v, want %+v", n, got, want)
		}
	}
	setApart := Range{1 << 20, 120 << 16}
	if got := LayoutFromConfig(ids(65536), setApart); got != (Layout{1 << 20, 65536, 110}) {
		t.Errorf("in a range that is set apart: %+v", got)
	}
	last := Layout{65536, 1 << 30, 3}.FirstFree([]Range{{65536, 1 << 30}, {65536 + 1<<30, 1 << 30}})
	if last != (Range{65536 + 2<<30, 1 << 30}) {
		t.Errorf("the last range is %v", last)
	}
}

func TestParse(t *testing.T) {
	for text, want := range map[string]Range{
		"65536+65536": {65536, 65536}, "": {}, "1": {}, "a+b": {}, "1+2 ": {}, "01+2": {},
		"-1+2": {}, "4294967295+2": {}, "4294901760+65536": {4294901760, 65536},
		"0+65536": {}, "65535+65536": {}, "70000+65536": {}, "65536+0": {}, "65536+1": {},
		"4294901760+131072": {},
	} {
		if got := Parse(text); got != want {
			t.Errorf("%q: %v", text, got)
		}
		if !want.IsEmpty() && want.String() != text {
			t.Errorf("%v is written as %s", want, want)
		}
	}
}

func TestFromUserNamespace(t *testing.T) {
	r := Range{131072, 65536}
	if got := FromUserNamespace(r.UserNamespace()); got != r {
		t.Errorf("read as %v", got)
	}
	odd := r.UserNamespace()
	odd.Gids = []*runtimeapi.IDMapping{{HostId: 1, Length: 65536}}
	host := &runtimeapi.UserNamespace{Mode: runtimeapi.NamespaceMode_NODE}
	if !FromUserNamespace(odd).IsEmpty() || !FromUserNamespace(host).IsEmpty() ||
		!FromUserNamespace(nil).IsEmpty() {
		t.Error("a mapping that the agent never requests is taken for a range")
	}
	if (Range{}).UserNamespace() != nil {
		t.Error("an empty range has a user namespace")
	}
}

func TestOverlaps(t *testing.T) {
	a, b, c := Range{0, 10}, Range{9, 1}, Range{10, 10}
	if !a.Overlaps(b) || !b.Overlaps(a) || a.Overlaps(c) || c.Overlaps(a) || a.Overlaps(Range{}) {
		t.Error("Overlaps is wrong")
	}
	top := Range{1<<32 - 1, 1}
	if !top.Overlaps(Range{1<<32 - 2, 2}) || top.Overlaps(a) {
		t.Error("Overlaps is wrong at the end of all IDs")
	}
}

func TestCheckSetApart(t *testing.T) {
	c := &kubeletconfig.KubeletConfiguration{MaxPods: 110}
	for r, want := range map[Range]string{
		{65536, 110 << 16}: "", {1 << 31, 1 << 31}: "",
		{100000, 110 << 16}:      "the first ID is 100000, and must be a multiple of 65536",
		{0, 110 << 16}:           "the first ID is 0",
		{65536, 0}:               "there are 0 IDs",
		{65536, 110<<16 + 1}:     "their number must be a multiple of 65536",
		{65536, 109 << 16}:       "110 pods (maxPods) need 7208960",
		{1 << 31, 1<<31 + 1<<16}: "are more than there are",
	} {
		err := CheckSetApart(c, r)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %q", r, err, want)
		}
	}
}

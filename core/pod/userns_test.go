package pod

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/core/userns"
	"seedlet.dev/world"
)

var testIDs = userns.Range{First: 131072, Length: 65536}

// No range is allocated while that of a sandbox of a kubelet is not known: it may be the same.
func TestSandboxWaitsForUnknownIDs(t *testing.T) {
	r := newPodHarness(t, func(s *v1.PodSpec) { no := false; s.HostUsers = &no })
	r.env.AreIDsKnown = func(string) bool { return false }
	if r.planAt(time.Second); len(r.openCalls()) > 0 || r.wake != t0.Add(2*time.Second) {
		t.Errorf("issued %v, planned again at %v", r.openCalls(), r.wake)
	}
}

// The range of a ready sandbox is unknown until its annotation or the runtime says it.
func TestMayHaveUnknownIDs(t *testing.T) {
	no := false
	own := &v1.Pod{Spec: v1.PodSpec{HostUsers: &no}}
	for name, test := range map[string]struct {
		spec    *v1.Pod
		sandbox Sandbox
		want    bool
	}{
		"another agent's":        {own, Sandbox{Ready: true}, true},
		"that of an orphan":      {nil, Sandbox{Ready: true}, true},
		"inspected":              {own, Sandbox{Ready: true, Inspected: true}, false},
		"annotated":              {nil, Sandbox{Ready: true, IDs: testIDs}, false},
		"ended":                  {own, Sandbox{}, false},
		"of a pod with the host": {&v1.Pod{}, Sandbox{Ready: true}, false},
	} {
		p := &Pod{Spec: test.spec, Sandboxes: []Sandbox{test.sandbox}}
		if got := p.MayHaveUnknownIDs(); got != test.want {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
}

// A kubelet finds the range in the pod's directory. What has it already is not written again.
func TestIDsAreRecorded(t *testing.T) {
	for name, test := range map[string]struct {
		lookedFor bool
		found     string
		want      string
	}{
		"a new pod":                    {false, "", "WriteFile"},
		"a pod of a kubelet":           {true, string(testIDs.File()), ""},
		"a pod with another range":     {true, "{}", "WriteFile"},
		"a pod of an agent without it": {true, "", "WriteFile"},
	} {
		p := &Pod{IDs: testIDs, DirCreated: true,
			Record: Record{Loaded: true, LookedFor: test.lookedFor}}
		r := newHarness(t, p)
		record := func() {
			r.env.Effects.Reset(&r.table, t0)
			p.recordIDs(r.env, &wakeTimer{now: t0})
			r.collect()
		}
		record()
		if test.lookedFor {
			read := &world.FilesRead{}
			if test.found != "" {
				read.Files = []world.File{{Name: userns.FileName, Data: []byte(test.found)}}
			}
			r.complete("ReadFiles", read, nil)
			record()
		}
		write := r.findCall("WriteFile")
		if (write != nil) != (test.want != "") {
			t.Errorf("%s: issued %v, want %q", name, r.openCalls(), test.want)
		}
		if write == nil {
			continue
		}
		r.complete("WriteFile", nil, world.Errorf(world.KindExhausted, "WriteFile", "full"))
		if p.Record.IDs == testIDs || p.Record.Failures != 0 || p.Record.IDsNotBefore.IsZero() {
			t.Errorf("%s: a failed write: %+v", name, p.Record)
		}
	}
}

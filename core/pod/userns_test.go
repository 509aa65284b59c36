package pod

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/core/runtime"
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

// The range of a pod that is older than this agent is unknown until its file is read.
func TestMayHaveUnknownIDs(t *testing.T) {
	no := false
	own := &v1.Pod{Spec: v1.PodSpec{HostUsers: &no}}
	unread, ready := Record{Loaded: true, LookedFor: true}, []Sandbox{{Ready: true}}
	for name, test := range map[string]struct {
		pod  Pod
		want bool
	}{
		"another agent's":        {Pod{Spec: own, Record: unread, Sandboxes: ready}, true},
		"after a reboot":         {Pod{Spec: own, Record: unread}, true},
		"before its record":      {Pod{Spec: own}, true},
		"a new pod":              {Pod{Spec: own, Record: Record{Loaded: true}}, false},
		"read":                   {Pod{Spec: own, Record: Record{IDsRead: true}}, false},
		"of a pod with the host": {Pod{Spec: &v1.Pod{}, Record: unread, Sandboxes: ready}, false},
		"that of an orphan":      {Pod{Sandboxes: ready}, true},
		"an orphan's, read":      {Pod{Sandboxes: ready, Record: Record{IDsRead: true}}, false},
		"an orphan's, inspected": {Pod{Sandboxes: []Sandbox{{Ready: true, Inspected: true}}}, false},
		"an orphan's, annotated": {Pod{Sandboxes: []Sandbox{{Ready: true, IDs: testIDs}}}, false},
		"an orphan that ended":   {Pod{Sandboxes: []Sandbox{{}}}, false},
		"removed": {Pod{Spec: own, Record: unread, NoLongerDesired: true,
			Stage: Terminated}, false},
	} {
		if got := test.pod.MayHaveUnknownIDs(); got != test.want {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
}

// newIDsHarness plans a new pod with a user namespace, of which other pods take the ranges.
func newIDsHarness(t *testing.T, taken ...userns.Range) *harness {
	r := newPodHarness(t, func(s *v1.PodSpec) { no := false; s.HostUsers = &no })
	r.env.Runtime.Handlers = []runtime.Handler{{UserNamespaces: true}}
	r.env.Node.IDs = userns.Layout{First: 65536, IDsPerPod: 65536, RangesMax: 9}
	r.env.AllocatedIDs = func(string, bool) []userns.Range { return taken }
	return r
}

// fileOf returns what a read of a file with a range has found.
func fileOf(ids userns.Range) *world.FilesRead {
	return &world.FilesRead{Files: []world.File{{Name: userns.FileName, Data: ids.File()}}}
}

// A kubelet finds the range of each sandbox in the pod's directory, also of one whose agent was
// killed: the file is written before the sandbox.
func TestIDsAreRecordedBeforeSandbox(t *testing.T) {
	r := newIDsHarness(t)
	r.planAt(0)
	r.complete("MakeDir", nil, nil)
	r.expectNoCall("RunPodSandbox")
	for !strings.HasSuffix(r.expectCall("WriteFile").Body.(*world.WriteFile).Path,
		"/"+userns.FileName) {
		r.complete("WriteFile", &world.Done{}, nil) // the record
	}
	r.expectNoCall("RunPodSandbox")
	full := world.Errorf(world.KindExhausted, "WriteFile", "full")
	if r.complete("WriteFile", nil, full); r.pod.Record.IDs == r.pod.IDs || len(r.events) == 0 {
		t.Errorf("after a failed write: %+v, events %v", r.pod.Record, r.events)
	}
	r.expectNoCall("RunPodSandbox")
	if taken := r.pod.AllocatedIDs(); len(taken) != 1 || taken[0].First != 65536 {
		t.Errorf("%v is taken after a failed write", taken)
	}
	r.planAt(time.Minute)
	if r.findCall("WriteFile") == nil {
		t.Fatalf("the write is not repeated, but %v", r.openCalls())
	}
	r.complete("WriteFile", &world.Done{}, nil).complete("SetCgroup", &world.Done{}, nil)
	r.expectCall("RunPodSandbox")
}

// After a reboot a pod has the range of its file again, unless another pod has that.
func TestIDsAreThoseOfTheFile(t *testing.T) {
	first := userns.Range{First: 65536, Length: 65536}
	unlike := userns.Range{First: 65536, Length: 131072}
	for name, test := range map[string]struct {
		found userns.Range
		taken []userns.Range
		want  userns.Range
	}{
		"free":                 {testIDs, nil, testIDs},
		"taken":                {testIDs, []userns.Range{testIDs}, first},
		"of another setting":   {unlike, nil, first},
		"no file":              {userns.Range{}, nil, first},
		"no file, and a taken": {userns.Range{}, []userns.Range{first}, testIDs},
	} {
		r := newIDsHarness(t, test.taken...)
		r.pod.Record.LookedFor = true
		r.planAt(0)
		r.expectNoCall("MakeDir")
		if !test.found.IsEmpty() {
			r.complete("ReadFiles", fileOf(test.found), nil)
		} else {
			r.complete("ReadFiles", nil, world.Errorf(world.KindNotFound, "ReadFiles", "none"))
		}
		r.planAt(0)
		if r.pod.IDs != test.want {
			t.Errorf("%s: the pod gets %v, want %v", name, r.pod.IDs, test.want)
		}
		isRecorded := test.found == test.want
		if got := r.findCall("SetCgroup") != nil; got != isRecorded {
			t.Errorf("%s: the sandbox is created: %v, with the file of %v", name, got, test.found)
		}
		if taken := r.pod.AllocatedIDs(); !isRecorded && !test.found.IsEmpty() && len(taken) != 2 {
			t.Errorf("%s: %v is taken, and the file has %v", name, taken, test.found)
		}
	}
}

// A file that can never be read ends the wait of other pods, with a line that names the pod.
func TestIDsThatCannotBeRead(t *testing.T) {
	for name, completion := range map[string]struct {
		body any
		err  *world.Error
	}{
		"unreadable": {nil, world.Errorf(world.KindInternal, "ReadFiles", "i/o error")},
		"damaged": {&world.FilesRead{Files: []world.File{{Name: userns.FileName,
			Data: []byte("{}")}}}, nil},
	} {
		p := NewOrphan("u1", "default", "web", t0)
		p.Sandboxes = []Sandbox{{ID: "s1", Ready: true}}
		r := newHarness(t, p)
		for i := range idsReadFailuresMax {
			if !p.MayHaveUnknownIDs() {
				t.Fatalf("%s: known after %d failures", name, i)
			}
			r.env.Effects.Reset(&r.table, r.now)
			w := &wakeTimer{now: r.now}
			p.loadIDs(r.env, w)
			r.collect()
			eff := r.expectCall("ReadFiles")
			r.table.Complete(eff.Op)
			p.handleIDsCompletion("ReadFiles", world.Event{Time: r.now, Body: completion.body,
				Err: completion.err}, r.env)
			r.now = r.now.Add(time.Minute)
		}
		if p.MayHaveUnknownIDs() || len(p.AllocatedIDs()) > 0 {
			t.Errorf("%s: still unknown: %+v", name, p.Record)
		}
		isNamed := slices.ContainsFunc(r.env.Effects.List(), func(e world.Effect) bool {
			l, isLine := e.Body.(*world.Log)
			return isLine && strings.Contains(fmt.Sprint(l), "default/web")
		})
		if !isNamed {
			t.Errorf("%s: no line names the pod", name)
		}
	}
}

// A pod that has ended keeps its range until its file is removed: a kubelet that starts finds no
// range twice.
func TestIDsOfEndedPodAreRemoved(t *testing.T) {
	p := podWith(spec(v1.RestartPolicyNever, "", "web"))
	p.Stage, p.Sandboxes, p.IDs = Terminated, nil, userns.Range{}
	p.Record = Record{Loaded: true, IDsRead: true, IDs: testIDs}
	r := newHarness(t, p)
	remove := func(err *world.Error) {
		r.env.Effects.Reset(&r.table, r.now)
		p.removeIDs(r.env, &wakeTimer{now: r.now})
		r.collect()
		eff := r.expectCall("RemoveTree")
		r.table.Complete(eff.Op)
		p.handleIDsCompletion("RemoveTree", world.Event{Time: r.now, Err: err}, r.env)
	}
	remove(world.Errorf(world.KindInternal, "RemoveTree", "i/o error"))
	if taken := p.AllocatedIDs(); len(taken) != 1 || taken[0] != testIDs {
		t.Errorf("%v is taken after a failure", taken)
	}
	r.now = r.now.Add(idsRetry)
	if remove(nil); len(p.AllocatedIDs()) > 0 {
		t.Errorf("%v is still taken", p.AllocatedIDs())
	}
}

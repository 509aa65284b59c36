package kubelet

import (
	"strings"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// A kubelet starts if each file of host IDs is valid, and of one pod; and it gives a pod those of
// its file, which its sandbox must have.
func TestIDsProblems(t *testing.T) {
	file := func(first uint32) string {
		ids := []idMapping{{HostID: first, Length: idsPerPod}}
		return encode(idsFile{ids, ids})
	}
	const first, second = idsPerPod, 2 * idsPerPod
	for name, test := range map[string]struct {
		files   map[string]string // by the UID of the pod
		sandbox uint32            // the first ID of u1; 0: it has those of the host
		unready bool
		want    []string
	}{ //ordered: each by itself
		"no user namespace": {},
		"the same": {map[string]string{"u1": file(first)},
			first, false, nil},
		"an empty file": {map[string]string{"u2": ""}, 0, false, nil},
		"ranges of two pods": {map[string]string{"u1": file(first), "u2": file(second)},
			first, false, nil},
		"one range of two pods": {map[string]string{"u1": file(first), "u2": file(first)},
			first, false, []string{"u1 and u2 have the host IDs from 65536"}},
		"no file":                 {nil, first, false, []string{"from 65536 on, and 0 is recorded"}},
		"no file of an ended one": {nil, first, true, nil},
		"another range": {map[string]string{"u1": file(second)},
			first, false, []string{"and 131072 is recorded"}},
		"no JSON": {map[string]string{"u2": "{"},
			0, false, []string{"u2/userns is"}},
		"no mapping": {map[string]string{"u2": "{}"},
			0, false, []string{"u2/userns is"}},
		"IDs between two ranges": {map[string]string{"u2": file(first + 1)},
			0, false, []string{"u2/userns is"}},
		"a file for users only": {map[string]string{"u2": strings.Replace(file(first), "gid", "x", 1)},
			0, false, []string{"u2/userns is"}},
		"a file of another length": {map[string]string{
			"u2": strings.ReplaceAll(file(first), "65536}", "131072}")},
			0, false, []string{"u2/userns is"}},
	} {
		l := newLeftovers()
		for uid, text := range test.files { //ordered: into a map
			l.files["/root/pods/"+uid+"/userns"] = text
		}
		p := pod{firstID: test.sandbox}
		l.sandbox.Linux = &runtimeapi.LinuxPodSandboxStatus{Namespaces: &runtimeapi.Namespace{
			Options: &runtimeapi.NamespaceOption{UsernsOptions: p.users()}}}
		if test.unready {
			l.sandbox.State = runtimeapi.PodSandboxState_SANDBOX_NOTREADY
		}
		got := l.idsProblems()
		isRight := len(got) == len(test.want)
		for i := range test.want {
			isRight = isRight && strings.Contains(got[i], test.want[i])
		}
		if !isRight {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}

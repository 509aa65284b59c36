package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"
	"sigs.k8s.io/yaml"
)

// Every seed of a range is in exactly one part, no part is empty, and parts differ by one at most.
func TestJobSplit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		from := rapid.Uint64Range(0, 1<<62).Draw(t, "from")
		length := rapid.Uint64Range(1, 1<<62).Draw(t, "length")
		n := rapid.Uint64Range(1, min(length, jobPartsMax)).Draw(t, "parts")
		all := seeds{from, from + length - 1}
		next := from
		for i := range n {
			p := all.part(i, n)
			if p.from != next || p.to < p.from || p.length()-length/n > 1 {
				t.Fatalf("part %d of %d of %s is %s", i, n, all, p)
			}
			next = p.to + 1
		}
		if next != all.to+1 {
			t.Fatalf("the last part of %s ends before %d", all, next)
		}
	})
}

// The Job of the page is what the command prints, and has no field that the API does not have.
func TestJobPage(t *testing.T) {
	data, err := os.ReadFile("../../docs/job.md")
	if err != nil {
		t.Fatal(err)
	}
	var shown string
	for _, command := range pageCommand.FindAllStringSubmatch(string(data), -1) {
		shown = command[2]
		out, err := call(strings.Fields(command[1])...)
		if err != nil || out != shown {
			t.Errorf("seedsim %s: %v\n%s", command[1], err, out)
		}
	}
	var job batchv1.Job
	if err := yaml.UnmarshalStrict([]byte(shown), &job); err != nil || job.Kind != "Job" {
		t.Errorf("%v: %s", err, shown)
	}
}

func TestJobBadInput(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pods.json")
	for content, want := range map[string]string{
		"x":                                         "no list of pods in JSON",
		`{"items":[]}`:                              "no pods; want the output of kubectl get pods",
		`{"items":[{"metadata":{"name":"a"}}]}`:     "pod a: no container is called seedsim",
		podText(t, "a", "4", "1-10", "4", ""):       `want 0 to 3, have "4"`,
		podText(t, "a", "0", "10-1", "4", ""):       "must be A-B with A not above B",
		podText(t, "a", "0", "1-10", "11", ""):      `--of "11": want 1 to 10`,
		podText(t, "a", "0", "1-10", "9999999", ""): "want 1 to 10",
		podText(t, "a", "0", "1-10", "4", `{"index":1,"seeds":"1-3","hash":"x"}`): "its result is of " +
			"index 1 with seeds 1-3, want index 0 with 1-3",
	} {
		if err := os.WriteFile(file, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := call("job", "gather", file); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", content, err, want)
		}
	}
	for _, test := range []struct{ args, want string }{
		{"job --image a:1", `--seeds "": must be A-B`},
		{"job --seeds 2-1 --image a:1", `--seeds "2-1": must be A-B`},
		{"job --seeds 1-9", `--image ""`},
		{"job --seeds 1-9 --image A", `--image "A": `},
		{"job --seeds 1-9 --image a --scenario b", "--scenario: unknown scenario"},
		{"job --seeds 1-9 --image a --scenario b.yaml", "a file is not in the image"},
		{"job --seeds 1-9 --image a --completions 0", "--completions 0: want 1 to 10000"},
		{"job --seeds 1-9 --image a --parallelism 10001", "--parallelism 10001: want 1 to 10000"},
		{"job --seeds 1-9 --image a --cpu x", `--cpu "x"`},
		{"job --seeds 1-9 --image a --name A_b", `--name "A_b"`},
		{"job bake", `unknown command "bake"`},
		{"job part --seeds 1-9 --of 10", "--of 10: want 1 to 9"},
		{"job part --seeds 1-9 --of 9 --index 9", `--index "9": want 0 to 8`},
		{"job part --seeds 1-9 --of 9", `--index "": want 0 to 8; a Job sets it`},
		{"job gather a b", "gather takes one file"},
		{"job gather /no/such/file", "no such file"},
	} {
		_, err := call(strings.Fields(test.args)...)
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("seedsim %s: %v, want an error with %q", test.args, err, test.want)
		}
	}
}

// podText returns a list of one pod of a Job.
func podText(t testing.TB, name, index, all, of, result string) string {
	return listText(t, jobPod(name, index, all, of, result, 0))
}

func listText(t testing.TB, pods ...v1.Pod) string {
	text, err := json.Marshal(v1.PodList{Items: pods})
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func jobPod(name, index, all, of, result string, exit int32) v1.Pod {
	p := v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name,
		Labels:      map[string]string{batchv1.JobNameLabel: "seedsim"},
		Annotations: map[string]string{batchv1.JobCompletionIndexAnnotation: index}}}
	p.Spec.Containers = []v1.Container{{Name: jobContainer,
		Args: []string{"job", "part", "--scenario=steady", "--seeds=" + all, "--of=" + of}}}
	p.Status.ContainerStatuses = []v1.ContainerStatus{{Name: jobContainer, State: v1.ContainerState{
		Terminated: &v1.ContainerStateTerminated{Message: result, ExitCode: exit, Reason: "Error"}}}}
	return p
}

// What the parts write is gathered, whichever pods of an index there are. A repeated index gives
// the same result, and the parts together run what one command runs.
func TestJobGather(t *testing.T) {
	dir := t.TempDir()
	var pods []v1.Pod
	for i := range 3 {
		file := filepath.Join(dir, fmt.Sprint(i))
		args := []string{"job", "part", "--scenario", "steady", "--seeds", "5-11", "--of", "3",
			"--index", fmt.Sprint(i), "--result", file}
		var results []string
		for range 2 {
			if out, err := call(args...); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			results = append(results, string(data))
		}
		if results[0] != results[1] {
			t.Errorf("index %d is not the same when it is repeated: %s", i, results)
		}
		lost := jobPod(fmt.Sprint("lost-", i), fmt.Sprint(i), "5-11", "3", "", 137)
		done := jobPod(fmt.Sprint("done-", i), fmt.Sprint(i), "5-11", "3", results[0], 0)
		if i == 1 { // in any order
			pods = append(pods, done, lost)
		} else {
			pods = append(pods, lost, done)
		}
	}
	out, err := gather(t, pods...)
	if err != nil || !strings.Contains(out, "done-1") || strings.Contains(out, "lost") ||
		!strings.Contains(out, "steady seeds 5-11: 7 of 7 seeds run, 3 of 3 indices done, 7 runs, "+
			"0 failures, hash ") {
		t.Errorf("%v:\n%s", err, out)
	}
}

func gather(t testing.TB, pods ...v1.Pod) (string, error) {
	file := filepath.Join(t.TempDir(), "pods.json")
	if err := os.WriteFile(file, []byte(listText(t, pods...)), 0o644); err != nil {
		t.Fatal(err)
	}
	return call("job", "gather", file)
}

// Failures have the command that repeats them. Indices without a result say why.
func TestJobGatherFailures(t *testing.T) {
	waiting := jobPod("c", "2", "1-40", "5", "", 0)
	waiting.Status.ContainerStatuses[0].State = v1.ContainerState{
		Waiting: &v1.ContainerStateWaiting{Reason: "ImagePullBackOff"}}
	evicted := jobPod("d", "3", "1-40", "5", "", 0)
	evicted.Status = v1.PodStatus{Phase: v1.PodFailed, Reason: "Evicted"}
	out, err := gather(t, waiting, evicted,
		jobPod("a", "0", "1-40", "5", `{"index":0,"seeds":"1-8","runs":8,"failures":2,"hash":"ab",`+
			`"first":[{"scenario":"steady","seed":3,"oracle":"back-off"}]}`, 1),
		jobPod("b", "1", "1-40", "5", "killed", 137))
	const want = `INDEX  SEEDS  RUNS  FAILURES  HASH                                POD
0      1-8    8     2         ab                                  a
1      9-16                   failed: Error, exit code 137        b
2      17-24                  missing: waiting, ImagePullBackOff  c
3      25-32                  failed: Evicted                     d
4      33-40                  missing: it has no pod              
FAIL steady seed 3: back-off
     seedsim replay steady --seed 3 --log
     and 1 more: kubectl logs a
steady seeds 1-40: 8 of 40 seeds run, 1 of 5 indices done, 8 runs, 2 failures
`
	if !errors.Is(err, errFailed) || out != want {
		t.Errorf("%v:\n%s\nwant\n%s", err, out, want)
	}
	_, err = gather(t, jobPod("a", "0", "1-4", "4", `{"index":0,"seeds":"1-1","hash":"1"}`, 0),
		jobPod("b", "0", "1-4", "4", `{"index":0,"seeds":"1-1","hash":"2"}`, 0))
	if err == nil || !strings.Contains(err.Error(), "the runs are not deterministic") {
		t.Errorf("two hashes of an index: %v", err)
	}
	other := jobPod("b", "1", "1-4", "4", "", 0)
	other.Labels[batchv1.JobNameLabel] = "other"
	_, err = gather(t, jobPod("a", "0", "1-4", "4", "", 0), other)
	if err == nil || !strings.Contains(err.Error(), `pod b is of Job "other" and others`) {
		t.Errorf("two Jobs: %v", err)
	}
}

// The result of an index in which everything fails fits into a termination message.
func TestJobResultIsShort(t *testing.T) {
	longest, oracle := 0, strings.Repeat("x", 20)
	list, err := allScenarios()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range list {
		longest = max(longest, len(s.Metadata.Name))
	}
	r := &jobResult{Index: jobPartsMax, Seeds: seeds{1 << 62, 1 << 62}.String(), Runs: 1 << 62,
		Failures: 1 << 62, Hash: newJobHash().String()}
	for range jobFailuresMax {
		r.First = append(r.First, jobFailure{strings.Repeat("s", longest), 1 << 62, oracle})
	}
	if text, err := json.Marshal(r); err != nil || len(text) > 4096 {
		t.Errorf("%d bytes, %v", len(text), err)
	}
}

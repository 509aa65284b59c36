package sim_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// mutants are bugs that the oracles must find. Each is a change of one place in the core's
// source, made only in what the compiler is given: the tree is not touched, and the core has no
// switches for it.
var mutants = []struct {
	name     string
	file     string // relative to the module
	old, new string
	scenario string
	seeds    string
}{
	{
		// What a relist does not have is taken for gone, although the relist was asked for
		// before the container was made.
		name:     "plan on an observation older than the last write",
		file:     "core/pod/observe.go",
		old:      "if c.seenIn == number || !c.Learned.Before(asked) {",
		new:      "if c.seenIn == number {",
		scenario: "crashloop", seeds: "1-200",
	},
	{
		name:     "a restart counter lost on agent restart",
		file:     "core/pod/container.go",
		old:      "int32(number(item.Annotations[annotationRestarts], int64(item.Attempt)))",
		new:      "0",
		scenario: "agent-restarts", seeds: "1-200",
	},
	{
		// The sandbox is stopped and removed, and its containers with it, before they have ended.
		name:     "removal before containers have stopped",
		file:     "core/pod/plan.go",
		old:      "if p.stopAll(env, w) || !p.settled() || !p.Gone && p.awaitInspections() {",
		new:      "if p.stopAll(env, w); !p.settled() {",
		scenario: "manifest-churn", seeds: "1-200",
	},
	{
		name:     "sidecars stopped together with the app containers",
		file:     "core/pod/role.go",
		old:      "		if c.Sidecar == 0 {\n			p.stop(",
		new:      "		if c.Sidecar >= 0 {\n			p.stop(",
		scenario: "sidecars", seeds: "1-200",
	},
	{
		name:     "a sidecar's successor does not wait until it runs",
		file:     "core/pod/next.go",
		old:      "initRole(&inits[k]) == Sidecar && c.State == Running",
		new:      "initRole(&inits[k]) == Sidecar",
		scenario: "sidecars", seeds: "1-200",
	},
	{
		name:     "sidecars of a pod that never restarts are not restarted",
		file:     "core/pod/next.go",
		old:      "		return role == Sidecar\n",
		new:      "		return false\n",
		scenario: "sidecars", seeds: "1-200",
	},
	{
		name:     "back-off forgotten when the agent restarts",
		file:     "core/pod/container.go",
		old:      "c.Backoff = d //",
		new:      "c.Backoff = 0 //",
		scenario: "crashloop", seeds: "1-200",
	},
	{
		name:     "two pods of one full name at once",
		file:     "core/pods.go",
		old:      "if uid != p.UID && a.state.Pods[uid].Holds() {",
		new:      "if uid == \"\" {",
		scenario: "manifest-churn", seeds: "1-200",
	},
	{
		name:     "an init container that failed counts as done",
		file:     "core/pod/next.go",
		old:      "c.ended() && c.ExitCode == 0 ||",
		new:      "c.ended() ||",
		scenario: "init-chain", seeds: "1-200",
	},
	{
		name:     "a container that does not wait for a volume that failed",
		file:     "core/pod/volumes.go",
		old:      "return p.Storage.Set.Ready(&p.Spec.Spec)",
		new:      "return true",
		scenario: "volumes", seeds: "1-200",
	},
	{
		name:     "volumes unmounted while containers end",
		file:     "core/pod/plan.go",
		old:      "	p.releaseImages(env)\n	p.inspect(env, w)\n",
		new:      "	p.inspect(env, w)\n	if p.settled() {\n		p.releaseVolumes(env)\n	}\n",
		scenario: "volumes", seeds: "1-200",
	},
}

func TestMutantsAreFound(t *testing.T) {
	if testing.Short() {
		t.Skip("skipped: with -short no mutants are built")
	}
	for _, m := range mutants {
		t.Run(m.name, func(t *testing.T) {
			bin := buildMutant(t, m.file, m.old, m.new)
			out, err := exec.Command(bin, "run", m.scenario, "--seeds", m.seeds, "--json").Output()
			if err == nil {
				t.Fatalf("seeds %s of %s all hold with this bug", m.seeds, m.scenario)
			}
			var report struct {
				Failures []struct {
					Seed            uint64
					Oracle, Message string
					Replay          string
				}
			}
			if err := json.Unmarshal(out, &report); err != nil || len(report.Failures) == 0 {
				t.Fatalf("%v: %s", err, out)
			}
			first := report.Failures[0]
			t.Logf("found by %d seeds, first %d: %s: %s", len(report.Failures), first.Seed,
				first.Oracle, first.Message)
			words := strings.Fields(first.Replay)
			if len(words) < 2 || words[0] != "seedsim" {
				t.Fatalf("%q is no command that repeats it", first.Replay)
			}
			again, err := exec.Command(bin, words[1:]...).CombinedOutput()
			if err == nil || !strings.Contains(string(again), first.Oracle) {
				t.Errorf("%s does not repeat it", first.Replay)
			}
		})
	}
}

// buildMutant builds seedsim with one place of the source changed.
func buildMutant(t *testing.T, file, old, new string) string {
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	source := filepath.Join(root, file)
	text, err := os.ReadFile(source)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(text), old); n != 1 {
		t.Fatalf("%s has %d places that read %q, want one", file, n, old)
	}
	dir := t.TempDir()
	changed := filepath.Join(dir, filepath.Base(file))
	if err := os.WriteFile(changed, []byte(strings.Replace(string(text), old, new, 1)),
		0o644); err != nil {
		t.Fatal(err)
	}
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{source: changed}})
	if err != nil {
		t.Fatal(err)
	}
	overlayFile := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(overlayFile, overlay, 0o644); err != nil {
		t.Fatal(err)
	}
	bin := filepath.Join(dir, "seedsim")
	build := exec.Command("go", "build", "-overlay", overlayFile, "-o", bin, "./cmd/seedsim")
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building the mutant: %v\n%s", err, out)
	}
	return bin
}

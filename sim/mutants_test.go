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
		name: "nobody looks for an image while another one is pulled",
		file: "core/image/image.go",
		old:  "	return timer.Soonest(img.planLook(out), s.planPull(img, out))",
		new: "	if s.Turns.Flying > 0 && !img.busy() {\n		return out.Now().Add(time.Second)\n	}\n" +
			"	return timer.Soonest(img.planLook(out), s.planPull(img, out))",
		scenario: "image-pulls", seeds: "1-50",
	},
	{
		name:     "the turn of a pull that has ended is not given back",
		file:     "core/image/image.go",
		old:      "		s.Turns.Flying--\n",
		new:      "",
		scenario: "image-pulls", seeds: "1-50",
	},
	{
		name:     "an init container that failed counts as done",
		file:     "core/pod/next.go",
		old:      "c.ended() && c.ExitCode == 0 ||",
		new:      "c.ended() ||",
		scenario: "init-chain", seeds: "1-200",
	},
	{
		name:     "a log that was renamed by an earlier life is not opened anew",
		file:     "core/logs/job.go",
		old:      "case log == nil && !j.Refused:",
		new:      "case log == nil && !j.Refused && j.Moved != \"\":",
		scenario: "logs", seeds: "1-60",
	},
	{
		name:     "what is written to is compressed before a new log is opened",
		file:     "core/logs/job.go",
		old:      "	log := j.find(base)\n",
		new:      "	log := &File{Name: base, Size: bytesMax}\n",
		scenario: "logs", seeds: "1-60",
	},
	{
		name:     "a container has ended before its message was read",
		file:     "core/pod/container.go",
		old:      "c.Inspected == Exited && !c.Said.awaited()",
		new:      "c.Inspected == Exited",
		scenario: "logs", seeds: "1-60",
	},
	{
		name:     "links stay when their containers go",
		file:     "core/pod/logfiles.go",
		old:      "	case !l.Unlinked:\n		l.Op = ",
		new:      "	case !l.Unlinked && c.ID == \"\":\n		l.Op = ",
		scenario: "logs", seeds: "1-60",
	},
	{
		name:     "probes go on after the end of a container has begun",
		file:     "core/pod/health.go",
		old:      "c.Inspected != Running || c.Stop != nil || want == nil {",
		new:      "c.Inspected != Running || want == nil {",
		scenario: "probes", seeds: "1-200",
	},
	{
		name:     "readiness is lost when the agent restarts",
		file:     "core/pod/record.go",
		old:      "mark.Ready && kind == probe.Readiness {",
		new:      "mark.Ready && kind == \"\" {",
		scenario: "probes", seeds: "1-200",
	},
	{
		name:     "readiness is shown before it is kept",
		file:     "core/pod/record.go",
		old:      "\tif p.Record.Failures > 0 {\n\t\treturn p.health(c, p.mark(c))",
		new:      "\tif p.Record.Failures >= 0 {\n\t\treturn p.health(c, p.mark(c))",
		scenario: "probes", seeds: "1-200",
	},
	{
		name:     "what the old container has answered counts for its replacement",
		file:     "core/pod/record.go",
		old:      "\t\tif m.ID == id {\n",
		new:      "\t\tif m.ID != \"\" {\n",
		scenario: "probes", seeds: "1-200",
	},
	{
		name:     "one answer decides, whatever the thresholds say",
		file:     "core/probe/probe.go",
		old:      "p.InARow < max(threshold, 1) ||",
		new:      "p.InARow < min(threshold, 1) ||",
		scenario: "probes", seeds: "1-200",
	},
	{
		name:     "liveness does not wait for startup",
		file:     "core/pod/health.go",
		old:      "\t\tif !health.Started {",
		new:      "\t\tif !health.Started && want.LivenessProbe == nil {",
		scenario: "probes", seeds: "1-200",
	},
	{
		name:     "preStop hooks are skipped",
		file:     "core/pod/hook.go",
		old:      "if c.PreStop == nil || hook.Done",
		new:      "if c.PreStop != nil || hook.Done",
		scenario: "hooks", seeds: "1-200",
	},
	{
		name:     "TERM is sent while the preStop hook runs",
		file:     "core/pod/hook.go",
		old:      "over.Sub(env.Out.Now()), env, w)\n\treturn !hook.Done",
		new:      "over.Sub(env.Out.Now()), env, w)\n\treturn false",
		scenario: "hooks", seeds: "1-200",
	},
	{
		name:     "no extension when the hook has used the grace period up",
		file:     "core/pod/stop.go",
		old:      "const graceMin = 2 * time.Second",
		new:      "const graceMin = time.Nanosecond",
		scenario: "hooks", seeds: "1-200",
	},
	{
		name:     "the next container does not wait for the postStart hook",
		file:     "core/pod/next.go",
		old:      "\treturn c != nil && c.State == Running && c.Stop == nil && !p.is(c).Running",
		new:      "\treturn false && c.State == Running",
		scenario: "hooks", seeds: "1-200",
	},
	{
		name:     "a postStart hook that fails is taken for one that ended well",
		file:     "core/pod/hook.go",
		old:      "\th.Failed, h.Done = why, name == preStop",
		new:      "\th.Done = true",
		scenario: "hooks", seeds: "1-200",
	},
	{
		name:     "rules of restarts are ignored",
		file:     "core/pod/restart.go",
		old:      "matchesExit(rule.ExitCodes, c.ExitCode) {",
		new:      "matchesExit(nil, c.ExitCode) {",
		scenario: "restart-rules", seeds: "1-200",
	},
	{
		name:     "the active deadline starts anew with the agent",
		file:     "core/pod/observe.go",
		old:      "\t\tp.Observed = true\n\t\tp.recallStart()",
		new:      "\t\tp.Observed = true",
		scenario: "deadlines", seeds: "1-200",
	},
	{
		name:     "a sandbox is run before its cgroup is set",
		file:     "core/pod/plan.go",
		old:      "if !p.takeIDs(env, w) || p.setCgroup(",
		new:      "if !p.takeIDs(env, w) || false && p.setCgroup(",
		scenario: "resources", seeds: "1-20",
	},
	{
		name:     "the cgroup goes before the containers have ended",
		file:     "core/pod/plan.go",
		old:      "	p.keep(env, w)\n	if p.stopAll(env, w) || ",
		new:      "	p.keep(env, w)\n	if p.settled() && p.removeCgroups(env) || p.stopAll(env, w) || ",
		scenario: "resources", seeds: "1-50",
	},
	{
		name:     "orphaned cgroups are not looked for",
		file:     "core/housekeeping/housekeeping.go",
		old:      "	if v.Cgroups.PerPod && v.Cgroups.Settled {",
		new:      "	if v.Cgroups.PerPod && !v.Cgroups.Settled {",
		scenario: "resources", seeds: "1-400",
	},
	{
		name:     "the cgroups of known pods are taken for orphans",
		file:     "core/cgroup/cgroup.go",
		old:      "	return uid == other\n",
		new:      "	return uid == other && !l.Systemd\n",
		scenario: "resources", seeds: "1-50",
	},
	{
		name: "an init container does not count for the limits of its pod",
		file: "core/cgroup/limits.go",
		old:  "	limits := podresources.PodLimits(pod,",
		new: "	pod = pod.DeepCopy()\n	pod.Spec.InitContainers = nil\n" +
			"	limits := podresources.PodLimits(pod,",
		scenario: "resources", seeds: "1-20",
	},
	{
		name:     "two pods have the same ids",
		file:     "core/pods.go",
		old:      "		case other == uid:\n",
		new:      "		case other != \"\":\n",
		scenario: "resources", seeds: "1-50",
	},
	{
		name:     "ids are forgotten when the agent restarts",
		file:     "core/pod/observe.go",
		old:      "IDs: userns.Parse(item.IDs),",
		new:      "IDs: userns.Parse(\"\"),",
		scenario: "resources", seeds: "1-200",
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

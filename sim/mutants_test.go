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
		file:     "core/pod/stop.go",
		old:      "		if c.Sidecar == 0 {\n			p.stop(",
		new:      "		if c.Sidecar >= 0 {\n			p.stop(",
		scenario: "sidecars", seeds: "1-200",
	},
	{
		name:     "a sidecar's successor does not wait until it runs",
		file:     "core/pod/next.go",
		old:      "initRole(&inits[k]) == Sidecar && p.is(c).Started",
		new:      "initRole(&inits[k]) == Sidecar",
		scenario: "sidecars", seeds: "1-200",
	},
	{
		name:     "sidecars of a pod that never restarts are not restarted",
		file:     "core/pod/restart.go",
		old:      "\tif want.RestartPolicy != nil {",
		new:      "\tif want.RestartPolicy != nil && role != Sidecar {",
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
		old:  "	look := img.planLook(out)\n",
		new: "	if s.Turns.Flying > 0 && !img.busy() {\n		return out.Now().Add(time.Second)\n	}\n" +
			"	look := img.planLook(out)\n",
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
		name:     "rotated logs stay when their run goes",
		file:     "core/pod/logfiles.go",
		old:      "strings.HasPrefix(visible, c.logName()+\".\")",
		new:      "visible == \"\"",
		scenario: "logs", seeds: "1-60",
	},
	{
		name:     "the active deadline starts anew with the agent",
		file:     "core/pod/observe.go",
		old:      "\t\tp.Observed = true\n\t\tp.recallStart()",
		new:      "\t\tp.Observed = true",
		scenario: "deadlines", seeds: "1-500",
	},
	{
		name:     "probing goes on after a kill began",
		file:     "core/pod/health.go",
		old:      "\t\tif !ends {\n",
		new:      "\t\tif c.State == Running {\n",
		scenario: "probes", seeds: "1-200",
	},
	{
		name:     "readiness lost at agent restart",
		file:     "core/pod/record.go",
		old:      "|| mark.Ready && kind == probe.Readiness",
		new:      "|| mark.Ready && kind == \"\"",
		scenario: "probes", seeds: "1-200",
	},
	{
		name:     "how far another container was is given to a new one",
		file:     "core/pod/record.go",
		old:      "if m.ID == id {",
		new:      "if m.ID != \"\" {",
		scenario: "probes", seeds: "1-200",
	},
	{
		name:     "liveness asked before the container has started",
		file:     "core/pod/health.go",
		old:      "\t\t\tp.ask(c, want.StartupProbe, probe.Startup, env, w)\n\t\t\tcontinue\n",
		new:      "\t\t\tp.ask(c, want.StartupProbe, probe.Startup, env, w)\n",
		scenario: "probes", seeds: "1-200",
	},
	{
		name:     "a probe fails one answer early",
		file:     "core/probe/probe.go",
		old:      "if p.InARow < max(threshold, 1) ||",
		new:      "if p.InARow+1 < max(threshold, 1) ||",
		scenario: "probes", seeds: "1-200",
	},
	{
		name:     "a command that cannot be run counts as a failure",
		file:     "core/probe/ask.go",
		old:      "\treturn Undecided, \"\"\n",
		new:      "\treturn Bad, \"\"\n",
		scenario: "probes", seeds: "1-200",
	},
	{
		name:     "preStop skipped",
		file:     "core/pod/stop.go",
		old:      "&& !p.preStop(c, env, w) {",
		new:      "&& !c.Stop.Hook.Done {",
		scenario: "hooks", seeds: "1-200",
	},
	{
		name:     "TERM sent while the hook runs",
		file:     "core/pod/hook.go",
		old:      "over.Sub(env.Out.Now()), env, w)\n\treturn !hook.Done",
		new:      "over.Sub(env.Out.Now()), env, w)\n\treturn false",
		scenario: "hooks", seeds: "1-200",
	},
	{
		name:     "KILL without the 2 s extension",
		file:     "core/pod/stop.go",
		old:      "const graceMin = 2 * time.Second",
		new:      "const graceMin = time.Second",
		scenario: "hooks", seeds: "1-200",
	},
	{
		name:     "the grace period begins anew after the hook",
		file:     "core/pod/stop.go",
		old:      "\t\ts.Left = max(s.At.Add(s.Grace).Sub(env.Out.Now()), graceMin)",
		new:      "\t\ts.Left = s.Grace",
		scenario: "hooks", seeds: "1-200",
	},
	{
		name:     "postStart not waited for",
		file:     "core/pod/next.go",
		old:      "c.State == Running && c.Stop == nil && !p.is(c).Running",
		new:      "c == nil",
		scenario: "hooks", seeds: "1-200",
	},
	{
		name:     "a failed postStart hook is ignored",
		file:     "core/pod/health.go",
		old:      "if c.PostStart.Failed != \"\" {",
		new:      "if c.PostStart.Failed == \"-\" {",
		scenario: "hooks", seeds: "1-200",
	},
	{
		name:     "a hook is delivered twice",
		file:     "core/pod/hook.go",
		old:      "if why == \"\" {\n\t\thook.Done = true",
		new:      "if why == \"\" {\n\t\thook.Done = hook.Failures > 0\n\t\thook.Failures++",
		scenario: "hooks", seeds: "1-200",
	},
	{
		name:     "exit codes of restart rules are not looked at",
		file:     "core/pod/restart.go",
		old:      "\treturn in == (on.Operator",
		new:      "\treturn in || (on.Operator",
		scenario: "restart-rules", seeds: "1-200",
	},
	{
		name:     "a container's own policy is ignored",
		file:     "core/pod/restart.go",
		old:      "if want.RestartPolicy != nil {",
		new:      "if want == nil {",
		scenario: "restart-rules", seeds: "1-200",
	},
	{
		name:     "a failed relist moves the health on",
		file:     "core/pleg/pleg.go",
		old:      "		r.Failures++\n",
		new:      "		r.Failures++\n		r.AsOf = r.Asked\n",
		scenario: "runtime-restart", seeds: "1-100",
	},
	{
		// What an event tells of one container is taken for all that the pod has.
		name:     "an event's absence taken as gone",
		file:     "core/pod/observe.go",
		old:      "	return false, true\n}\n\nfunc (p *Pod) containerTold",
		new:      "	p.Containers = nil\n	return true, true\n}\n\nfunc (p *Pod) containerTold",
		scenario: "evented-pleg", seeds: "1-100",
	},
	{
		name: "what an event says has stopped is taken for gone",
		file: "core/pod/observe.go",
		old:  "		return c.advance(Exited, now)\n	case runtimeapi.ContainerEventType_CONTAINER_DEL",
		new: "		p.dropContainer(c.ID)\n		return true\n" +
			"	case runtimeapi.ContainerEventType_CONTAINER_DEL",
		scenario: "evented-pleg", seeds: "1-100",
	},
	{
		name:     "a failed liveness probe ends nothing",
		file:     "core/pod/health.go",
		old:      "[]probe.Kind{probe.Startup, probe.Liveness} {\n\t\tspec := probe.Of(want",
		new:      "[]probe.Kind{probe.Startup} {\n\t\tspec := probe.Of(want",
		scenario: "probes", seeds: "1-200",
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
			t.Parallel()
			bin := buildMutant(t, m.file, m.old, m.new)
			out, err := exec.Command(bin, "run", m.scenario, "--seeds", m.seeds, "--json",
				"--fail-fast").Output()
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
			t.Logf("found by seed %d: %s: %s", first.Seed, first.Oracle, first.Message)
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
	build := exec.Command("go", "build", "-overlay", overlayFile, "-ldflags", "-s -w",
		"-o", bin, "./cmd/seedsim")
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building the mutant: %v\n%s", err, out)
	}
	return bin
}

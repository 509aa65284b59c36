package sim_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// edit is a change of one place in a file of the module.
type edit struct{ file, old, new string }

// made is the file with the change in it.
func (e edit) made() (string, error) {
	text, err := os.ReadFile(filepath.Join("..", e.file))
	if err != nil {
		return "", err
	}
	if n := strings.Count(string(text), e.old); n != 1 {
		return "", fmt.Errorf("%s has %d places that read %q, want one", e.file, n, e.old)
	}
	return strings.Replace(string(text), e.old, e.new, 1), nil
}

// mutants are bugs that the oracles must find. Each is a change of one place in the core's
// source, made only in what the compiler is given: the tree is not touched, and the core has no
// switches for it.
var mutants = []struct {
	name     string
	file     string // relative to the module
	old, new string
	also     *edit
	scenario string
	seeds    string // those among which one found it last
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
		old:      "\tif want.RestartPolicy != nil {\n\t\tpolicy",
		new:      "\tif want.RestartPolicy != nil && role != Sidecar {\n\t\tpolicy",
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
		name:     "what a slow clock says of an end is believed",
		file:     "core/pod/dates.go",
		old:      "c.FinishedAt.Before(least) ||",
		new:      "least.IsZero() ||",
		scenario: "odd-runtime", seeds: "1-50",
	},
	{
		name:     "a run counts as long because the clock was set",
		file:     "core/pod/dates.go",
		old:      "case !c.Began.IsZero() && c.Exited.Sub(c.Began) <= than:",
		new:      "case false:",
		scenario: "odd-runtime", seeds: "1-100",
	},
	{
		name:     "runs are counted anew when somebody has removed their records",
		file:     "core/pod/past.go",
		old:      "if c.State == Created {",
		new:      "if c != nil {",
		scenario: "odd-runtime", seeds: "1-50",
	},
	{
		// It may run, or never end.
		name:     "a container of unknown state is left alone",
		file:     "core/pod/plan.go",
		old:      "belongs := c.State == Running &&",
		new:      "belongs := c.live() &&",
		scenario: "odd-runtime", seeds: "1-100",
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
		name: "when a pod began is forgotten when the agent restarts",
		file: "core/pod/record.go",
		old:  "		p.Seen = earlierOf(p.Seen, is.Start)\n",
		new:  "",
		also: &edit{
			file: "core/pod/observe.go",
			old:  "\t\tp.Observed = true\n\t\tp.recallStart()",
			new:  "\t\tp.Observed = true",
		},
		scenario: "deadlines", seeds: "1-500",
	},
	{
		name:     "probing goes on after a kill began",
		file:     "core/pod/health.go",
		old:      "c.Inspected != Running || c.Stop != nil || want == nil",
		new:      "c.Inspected != Running || want == nil",
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
		old:      "if want.RestartPolicy != nil {\n\t\tpolicy",
		new:      "if want == nil {\n\t\tpolicy",
		scenario: "restart-rules", seeds: "1-200",
	},
	{
		name:     "init containers do not run again when all containers are restarted",
		file:     "core/pod/next.go",
		old:      "if c != nil && c.SandboxID == sandbox.ID && !p.superseded(c) {",
		new:      "if c != nil && c.SandboxID == sandbox.ID {",
		scenario: "restart-all", seeds: "1-50",
	},
	{
		name:     "all containers are restarted before the others have ended",
		file:     "core/pod/round.go",
		old:      "if p.superseded(c) && (c.live() || startable) {",
		new:      "if p.superseded(c) && startable {",
		scenario: "restart-all", seeds: "1-50",
	},
	{
		name:     "a container whose exit restarts all is restarted alone",
		file:     "core/pod/round.go",
		old:      "if by := p.trigger(); by != nil {",
		new:      "if by := p.trigger(); by != nil && by.Name == \"\" {",
		scenario: "restart-all", seeds: "1-50",
	},
	{
		name:     "that all containers are restarted is forgotten when the agent restarts",
		file:     "core/pod/round.go",
		old:      "number := p.Record.Round\n",
		new:      "number := 0\n",
		scenario: "restart-all", seeds: "1-500",
	},
	{
		// Either of the two alone does no harm: that the pod has ended is kept.
		name: "how the sidecars of a pod end that has ended restarts it",
		file: "core/pod/round.go",
		old:  "p.awaitInspections() || p.completed() {",
		new:  "p.awaitInspections() {",
		also: &edit{
			file: "core/pod/record.go",
			old:  "end != nil && p.Stage == Syncing {",
			new:  "end != nil && p.Stage == Syncing && end.Reason != \"Completed\" {",
		},
		scenario: "restart-all", seeds: "1-500",
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
	{
		name:     "a container runs as root because nobody has asked whom its image runs as",
		file:     "core/image/image.go",
		old:      "	case img.UserOf:\n",
		new:      "	default:\n",
		scenario: "image-pulls", seeds: "1-50",
	},
	{
		name:     "runAsNonRoot is not held against the image",
		file:     "core/pod/next.go",
		old:      "if images == nil || p.rootByImage(want, images, env) {",
		new:      "if images == nil {",
		scenario: "image-pulls", seeds: "1-50",
	},
	{
		name:     "a container does not wait for what it mounts",
		file:     "core/pod/images.go",
		old:      "		if answer.ID == \"\" {\n",
		new:      "		if answer.ID == \"\" && w.volume == \"\" {\n",
		scenario: "image-pulls", seeds: "1-50",
	},
	{
		name: "a failed inspection is not repeated",
		file: "core/pod/answer.go",
		old:  "\tc.InspectOp = 0\n\tif ev.Err != nil {\n\t\tc.Blind++",
		new: "\tif ev.Err == nil {\n\t\tc.InspectOp = 0\n\t}\n" +
			"\tif ev.Err != nil {\n\t\tc.Blind++",
		scenario: "runtime-flaky", seeds: "1-500",
	},
	{
		name:     "an observation is taken for one of the future",
		file:     "core/pleg/pleg.go",
		old:      "r.AsOf, r.Problem = r.Asked, \"\"",
		new:      "r.AsOf, r.Problem = ev.Time.Add(time.Hour), \"\"",
		scenario: "crashloop", seeds: "1-500",
	},
	{
		name:     "what is stale stays so until there is news",
		file:     "core/pod/observe.go",
		old:      "\t\tp.Stale = time.Time{}\n\t\tchanged = true",
		new:      "\t\tif changed {\n\t\t\tp.Stale = time.Time{}\n\t\t}",
		scenario: "runtime-flaky", seeds: "1-500",
	},
	{
		name:     "a pod that has ended is never forgotten",
		file:     "core/pod/plan.go",
		old:      "\tp.Forgotten = len(p.Sandboxes) == 0 && len(p.Containers) == 0\n",
		new:      "",
		scenario: "uid-reuse", seeds: "1-50",
	},
	{
		name:     "a pod that comes back after its end is not looked at",
		file:     "core/pods.go",
		old:      "state.Last))\n\t\t\ta.touchPod(p.UID)\n",
		new:      "state.Last))\n",
		scenario: "uid-reuse", seeds: "1-50",
	},
	{
		// Either of the two alone does no harm: what is gone is noticed by the other.
		name: "what is not found while stopping is an error, and lists are not believed",
		file: "core/pod/answer.go",
		old:  "\ts.Op = 0\n\tif ev.Err != nil && !ev.Err.Has(world.KindNotFound) {",
		new:  "\ts.Op = 0\n\tif ev.Err != nil {",
		also: &edit{
			file: "core/pod/observe.go",
			old:  "\t\tp.dropSandbox(s.ID)\n\t\tchanged = true\n",
			new:  "\t\ti++\n",
		},
		scenario: "old-runtime", seeds: "1-500",
	},
	{
		name:     "a terminal phase is forgotten when the agent restarts",
		file:     "core/pod/over.go",
		old:      "return p.Stage == Terminated || atEnd && ",
		new:      "return p.Stage == Terminated || atEnd && p.Phase == \"\" && ",
		scenario: "agent-restarts", seeds: "1-500",
	},
	{
		name:     "a terminal phase before the containers have ended",
		file:     "core/pod/over.go",
		old:      "atEnd && !p.live() && p.Op == 0 && !p.anyReady()",
		new:      "atEnd && p.Op == 0",
		scenario: "deadlines", seeds: "1-500",
	},
	{
		name:     "a container is another one after the agent restarts",
		file:     "core/pod/container.go",
		old:      "\t\tHash:     item.Annotations[annotationHash],",
		new:      "\t\tHash:     item.Annotations[annotationHash] + \"x\",",
		scenario: "agent-restarts", seeds: "1-500",
	},
	{
		name:     "the status is that of the first sandbox",
		file:     "core/pod/container.go",
		old:      "return &p.Sandboxes[len(p.Sandboxes)-1]",
		new:      "return &p.Sandboxes[0]",
		scenario: "reboot", seeds: "1-500",
	},
	{
		name:     "pods are ended before all sources were seen",
		file:     "core/agent.go",
		old:      "return a.state.Manifests.Ready() && a.boundSeen()",
		new:      "return a.boundSeen()",
		scenario: "agent-restarts", seeds: "1-500",
	},
	{
		name:     "pods are ended before the manifest URL was read",
		file:     "core/manifest/sources.go",
		old:      "return s.File.Ready && s.HTTP.Ready",
		new:      "return s.File.Ready",
		scenario: "manifest-url", seeds: "1-100",
	},
	{
		name:     "a manifest URL that fails has no pods",
		file:     "core/manifest/fetch.go",
		old:      "s.failed(cmp.Or(ev.Err, notAPage), s.Problem == \"\", out)",
		new:      "_ = cmp.Or(ev.Err, notAPage); s.takeParts(nil, out)",
		scenario: "manifest-url", seeds: "1-100",
	},
	{
		name:     "what a URL says does not give way to a file",
		file:     "core/manifest/sources.go",
		old:      "if first == \"\" && source.Origin == OriginHTTP {",
		new:      "if first == \"\" && source.Origin == \"\" {",
		scenario: "manifest-url", seeds: "1-100",
	},
	{
		name:     "what has finished runs again",
		file:     "core/pod/restart.go",
		old:      "return failed || c.Stop != nil && c.Stop.Ailing",
		new:      "return true",
		scenario: "restart-rules", seeds: "1-500",
	},
	{
		name:     "app containers do not wait for init after a reboot",
		file:     "core/pod/next.go",
		old:      "if c != nil && c.SandboxID == sandbox.ID && !p.superseded(c) {",
		new:      "if c != nil && !p.superseded(c) {",
		scenario: "reboot", seeds: "1-500",
	},
	{
		name: "an init container that was made is not started",
		file: "core/pod/next.go",
		old:  "\tcase c.State == Created:\n\t\treturn Start, time.Time{}",
		new: "\tcase c.State == Created && role == Init:\n\t\treturn Wait, time.Time{}\n" +
			"\tcase c.State == Created:\n\t\treturn Start, time.Time{}",
		scenario: "init-chain", seeds: "1-500",
	},
	{
		name:     "a sandbox is run before its cgroup is set",
		file:     "core/pod/plan.go",
		old:      "if !ok || !p.takeIDs(handler, env, w) ||\n		p.setCgroup(",
		new:      "if !ok || !p.takeIDs(handler, env, w) ||\n		false && p.setCgroup(",
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
		name:     "what hangs at a pod's path takes places of the agent's own files",
		file:     "world/loop/lanes.go",
		old:      "	if eff.HostPath != \"\" {\n",
		new:      "	if eff.HostPath == \"/\" {\n",
		scenario: "hung-paths", seeds: "1-50",
	},
	{
		name:     "every retry at a path that hangs takes a place more",
		file:     "world/loop/turns.go",
		old:      "first := l.turns.before(at)",
		new:      "first := l.turns.before(places{})",
		scenario: "hung-paths", seeds: "1-50",
	},
	{
		// What a log is renamed to while it is removed stays.
		name: "the logs of a run are looked for once",
		file: "core/pod/logfiles.go",
		old: "if l.Bare = len(l.Files) == 0; l.Bare {\n\t\t\tl.Files = []string{" +
			"p.messageFile(c.Name, c.Restarts, node)}",
		new: "if l.Bare = true; l.Bare {\n\t\t\tl.Files = append(l.Files, " +
			"p.messageFile(c.Name, c.Restarts, node))",
		scenario: "logs", seeds: "301-400",
	},
	{
		// A removal that the core has given up goes on, and takes what was made there anew.
		name:     "what was given up is not waited for",
		file:     "world/loop/places.go",
		old:      "if changed := changes(eff.Body); changed != \"\" {",
		new:      "if changed := changes(eff.Body); changed == \"never\" {",
		scenario: "manifest-churn", seeds: "501-600",
	},
	{
		name:     "a volume on the node is taken for the agent's own",
		file:     "core/volume/volume.go",
		old:      "			if want.HostPath != nil {\n",
		new:      "			if want.EmptyDir != nil && want.HostPath != nil {\n",
		scenario: "hung-paths", seeds: "1-50",
	},
	{
		name:     "a sub-path on the node is taken for the agent's own",
		file:     "core/pod/volumes.go",
		old:      "	if v := p.volume(volume); v != nil && v.HostPath != nil {\n",
		new:      "	if v := p.volume(volume); v != nil && v.EmptyDir != nil && v.HostPath != nil {\n",
		scenario: "hung-paths", seeds: "1-50",
	},
	{
		name:     "a pod is never evicted",
		file:     "core/pod/volumes.go",
		old:      "	if over == \"\" || admission.Critical(p.Spec, p.IsStatic()) {\n",
		new:      "	if over == \"\" || admission.Critical(p.Spec, true) {\n",
		scenario: "evictions", seeds: "1-50",
	},
	{
		name:     "a volume is measured once only",
		file:     "core/volume/measure.go",
		old:      "		s.Measured, s.NextAt = nil, now.Add(measurePeriod)",
		new:      "		s.NextAt = now.Add(measurePeriod)",
		scenario: "evictions", seeds: "1-50",
	},
	{
		name:     "a pod is evicted below the limit of its volume",
		file:     "core/volume/measure.go",
		old:      "measured.Bytes > limit {",
		new:      "measured.Bytes > limit/10*9 {",
		scenario: "evictions", seeds: "1-50",
	},
	{
		name:     "a critical pod is evicted",
		file:     "core/pod/volumes.go",
		old:      "	if over == \"\" || admission.Critical(p.Spec, p.IsStatic()) {\n",
		new:      "	if over == \"\" || admission.Critical(p.Spec, false) {\n",
		scenario: "evictions", seeds: "1-50",
	},
	{
		name:     "an eviction names another volume",
		file:     "core/volume/measure.go",
		old:      "v.Name == s.Over && v.EmptyDir != nil &&",
		new:      "s.Over != \"\" && v.EmptyDir != nil &&",
		scenario: "evictions", seeds: "1-50",
	},
	{
		name:     "an end is forgotten when the agent restarts",
		file:     "core/pod/record.go",
		old:      "end != nil && p.Stage == Syncing {",
		new:      "end != nil && p.Stage == Terminated {",
		scenario: "odd-runtime", seeds: "1-100",
	},
	{
		// Nothing else keeps it until the API server has it, and an agent has to die before that:
		// few runs have that.
		name: "the end of a pod of which nothing was made is not kept",
		file: "core/pod/over.go",
		old:  "	return p.Record.End != nil\n",
		new:  "	return p.Record.End != nil || !p.hasDir()\n",
		also: &edit{
			file: "core/pod/record.go",
			old:  "!r.NoDir && is.End == nil {",
			new:  "!r.NoDir {",
		},
		scenario: "admission", seeds: "601-700",
	},
	{
		name:     "nothing is kept of what the runtime has nothing of",
		file:     "core/pod/pod.go",
		old:      "	p.Record.Read = isNew\n",
		new:      "	p.Record.Read = isNew || len(p.UID) > 0\n",
		scenario: "odd-runtime", seeds: "1-100",
	},
	{
		name:     "a volume in memory is as large as the machine's",
		file:     "core/volume/steps.go",
		old:      "		lower(source.SizeLimit)\n",
		new:      "		lower(&resource.Quantity{})\n",
		scenario: "evictions", seeds: "1-50",
	},
	{
		name:     "ids are forgotten when the agent restarts",
		file:     "core/pod/observe.go",
		old:      "IDs: userns.Parse(item.IDs),",
		new:      "IDs: userns.Parse(\"\"),",
		scenario: "resources", seeds: "1-200",
	},
	{
		name:     "a status of an old pod is told of a new one of its name",
		file:     "core/status/merge.go",
		old:      "\"uid\": string(object.UID), \"resourceVersion\": object.ResourceVersion,",
		new:      "",
		scenario: "node-churn", seeds: "1-400",
	},
	{
		name:     "a status that is stored late undoes what came after it",
		file:     "core/status/merge.go",
		old:      "\"resourceVersion\": object.ResourceVersion,",
		new:      "",
		scenario: "node-churn", seeds: "1-400",
	},
	{
		name:     "what the API server wants is not waited for",
		file:     "core/bound.go",
		old:      "return !a.state.API || w != nil && w.Listed",
		new:      "return !a.state.API || w != nil",
		scenario: "boot-without-api", seeds: "1-100",
	},
	{
		name:     "a mirror that is marked for deletion is left as it is",
		file:     "core/mirror/mirror.go",
		old:      "return static != nil && object.DeletionTimestamp == nil &&",
		new:      "return static != nil &&",
		scenario: "mirror-pods", seeds: "1-100",
	},
	{
		name:     "what a pod that is over was told to be is taken back",
		file:     "core/status/merge.go",
		old:      "	if Terminal(stored) {",
		new:      "	if false {",
		scenario: "node-churn", seeds: "1-400",
	},
	{
		name:     "a pod that was over before the agent runs again",
		file:     "core/pod/want.go",
		old:      "phase := p.Spec.Status.Phase; terminal(phase) {",
		new:      "phase := p.Spec.Status.Phase; phase == \"none\" {",
		scenario: "node-churn", seeds: "1-200",
	},
	{
		name:     "a deleted pod is not told to be over",
		file:     "core/status/status.go",
		old:      "	if want.Status != nil {",
		new:      "	if want.Status != nil && e.Stored.DeletionTimestamp == nil {",
		scenario: "node-churn", seeds: "1-100",
	},
	{
		name:     "a lease that was not renewed in time is given up",
		file:     "core/lease/lease.go",
		old:      "	case l.Op != 0:\n		return time.Time{}\n	case now",
		new:      "	case l.Op != 0, l.Failures > 3:\n		return time.Time{}\n	case now",
		scenario: "api-partition", seeds: "1-100",
	},
	{
		name:     "a volume does not follow its object",
		file:     "core/volume/volume.go",
		old:      "if known && v.Of != of {",
		new:      "if known && v.Of != of && !v.Ready {",
		scenario: "config-updates", seeds: "1-20",
	},
	{
		name:     "a volume is emptied when its object goes",
		file:     "core/volume/content.go",
		old:      "	case is.absent && may:\n",
		new:      "	case is.absent:\n",
		scenario: "config-updates", seeds: "1-40",
	},
	{
		name: "a volume is written in two steps",
		file: "core/volume/content.go",
		old:  "	return append(steps, &world.WriteDir{",
		new: "	steps = append(steps, &world.WriteDir{Path: at, Files: files[:len(files)/2]})\n" +
			"	return append(steps, &world.WriteDir{",
		scenario: "config-updates", seeds: "1-20",
	},
	{
		name:     "a volume follows only the last trust bundle of a signer",
		file:     "core/volume/bundle.go",
		old:      "is.version += ",
		new:      "is.version = ",
		scenario: "config-updates", seeds: "1-40",
	},
	{
		name:     "trust anchors of two bundles are written twice",
		file:     "core/volume/bundle.go",
		old:      "return bytes.Equal(x.der, y.der)",
		new:      "return false",
		scenario: "config-updates", seeds: "1-40",
	},
	{
		name:     "an object that was found is never read again",
		file:     "core/object/read.go",
		old:      "	case w.immutable():\n",
		new:      "	case len(w.Objects) > 0:\n",
		scenario: "config-reads", seeds: "1-40",
	},
	{
		name:     "the variables of a whole Secret lack their prefix",
		file:     "core/pod/keys.go",
		old:      "from.Prefix+key",
		new:      "key",
		scenario: "config-updates", seeds: "1-40",
	},
	{
		name:     "services that come later are not told of",
		file:     "core/object/object.go",
		old:      "			w.set(name, body.Object)\n",
		new:      "			if body.Object.Service == nil {\n				w.set(name, body.Object)\n			}\n",
		scenario: "config-updates", seeds: "1-100",
	},
	{
		name:     "a pod that somebody else calls over runs on",
		file:     "core/pod/want.go",
		old:      "p.end(Kill{Reason: \"Over\", Grace: p.grace()}, now)",
		new:      "p.Phase = phase",
		scenario: "node-churn", seeds: "1-60",
	},
	{
		name:     "a token is not renewed",
		file:     "core/token/token.go",
		old:      "return t.RenewAt.Add(-jitter)",
		new:      "return t.RenewAt.Add(time.Hour)",
		scenario: "config-updates", seeds: "1-20",
	},
	{
		name:     "a start is told when it is asked for",
		file:     "core/pod/next.go",
		old:      "		c.Began = env.Out.Now()\n",
		new:      "		c.Began = env.Out.Now()\n		p.event(env, c.Name, normal, \"Started\", \"\")\n",
		scenario: "crashloop", seeds: "1-10",
	},
	{
		name: "back-off is told by every plan",
		file: "core/pod/next.go",
		old:  "	case Wait:\n",
		new: "	case Wait:\n		if c := p.newest(want.Name); c != nil {\n" +
			"			p.tellBackOff(c, env)\n		}\n",
		scenario: "crashloop", seeds: "1-10",
	},
	{
		name:     "an image that is there is told to have been pulled",
		file:     "core/pod/events.go",
		old:      "	case !n.Pulling.IsZero() && !pull.Ended.IsZero():\n",
		new:      "	case true:\n",
		scenario: "image-pulls", seeds: "1-20",
	},
	{
		name:     "the end of a container is told when a probe fails, whatever its threshold",
		file:     "core/pod/health.go",
		old:      "	case answer == probe.Bad:\n",
		new:      "	case answer == probe.Bad:\n		p.event(env, c.Name, normal, \"Killing\", \"\")\n",
		scenario: "probes", seeds: "1-50",
	},
	{
		name:     "a pod is taken without looking",
		file:     "core/bound.go",
		old:      "		why = a.room(is, false, a.active(nil), true)\n",
		new:      "",
		scenario: "admission", seeds: "1-50",
	},
	{
		name: "a restart asks again whether there is room",
		file: "core/bound.go",
		old:  "	case p != nil:\n		p.Want(is, now)\n",
		new: "	case p != nil:\n		if p.Spec == nil && !a.admitBound(is) {\n			return\n		}\n" +
			"		p.Want(is, now)\n",
		also: &edit{ // and not once more when it has ended
			file: "core/pods.go",
			old:  "case p.Spec == nil && a.isBound(p):",
			new:  "case false:",
		},
		scenario: "admission", seeds: "1-200",
	},
	{
		name:     "what runs of a pod that is not known yet takes no room",
		file:     "core/pod/room.go",
		old:      "admission.Claimed(s.Claim)",
		new:      "admission.Claimed(\"\")",
		scenario: "admission", seeds: "1-500",
	},
	{
		name:     "a critical pod makes room for another one",
		file:     "core/admission/preempt.go",
		old:      "Critical(pod, static) && !Critical(other.Pod, other.Static) {",
		new:      "Critical(pod, static) {",
		scenario: "admission", seeds: "1-200",
	},
	{
		name:     "who others have made room for is not asked again",
		file:     "core/admit.go",
		old:      "e != nil && a.state.Rejected[uid].Waits {",
		new:      "e != nil && a.state.Rejected[uid].Phase == \"\" {",
		scenario: "admission", seeds: "1-200",
	},
	{
		name:     "ports of the host are not looked at",
		file:     "core/admission/admission.go",
		old:      "	if c.portTaken() {\n",
		new:      "	if c.portTaken() && c.Pod.Name == \"\" {\n",
		scenario: "admission", seeds: "1-50",
	},
	{
		name:     "pods are taken before the Node is known",
		file:     "core/bound.go",
		old:      "a.nodeListed() && a.admitBound(is):",
		new:      "a.admitBound(is):",
		scenario: "admission", seeds: "1-200",
	},
	{
		name:     "while there is no Node every pod is taken",
		file:     "core/ownnode.go",
		old:      "	return a.state.OwnNode.Initial(&a.state.Boot)\n",
		new:      "	return nil\n",
		scenario: "admission", seeds: "1-500",
	},
	{
		name:     "pods that are over take room when the agent restarts",
		file:     "core/admit.go",
		old:      "if admission.OfRoom(decisive) && slices",
		new:      "if admission.OfRoom(decisive) && static && slices",
		scenario: "admission", seeds: "1-500",
	},
	{
		name:     "nobody is told what came of waiting",
		file:     "core/admit.go",
		old:      "			a.touched.add(status.Key(uid))\n",
		new:      "			_ = status.Key(uid)\n",
		scenario: "admission", seeds: "1-200",
	},
	{
		name: "an ephemeral container is restarted",
		file: "core/pod/restart.go",
		old:  "	if role == Ephemeral || want == nil {\n",
		new:  "	if want == nil {\n",
		also: &edit{
			file: "core/pod/next.go",
			old:  "case role == Ephemeral:",
			new:  "case role == Ephemeral && !p.restarts(c):",
		},
		scenario: "admission", seeds: "1-200",
	},
	{
		name:     "an ephemeral container keeps its pod from ending",
		file:     "core/pod/plan.go",
		old:      "	if p.completed() {\n",
		new:      "	if p.completed() && !p.live() {\n",
		scenario: "admission", seeds: "1-200",
	},
	{
		name:     "an ephemeral container is never started",
		file:     "core/pod/next.go",
		old:      "	for i := range spec.EphemeralContainers {\n		want",
		new:      "	for i := range spec.EphemeralContainers[:0] {\n		want",
		scenario: "node-churn", seeds: "1-50",
	},
	{
		name:     "a name means the pod that had it, for as long as that runs",
		file:     "core/lookup.go",
		old:      "	if found != nil {\n",
		new:      "	if found != nil && len(a.names[full]) < 2 {\n",
		scenario: "manifest-churn", seeds: "1-100",
	},
	{
		name:     "a client is told of a run before the newest",
		file:     "core/pod/lookup.go",
		old:      "	return c.ID\n",
		new:      "	if o := p.previous(c); o != nil {\n		return o.ID\n	}\n	return c.ID\n",
		scenario: "agent-restarts", seeds: "1-50",
	},
	{
		name:     "the UID of a mirror means nothing",
		file:     "core/lookup.go",
		old:      "uid == string(is.UID) && mirror.Is(is) {",
		new:      "uid == string(is.UID) && !mirror.Is(is) {",
		scenario: "mirror-pods", seeds: "1-50",
	},
	{
		name:     "the UID that a client gives does not matter",
		file:     "core/lookup.go",
		old:      "if (uid == \"\" || uid == string(spec.UID)) && (",
		new:      "if uid != \"\\x00\" && (",
		scenario: "manifest-churn", seeds: "1-50",
	},
	{
		// The name of the UID is another one now.
		name:     "a pod is found by the name of another one that had its UID",
		file:     "core/lookup.go",
		old:      " && p.Spec != nil && p.FullName() == full {",
		new:      " && p.Spec != nil {",
		scenario: "uid-reuse", seeds: "1-100",
	},
	{
		name:     "what has exited is shown as running",
		file:     "core/pod/lookup.go",
		old:      "c.State == Running {",
		new:      "c.State != Created {",
		scenario: "agent-restarts", seeds: "1-20",
	},
	{
		name: "a request about a pod that nobody knows is not answered",
		file: "core/requests.go",
		old:  "		a.out.Tell(a.meant(body))\n",
		new: "		if answer := a.meant(body); answer.Err == nil {\n			a.out.Tell(answer)\n" +
			"		}\n",
		scenario: "node-churn", seeds: "1-20",
	},
}

// TestMutantsApply checks that each change is one of the source as it is, before any is built.
func TestMutantsApply(t *testing.T) {
	for _, m := range mutants {
		edits := []edit{{m.file, m.old, m.new}}
		if m.also != nil {
			edits = append(edits, *m.also)
		}
		for _, e := range edits {
			if _, err := e.made(); err != nil {
				t.Errorf("%s: %v", m.name, err)
			}
		}
	}
}

func TestMutantsAreFound(t *testing.T) {
	if testing.Short() {
		t.Skip("skipped: with -short no mutants are built")
	}
	for _, m := range mutants {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			edits := []edit{{m.file, m.old, m.new}}
			if m.also != nil {
				edits = append(edits, *m.also)
			}
			bin := buildMutant(t, edits...)
			first := firstFailure(t, bin, m.scenario, m.seeds)
			if first == nil { // the draws may have changed: it is one of the first 500 that has to find it
				t.Logf("seeds %s of %s all hold: other ones are tried", m.seeds, m.scenario)
				first = firstFailure(t, bin, m.scenario, "1-500")
			}
			if first == nil {
				t.Fatalf("seeds 1-500 of %s all hold with this bug", m.scenario)
			}
			t.Logf("found by seed %d: %s: %s", first.Seed, first.Oracle, first.Message)
			if want := oracleOf(m.name); want != "" && first.Oracle != want {
				t.Errorf("the table of known bugs says that %s finds it", want)
			}
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

// failure is what seedsim says of a seed that fails.
type failure struct {
	Seed            uint64
	Oracle, Message string
	Replay          string
}

// firstFailure is the first seed that fails; nil if all hold.
func firstFailure(t *testing.T, bin, scenario, seeds string) *failure {
	out, err := exec.Command(bin, "run", scenario, "--seeds", seeds, "--json", "--fail-fast").Output()
	if err == nil {
		return nil
	}
	var report struct{ Failures []failure }
	if err := json.Unmarshal(out, &report); err != nil || len(report.Failures) == 0 {
		t.Fatalf("%v: %s", err, out)
	}
	return &report.Failures[0]
}

// buildMutant builds seedsim with places of the source changed.
func buildMutant(t *testing.T, edits ...edit) string {
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	replace := map[string]string{}
	for i, e := range edits {
		source, changed := filepath.Join(root, e.file), filepath.Join(dir, fmt.Sprintf("%d.go", i))
		text, err := e.made()
		if err == nil {
			err = os.WriteFile(changed, []byte(text), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
		replace[source] = changed
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
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

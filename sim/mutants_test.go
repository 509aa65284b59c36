package sim_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"seedlet.dev/hack/mutants/mutation"
	"seedlet.dev/sim/plan"
)

// edit replaces a text that occurs once in a file of the module.
type edit struct{ file, old, new string }

// mutant is a bug, made by one or two edits.
type mutant struct {
	name     string
	file     string // relative to the module
	old, new string
	also     *edit
	scenario string
	seeds    string // to try; they begin with 1, or with the one that found it last
	plan     string // in scenarios/bugs, for a bug that fewer than one seed in 500 finds
}

// editsOf returns the edits of a mutant.
func editsOf(m *mutant) []mutation.Edit {
	edits := []mutation.Edit{{File: m.file, Old: m.old, New: m.new}}
	if m.also != nil {
		edits = append(edits, mutation.Edit{File: m.also.file, Old: m.also.old, New: m.also.new})
	}
	return edits
}

// mutants are bugs that the oracles must find. Each replaces a text in the core's source; that of
// an excuse, which the oracle strict finds, in the simulator's. The replacement is made in an
// overlay for the compiler: files do not change, and the core needs no switches.
var mutants = []mutant{
	{
		// What a relist does not have is taken for gone, although the relist was asked for
		// before the container was made.
		name:     "plan on an observation older than the last write",
		file:     "core/pod/observe.go",
		old:      "if c.seenIn == number || !c.LearnedAt.Before(requestedAt) {",
		new:      "if c.seenIn == number {",
		scenario: "crashloop", seeds: "1-200",
	},
	{
		name:     "a restart counter lost on agent restart",
		file:     "core/criconfig/run.go",
		old:      "int32(parseNumber(annotations[AnnotationRestarts], int64(attempt)))",
		new:      "0",
		scenario: "agent-restarts", seeds: "1-200",
	},
	{
		// The sandbox is stopped and removed, and its containers with it, before they have ended.
		name: "removal before containers have stopped",
		file: "core/pod/plan.go",
		old: "if p.stopAllContainers(env, w) || !p.isSettled() || " +
			"!p.NoLongerDesired && p.HasUnknownExits() {",
		new:      "if p.stopAllContainers(env, w); !p.isSettled() {",
		scenario: "manifest-churn", seeds: "1-200",
	},
	{
		// A pod of as many containers as it has slots for stops cannot be hastened.
		name:     "a superseded stop keeps its slot",
		file:     "core/pod/stop.go",
		old:      "env.Effects.Cancel(c.Op)",
		new:      "env.Effects.Abandon(c.Op)",
		scenario: "memory-storm", plan: "stop-not-hastened.yaml",
	},
	{
		// A pod that was deleted by force while the agent was down ends when it likes.
		name:     "an orphan has its own grace period",
		file:     "core/pod/desired.go",
		old:      "grace = min(grace, orphanGrace)",
		new:      "",
		scenario: "memory-storm", plan: "orphan-not-hastened.yaml",
	},
	{
		name:     "sidecars stopped together with the app containers",
		file:     "core/pod/stop.go",
		old:      "		if c.SidecarOrder == 0 {\n			p.stopContainer(",
		new:      "		if c.SidecarOrder >= 0 {\n			p.stopContainer(",
		scenario: "sidecars", seeds: "1-200",
	},
	{
		name:     "a sidecar's successor does not wait until it runs",
		file:     "core/pod/container_plan.go",
		old:      "InitRole(&inits[i]) == Sidecar && p.currentHealth(c).Started",
		new:      "InitRole(&inits[i]) == Sidecar",
		scenario: "sidecars", seeds: "1-200",
	},
	{
		name:     "sidecars of a pod that never restarts are not restarted",
		file:     "core/pod/restart_policy.go",
		old:      "	if container.RestartPolicy != nil {\n		policy",
		new:      "	if container.RestartPolicy != nil && role != Sidecar {\n		policy",
		scenario: "sidecars", seeds: "1-200",
	},
	{
		// The pod can never be deleted.
		name:     "a status that is too large is written again and again",
		file:     "core/statuswriter/writer.go",
		old:      "if e.TooLarge > 0 && merged.Size() >= e.TooLarge {",
		new:      "if e.TooLarge < 0 {",
		scenario: "hostile", seeds: "27-46",
	},
	{
		name:     "back-off forgotten when the agent restarts",
		file:     "core/criconfig/run.go",
		old:      "run.Backoff = d //",
		new:      "run.Backoff = 0 //",
		scenario: "crashloop", seeds: "1-200",
	},
	{
		name:     "the exit time of a slow clock is believed",
		file:     "core/pod/timestamps.go",
		old:      "c.FinishedAt.Before(earliest) ||",
		new:      "earliest.IsZero() ||",
		scenario: "odd-runtime", seeds: "1-50",
	},
	{
		name:     "a run counts as long because the clock was stepped",
		file:     "core/pod/timestamps.go",
		old:      "case !c.StartIssuedAt.IsZero() && c.ExitSeenAt.Sub(c.StartIssuedAt) <= duration:",
		new:      "case false:",
		scenario: "odd-runtime", seeds: "20-39",
	},
	{
		name:     "restart counts start over after a manual removal",
		file:     "core/pod/removed_run.go",
		old:      "if c.State == Created {",
		new:      "if c != nil {",
		scenario: "odd-runtime", seeds: "1-50",
	},
	{
		name:     "a completed container runs again without its record",
		file:     "core/pod/removed_run.go",
		old:      "if !removed.IsNewerThan(c) || removed.Exited == nil ||",
		new:      "if name != \"\" || !removed.IsNewerThan(c) || removed.Exited == nil ||",
		scenario: "storage-mix", plan: "completed-ran-again-without-record.yaml",
	},
	{
		name:     "a run whose record is lost is done again",
		file:     "core/pod/removed_run.go",
		old:      "			exited.lose()\n			removed.Lost = true\n",
		new:      "			return\n",
		scenario: "odd-runtime", plan: "lost-run-again.yaml",
	},
	{
		name:     "a run that only the API server has is done again",
		file:     "core/pod/removed_run.go",
		old:      "(role == App || role == Init) && !p.needsAnotherRun(&last) {",
		new:      "role == Sidecar && !p.needsAnotherRun(&last) {",
		scenario: "odd-runtime", plan: "lost-run-of-another-agent.yaml",
	},
	{
		name:     "an exit that only the API server has is forgotten",
		file:     "core/pod/removed_run.go",
		old:      "if end := s.State.Terminated; end != nil {",
		new:      "if end := s.State.Terminated; end != nil && c.lose == nil {",
		scenario: "odd-runtime", plan: "completed-run-of-another-agent.yaml",
	},
	{
		name:     "an init container that runs is replaced",
		file:     "core/pod/plan.go",
		old:      "return !p.matchesSpec(c) && p.roleOf(c.Name) != Init",
		new:      "return !p.matchesSpec(c)",
		scenario: "odd-runtime", plan: "init-container-replaced.yaml",
	},
	{
		// It may run, or never end.
		name:     "a container in state unknown is left alone",
		file:     "core/pod/plan.go",
		old:      "belongs := c.State == Running &&",
		new:      "belongs := c.isLive() &&",
		scenario: "odd-runtime", seeds: "11-30",
	},
	{
		name:     "two exited runs of a container stay",
		file:     "core/pod/plan.go",
		old:      "case exitedRuns >= exitedRunsMax:",
		new:      "case exitedRuns > exitedRunsMax:",
		scenario: "crashloop", seeds: "1-50",
	},
	{
		name:     "the containers of an evicted pod stay",
		file:     "core/nodepressure.go",
		old:      "p.MayLoseRuns || !p.WantsRunsRemoved() {",
		new:      "p.MayLoseRuns || !p.ReclaimsRuns {",
		scenario: "evictions", seeds: "1-50",
	},
	{
		name:     "one failure of container garbage collection is an event",
		file:     "core/containergc/containergc.go",
		old:      "now.Sub(f.Since) >= period &&",
		new:      "now.Sub(f.Since) >= 0 &&",
		scenario: "runtime-flaky", seeds: "1-50",
	},
	{
		name:     "garbage collection of images that are in use",
		file:     "core/imagegc/imagegc.go",
		old:      "if names[id] || slices.ContainsFunc(",
		new:      "if id == \"\" && slices.ContainsFunc(",
		scenario: "image-gc", seeds: "1-300",
	},
	{
		name:     "garbage collection of pinned images",
		file:     "core/imagegc/imagegc.go",
		old:      "if !used[id] && !r.Pinned && !tried[id] {",
		new:      "if !used[id] && r != nil && !tried[id] {",
		scenario: "image-gc", seeds: "1-300",
	},
	{
		name:     "no image is removed for the space",
		file:     "core/imagegc/round.go",
		old:      "usedPercent(fs) >= c.Settings.HighPercent; r.Over {",
		new:      "usedPercent(fs) > 200; r.Over {",
		scenario: "image-gc", seeds: "1-300",
	},
	{
		name:     "images are removed for the space until none is left",
		file:     "core/imagegc/round.go",
		old:      "		r.ToFree = int64(free) - fs.AvailableBytes\n",
		new:      "		r.ToFree = int64(free) + math.MaxInt32\n",
		scenario: "image-gc", seeds: "1-300",
	},
	{
		name:     "one image is removed in a round",
		file:     "core/imagegc/round.go",
		old:      "	if r.Freed < r.ToFree && c.planRemoval",
		new:      "	if r.Freed < r.ToFree && len(r.Tried) == 0 && c.planRemoval",
		scenario: "image-gc", seeds: "1-300",
	},
	{
		name:     "images are removed for an eviction beside containers",
		file:     "core/eviction/eviction.go",
		old:      "&& now.Before(bound) && !env.AreContainersRemoved() {",
		new:      "&& now.Before(m.ReclaimSince) {",
		scenario: "disk-full", seeds: "74-300",
	},
	{
		name:     "half of the images are removed that have to be",
		file:     "core/imagegc/round.go",
		old:      "		r.ToFree = int64(free) - fs.AvailableBytes\n",
		new:      "		r.ToFree = (int64(free) - fs.AvailableBytes) / 2\n",
		scenario: "image-gc", seeds: "145-300",
	},
	{
		name:     "images are removed however new they are",
		file:     "core/imagegc/round.go",
		old:      "		if now.Sub(c.Records[id].FirstDetected) >= c.Settings.AgeMin {\n",
		new:      "		if now.Sub(c.Records[id].FirstDetected) >= 0 {\n",
		scenario: "image-gc", seeds: "1-300",
	},
	{
		name:     "an eviction removes images however new they are",
		file:     "core/imagegc/round.go",
		old:      "		if now.Sub(c.Records[id].FirstDetected) >= c.Settings.AgeMin {\n",
		new:      "		if r.All || now.Sub(c.Records[id].FirstDetected) >= c.Settings.AgeMin {\n",
		scenario: "disk-full", seeds: "1-300",
	},
	{
		name:     "no image is removed for its age",
		file:     "core/imagegc/round.go",
		old:      "	if age == 0 || now.Sub(c.BeganAt) <= age || !env.KnowsPods {\n",
		new:      "	if age >= 0 {\n",
		scenario: "image-gc", seeds: "1-300",
	},
	{
		name: "images are removed before their maximum age",
		file: "core/imagegc/round.go",
		old:  "	if age == 0 || now.Sub(c.BeganAt) <= age || !env.KnowsPods {\n",
		new:  "	if age == 0 {\n",
		also: &edit{file: "core/imagegc/round.go", old: "		if unused > age && unused >=",
			new: "		if unused >="},
		scenario: "image-gc", seeds: "1-300",
	},
	{
		name:     "images are collected once",
		file:     "core/imagegc/round.go",
		old:      "	c.NextAt = env.Effects.Now().Add(period)\n",
		new:      "	c.NextAt = env.Effects.Now().Add(100 * period)\n",
		scenario: "image-gc", seeds: "1-300",
	},
	{
		name:     "two pods of one full name at once",
		file:     "core/pods.go",
		old:      "uid != p.UID && other.HoldsNameOrPorts() {",
		new:      "uid == \"\" && other.HoldsNameOrPorts() {",
		scenario: "manifest-churn", seeds: "1-200",
	},
	{
		name: "no image status is requested while another image is pulled",
		file: "core/image/image.go",
		old:  "	wake := s.planStatus(img, env.Effects)\n",
		new: "	if s.PullQueue.InFlight > 0 && !img.hasOperation() {\n" +
			"		return env.Effects.Now().Add(time.Second)\n" +
			"	}\n" +
			"	wake := s.planStatus(img, env.Effects)\n",
		scenario: "image-pulls", seeds: "1-50",
	},
	{
		name:     "a completed pull keeps its place in the pull queue",
		file:     "core/image/image.go",
		old:      "		s.PullQueue.InFlight--\n",
		new:      "",
		scenario: "image-pulls", seeds: "1-50",
	},
	{
		name:     "a failed init container counts as completed",
		file:     "core/pod/container_plan.go",
		old:      "c.HasCompletedInit() ||",
		new:      "c.HasKnownExit() ||",
		scenario: "init-chain", seeds: "1-200",
	},
	{
		name:     "a log that an earlier incarnation renamed is not reopened",
		file:     "core/logs/job.go",
		old:      "case log == nil && !j.ReopenRefused:",
		new:      "case log == nil && !j.ReopenRefused && j.RenamedTo != \"\":",
		scenario: "logs", seeds: "1-60",
	},
	{
		name:     "a log is compressed before a new one is opened",
		file:     "core/logs/job.go",
		old:      "	log := j.findFile(base)\n",
		new:      "	log := &File{Name: base, Size: bytesMax}\n",
		scenario: "logs", seeds: "1-60",
	},
	{
		name:     "a container is terminated before its message was read",
		file:     "core/pod/container.go",
		old:      "c.Inspected == Exited && !c.TerminationMessage.isPending()",
		new:      "c.Inspected == Exited",
		scenario: "logs", seeds: "1-60",
	},
	{
		name:     "rotated logs stay when their container is removed",
		file:     "core/pod/container_files.go",
		old:      "isLog && restarts == c.Restarts {",
		new:      "isLog && restarts == c.Restarts && e.Name == c.logName() {",
		scenario: "logs", seeds: "1-60",
	},
	{
		name: "a pod's start time is forgotten when the agent restarts",
		file: "core/pod/record.go",
		old:  "		p.StartTime = earlier(p.StartTime, content.Start)\n",
		new:  "",
		also: &edit{
			file: "core/pod/observe.go",
			old:  "		p.Observed, changed = true, true\n		p.restoreStartTime()",
			new:  "		p.Observed, changed = true, true",
		},
		scenario: "deadlines", seeds: "1-500",
	},
	{
		name:     "probing continues after a kill has started",
		file:     "core/pod/probes.go",
		old:      "{ return p.Stage != Syncing || c.Stop != nil }",
		new:      "{ return p.Stage != Syncing && c == nil }",
		scenario: "probes", seeds: "1-200",
	},
	{
		name:     "readiness lost at agent restart",
		file:     "core/pod/reported_health.go",
		old:      "|| record.Ready && kind == probe.Readiness",
		new:      "|| record.Ready && kind == \"\"",
		scenario: "probes", seeds: "1-200",
	},
	{
		name:     "the record of a container is given to its replacement",
		file:     "core/pod/record.go",
		old:      "return r.ID == id })",
		new:      "return r.ID != \"\" })",
		scenario: "probes", seeds: "1-200",
	},
	{
		name: "liveness probed before the container has started",
		file: "core/pod/probes.go",
		old:  "			p.issueProbe(c, container.StartupProbe, probe.Startup, env, w)\n",
		new: "			p.issueProbe(c, container.StartupProbe, probe.Startup, env, w)\n" +
			"			p.issueProbe(c, container.LivenessProbe, probe.Liveness, env, w)\n",
		scenario: "probes", seeds: "1-200",
	},
	{
		name:     "a probe fails one failure below its threshold",
		file:     "core/probe/probe.go",
		old:      "if p.Consecutive < max(threshold, 1) ||",
		new:      "if p.Consecutive+1 < max(threshold, 1) ||",
		scenario: "probes", seeds: "1-200",
	},
	{
		name:     "a command that cannot be run counts as a failure",
		file:     "core/probe/request.go",
		old:      "	return Unknown, \"\"\n",
		new:      "	return Failure, \"\"\n",
		scenario: "probes", seeds: "1-200",
	},
	{
		name:     "preStop skipped",
		file:     "core/pod/stop.go",
		old:      "&& !p.runPreStopHook(c, env, w) {",
		new:      "&& !c.Stop.PreStop.Done {",
		scenario: "hooks", seeds: "1-200",
	},
	{
		name:     "TERM sent while the hook runs",
		file:     "core/pod/hooks.go",
		old:      "killAfterMin, env, w)\n	return !hook.Done",
		new:      "killAfterMin, env, w)\n	return false",
		scenario: "hooks", seeds: "1-200",
	},
	{
		name:     "KILL without the 2 s extension",
		file:     "core/pod/stop.go",
		old:      "const killAfterMin = 2 * time.Second",
		new:      "const killAfterMin = time.Second",
		scenario: "hooks", seeds: "1-200",
	},
	{
		name:     "the grace period starts over after the hook",
		file:     "core/pod/stop.go",
		old:      "		s.KillAfter = max(s.Grace-c.usedGrace(env.Effects.Now()), killAfterMin)",
		new:      "		s.KillAfter = s.Grace",
		scenario: "hooks", seeds: "1-200",
	},
	{
		name:     "postStart not waited for",
		file:     "core/pod/container_plan.go",
		old:      "c.State == Running && c.Stop == nil && !p.currentHealth(c).Running",
		new:      "c == nil",
		scenario: "hooks", seeds: "1-200",
	},
	{
		name:     "a failed postStart hook is ignored",
		file:     "core/pod/probes.go",
		old:      "if c.PostStart.Failure != \"\" {",
		new:      "if c.PostStart.Failure == \"-\" {",
		scenario: "hooks", seeds: "1-200",
	},
	{
		name:     "a hook is delivered twice",
		file:     "core/pod/hooks.go",
		old:      "if failure == \"\" {\n		hook.Done, hook.EndedAt = true, ev.Time",
		new:      "if failure == \"\" {\n		hook.Done = hook.Failures > 0\n		hook.Failures++",
		scenario: "hooks", seeds: "1-200",
	},
	{
		name:     "exit codes of restart rules are ignored",
		file:     "core/pod/restart_policy.go",
		old:      "	return in == (codes.Operator",
		new:      "	return in || (codes.Operator",
		scenario: "restart-rules", seeds: "1-200",
	},
	{
		name:     "a container's own policy is ignored",
		file:     "core/pod/restart_policy.go",
		old:      "if container.RestartPolicy != nil {\n		policy",
		new:      "if container == nil {\n		policy",
		scenario: "restart-rules", seeds: "1-200",
	},
	{
		name:     "init containers do not run again when all containers are restarted",
		file:     "core/pod/container_plan.go",
		old:      "if c != nil && c.SandboxID == sandbox.ID && !p.IsSuperseded(c) {",
		new:      "if c != nil && c.SandboxID == sandbox.ID {",
		scenario: "restart-all", seeds: "1-50",
	},
	{
		name:     "all containers are restarted before the others have ended",
		file:     "core/pod/restart_round.go",
		old:      "if p.IsSuperseded(c) && (c.isLive() || startable) {",
		new:      "if p.IsSuperseded(c) && startable {",
		scenario: "restart-all", seeds: "1-50",
	},
	{
		name:     "a container whose exit restarts all is restarted alone",
		file:     "core/pod/restart_round.go",
		old:      "if by := p.roundTrigger(); by != nil {",
		new:      "if by := p.roundTrigger(); by != nil && by.Name == \"\" {",
		scenario: "restart-all", seeds: "1-50",
	},
	{
		name:     "the restart of all containers is forgotten when the agent restarts",
		file:     "core/pod/restart_round.go",
		old:      "number := p.Record.Round\n",
		new:      "number := 0\n",
		scenario: "restart-all", seeds: "1-500",
	},
	{
		// Either of the two alone does no harm: that the pod has ended is kept.
		name: "the exit of a sidecar restarts a completed pod",
		file: "core/pod/restart_round.go",
		old:  "p.HasUnknownExits() || p.hasCompleted() {",
		new:  "p.HasUnknownExits() {",
		also: &edit{
			file: "core/pod/record.go",
			old:  "	case p.Stage == Syncing:\n		p.startTermination(*end",
			new: "	case p.Stage == Syncing && end.Reason != \"Completed\":\n" +
				"		p.startTermination(*end",
		},
		scenario: "restart-all", seeds: "1-500",
	},
	{
		name:     "a failed relist updates the health timestamp",
		file:     "core/pleg/pleg.go",
		old:      "		r.Failures++\n",
		new:      "		r.Failures++\n		r.AsOf = r.Issued\n",
		scenario: "runtime-restart", seeds: "1-100",
	},
	{
		// What an event tells of one container is taken for all that the pod has.
		name: "an event about an unknown container removes all containers",
		file: "core/pod/observe.go",
		old:  "	return false, true\n}\n\nfunc (p *Pod) observeContainerEvent",
		new: "	p.Containers = nil\n" +
			"	return true, true\n" +
			"}\n" +
			"\n" +
			"func (p *Pod) observeContainerEvent",
		scenario: "evented-pleg", seeds: "1-100",
	},
	{
		name: "a stopped container in an event counts as removed",
		file: "core/pod/observe.go",
		old: "		return c.advanceState(Exited, now)\n" +
			"	case runtimeapi.ContainerEventType_CONTAINER_DEL",
		new: "		p.dropContainer(c.ID)\n		return true\n" +
			"	case runtimeapi.ContainerEventType_CONTAINER_DEL",
		scenario: "evented-pleg", seeds: "1-100",
	},
	{
		name: "a failed liveness probe kills nothing",
		file: "core/pod/probes.go",
		old: "[]probe.Kind{probe.Startup, probe.Liveness} {\n" +
			"		spec := probe.SpecOf(container",
		new:      "[]probe.Kind{probe.Startup} {\n		spec := probe.SpecOf(container",
		scenario: "probes", seeds: "1-200",
	},
	{
		name:     "a container that does not wait for a volume that failed",
		file:     "core/pod/volumes.go",
		old:      "return p.Storage.Volumes.Ready(&p.Spec.Spec)",
		new:      "return true",
		scenario: "volumes", seeds: "1-200",
	},
	{
		name: "volumes unmounted while containers terminate",
		file: "core/pod/plan.go",
		old:  "	p.releaseAllImages(env)\n	p.issueInspections(env, w)\n",
		new: "	p.issueInspections(env, w)\n" +
			"	if p.isSettled() {\n" +
			"		p.releaseVolumes(env)\n" +
			"	}\n",
		scenario: "volumes", seeds: "1-200",
	},
	{
		name:     "a container runs as root because the user of its image was not requested",
		file:     "core/image/image.go",
		old:      "	case img.InspectedID:\n",
		new:      "	default:\n",
		scenario: "image-pulls", seeds: "1-50",
	},
	{
		name:     "runAsNonRoot is not checked against the image",
		file:     "core/pod/container_plan.go",
		old:      "if p.failsNonRootCheck(container, images.Container.User, env) {",
		new:      "if container == nil {",
		scenario: "image-pulls", seeds: "1-50",
	},
	{
		name:     "a container does not wait for its image volumes",
		file:     "core/pod/images.go",
		old:      "		if result.ID == \"\" {\n",
		new:      "		if result.ID == \"\" && needed.volume == \"\" {\n",
		scenario: "image-pulls", seeds: "1-50",
	},
	{
		name: "a failed inspection is not repeated",
		file: "core/pod/completion.go",
		old:  "	c.InspectOp = 0\n	if ev.Err != nil {\n		c.InspectFailures++",
		new: "	if ev.Err == nil {\n" +
			"		c.InspectOp = 0\n" +
			"	}\n" +
			"	if ev.Err != nil {\n" +
			"		c.InspectFailures++",
		scenario: "runtime-flaky", seeds: "1-500",
	},
	{
		name:     "an observation counts as one of the future",
		file:     "core/pleg/pleg.go",
		old:      "r.AsOf, r.Problem = r.Issued, \"\"",
		new:      "r.AsOf, r.Problem = ev.Time.Add(time.Hour), \"\"",
		scenario: "crashloop", seeds: "1-500",
	},
	{
		name:     "stale state stays stale until something changes",
		file:     "core/pod/observe.go",
		old:      "		p.StaleSince = time.Time{}\n		changed = true",
		new:      "		if changed {\n			p.StaleSince = time.Time{}\n		}",
		scenario: "runtime-flaky", seeds: "1-500",
	},
	{
		name:     "a pod that has ended is never forgotten",
		file:     "core/pod/plan.go",
		old:      "	p.FullyRemoved = len(p.Sandboxes) == 0 && len(p.Containers) == 0\n",
		new:      "",
		scenario: "uid-reuse", seeds: "1-50",
	},
	{
		name:     "a pod that comes back after its termination is not planned",
		file:     "core/pods.go",
		old:      "state.Now))\n			a.enqueuePod(p.UID)\n",
		new:      "state.Now))\n",
		scenario: "uid-reuse", seeds: "1-50",
	},
	{
		// Either of the two alone does no harm: what is gone is noticed by the other.
		name: "NotFound while stopping is an error, and lists are not believed",
		file: "core/pod/completion.go",
		old:  "\ts.Op = 0\n\tif ev.Err != nil && !ev.Err.Has(world.KindNotFound) {",
		new:  "\ts.Op = 0\n\tif ev.Err != nil {",
		also: &edit{
			file: "core/pod/observe.go",
			old:  "\t\tp.loseSandbox(s, requestedAt)\n\t\tp.dropSandbox(s.ID)\n\t\tchanged = true\n",
			new:  "\t\ti++\n",
		},
		scenario: "mix", seeds: "41-60",
	},
	{
		name:     "a terminal phase is forgotten when the agent restarts",
		file:     "core/pod/terminal.go",
		old:      "return p.Stage == Terminated ||\n\t\tended && ",
		new:      "return p.Stage == Terminated ||\n\t\tended && p.Status.Phase == \"\" && ",
		scenario: "agent-restarts", seeds: "1-500",
	},
	{
		name:     "a terminal phase before the containers have ended",
		file:     "core/pod/terminal.go",
		old:      "!p.HasLiveContainers() && !p.HasUnknownExits() && p.Op == 0 && !p.hasReadySandbox()",
		new:      "p.Op == 0",
		scenario: "deadlines", seeds: "1-500",
	},
	{
		name:     "the hash of a container changes when the agent restarts",
		file:     "core/criconfig/run.go",
		old:      "annotations[AnnotationHash],",
		new:      "annotations[AnnotationHash] + \"x\",",
		scenario: "agent-restarts", seeds: "2",
	},
	{
		name:     "the status is that of the first sandbox",
		file:     "core/pod/container.go",
		old:      "return &p.Sandboxes[len(p.Sandboxes)-1]",
		new:      "return &p.Sandboxes[0]",
		scenario: "reboot", seeds: "1-500",
	},
	{
		name:     "pods are terminated before all sources were read",
		file:     "core/agent.go",
		old:      "return a.state.Manifests.Ready() && a.hasListedAPIPods()",
		new:      "return a.hasListedAPIPods()",
		scenario: "agent-restarts", seeds: "1-500",
	},
	{
		name:     "pods are terminated before the manifest URL was read",
		file:     "core/manifest/sources.go",
		old:      "return s.File.Ready && s.HTTP.Ready",
		new:      "return s.File.Ready",
		scenario: "manifest-url", seeds: "1-100",
	},
	{
		name:     "a manifest URL that fails has no pods",
		file:     "core/manifest/fetch.go",
		old:      "s.recordFetchFailure(cmp.Or(ev.Err, errNoManifest), s.Problem == \"\", effects)",
		new:      "_ = cmp.Or(ev.Err, errNoManifest); s.applyURLPods(nil, effects)",
		scenario: "manifest-url", seeds: "1-100",
	},
	{
		name:     "a pod of the manifest URL does not give way to a file",
		file:     "core/manifest/sources.go",
		old:      "if first == \"\" && source.Origin == OriginHTTP {",
		new:      "if first == \"\" && source.Origin == \"\" {",
		scenario: "manifest-url", seeds: "1-100",
	},
	{
		name:     "a completed container runs again",
		file:     "core/pod/restart_policy.go",
		old:      "return failed || c.Stop != nil && c.Stop.Unhealthy",
		new:      "return true",
		scenario: "restart-rules", seeds: "1-500",
	},
	{
		name:     "app containers do not wait for init after a reboot",
		file:     "core/pod/container_plan.go",
		old:      "if c != nil && c.SandboxID == sandbox.ID && !p.IsSuperseded(c) {",
		new:      "if c != nil && !p.IsSuperseded(c) {",
		scenario: "reboot", seeds: "1-500",
	},
	{
		name: "an init container that was created is not started",
		file: "core/pod/container_plan.go",
		old:  "\tcase c.State == Created:\n\t\treturn Start, time.Time{}",
		new: "\tcase c.State == Created && role == Init:\n\t\treturn Wait, time.Time{}\n" +
			"\tcase c.State == Created:\n\t\treturn Start, time.Time{}",
		scenario: "init-chain", seeds: "1-500",
	},
	{
		name: "a sandbox is run before its cgroup is set",
		file: "core/pod/plan.go",
		old:  "if !ok || !p.allocateIDs(handler, env, w) ||\n		p.setCgroup(",
		new: "if !ok || !p.allocateIDs(handler, env, w) ||\n" +
			"		false && p.setCgroup(",
		scenario: "resources", seeds: "1-20",
	},
	{
		name: "the cgroup is removed before the containers have ended",
		file: "core/pod/plan.go",
		old:  "	p.enforceStorageLimits(env, w)\n	if p.stopAllContainers(env, w) || ",
		new: "	p.enforceStorageLimits(env, w)\n" +
			"	if p.isSettled() && p.removeCgroups(env) || p.stopAllContainers(env, w) || ",
		scenario: "resources", seeds: "1-50",
	},
	{
		name:     "orphaned cgroups are not listed",
		file:     "core/housekeeping/housekeeping.go",
		old:      "	if env.Cgroups.PerPod && env.Cgroups.DriverKnown {",
		new:      "	if env.Cgroups.PerPod && !env.Cgroups.DriverKnown {",
		scenario: "resources", seeds: "80-99",
	},
	{
		name:     "the cgroups of known pods count as orphaned",
		file:     "core/housekeeping.go",
		old:      "\t\t\treturn cgroups[layout.CanonicalUID(uid)]\n",
		new:      "\t\t\treturn cgroups[layout.CanonicalUID(uid)] && !layout.Systemd\n",
		scenario: "resources", seeds: "1-50",
	},
	{
		name: "an init container does not count in the limits of its pod",
		file: "core/cgroup/limits.go",
		old:  "	limits := podresources.PodLimits(pod,",
		new: "	pod = pod.DeepCopy()\n	pod.Spec.InitContainers = nil\n" +
			"	limits := podresources.PodLimits(pod,",
		scenario: "resources", seeds: "1-20",
	},
	{
		name:     "a tier keeps the weight of pods that are gone",
		file:     "core/qos/share.go",
		old:      "	sum.CPU += sign * share.CPU\n",
		new:      "	sum.CPU += max(sign, 0) * share.CPU\n",
		scenario: "qos", seeds: "1-50",
	},
	{
		name:     "a pod gets its cgroup before its tier has grown",
		file:     "core/pod/cgroup.go",
		old:      "if env.MustWaitForTier != nil && env.MustWaitForTier(",
		new:      "if false && env.MustWaitForTier(",
		scenario: "qos", seeds: "1-50",
	},
	{
		name:     "a tier shrinks before its pods have ended",
		file:     "core/pod/cgroup.go",
		old:      "	return p.usesResources() || p.hasCgroup() || p.Cgroup.Possible != nil\n",
		new:      "	return p.HoldsResources() && p.Stage == Syncing\n",
		scenario: "qos", seeds: "1-50",
	},
	{
		name:     "the tiers are written before the pods of an earlier agent are known",
		file:     "core/qos/qos.go",
		old:      "!l.DriverKnown || !env.Listed || c.Op != 0 {",
		new:      "!l.DriverKnown || c.Op != 0 {",
		scenario: "qos", seeds: "8-27",
	},
	{
		name:     "kubepods is limited to what the machine has, whatever is reserved",
		file:     "core/node/resources.go",
		old:      "	if !n.Settings.Reserved.LimitsPods {\n",
		new:      "	if n.Settings.Reserved.LimitsPods {\n",
		scenario: "qos", seeds: "1-20",
	},
	{
		name:     "a critical pod has swap",
		file:     "core/criconfig/memory.go",
		old:      "!admission.IsCritical(p.Spec, p.Static) &&",
		new:      "(true || admission.IsCritical(p.Spec, p.Static)) &&",
		scenario: "qos", seeds: "1-50",
	},
	{
		name:     "a container may have the huge pages of the machine",
		file:     "core/criconfig/resources.go",
		old:      "Limit: uint64(l.MaxBytes)})",
		new:      "Limit: uint64(l.SizeBytes)})",
		scenario: "qos", seeds: "1-20",
	},
	{
		name:     "what pods have protected is not protected in their tier",
		file:     "core/qos/desired.go",
		old:      "		burstable.MemoryLow = c.Sums.Burstable.MemoryBytes\n",
		new:      "",
		scenario: "qos", seeds: "1-20",
	},
	{
		name:     "BestEffort pods may have the memory that Burstable ones request",
		file:     "core/qos/desired.go",
		old:      "	left -= percentOf(c.Sums.Burstable.MemoryBytes, c.MemoryPercent)\n",
		new:      "",
		scenario: "qos", seeds: "1-20",
	},
	{
		name:     "two pods have the same user namespace IDs",
		file:     "core/pods.go",
		old:      "		case other == uid:\n",
		new:      "		case other != \"\":\n",
		scenario: "resources", seeds: "1-50",
	},
	{
		name:     "operations on a hung path use the lane of the agent's own files",
		file:     "world/loop/lanes.go",
		old:      "	if eff.HostPath != \"\" {\n",
		new:      "	if eff.HostPath == \"/\" {\n",
		scenario: "hung-paths", seeds: "1-50",
	},
	{
		name:     "every retry on a hung path takes one more slot of its lane",
		file:     "world/loop/pathlocks.go",
		old:      "blocker := l.locks.earliestConflict(paths)",
		new:      "blocker := l.locks.earliestConflict(lockedPaths{})",
		scenario: "hung-paths", seeds: "1-50",
	},
	{
		// What a log is renamed to while it is removed stays.
		name: "the logs of a container are listed once only",
		file: "core/pod/container_files.go",
		old: "if cleanup.LogsRemoved = len(cleanup.Files) == 0; cleanup.LogsRemoved {\n" +
			"			cleanup.Files = []string{node.MessageFilePath(p.UID, c.Name, c.Restarts)}",
		new: "if cleanup.LogsRemoved = true; cleanup.LogsRemoved {\n" +
			"			cleanup.Files = append(cleanup.Files, node.MessageFilePath(p.UID, c.Name, c.Restarts))",
		scenario: "logs", seeds: "300-320",
	},
	{
		// A removal that the core has abandoned continues, and removes what was created there again.
		name:     "an operation that the agent gave up is not waited for",
		file:     "world/loop/paths.go",
		old:      "if changed := changedPath(eff.Body); changed != \"\" {",
		new:      "if changed := changedPath(eff.Body); changed == \"never\" {",
		scenario: "slow-removals", seeds: "1-40",
	},
	{
		name:     "a hostPath volume counts as one of the agent's own paths",
		file:     "core/volume/backing.go",
		old:      "		if spec.HostPath != nil {\n",
		new:      "			if spec.EmptyDir != nil && spec.HostPath != nil {\n",
		scenario: "hung-paths", seeds: "1-50",
	},
	{
		name:     "a hostPath sub-path counts as one of the agent's own paths",
		file:     "core/pod/volumes.go",
		old:      "if v == nil || v.HostPath == nil && !volume.IsBacked(v) {",
		new:      "if v == nil || v.HostPath != nil || !volume.IsBacked(v) {",
		scenario: "hung-paths", seeds: "1-50",
	},
	{
		name:     "a pod is never evicted",
		file:     "core/pod/volumes.go",
		old:      "	if message == \"\" || admission.IsCritical(p.Spec, p.IsStatic()) {\n",
		new:      "	if message == \"\" || admission.IsCritical(p.Spec, true) {\n",
		scenario: "evictions", seeds: "1-50",
	},
	{
		name:     "a volume is measured once only",
		file:     "core/localstorage/localstorage.go",
		old:      "	next := u.next(&u.Volumes, volumesPeriod, now, ",
		new:      "	next := u.next(&u.Volumes, volumesPeriod*60, now, ",
		scenario: "evictions", seeds: "1-50",
	},
	{
		name:     "a pod is evicted below the limit of its volume",
		file:     "core/localstorage/localstorage.go",
		old:      "m.Bytes > limit {",
		new:      "m.Bytes > limit/10*9 {",
		scenario: "evictions", seeds: "6-25",
	},
	{
		name:     "layers of removed containers are expected to be freed at once",
		file:     "core/eviction/eviction.go",
		old:      "	layersHeldMax = 10 * time.Second\n",
		new:      "	layersHeldMax = 0 * time.Second\n",
		scenario: "disk-imagefs", seeds: "1-20",
	},
	{
		name:     "a critical pod is evicted",
		file:     "core/pod/volumes.go",
		old:      "	if message == \"\" || admission.IsCritical(p.Spec, p.IsStatic()) {\n",
		new:      "	if message == \"\" || admission.IsCritical(p.Spec, false) {\n",
		scenario: "evictions", seeds: "1-50",
	},
	{
		name:     "an eviction names another volume",
		file:     "core/localstorage/localstorage.go",
		old:      "			over = Limit{EmptyDirLimit, m.Name}\n",
		new:      "			over = Limit{EmptyDirLimit, pod.Spec.Spec.Volumes[0].Name}\n",
		scenario: "evictions", seeds: "1-50",
	},
	{
		name:     "writable layers do not count",
		file:     "core/localstorage/localstorage.go",
		old:      "	if id := pod.RunningID(name); id != \"\" {\n",
		new:      "	if id := pod.RunningID(name); id == \".\" {\n",
		scenario: "evictions", seeds: "1-50",
	},
	{
		name:     "volumes do not count for the limit of a pod",
		file:     "core/localstorage/localstorage.go",
		old:      "		m.Counts = isLocal(v)\n",
		new:      "		m.Counts = len(v.Name) == 0\n",
		scenario: "evictions", seeds: "10-29",
	},
	{
		name:     "a pod may use what its containers together may, each alone",
		file:     "core/localstorage/localstorage.go",
		old:      "	if limit != nil && limit.CmpInt64(u.sum(func(m *Measurement) bool {\n",
		new:      "	if newest.Name == \"\" && limit.CmpInt64(u.sum(func(m *Measurement) bool {\n",
		scenario: "evictions", seeds: "1-50",
	},
	{
		name:     "what was measured in earlier passes is added up",
		file:     "core/localstorage/localstorage.go",
		old:      "	u.forget(m.Item)\n	if ev.Err",
		new:      "	if ev.Err",
		scenario: "evictions", seeds: "1-50",
	},
	{
		name:     "a termination is forgotten when the agent restarts",
		file:     "core/pod/record.go",
		old:      "	case p.Stage == Syncing:\n		p.startTermination(*end",
		new:      "	case p.Stage == Terminated:\n		p.startTermination(*end",
		scenario: "odd-runtime", seeds: "1-100",
	},
	{
		name:     "the record of a pod without containers is not loaded",
		file:     "core/pod/pod.go",
		old:      "	p.Record.Loaded = isNew\n",
		new:      "	p.Record.Loaded = isNew || len(p.UID) > 0\n",
		scenario: "odd-runtime", seeds: "1-100",
	},
	{
		name:     "a pod waits for a volume that no container uses",
		file:     "core/volume/volume.go",
		old:      "	case !v.isSetUp() && !p.isUsed(spec.Name):\n",
		new:      "	case !v.isSetUp() && spec.Name == \"\":\n",
		scenario: "claims", seeds: "1-20",
	},
	{
		name:     "the group that a persistent volume names is not added",
		file:     "core/criconfig/security.go",
		old:      "		if !slices.Contains(groups, group) {\n",
		new:      "		if slices.Contains(groups, group) {\n",
		scenario: "claims", seeds: "1-20",
	},
	{
		name:     "a volume in memory is as large as the machine's memory",
		file:     "core/volume/steps.go",
		old:      "		lowerTo(source.SizeLimit.Value())\n",
		new:      "		lowerTo(0)\n",
		scenario: "evictions", seeds: "1-50",
	},
	{
		name:     "user namespace IDs are forgotten when the agent restarts",
		file:     "core/pod/observe.go",
		old:      "IDs: userns.Parse(item.UserNamespace),",
		new:      "IDs: userns.Parse(\"\"),",
		scenario: "resources", seeds: "5-24",
	},
	{
		name:     "the status of an old pod is written to a new pod of its name",
		file:     "core/statuswriter/merge.go",
		old:      "\"uid\": string(object.UID), \"resourceVersion\": object.ResourceVersion,",
		new:      "",
		scenario: "node-churn", seeds: "1-400",
	},
	{
		name:     "a status that is stored late undoes a later one",
		file:     "core/statuswriter/merge.go",
		old:      "\"resourceVersion\": object.ResourceVersion,",
		new:      "",
		scenario: "node-churn", seeds: "31-50",
	},
	{
		name:     "the first list of pods is not waited for",
		file:     "core/apipods.go",
		old:      "return !a.state.HasAPIServer || a.state.APIPodsApplied",
		new:      "return !a.state.HasAPIServer || a.state.Objects.Watch(podsWatch) != nil",
		scenario: "boot-without-api", seeds: "1-100",
	},
	{
		name: "the mirror of a static pod that runs again is replaced",
		file: "core/mirrors.go",
		old:  "	return entry != nil && entry.Refused && hasTerminated(&object.Status)\n",
		new: "	return entry != nil && p.Status.Phase == v1.PodRunning &&\n" +
			"		pod.IsTerminal(object.Status.Phase)\n",
		scenario: "shutdown", seeds: "1-50",
	},
	{
		name:     "a static pod seems to run again while the machine shuts down",
		file:     "core/statuswrites.go",
		old:      " || a.onlySeemsToRun(p)) {",
		new:      ") {",
		scenario: "shutdown-agent-restart", seeds: "1-100",
	},
	{
		name:     "a static pod that has completed seems to run again",
		file:     "core/statuswriter/merge.go",
		old:      "		(object.Spec.RestartPolicy == v1.RestartPolicyAlways ||\n",
		new:      "		(object.Spec.RestartPolicy != \"\" ||\n",
		scenario: "mix", seeds: "1-100",
	},
	{
		name:     "a mirror that is marked for deletion is not replaced",
		file:     "core/mirror/mirror.go",
		old:      "return static != nil && object.DeletionTimestamp == nil &&",
		new:      "return static != nil &&",
		scenario: "mirror-pods", seeds: "1-100",
	},
	{
		name:     "a pod that was terminal before the agent started runs again",
		file:     "core/pod/desired.go",
		old:      "phase := p.Spec.Status.Phase; IsTerminal(phase) {",
		new:      "phase := p.Spec.Status.Phase; phase == \"none\" {",
		scenario: "node-churn", seeds: "1-200",
	},
	{
		name:     "a deleted pod gets no terminal phase",
		file:     "core/statuswriter/writer.go",
		old:      "	if desired.Status != nil {",
		new:      "	if desired.Status != nil && e.Stored.DeletionTimestamp == nil {",
		scenario: "node-churn", seeds: "1-100",
	},
	{
		name:     "a lease that was not renewed in time is given up",
		file:     "core/lease/lease.go",
		old:      "	case l.Op != 0:\n		return time.Time{}\n	case now",
		new:      "	case l.Op != 0, l.Failures > 3:\n		return time.Time{}\n	case now",
		scenario: "api-partition", seeds: "7-26",
	},
	{
		// The agent was paused while a renewal was in flight, whose answer it drops.
		name:     "a renewal whose answer is too late outdates the lease for ever",
		file:     "core/lease/lease.go",
		old:      "	default:\n		l.ObjectKnown = false\n",
		new:      "	default:\n",
		scenario: "mix", plan: "paused-renewal.yaml",
	},
	{
		name:     "a volume does not follow its object",
		file:     "core/volume/volume.go",
		old:      "if known && v.SourceVersion != version {",
		new:      "if known && v.SourceVersion != version && !v.Ready {",
		scenario: "config-updates", seeds: "1-20",
	},
	{
		name:     "a volume is emptied when its object is deleted",
		file:     "core/volume/content.go",
		old:      "	case content.absent && isOptional:\n",
		new:      "	case content.absent:\n",
		scenario: "config-updates", seeds: "1-40",
	},
	{
		name: "a volume is written in two steps",
		file: "core/volume/content.go",
		old:  "	if v.StepsDone == len(steps) {\n		write.Files = c.dirFiles()\n	}\n",
		new: "	write.Files = c.dirFiles()\n" +
			"	half := write.Files[:len(write.Files)/2]\n" +
			"	steps = append(steps, &world.WriteDir{Path: at, Files: half})\n",
		scenario: "config-updates", seeds: "1-20",
	},
	{
		name:     "a volume follows only the last trust bundle of a signer",
		file:     "core/volume/trustbundle.go",
		old:      "content.version += ",
		new:      "content.version = ",
		scenario: "config-updates", seeds: "26-45",
	},
	{
		name:     "trust anchors of two bundles are written twice",
		file:     "core/volume/trustbundle.go",
		old:      "return bytes.Equal(x.der, y.der)",
		new:      "return false",
		scenario: "config-updates", seeds: "1-40",
	},
	{
		name:     "an object that was found is never read again",
		file:     "core/objectcache/read.go",
		old:      "	case w.isImmutable():\n",
		new:      "	case len(w.Objects) > 0:\n",
		scenario: "config-reads", seeds: "1-40",
	},
	{
		name:     "the variables of a whole Secret lack their prefix",
		file:     "core/criconfig/environment_objects.go",
		old:      "from.Prefix+key",
		new:      "key",
		scenario: "config-updates", seeds: "1-40",
	},
	{
		name: "services that are created later are not seen",
		file: "core/objectcache/store.go",
		old:  "			w.setObject(name, body.Object)\n",
		new: "			if body.Object.Service == nil {\n" +
			"				w.setObject(name, body.Object)\n" +
			"			}\n",
		scenario: "config-updates", seeds: "20-39",
	},
	{
		name: "a pod runs on after another client has set a terminal phase",
		file: "core/pod/desired.go",
		old: "p.startTermination(Termination{Reason: \"TerminalPhase\", " +
			"Grace: p.GracePeriod()}, now)",
		new:      "p.Status.Phase = phase",
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
		name: "a start is reported when it is requested",
		file: "core/pod/container_plan.go",
		old:  "		c.StartIssuedAt = env.Effects.Now()\n",
		new: "		c.StartIssuedAt = env.Effects.Now()\n" +
			"		p.recordEvent(env, c.Name, normal, \"Started\", \"\")\n",
		scenario: "crashloop", seeds: "1-10",
	},
	{
		name: "back-off is reported by every plan",
		file: "core/pod/container_plan.go",
		old:  "	case Wait:\n",
		new: "	case Wait:\n" +
			"		if c := p.NewestRun(container.Name); c != nil {\n" +
			"			p.recordBackoffEvent(c, env)\n" +
			"		}\n",
		scenario: "crashloop", seeds: "1-10",
	},
	{
		name:     "a present image is reported as pulled",
		file:     "core/pod/events.go",
		old:      "	case !pending.PullReported.IsZero() && !pull.Finished.IsZero():\n",
		new:      "	case true:\n",
		scenario: "image-pulls", seeds: "1-20",
	},
	{
		name: "Killing is reported when a probe fails below its threshold",
		file: "core/pod/probes.go",
		old:  "	case result == probe.Failure:\n",
		new: "	case result == probe.Failure:\n" +
			"		p.recordEvent(env, c.Name, normal, \"Killing\", \"\")\n",
		scenario: "probes", seeds: "1-50",
	},
	{
		name:     "a pod that was admitted before it was listed is not checked again",
		file:     "core/apipods.go",
		old:      "	return (hasStarted(&object.Status) ||",
		new:      "	return (hasStarted(&object.Status) || object.Status.StartTime != nil ||",
		scenario: "admission", plan: "admitted-before-static.yaml",
	},
	{
		name:     "a pod is admitted without a check",
		file:     "core/apipods.go",
		old:      "a.checkAdmission(object, false, a.activePodsInLoop(), true)\n",
		new:      "Rejection{}\n",
		scenario: "admission", seeds: "1-50",
	},
	{
		name:     "the reserved cgroups get no bound of processes",
		file:     "core/qos/reserved.go",
		old:      "			r.PidsMax = q.Value()\n",
		new:      "			_ = q\n",
		scenario: "qos", seeds: "1-20",
	},
	{
		name:     "what is only compressible is reserved of memory too",
		file:     "core/qos/reserved.go",
		old:      "err == nil && !compressible {\n			r.MemoryBytes",
		new:      "err == nil {\n			r.MemoryBytes",
		scenario: "qos", seeds: "1-20",
	},
	{
		name: "admission runs again after a restart",
		file: "core/apipods.go",
		old:  "	case p != nil:\n		a.setDesired(p, object, now)\n",
		new: "	case p != nil:\n" +
			"		if p.Spec == nil && !a.admitAPIPod(object) {\n" +
			"			return\n" +
			"		}\n" +
			"		a.setDesired(p, object, now)\n",
		also: &edit{ // and not once more when it has ended
			file: "core/pods.go",
			old:  "case p.Spec == nil && a.isAPIPod(p):",
			new:  "case false:",
		},
		scenario: "admission", seeds: "13-200",
	},
	{
		name:     "a pod is rejected for labels of the Node that may have changed",
		file:     "core/admission.go",
		old:      "	if !static && admission.CausedByNode(decisive) {\n",
		new:      "	if static && admission.CausedByNode(decisive) {\n",
		scenario: "node-labels", seeds: "1-40",
	},
	{
		name:     "a lost lease waits for the watch of the Node",
		file:     "core/lease/lease.go",
		old:      "		node.Await(l.NodeOp)\n",
		new:      "",
		scenario: "node-labels", seeds: "313-332",
	},
	{
		name:     "a sandbox that was lost is replaced without a back-off",
		file:     "core/pod/sandbox_losses.go",
		old:      "now.Add(failureBackoff(p.SandboxLosses.Count))",
		new:      "now",
		scenario: "odd-runtime", plan: "sandboxes-vanish.yaml",
	},
	{
		name: "a container that has exited runs again because its image changed",
		file: "core/pod/container_plan.go",
		old:  "	case c.isStoppedAsChanged():\n",
		new:  "	case p.isOutdated(c):\n",
		also: &edit{"core/pod/restart_policy.go", "p.IsSuperseded(c) || c.isStoppedAsChanged()",
			"p.IsSuperseded(c) || p.isOutdated(c)"},
		scenario: "mix", plan: "completed-ran-again-for-image.yaml",
	},
	{
		name:     "containers of a pod that is not known yet hold no resources",
		file:     "core/pod/resources.go",
		old:      "admission.DecodeAllocation(s.Allocation)",
		new:      "admission.DecodeAllocation(\"\")",
		scenario: "admission", seeds: "1-500",
	},
	{
		name:     "a critical pod is pre-empted",
		file:     "core/admission/preempt.go",
		old:      "IsCritical(pod, static) && !IsCritical(other.Pod, other.Static) {",
		new:      "IsCritical(pod, static) {",
		scenario: "admission", seeds: "1-200",
	},
	{
		name:     "a pod that waits for pre-emption is not checked again",
		file:     "core/admission.go",
		old:      "entry != nil {\n\t\t\tnames = append(",
		new:      "entry != nil && a.state.APIRejections[uid].Phase == \"\" {\n\t\t\tnames = append(",
		scenario: "admission", seeds: "1-200",
	},
	{
		name:     "host ports are not checked",
		file:     "core/admission/admission.go",
		old:      "	if c.hasHostPortConflict() {\n",
		new:      "	if c.hasHostPortConflict() && c.Pod.Name == \"\" {\n",
		scenario: "admission", seeds: "1-50",
	},
	{
		name:     "pods are admitted before the Node is known",
		file:     "core/apipods.go",
		old:      "a.hasListedNode() && a.admitAPIPod(object):",
		new:      "a.admitAPIPod(object):",
		scenario: "admission", seeds: "1-200",
	},
	{
		name:     "every pod is admitted while no Node exists",
		file:     "core/nodeobject.go",
		old:      "	return a.state.NodeObject.InitialObject(&a.state.Boot)\n",
		new:      "	return nil\n",
		scenario: "admission", seeds: "27-46",
	},
	{
		name:     "terminal pods hold resources when the agent restarts",
		file:     "core/admission.go",
		old:      "if admission.CausedByOtherPods(decisive) && slices",
		new:      "if admission.CausedByOtherPods(decisive) && static && slices",
		scenario: "admission", seeds: "13-32",
	},
	{
		name:     "the admission of a waiting pod is not reported",
		file:     "core/apipods.go",
		old:      "	a.queue.enqueue(statuswriter.Key(uid)) // planned",
		new:      "	_ = statuswriter.Key(uid) // planned",
		scenario: "admission", seeds: "1-200",
	},
	{
		name: "an ephemeral container is restarted",
		file: "core/pod/restart_policy.go",
		old:  "	if role == Ephemeral || container == nil {\n",
		new:  "	if container == nil {\n",
		also: &edit{
			file: "core/pod/container_plan.go",
			old:  "case role == Ephemeral:",
			new:  "case role == Ephemeral && !p.ShouldRestart(c):",
		},
		scenario: "admission", seeds: "8-27",
	},
	{
		name:     "an ephemeral container keeps its pod from ending",
		file:     "core/pod/plan.go",
		old:      "	if p.hasCompleted() {\n",
		new:      "	if p.hasCompleted() && !p.HasLiveContainers() {\n",
		scenario: "admission", seeds: "50-69",
	},
	{
		name:     "an ephemeral container is never started",
		file:     "core/pod/container_plan.go",
		old:      "	for i := range spec.EphemeralContainers {\n		container",
		new:      "	for i := range spec.EphemeralContainers[:0] {\n		container",
		scenario: "node-churn", seeds: "1-50",
	},
	{
		name:     "a name resolves to its old pod as long as that runs",
		file:     "core/resolve.go",
		old:      "	if found != nil {\n",
		new:      "	if found != nil && len(a.podUIDsByName[full]) < 2 {\n",
		scenario: "manifest-churn", seeds: "1-100",
	},
	{
		name:     "a client gets the run before the newest",
		file:     "core/pod/lookup.go",
		old:      "	return c.ID\n",
		new:      "	if o := p.PreviousRun(c); o != nil {\n		return o.ID\n	}\n	return c.ID\n",
		scenario: "agent-restarts", seeds: "1-50",
	},
	{
		name:     "the UID of a mirror is not resolved",
		file:     "core/resolve.go",
		old:      "uid == string(object.UID) && mirror.IsMirror(object) {",
		new:      "uid == string(object.UID) && !mirror.IsMirror(object) {",
		scenario: "mirror-pods", seeds: "1-50",
	},
	{
		name:     "the UID in a request is ignored",
		file:     "core/resolve.go",
		old:      "if (uid == \"\" || uid == string(spec.UID)) && (",
		new:      "if uid != \"\\x00\" && (",
		scenario: "manifest-churn", seeds: "1-50",
	},
	{
		// The name of the UID is another one now.
		name:     "a pod is found by the name of another one that had its UID",
		file:     "core/resolve.go",
		old:      " && p.Spec != nil && p.FullName() == full {",
		new:      " && p.Spec != nil {",
		scenario: "uid-reuse", seeds: "23-42",
	},
	{
		name:     "an exited container is served as running",
		file:     "core/pod/lookup.go",
		old:      "c.State == Running {",
		new:      "c.State != Created {",
		scenario: "agent-restarts", seeds: "1-20",
	},
	{
		name:     "a container may write to a volume of a ConfigMap or Secret",
		file:     "core/criconfig/mounts.go",
		old:      "m.ReadOnly || place.ReadOnly,",
		new:      "m.ReadOnly,",
		scenario: "config-updates", seeds: "1-20",
	},
	{
		name: "one pod gets any number of service account tokens",
		file: "core/budget/spec.go",
		old:  "case tokens > TokensMax:",
		new:  "case tokens < 0:",
		also: &edit{
			file: "core/token/token.go",
			old:  "if !exists[id] && len(s.Tokens) < budget.TokensMax {",
			new:  "if !exists[id] {",
		},
		scenario: "hostile", seeds: "10-29",
	},
	{
		// As a full table was, with a bound that a smaller pod reaches.
		name: "the operations of one pod end the agent",
		file: "core/op/table.go",
		old:  "	return t.InFlight >= shared || own >= max(1, budget.OperationsMax*left/shared)\n",
		new: "	if own >= budget.OperationsMax/8 {\n" +
			"		panic(\"op: too many operations in flight\")\n" +
			"	}\n" +
			"	return left < 0\n",
		scenario: "hostile", seeds: "1-200",
	},
	{
		name: "a container gets any number of variables",
		file: "core/criconfig/variables.go",
		old:  "case v.added+more > budget.Table[v.bound].Max:",
		new:  "case v.added < 0:",
		also: &edit{
			file: "core/budget/budget.go",
			old:  "	ExpandedMax           = 8 << 20\n",
			new:  "	ExpandedMax           = 8 << 40\n",
		},
		scenario: "hostile", seeds: "57-76",
	},
	{
		name:     "references double the length of a variable without end",
		file:     "core/budget/budget.go",
		old:      "VariableBytesMax      = 128 << 10\n",
		new:      "VariableBytesMax      = 16 << 20\n",
		scenario: "hostile", seeds: "21-40",
	},
	{
		// The node has a pod that a kubelet has started.
		name: "a volume of an unknown kind ends the agent",
		file: "core/volume/backing.go",
		old:  "v.Image == nil && !HasContent(v)\n",
		new:  "v.Image == nil && !HasContent(v) && v.ISCSI == nil\n",
		also: &edit{
			file: "core/apipods.go",
			old:  "	if !isToRun(object) {\n		return false\n",
			new:  "	if !isToRun(object) || object.Status.StartTime != nil {\n		return false\n",
		},
		scenario: "hostile", seeds: "1-200",
	},
	{
		name:     "the removal of a large tree is given too little time",
		file:     "core/pod/plan.go",
		old:      "\"pod\", fsTimeout, &world.RemoveTree{",
		new:      "\"pod\", fsTimeout/120, &world.RemoveTree{",
		scenario: "hostile", seeds: "1-200",
	},
	{
		name:     "the names of links to logs are not cut",
		file:     "core/logs/links.go",
		old:      "	return name[:min(len(name), world.NameBytesMax-len(linkSuffix))]\n",
		new:      "	return name[:min(len(name), 2*world.NameBytesMax)]\n",
		scenario: "hostile", seeds: "1-200",
	},
	{
		name:     "a tree that is too large to be measured is within its limit",
		file:     "core/localstorage/localstorage.go",
		old:      "	return u.Unfinished[key] >= unfinishedMax\n",
		new:      "	return false\n",
		scenario: "hostile", seeds: "1-200",
	},
	{
		name: "one pod takes all watches",
		file: "core/budget/spec.go",
		old:  "case references > ReferencesMax:",
		new:  "case references < 0:",
		also: &edit{
			file: "core/objectcache/store.go",
			old:  "	return added == 0 || len(s.Watches)+added <= watchesMax\n",
			new:  "	return added >= 0\n",
		},
		scenario: "hostile", seeds: "8-27",
	},
	{
		// The bound of a step is one on its plans, and a shorter list reaches it.
		name: "a long list ends the agent",
		file: "core/planqueue.go",
		old:  "	key := q.keys[q.head]\n	q.head++\n",
		new: "	key := q.keys[q.head]\n" +
			"	if q.head++; q.head > 40 {\n" +
			"		panic(\"core: too many plans\")\n" +
			"	}\n",
		scenario: "hostile", seeds: "10-29",
	},
	{
		name:     "a probe has a command of any length",
		file:     "core/criconfig/variables.go",
		old:      "	if n := a.length(command); n > budget.ProbeCommandMax {\n",
		new:      "	if n := a.length(command); n > 1<<20 {\n",
		scenario: "hostile", seeds: "1-200",
	},
	{
		// Pods of one driver that hangs take all slots.
		name:     "a driver that hangs takes the whole lane",
		file:     "world/loop/slots.go",
		old:      "	return group == \"\" || s.byGroup[group] < max(1, s.capacity()-s.inFlight)\n",
		new:      "	return group == \"\" || s.byGroup[group] < s.capacity()\n",
		scenario: "hostile-storage", seeds: "15-34",
	},
	{
		name:     "the drivers of one pod ask for any number of tokens",
		file:     "core/csi/token.go",
		old:      "if others+len(d.Spec.TokenRequests) > budget.DriverTokensMax {",
		new:      "if others < 0 {",
		scenario: "hostile-storage", seeds: "1-20",
	},
	{
		name:     "objects of storage that do not exist are read every second",
		file:     "core/objectcache/read.go",
		old:      "timer.Backoff(r.Failures, first, readBackoffMax)",
		new:      "timer.Backoff(min(r.Failures, 1), first, readBackoffMax)",
		scenario: "hostile-storage", seeds: "1-20",
	},
	{
		// As a kubelet reads it ten times a second.
		name:     "a claim that a pod cannot use is read again and again",
		file:     "core/objectcache/read.go",
		old:      "		first = unusableBackoffFirst\n",
		new:      "		first, r.Failures = unusableBackoffFirst, 1\n",
		scenario: "ephemeral-claims", seeds: "1-60",
	},
	{
		name:     "a status has images of any length",
		file:     "core/podstatus/message.go",
		old:      "	c.Image, c.ImageID = budget.Cut(c.Image, bytes), ",
		new:      "	c.Image, c.ImageID = budget.Cut(c.Image, 1<<20+bytes), ",
		scenario: "hostile", seeds: "1-200",
	},
	{
		name:     "a status has paths of mounts of any length",
		file:     "core/budget/spec.go",
		old:      "case paths > MountPathsMax:",
		new:      "case paths < 0:",
		scenario: "hostile", seeds: "1-200",
	},
	{
		name:     "content that is refused is built again without a back-off",
		file:     "core/volume/volume.go",
		old:      "	v.NotBefore = now.Add(timer.Backoff(v.Failures, backoffFirst, backoffMax))\n",
		new:      "	v.NotBefore = now.Add(timer.Backoff(1, time.Millisecond, backoffMax))\n",
		scenario: "hostile", seeds: "1-200",
	},
	{
		// A container that waits keeps what was wrong with it.
		name:     "a container that waits is not checked again when its objects change",
		file:     "core/pod/container_checks.go",
		old:      "other.facts && slices.Equal(i.watches, other.watches)\n",
		new:      "other.facts && len(i.watches) == len(other.watches)\n",
		scenario: "config-reads", seeds: "1-80",
	},
	{
		name:     "each agent writes every status once more",
		file:     "core/statuswriter/writer.go",
		old:      "		if !hasStatus {\n",
		new:      "		if !hasStatus || e.StoredSum == \"\" {\n",
		scenario: "node-churn", seeds: "10-29",
	},
	{
		name: "a request about an unknown pod is not answered",
		file: "core/requests.go",
		old:  "		a.effects.Emit(a.resolveContainer(body))\n",
		new: "		if answer := a.resolveContainer(body); answer.Err == nil {\n" +
			"			a.effects.Emit(answer)\n" +
			"		}\n",
		scenario: "node-churn", seeds: "1-20",
	},
	{
		name: "running containers are inspected every 20 s",
		file: "core/pod/completion.go",
		old:  "	if c.Inspected = state; state == Running {\n",
		new: "	if c.Inspected = state; state == Running {\n" +
			"		c.Inspected, c.InspectAfter = Created, ev.Time.Add(20*time.Second)\n",
		scenario: "steady", seeds: "1-20",
	},
	{
		// Other pods of these seeds always have work.
		name: "containers of a pod that is done are inspected every 20 s",
		file: "core/pod/completion.go",
		old:  "	if c.Inspected = state; state == Running {\n",
		new: "	if c.Inspected = state; state == Running {\n" +
			"		c.Inspected, c.InspectAfter = Created, ev.Time.Add(20*time.Second)\n",
		scenario: "agent-restarts", seeds: "11-30",
	},
	{
		name: "sidecars whose turn has not come are stopped at half of the grace period",
		file: "core/pod/stop.go",
		old:  "!w.waitUntil(c.Stop.StartedAt.Add(c.Stop.Grace)) {\n",
		new: "!w.waitUntil(c.Stop.StartedAt.Add(c.Stop.Grace / 2)) {\n" +
			"				c.Stop.KillAfter = killAfterMin\n",
		scenario: "sidecars", seeds: "1-20",
	},
	{
		name: "a terminal phase at the API server is taken back",
		file: "core/statuswriter/merge.go",
		old:  "	if IsTerminal(stored) {\n",
		new:  "	if false {\n",
		also: &edit{"core/podstatus/podstatus.go",
			"	case pod.IsTerminal(stored.Phase): // by another client, or the record is lost\n",
			"	case false:\n"},
		scenario: "node-churn", seeds: "1-20",
	},
	{
		name:     "a panic is about no pod",
		file:     "core/op/effects.go",
		old:      "previous, o.pod = o.pod, uid",
		new:      "previous, o.pod = o.pod, \"\"",
		scenario: "panics", seeds: "1-20",
	},
	{
		name:     "a pod is set aside for half of its time",
		file:     "core/setaside.go",
		old:      "now.Add(noted.Remaining)",
		new:      "now.Add(noted.Remaining / 2)",
		scenario: "panics", seeds: "1-20",
	},
	{
		name:     "an image that an earlier creation has used counts as there",
		file:     "core/pod/container_plan.go",
		old:      "	p.releaseImages(container.Name, env)\n	run := p.newRun",
		new:      "	run := p.newRun",
		scenario: "mix", seeds: "21-40",
	},
	{
		name:     "an orphaned pod holds what its sandbox was created with",
		file:     "core/admission.go",
		old:      "			return p.OrphanedPod(&recorded.Resources)\n",
		new:      "			return p.AllocatedPod()\n",
		scenario: "admission", plan: "orphan-held-more-than-its-annotation.yaml",
	},
	{
		name:     "a static pod that a shutdown has ended holds nothing",
		file:     "core/pod/resources.go",
		old:      "return p.usesResources() || p.mayRunAgain()",
		new:      "return p.usesResources()",
		scenario: "shutdown-cancel", plan: "shutdown-gave-room-away.yaml",
	},
	{
		name:     "a probe comes three times in its period",
		file:     "core/probe/probe.go",
		old:      "max(spec.PeriodSeconds, 1)) * time.Second)\n",
		new:      "max(spec.PeriodSeconds, 1)) * time.Second / 3)\n",
		scenario: "probes", seeds: "1-100",
	},
	{
		name:     "pods do not wait for a runtime that is not ready",
		file:     "core/pod/plan.go",
		old:      "	p.RuntimeWaitReason = env.RuntimeNotReady\n",
		new:      "	p.RuntimeWaitReason = \"\"\n",
		scenario: "runtime-restart", seeds: "1-100",
	},
	{
		name:     "images are pulled by a runtime that is not ready",
		file:     "core/images.go",
		old:      "PullsHeld: a.notReadyReason() != \"\",",
		new:      "PullsHeld: false,",
		scenario: "runtime-restart", seeds: "14-33",
	},
	{
		name:     "sandboxes are created although the network is not ready",
		file:     "core/pod/plan.go",
		old:      "		p.RuntimeWaitReason = env.NetworkNotReady\n",
		new:      "		p.RuntimeWaitReason = \"\"\n",
		scenario: "runtime-restart", seeds: "1-100",
	},
	{
		name:     "what the runtime has of a pod that is set aside is planned",
		file:     "core/setaside.go",
		old:      "	if e == nil || !requestedAt.Before(e.Until) {\n",
		new:      "	if e == nil || !requestedAt.Before(e.Until) || sandbox != nil {\n",
		scenario: "panics", seeds: "1-20",
	},
	{
		name:     "a pod that was set aside is not looked at again",
		file:     "core/setaside.go",
		old:      "			a.requestRelist(e.Until)\n",
		new:      "",
		also:     &edit{"core/relist.go", "	a.release(a.dueSetAside(issued), s.Now)\n", ""},
		scenario: "panics", seeds: "1-20",
	},
	{
		name:     "no event says that a pod is set aside",
		file:     "core/setaside.go",
		old:      "	if !e.Reported {\n",
		new:      "	if e.Panics > 1 {\n",
		scenario: "panics", seeds: "1-20",
	},
	{
		name:     "the status does not say that a pod is set aside",
		file:     "core/setaside.go",
		old:      "	if entry == nil || e.Silent {\n",
		new:      "	if entry == nil || e.Silent || e.Panics > 0 {\n",
		scenario: "panics", seeds: "1-20",
	},
	{
		name:     "a change of the date is not recorded",
		file:     "core/machine.go",
		old:      "	s.Node.Wall.Record(now, step.Offset)\n",
		new:      "",
		scenario: "dates", seeds: "1-20",
	},
	{
		name:     "the Node's heartbeat keeps the old date after a change",
		file:     "core/machine.go",
		old:      "		s.NodeObject.ReportNow()\n",
		new:      "",
		scenario: "dates", seeds: "1-20",
	},
	{
		name:     "logs are measured twice in a period",
		file:     "core/logs/rotation.go",
		old:      "	r.NextAt = effects.Now().Add(r.Period)\n",
		new:      "	r.NextAt = effects.Now().Add(r.Period / 2)\n",
		scenario: "steady", seeds: "11-30",
	},
	{
		name:     "the time of a transition is renewed by each write",
		file:     "core/statuswriter/merge.go",
		old:      "			c.LastTransitionTime = stored.Conditions[i].LastTransitionTime\n",
		new:      "",
		also:     &edit{"core/podstatus/conditions.go", "		condition.Since = before.Since\n", ""},
		scenario: "api-partition", seeds: "1-20",
	},
	{
		name:     "the time of a transition stays although the status changes",
		file:     "core/podstatus/conditions.go",
		old:      "	case before.Status == status:\n",
		new:      "	case true:\n",
		scenario: "api-partition", seeds: "1-20",
	},
	{
		name:     "a change of the date ends a back-off early",
		file:     "core/pod/container_plan.go",
		old:      "p.nextAction(container, role, env.Effects.Now())",
		new:      "p.nextAction(container, role, env.Effects.Date())",
		scenario: "dates", seeds: "1-20",
	},
	{
		name:     "a tenant may hold all slots of a lane",
		file:     "world/loop/slots.go",
		old:      "	return free > 0 && s.byTenant[tenant] < min(s.shareMax, max(1, free/shareDivisor))\n",
		new:      "	return free > 0\n",
		scenario: "crowded-lanes", seeds: "1-40",
	},
	{
		name:     "a namespace may hold all slots of a lane whose operations may hang",
		file:     "world/loop/slots.go",
		old:      "	return group == \"\" || s.byGroup[group] < max(1, s.capacity()-s.inFlight)\n",
		new:      "	return true\n",
		scenario: "dead-shares", seeds: "1-150",
	},
	{
		name:     "a privileged container gets no privileges",
		file:     "core/criconfig/security.go",
		old:      "		Privileged:       isTrue(e.Privileged),",
		new:      "		Privileged:       false,",
		scenario: "pod-options", seeds: "1-100",
	},
	{
		name:     "the group of the pod wins over that of the container",
		file:     "core/criconfig/security.go",
		old:      "cmp.Or(e.RunAsGroup, context.RunAsGroup)",
		new:      "cmp.Or(context.RunAsGroup, e.RunAsGroup)",
		scenario: "pod-options", seeds: "1-100",
	},
	{
		name:     "mounts of the node do not propagate into a container",
		file:     "core/criconfig/mounts.go",
		old:      "Propagation: mountPropagation(m.MountPropagation),",
		new:      "Propagation: mountPropagation(nil),",
		scenario: "pod-options", seeds: "1-100",
	},
	{
		name:     "arguments are not expanded",
		file:     "core/criconfig/container.go",
		old:      "	args, err = a.expandAll(\"args\", container.Args)\n",
		new:      "	args = container.Args\n",
		scenario: "pod-options", seeds: "1-100",
	},
	{
		name:     "a sidecar is killed for memory before the containers that need it",
		file:     "core/criconfig/resources.go",
		old:      "	if isSidecar(&p.Spec.Spec, container) {",
		new:      "	if isSidecar(&p.Spec.Spec, container) && request < 0 {",
		scenario: "pod-options", seeds: "1-100",
	},
	{
		name:     "the cluster's DNS server without its search domains",
		file:     "core/criconfig/dns.go",
		old:      "union(p.clusterSearches(node.DNS.Domain), host.Searches)",
		new:      "union(nil, host.Searches)",
		scenario: "pod-options", seeds: "1-100",
	},
	{
		name:     "a host port of UDP becomes one of TCP",
		file:     "core/criconfig/sandbox.go",
		old:      "runtimeapi.Protocol(runtimeapi.Protocol_value[string(port.Protocol)]),",
		new:      "runtimeapi.Protocol_TCP,",
		scenario: "pod-options", seeds: "1-100",
	},
	{
		name:     "a pod with the node's processes gets its own",
		file:     "core/criconfig/sandbox.go",
		old:      "	case spec.HostPID:\n",
		new:      "	case spec.HostPID && !spec.HostNetwork:\n",
		scenario: "pod-options", seeds: "1-100",
	},
	{
		// The index of IDs has what a relist has added before the answer to its creation came.
		name:     "a creation that a relist has seen first counts as an ID that was given twice",
		file:     "core/pod/completion.go",
		old:      "if owner == \"\" || owner == p.UID && ownNew {",
		new:      "if owner == \"\" || owner == p.UID && !ownNew {",
		scenario: "resize", seeds: "11-30",
	},
	{
		name:     "a resize is not bounded by the pod's cgroup",
		file:     "core/pod/resize.go",
		old:      "	spec, bounds := p.boundedSpec()\n	set := l.Limits(",
		new:      "	spec, bounds := p.Spec, []allocation.Amounts(nil)\n	set := l.Limits(",
		scenario: "resize", seeds: "1-100",
	},
	{
		name:     "a limit of memory is lowered below what is used",
		file:     "core/pod/resize.go",
		old:      "usage >= want.MemoryLimit {",
		new:      "usage < 0 {",
		scenario: "resize", seeds: "1-100",
	},
	{
		name:     "a container restarts for every resize",
		file:     "core/pod/resize.go",
		old:      "if last != nil && allocation.MustRestart(container, *last, want) {",
		new:      "if last != nil {",
		scenario: "resize", seeds: "1-100",
	},
	{
		name:     "a resize beyond what the node has is allocated",
		file:     "core/resize.go",
		old:      "	if len(failures) == 0 {\n		return denial{}\n	}\n	decisive",
		new:      "	if len(failures) >= 0 {\n		return denial{}\n	}\n	decisive",
		scenario: "resize", seeds: "1-300",
	},
	{
		name:     "pods end while it is not known what is allocated to them",
		file:     "core/agent.go",
		old:      " &&\n		a.state.Allocation.IsLoaded()\n",
		new:      "\n",
		scenario: "resize", seeds: "69-88",
	},
	{
		name:     "a container that was created before a resize is started",
		file:     "core/pod/container_plan.go",
		old:      "(!p.matchesSpec(c) || p.isCreatedOtherwise(c)):",
		new:      "!p.matchesSpec(c):",
		scenario: "resize", plan: "created-before-resize.yaml",
	},
	{
		name:     "a container is created although its pod could not grow",
		file:     "core/pod/resize.go",
		old:      "		return !p.hasRoom(sandbox, env) // new containers must be within the pod\n",
		new:      "		return false\n",
		scenario: "resize", seeds: "153-172",
	},
	{
		name: "init containers are not resized",
		file: "core/pod/resize.go",
		old:  "		if c.State == Running && container != nil {\n			visit(",
		new: "		if c.State == Running && container != nil && p.roleOf(c.Name) != Init {\n" +
			"			visit(",
		scenario: "resize-restart", seeds: "1-100",
	},
	{
		name:     "pod-level resources are taken without being allocated",
		file:     "core/allocation/allocation.go",
		old:      "	spec.Resources = r.Pod\n",
		new:      "",
		scenario: "resize-restart", seeds: "10-29",
	},
	{
		name:     "the tier shrinks before a pod with pod-level resources",
		file:     "core/pod/cgroup.go",
		old:      "len(bounds) > 0 && has != nil {",
		new:      "len(bounds) < 0 && has != nil {",
		scenario: "resize-restart", seeds: "1600-1810",
	},
	{
		name:     "a container with swap is resized",
		file:     "core/resize.go",
		old:      "	if p.ResizesSwap(a.podEnvFor(p)) {\n",
		new:      "	if a.state.Now.IsZero() {\n",
		scenario: "resize-swap", seeds: "1-40",
	},
	{
		name:     "a resize that changes no swap is refused for it",
		file:     "core/pod/resize.go",
		old:      "found = found || want.Requests.Memory().Cmp(*have.Requests.Memory()) != 0 &&\n",
		new:      "found = found ||\n",
		scenario: "resize-swap", seeds: "1-40",
	},
	{
		name:     "a resize of memory leaves what is reserved for its class",
		file:     "core/qos/share.go",
		old:      "	if counted && previous == share {\n",
		new:      "	if counted && previous.CPU == share.CPU && previous.Class == share.Class {\n",
		scenario: "resize-swap", seeds: "1-40",
	},
	{
		name:     "CPU limits are enforced, whatever is configured",
		file:     "core/cgroup/policy.go",
		old:      "	case p.NoQuota:\n",
		new:      "	case p.NoQuota && milli < 0:\n",
		scenario: "resize-no-quota", seeds: "1-10",
	},
	{
		name:     "a cgroup that could not be written counts as one that has what it is to have",
		file:     "core/pod/cgroup.go",
		old:      "		share = share.Max(*possible)\n",
		new:      "		_ = possible\n",
		scenario: "resize-old-runtime", plan: "cgroup-of-unknown-outcome.yaml",
	},
	{
		name:     "a resize that has failed is tried again at once",
		file:     "core/pod/resize.go",
		old:      "	if r.Failures > 0 && w.waitUntil(r.NotBefore) {\n",
		new:      "	if r.Failures < 0 && w.waitUntil(r.NotBefore) {\n",
		scenario: "resize", plan: "resize-retried-without-end.yaml",
	},
	{
		name:     "the runtime is asked without end whether an older update has taken effect",
		file:     "core/pod/resize.go",
		old:      "a.VerifyAt, a.Verifying, c.Inspected = time.Time{}, true, \"\"\n",
		new:      "a.Verifying, c.Inspected = true, \"\"\n",
		scenario: "resize-restart", plan: "resize-verified-without-end.yaml",
	},
	{
		name:     "the condition of a resize stays",
		file:     "core/statuswriter/merge.go",
		old:      "append(conditions, map[string]any{\"type\": t, \"$patch\": \"delete\"})",
		new:      "conditions",
		scenario: "resize", seeds: "1-100",
	},
	{
		name:     "a resize is allocated while the node lacks process IDs",
		file:     "core/resize.go",
		old:      "a.pressureMessage(desired, static); message != \"\" {",
		new:      "a.pressureMessage(desired, static); message == \"none\" {",
		scenario: "pid-storm", seeds: "9-28",
	},
	{
		name: "pressure of memory forbids the resize of a pod that requests some",
		file: "core/resize.go",
		old:  "	if message := a.pressureMessage(desired, static); message != \"\" {",
		new: "	if message := a.pressureMessage(desired, static); message != \"\" ||\n" +
			"		len(a.state.Eviction.Pressure) > 0 {",
		scenario: "memory-storm", seeds: "11-30",
	},
	{
		name:     "a resize is allocated while the machine shuts down",
		file:     "core/resize.go",
		old:      "	if a.state.Shutdown.UnderWay() {\n		return denial{reason",
		new:      "	if a.state.Shutdown.Undecided() {\n		return denial{reason",
		scenario: "shutdown-priority", seeds: "1-300",
	},
	{
		name:     "a resize takes the room that is made for a critical pod",
		file:     "core/resize.go",
		old:      "		return a.withPreemptors(others)\n	}\n	return others\n",
		new:      "		return others\n	}\n	return others\n",
		scenario: "admission", plan: "resize-into-reserved-room.yaml",
	},
	{
		name:     "the room that is made for the resize of a critical pod is not reserved",
		file:     "core/admission.go",
		old:      "p.Stage == pod.Syncing && p.Resize.MakingRoom {",
		new:      "p.Stage != pod.Syncing && p.Resize.MakingRoom {",
		scenario: "admission", plan: "resize-into-room-of-resize.yaml",
	},
	{
		name:     "waiting resizes are looked at by the timer alone",
		file:     "core/resize.go",
		old:      "	a.queue.enqueue(resizeOwner)\n",
		new:      "",
		scenario: "resize", seeds: "1-300",
	},
	{
		name:     "a tier keeps the weight that a pod had first",
		file:     "core/qos/share.go",
		old:      "	if counted && previous == share {\n",
		new:      "	if counted && previous.Class == share.Class {\n",
		scenario: "resize", seeds: "1-300",
	},
	{
		name:     "a resize takes effect before its checkpoint is written",
		file:     "core/resize.go",
		old:      "	case p.Resize.Granted != nil && !store.IsStored(p.UID):\n",
		new:      "	case p.Resize.Granted != nil && store == nil:\n",
		scenario: "resize", seeds: "9-28",
	},
	{
		name:     "the cgroup of a pod shrinks before its containers",
		file:     "core/pod/resize.go",
		old:      "	for _, known := range []*allocation.Amounts{a.Last, a.Attempted} {\n",
		new:      "	for _, known := range []*allocation.Amounts{a.Attempted} {\n",
		scenario: "resize", seeds: "1-300",
	},
	{
		name: "containers grow before the cgroup of their pod",
		file: "core/pod/resize.go",
		old: "	if p.setCgroup(sandbox, sandbox.Attempt, env) {\n" +
			"		return true\n	}\n	if unsettled {\n",
		new: "	if !unsettled && p.setCgroup(sandbox, sandbox.Attempt, env) {\n" +
			"		return true\n	}\n	if unsettled {\n",
		scenario: "resize", seeds: "1-300",
	},
	{
		name:     "a status tells of the allocated limits as of those of the runtime",
		file:     "core/podstatus/resources.go",
		old:      "	case c.State != pod.Running:\n		return &has\n",
		new:      "	case c.State != \"\":\n		return &has\n",
		scenario: "resize", seeds: "1-300",
	},
	{
		name:     "a resize counts as complete when the cgroup of the pod has it",
		file:     "core/pod/resize.go",
		old:      "	if unsettled {\n		issued",
		new:      "	if unsettled && r.InProgress == nil {\n		issued",
		scenario: "resize", seeds: "1-300",
	},
	{
		name: "a resize that an earlier agent has not finished is complete",
		file: "core/pod/resize.go",
		old: "				p.noteResizing(env) // the earlier agent may have ended before it set the pod's " +
			"cgroup\n",
		new:      "",
		scenario: "resize", plan: "resize-unfinished.yaml",
	},
	{
		name:     "what containers have is not recorded",
		file:     "core/resize.go",
		old:      "	if a.state.Allocation.SetActuated(p.UID, amounts, whole) {\n",
		new:      "	if a.state.Allocation.SetActuated(p.UID, amounts, whole) && p.UID == \"\" {\n",
		scenario: "resize-old-runtime", seeds: "216-235",
	},
	{
		name:     "a plugin that was replaced is not registered again",
		file:     "core/plugins/plugins.go",
		old:      "if before.File == observed.File {",
		new:      "if before.File != \"\" {",
		scenario: "plugins", seeds: "1-20",
	},
	{
		// Two that answer at the same time are both registered.
		name:     "only a registered plugin holds its name",
		file:     "core/plugins/plugins.go",
		old:      "return s != nil && s.Answer != nil && s.Answer.Refusal == \"\"",
		new:      "return s != nil && s.Registered",
		scenario: "plugins", seeds: "45-64",
	},
	{
		name:     "a plugin waits out its back-off although its name is free",
		file:     "core/plugins/plugins.go",
		old:      "s.Answer == nil && r.holderOf(s.HeldBack) == \"\"",
		new:      "s.Registered",
		scenario: "plugins", seeds: "198-217",
	},
	{
		name:     "a plugin counts as registered whether it was notified or not",
		file:     "core/plugins/plugins.go",
		old:      "case ev.Err != nil:",
		new:      "case ev.Err != nil && s.Answer == nil:",
		scenario: "plugins", seeds: "1-50",
	},
	{
		name:     "a plugin that is gone is still asked",
		file:     "core/plugins/plugins.go",
		old:      "delete(r.Sockets, path)",
		new:      "gone[path].Op = 0",
		scenario: "plugins", seeds: "1-50",
	},
	{
		name:     "a plugin is not refused if the API server refuses its labels",
		file:     "core/nodeobject.go",
		old:      "RefusedDriver(r, ev); driver != \"\" {",
		new:      "RefusedDriver(r, ev); driver == \"-\" {",
		scenario: "plugins", seeds: "1-40",
	},
	{
		name:     "the entry of a driver in the CSINode is changed where it is",
		file:     "core/csi/csinode.go",
		old:      "	}\n	return nil, true\n}",
		new:      "	}\n	return &wanted, true\n}",
		scenario: "plugins", seeds: "1-40",
	},
	{
		name:     "a driver counts as listed while a write may take it out",
		file:     "core/csi/csinode.go",
		old:      "o.Writing || o.isPending(name) {",
		new:      "o.Writing || o.isPending(name+\"-\") {",
		scenario: "csi-reboot", plan: "registered-while-unlisted.yaml",
	},
	{
		name:     "a plugin waits for ever once one of a higher version is registered",
		file:     "core/csi/driver.go",
		old:      "case hasLater && s.Problem == \"\":",
		new:      "case hasLater && s.Problem == \"-\":",
		scenario: "plugins", seeds: "170-190",
	},
	{
		name:     "a plugin waits while one of a higher version is notified in vain",
		file:     "core/csi/driver.go",
		old:      "hasLater = hasLater || s.Registered || s.Info != nil && s.Problem == \"\"",
		new:      "hasLater = hasLater || s.Registered",
		scenario: "plugins", plan: "refused-beside-higher-version.yaml",
	},
	{
		name:     "a plugin is asked at once although another one has taken the name over",
		file:     "core/plugins/plugins.go",
		old:      "s.Answer == nil && r.holderOf(s.HeldBack) == \"\"",
		new:      "s.Answer == nil",
		scenario: "plugins", plan: "name-taken-over.yaml",
	},
	{
		name:     "a driver counts as named by the Node while a write may take its ID away",
		file:     "core/csi/csinode.go",
		old:      "node == nil || e.IsWriting != nil && e.IsWriting(name)",
		new:      "node == nil || e.IsWriting == nil",
		scenario: "plugins", plan: "registered-while-its-id-goes.yaml",
	},
	{
		name:     "a pod asks about one volume at a time why it waits",
		file:     "core/csi/attach.go",
		old:      "const overdueReadsMax = 8",
		new:      "const overdueReadsMax = 1",
		scenario: "csi-limit", plan: "full-for-the-second-volume.yaml",
	},
	{
		name:     "a shutdown ends all groups at once",
		file:     "core/shutdown/shutdown.go",
		old:      "now.Before(s.Deadline) {\n\t\t\treturn s.Deadline",
		new:      "now.After(s.Deadline) {\n\t\t\treturn s.Deadline",
		scenario: "shutdown", seeds: "1-50",
	},
	{
		name:     "a shutdown waits for no final status",
		file:     "core/shutdown/shutdown.go",
		old:      "(len(s.Late) > 0 || len(s.Unreported) > 0 ||",
		new:      "(len(s.Late) > 0 ||",
		scenario: "shutdown", seeds: "1-300",
	},
	{
		name:     "a shutdown waits for no pod after its group's period",
		file:     "core/shutdown/shutdown.go",
		old:      "(len(s.Late) > 0 || len(s.Unreported) > 0 ||",
		new:      "(len(s.Unreported) > 0 ||",
		scenario: "shutdown", seeds: "1-50",
	},
	{
		name:     "an agent that is restarted in a shutdown admits pods",
		file:     "core/shutdown/shutdown.go",
		old:      "return m.Enabled() && m.Now == nil && !m.Lock.Answered }",
		new:      "return m.Enabled() && m.Now == nil && !m.Lock.Answered && m.Lock.Delay.Failures > 5 }",
		scenario: "shutdown-agent-restart", seeds: "9-28",
	},
	{
		name:     "an agent that is restarted in a shutdown does not wait for its pods",
		file:     "core/shutdown/shutdown.go",
		old:      "m.groupDeadline(env), !env.Listed",
		new:      "m.groupDeadline(env), !env.Listed && s.Group < 0",
		scenario: "shutdown-agent-restart", seeds: "1-100",
	},
	{
		// An agent that is started in the middle of a shutdown, and cannot reach the API server, is
		// given its pods after their group was reached.
		name:     "a pod that comes after its group was reached is not ended",
		file:     "core/nodeshutdown.go",
		old:      "if group := a.shutdownGroup(p); m.Now.HasReached(group) {",
		new:      "if group := a.shutdownGroup(p); m.Now.HasReached(group) && p.UID == \"\" {",
		scenario: "shutdown-agent-restart", plan: "shutdown-latecomer.yaml",
	},
	{
		name:     "pods that wait for a name have each other planned",
		file:     "core/pods.go",
		old:      "if !p.FullyRemoved && (!held || p.HeldName) {",
		new:      "if !p.FullyRemoved && (!held && !p.WaitingForName || p.HeldName) {",
		scenario: "mix", plan: "namesakes-wait.yaml",
	},
	{
		name: "an agent that is restarted in a shutdown ends no pods",
		file: "core/nodeshutdown.go",
		old:  "if p.Stage != pod.Terminated {\n",
		new: "if p.Stage != pod.Terminated &&\n" +
			"\t\t\ta.state.Shutdown.Now.KnownAt.Sub(a.state.BootedAt) > time.Minute {\n",
		also: &edit{"core/nodeshutdown.go",
			"if group := a.shutdownGroup(p); m.Now.HasReached(group) {",
			"if group := a.shutdownGroup(p); m.Now.HasReached(group) &&\n" +
				"\t\tm.Now.KnownAt.Sub(a.state.BootedAt) > time.Minute {"},
		scenario: "shutdown-agent-restart", seeds: "1-50",
	},
	{
		name:     "a shutdown goes on before the volumes of a group are unmounted",
		file:     "core/nodeshutdown.go",
		old:      "(p.HasUnmounted() && m.PodEnded(p.UID)",
		new:      "(p.Stage == pod.Terminated && m.PodEnded(p.UID)",
		scenario: "shutdown-priority", seeds: "1-50",
	},
	{
		name:     "the images of image volumes count as unused",
		file:     "core/pod/image_names.go",
		old:      "			add(source.Reference)\n",
		new:      "			_ = source\n",
		scenario: "image-churn", seeds: "1-50",
	},
	{
		name:     "the containers of static pods that have ended are removed for the space",
		file:     "core/nodepressure.go",
		old:      "a.isAPIPod(p) && p.ReclaimRuns() {\n",
		new:      "p.ReclaimRuns() {\n\t\t\tp.MayLoseRuns = p.MayLoseRuns || !a.isAPIPod(p)\n",
		scenario: "disk-full", seeds: "1-50",
	},
	{
		name:     "a shutdown is delayed until all time has passed",
		file:     "core/shutdown/shutdown.go",
		old:      "!s.Released && now.Before(deadline) &&\n\t\t(len",
		new:      "!s.Released && now.Before(deadline) || s.Released &&\n\t\t(len",
		scenario: "shutdown", seeds: "1-100",
	},
	{
		name:     "a cancelled shutdown goes on",
		file:     "core/shutdown/shutdown.go",
		old:      "m.Now, m.Lock.Delay.NotBefore = nil, time.Time{}\n",
		new:      "m.Lock.Delay.NotBefore = time.Time{}\n",
		scenario: "shutdown-cancel", seeds: "1-50",
	},
	{
		name:     "pods that come during a shutdown wait",
		file:     "core/nodeshutdown.go",
		old:      "return failedRejection(shutdown.RejectionReason, shutdown.RejectionMessage)",
		new:      "return awaitingShutdown",
		scenario: "shutdown", seeds: "1-50",
	},
	{
		name: "pods that come while memory or process IDs are short wait",
		file: "core/nodepressure.go",
		old:  "		return failedRejection(pod.ReasonEvicted, message)\n",
		new: "		r := failedRejection(pod.ReasonEvicted, message)\n" +
			"		r.Phase, r.Waiting = v1.PodPending, true\n		return r\n",
		scenario: "memory-storm", seeds: "1-50",
	},
	{
		name:     "no pod is admitted for a minute after a cancelled shutdown",
		file:     "core/nodeshutdown.go",
		old:      "	case m.UnderWay():\n",
		new:      "	case m.UnderWay(), a.state.Now.Sub(m.Lock.CancelledAt) < 60e9:\n",
		scenario: "shutdown-cancel", seeds: "1-50",
	},
	{
		name:     "a pod that ends has its reason while it runs",
		file:     "core/podstatus/podstatus.go",
		old:      "case p.Termination.Message != \"\" && reportsEnd(p):",
		new:      "case p.Termination.Message != \"\":",
		scenario: "shutdown", seeds: "1-50",
	},
	{
		name:     "an eviction for the node is no disruption",
		file:     "core/podstatus/conditions.go",
		old:      "end.Reason == shutdown.Reason || end.UnderPressure:",
		new:      "end.Reason == shutdown.Reason && !end.UnderPressure:",
		scenario: "memory-storm", seeds: "1-50",
	},
	{
		name:     "static pods stay ended after a cancelled shutdown",
		file:     "core/pod/desired.go",
		old:      "return p.Termination.Reason == shutdown.Reason && p.IsStatic()",
		new:      "return p.Termination.Reason == shutdown.Reason && !p.IsStatic()",
		scenario: "shutdown-cancel", seeds: "1-50",
	},
	{
		name:     "a shutdown gives each pod a part of its time",
		file:     "core/pod/desired.go",
		old:      "Phase: v1.PodFailed, Grace: min(p.GracePeriod(), period)}, now)",
		new:      "Phase: v1.PodFailed, Grace: min(p.GracePeriod(), period/4)}, now)",
		scenario: "shutdown", seeds: "1-100",
	},
	{
		name:     "the lock is not taken again after a cancellation",
		file:     "core/shutdown/shutdown.go",
		old:      "l.Permit.Op, l.Held = 0, false //",
		new:      "l.Permit.Op = 0 //",
		scenario: "shutdown-cancel", seeds: "1-300",
	},
	{
		name:     "a process that the kernel has ended has no Event",
		file:     "core/step.go",
		old:      "		a.state.OOMs.Observe(a.state.Node.Name, body, &a.effects)\n",
		new:      "",
		scenario: "oom", seeds: "1-300",
	},
	{
		name:     "each process that the kernel has ended has an Event",
		file:     "core/node/oom.go",
		old:      "	if now.Before(o.nextEventAt()) {\n",
		new:      "	if now.IsZero() {\n",
		scenario: "oom", seeds: "1-300",
	},
	{
		name:     "processes beyond the rate of Events are forgotten",
		file:     "core/node/oom.go",
		old:      "	if o.Omitted == 0 {\n",
		new:      "	if o.Omitted == 0 || name != \"\" {\n",
		scenario: "oom", seeds: "150-200",
	},
	{
		name:     "the Event about processes beyond the rate has a wrong number",
		file:     "core/node/oom.go",
		old:      "		o.omit(1)\n",
		new:      "		o.omit(2)\n",
		scenario: "oom", seeds: "154-173",
	},
	{
		name: "an end for lack of memory is served as an error",
		file: "core/podstatus/container.go",
		old:  "ExitCode: c.ExitCode, Reason: c.Reason,",
		new: "ExitCode: c.ExitCode, Reason: map[bool]string{true: \"Error\", false: c.Reason}[" +
			"c.Reason == \"OOMKilled\"],",
		scenario: "oom", seeds: "1-300",
	},
	{
		name: "each end by KILL is served as one for lack of memory",
		file: "core/podstatus/container.go",
		old:  "ExitCode: c.ExitCode, Reason: c.Reason,",
		new: "ExitCode: c.ExitCode, Reason: map[bool]string{true: \"OOMKilled\", false: c.Reason}[" +
			"c.ExitCode == 137],",
		scenario: "oom", seeds: "1-300",
	},
	{
		// Its successor runs: only the last state tells of it.
		name:     "an end for lack of memory is forgotten after the restart",
		file:     "core/podstatus/container.go",
		old:      "	if last != nil && last.HasKnownExit() {\n",
		new:      "	if last != nil && last.HasKnownExit() && last.Reason != \"OOMKilled\" {\n",
		scenario: "oom", seeds: "1-300",
	},
	{
		name:     "a process that the kernel has ended has another's Event",
		file:     "core/node/oom.go",
		old:      "process, oom.PID)",
		new:      "process, oom.PID+1)",
		scenario: "oom", seeds: "1-300",
	},
	{
		name:     "another pod is evicted while the last victim ends",
		file:     "core/eviction/eviction.go",
		old:      "	case !now.Before(v.Deadline):\n",
		new:      "	case v.UID != \"\":\n",
		scenario: "memory-storm", seeds: "1-300",
	},
	{
		name:     "statistics of before lead to a victim",
		file:     "core/eviction/observe.go",
		old:      "if m.UsageStamp == 0 || m.UsageStamp > before {",
		new:      "if m.UsageStamp >= 0 || m.UsageStamp > before {",
		scenario: "memory-storm", seeds: "11-30",
	},
	{
		name:     "pods are ranked without their usage after one failure",
		file:     "core/eviction/observe.go",
		old:      "	case m.UsageFailures < usageFailuresMax:",
		new:      "	case m.UsageFailures < usageFailuresMax-2:",
		scenario: "memory-storm", seeds: "7-26",
	},
	{
		name:     "pods are ranked by priority alone",
		file:     "core/eviction/rank.go",
		old:      "cmp.Or(cmp.Compare(x.class, y.class), cmp.Compare(x.priority, y.priority),",
		new:      "cmp.Or(cmp.Compare(x.priority, y.priority),",
		scenario: "memory-storm", seeds: "16-35",
	},
	{
		name:     "pods are ranked by their usage, without their request",
		file:     "core/eviction/rank.go",
		old:      "u.MemoryBytes - request(pod, v1.ResourceMemory)",
		new:      "u.MemoryBytes - request(&v1.Pod{}, v1.ResourceMemory)",
		scenario: "memory-storm", seeds: "1-300",
	},
	{
		name:     "a soft threshold does not wait for its grace period",
		file:     "core/eviction/observe.go",
		old:      "t.MetForGrace = now.Sub(t.MetSince) >= t.Grace",
		new:      "t.MetForGrace = true",
		scenario: "memory-storm", seeds: "1-300",
	},
	{
		name:     "a hard threshold waits for the grace period of a soft one",
		file:     "core/eviction/observe.go",
		old:      "t.MetForGrace = now.Sub(t.MetSince) >= t.Grace",
		new:      "t.MetForGrace = now.Sub(t.MetSince) >= t.Grace+2*time.Minute",
		scenario: "memory-storm", seeds: "11-30",
	},
	{
		name:     "a pressure condition ends with its threshold",
		file:     "core/eviction/observe.go",
		old:      "met && now.Sub(at) < m.Transition {",
		new:      "met && now.Sub(at) <= 0 {",
		scenario: "memory-storm", seeds: "1-300",
	},
	{
		name:     "a pressure condition ends when the agent restarts",
		file:     "core/eviction/eviction.go",
		old:      "	if m.Adopted || len(m.Thresholds) == 0 {",
		new:      "	if m != nil {",
		scenario: "memory-storm", seeds: "1-300",
	},
	{
		name:     "a critical pod is evicted for the node",
		file:     "core/pod/desired.go",
		old:      "p.Termination.UnderPressure ||\n		admission.IsCritical(p.Spec, p.IsStatic()) {",
		new:      "p.Termination.UnderPressure {",
		scenario: "memory-storm", seeds: "1-300",
	},
	{
		name:     "processes are ranked before priorities",
		file:     "core/eviction/rank.go",
		old:      "		r.class, r.excess = classUnknown, usage.Processes\n",
		new:      "		r.class, r.excess, r.priority = classUnknown, usage.Processes, 0\n",
		scenario: "pid-storm", seeds: "1-300",
	},
	{
		name:     "a threshold for processes comes before one for memory",
		file:     "core/eviction/threshold.go",
		old:      "		return mine == v1.ResourceMemory\n",
		new:      "		return mine != v1.ResourceMemory && its != \"\"\n",
		scenario: "pid-storm", seeds: "1-300",
	},
	{
		name:     "the containers of pods that have ended stay under pressure",
		file:     "core/pod/reclaim.go",
		old:      "Stage == Terminated && !p.NoLongerDesired && len(p.Containers) > 0\n",
		new:      "Stage == Terminated && p.NoLongerDesired && len(p.Containers) > 0\n",
		scenario: "disk-full", seeds: "9-28",
	},
	{
		name:     "the containers of pods that have ended are removed at once",
		file:     "core/pod/reclaim.go",
		old:      "	if !p.MayLoseRuns || !p.WantsRunsRemoved() || p.HasUnknownExits() {\n",
		new:      "	if p.HasUnknownExits() {\n",
		scenario: "disk-full", seeds: "1-300",
	},
	{
		name:     "pods are evicted before the images are removed",
		file:     "core/eviction/eviction.go",
		old:      "	if what.Images && !until.IsZero() &&",
		new:      "	if what.Images && until.IsZero() &&",
		scenario: "disk-full", seeds: "23-42",
	},
	{
		name:     "nothing is removed before pods are evicted",
		file:     "core/eviction/observe.go",
		old:      "	if what == (Reclaim{}) {\n",
		new:      "	if what == (Reclaim{}) || m.UsageFailures >= 0 {\n",
		scenario: "disk-full", seeds: "9-28",
	},
	{
		name:     "a victim for a file system has ended when its processes have",
		file:     "core/eviction/eviction.go",
		old:      "		HoldsDisk: isForDisk, ",
		new:      "		HoldsDisk: t.Signal.condition() == v1.NodePIDPressure, ",
		scenario: "disk-full", plan: "slow-volumes-of-victim.yaml",
	},
	{
		name:     "a pod over its own limit is not waited for",
		file:     "core/nodepressure.go",
		old:      "if end := &p.Termination; p.OverLimit {",
		new:      "if end := &p.Termination; p.OverLimit && end.UnderPressure {",
		scenario: "disk-full", plan: "limit-and-full-disk.yaml",
	},
	{
		name:     "the node is not observed while the usage of the pods is awaited",
		file:     "core/eviction/eviction.go",
		old:      "		return m.planSources(env) // what",
		new:      "		return time.Time{} // what",
		scenario: "memory-storm", plan: "freed-during-attempt.yaml",
	},
	{
		name:     "pressure of memory and disks is not reported",
		file:     "core/node/status.go",
		old:      "slices.Contains(e.Pressure, all[i].Type) ||",
		new:      "all[i].Type == v1.NodePIDPressure && slices.Contains(e.Pressure, all[i].Type) ||",
		scenario: "memory-storm", seeds: "1-40",
	},
	{
		name:     "a pod has its own grace period in a shutdown",
		file:     "core/pod/desired.go",
		old:      "Grace: min(p.GracePeriod(), period)}",
		new:      "Grace: max(p.GracePeriod(), period)}",
		scenario: "shutdown-priority", seeds: "1-40",
	},
	{
		name:     "writable layers do not count in the ranking",
		file:     "core/eviction/rank.go",
		old:      "	if m.isOneDevice(source, sourceContainerfs) {",
		new:      "	if source == sourceCount {",
		scenario: "disk-full", seeds: "1-300",
	},
	{
		name:     "the logs and volumes of pods do not count",
		file:     "core/eviction/rank.go",
		old:      "	if m.isOneDevice(source, sourceNodefs) {",
		new:      "	if source == sourceCount {",
		scenario: "disk-full", seeds: "1-300",
	},
	{
		name:     "writable layers are taken for being beside the images",
		file:     "core/eviction/layout.go",
		old:      "	if layers == images {\n",
		new:      "	if layers != \"\" {\n",
		scenario: "disk-split", seeds: "1-300",
	},
	{
		name:     "dead containers are removed for the images' file system alone",
		file:     "core/eviction/eviction.go",
		old:      "		Containers: m.isOneDevice(source, sourceContainerfs) &&",
		new:      "		Containers: source == sourceImagefs &&",
		scenario: "disk-split", seeds: "8-27",
	},
	{
		name:     "volumes count on the file system of the layers",
		file:     "core/eviction/rank.go",
		old:      "	if m.isOneDevice(source, sourceNodefs) {",
		new:      "	if source != sourceNode {",
		scenario: "disk-imagefs", seeds: "1-20",
	},
	{
		name:     "writable layers apart count for the limits of containers",
		file:     "core/pods.go",
		old:      "	a.podEnv.LayersApart = a.state.Eviction.LayersApart()",
		new:      "	a.podEnv.LayersApart = false",
		scenario: "disk-imagefs", seeds: "1-20",
	},
	{
		name:     "images are removed for another file system",
		file:     "core/eviction/eviction.go",
		old:      "		Images:     m.isOneDevice(source, sourceImagefs) &&",
		new:      "		Images:     source != sourceNode &&",
		scenario: "disk-imagefs", seeds: "1-20",
	},
	{
		name:     "dead containers are removed for another file system",
		file:     "core/eviction/eviction.go",
		old:      "		Containers: m.isOneDevice(source, sourceContainerfs) &&",
		new:      "		Containers: source != sourceNode &&",
		scenario: "disk-imagefs", seeds: "1-20",
	},
	{
		name:     "dead containers stay for the file system of the layers",
		file:     "core/eviction/eviction.go",
		old:      "		Containers: m.isOneDevice(source, sourceContainerfs) &&",
		new:      "		Containers: m.isOneDevice(source, sourceNodefs) &&",
		scenario: "disk-imagefs", seeds: "1-20",
	},
	{
		name:     "inodes in use count as free",
		file:     "core/eviction/observe.go",
		old:      "				record(s, body.InodesFree, body.Inodes)",
		new:      "				record(s, body.Inodes, body.Inodes)",
		scenario: "inode-storm", seeds: "1-300",
	},
	{
		name:     "a pod without statistics has written nothing to its layers",
		file:     "core/eviction/rank.go",
		old:      "usage.LacksStats && hasLayers &&",
		new:      "usage.LacksStats && !hasLayers &&",
		scenario: "disk-split", seeds: "185-204",
	},
	{
		name: "the soft threshold of a file system evicts no pod",
		file: "core/eviction/observe.go",
		old:  "t.MetForGrace = now.Sub(t.MetSince) >= t.Grace",
		new: "t.MetForGrace = now.Sub(t.MetSince) >= t.Grace &&\n" +
			"				(t.Grace == 0 || t.Signal.condition() == v1.NodeMemoryPressure)",
		scenario: "disk-full", seeds: "40-60",
	},
	{
		name:     "a victim of a soft threshold has five minutes",
		file:     "core/eviction/eviction.go",
		old:      "e.Grace = max(min(m.GraceMax, c.Grace), immediateGrace)",
		new:      "e.Grace = max(min(m.GraceMax, c.Grace), 5*time.Minute)",
		scenario: "memory-storm", seeds: "1-300",
	},
	{
		name:     "a victim of a hard threshold has as long as one of a soft one",
		file:     "core/eviction/eviction.go",
		old:      "e := Eviction{Signal: t.Signal, Grace: immediateGrace}",
		new:      "e := Eviction{Signal: t.Signal, Grace: max(m.GraceMax, immediateGrace)}",
		scenario: "memory-storm", seeds: "1-300",
	},
	{
		name:     "a pod over a limit of its own has its own grace period",
		file:     "core/pod/volumes.go",
		old:      "Grace: min(p.GracePeriod(), evictionGrace)}",
		new:      "Grace: p.GracePeriod()}",
		scenario: "evictions", seeds: "1-300",
	},
	{
		name:     "a victim that should have ended by now is not stopped again",
		file:     "core/pod/stop.go",
		old:      "hastened > 0 {\n\t\t// A request",
		new:      "hastened < 0 {\n\t\t// A request",
		scenario: "disk-full", plan: "victim-not-stopped-again.yaml",
	},
	{
		name:     "an observation counts although a later one has failed",
		file:     "core/eviction/observe.go",
		old:      "!o.AsOf.Before(m.Sources[m.sourceOf(t.Signal)].FailedAt)",
		new:      "!o.AsOf.IsZero()",
		scenario: "memory-storm", seeds: "1-300",
	},
	{
		// The answer of a file system that was asked for before comes after the images are removed.
		name: "an observation of before a reclaim counts",
		file: "core/eviction/eviction.go",
		old:  "Reclaim{}\n\tm.observeAgain(now)\n",
		new:  "Reclaim{}\n\tfor i := range m.Sources {\n\t\tm.Sources[i].NextAt = now\n\t}\n",
		also: &edit{"core/eviction/observe.go",
			"timer.Later(m.LayersHeldUntil, m.ListedAt.Add(layersHeldMax))",
			"timer.Later(time.Time{}, time.Time{})"},
		scenario: "disk-full", seeds: "1-300",
	},
	{
		name: "writable layers are not asked for",
		file: "core/eviction/eviction.go",
		old:  "	if !a.Answered {\n",
		new:  "	if !a.Answered && !m.Thresholds[a.Threshold].Signal.isForDisk() {\n",
		also: &edit{"core/eviction/observe.go",
			"	case m.UsageFailures < usageFailuresMax:",
			"	case m.UsageFailures < usageFailuresMax || a.Measured != nil:"},
		scenario: "disk-full", seeds: "1-300",
	},
	{
		name:     "an eviction keeps the images that pods have used",
		file:     "core/imagegc/round.go",
		old:      ">= c.Settings.AgeMin {\n\t\t\tfree",
		new:      ">= c.Settings.AgeMin && (!r.All || c.Records[id].LastUsed.IsZero()) {\n\t\t\tfree",
		scenario: "disk-full", seeds: "1-300",
	},
	{
		name:     "the Node has another message while the machine shuts down",
		file:     "core/nodeobject.go",
		old:      "env.Shutdown = shutdown.NodeProblem",
		new:      "env.Shutdown = shutdown.RejectionMessage",
		scenario: "shutdown", seeds: "1-300",
	},
	{
		name:     "a pod that tolerates pressure of memory is rejected",
		file:     "core/nodepressure.go",
		old:      " || toleratesMemoryPressure(spec)",
		new:      "",
		scenario: "memory-storm", seeds: "1-300",
	},
	{
		// The observations of other signals end it.
		name:     "a condition ends while its signal cannot be observed",
		file:     "core/eviction/observe.go",
		old:      "	m.noteUnmeasured(source, ev.Time)\n",
		new:      "",
		scenario: "memory-storm", seeds: "112-131",
	},
	{
		name:     "the memory of pods is unknown without pods",
		file:     "core/eviction/observe.go",
		old:      "limit > 0 && body.PodsMeasured {",
		new:      "limit > 0 && body.PodsWorkingSetBytes > 0 {",
		scenario: "memory-storm", plan: "allocatable-without-pods.yaml",
	},
	{
		name:     "a BestEffort pod is admitted while memory is short",
		file:     "core/nodepressure.go",
		old:      "criconfig.QOS(spec) != v1.PodQOSBestEffort ||",
		new:      "criconfig.QOS(spec) != \"\" ||",
		scenario: "memory-storm", seeds: "9-28",
	},
	{
		name:     "images are removed that pods are about to use",
		file:     "core/imagegc/imagegc.go",
		old:      "{r.InUse, pods} {",
		new:      "{r.InUse, pods[:0]} {",
		scenario: "image-churn", seeds: "1-100",
	},
	{
		name:     "no event says that no image can be removed",
		file:     "core/imagegc/round.go",
		old:      "		env.Warn(reasonFreeFailed, message)\n",
		new:      "",
		scenario: "image-churn", seeds: "1-100",
	},
	{
		name:     "no event says that the collection of images fails",
		file:     "core/imagegc/round.go",
		old:      "c.Failures++; c.Failures > 1 &&",
		new:      "c.Failures++; c.Failures > 100 &&",
		scenario: "image-churn", seeds: "1-100",
	},
	{
		name:     "a shutdown waits although all pods are known",
		file:     "core/shutdown/shutdown.go",
		old:      "if (s.Incomplete || len(s.Remaining) > 0) && now",
		new:      "if now",
		scenario: "shutdown", seeds: "1-100",
	},
	{
		name:     "the lock that delays shutdowns is released again",
		file:     "core/shutdown/shutdown.go",
		old:      "			m.Now.Released = true\n",
		new:      "			m.Now.Released = ev.Time.Before(m.Now.StartedAt)\n",
		scenario: "shutdown", seeds: "1-100",
	},
	{
		name:     "the lock that delays shutdowns is asked for again and again",
		file:     "core/shutdown/shutdown.go",
		old:      "	l.Held = l.PermittedAt.Before(r.IssuedAt)\n",
		new:      "	l.Held = !l.PermittedAt.Before(r.IssuedAt)\n",
		scenario: "shutdown", seeds: "1-100",
	},
	{
		name:     "pods are admitted during a shutdown",
		file:     "core/nodeshutdown.go",
		old:      "	case m.UnderWay():\n		return failedRejection",
		new:      "	case m.UnderWay() && a.state.Now.IsZero():\n		return failedRejection",
		scenario: "shutdown", seeds: "71-90",
	},
	{
		name:     "static pods that a shutdown has ended stay ended after the boot",
		file:     "core/pod/desired.go",
		old:      "return p.Termination.Reason == shutdown.Reason && p.IsStatic()",
		new:      "return p.Termination.Reason == shutdown.Reason && !p.IsStatic()",
		scenario: "power-loss", seeds: "1-100",
	},
	{
		name:     "an observation of before the end of a victim leads to the next one",
		file:     "core/eviction/eviction.go",
		old:      "	m.NotBefore = now\n",
		new:      "",
		scenario: "eviction-races", seeds: "40-59",
	},
	{
		name:     "a victim of a hard threshold has all its time to end",
		file:     "core/eviction/eviction.go",
		old:      "Grace: immediateGrace}\n	if t.Grace > 0 {",
		new:      "Grace: time.Hour}\n	if t.Grace > 0 {",
		scenario: "eviction-races", seeds: "1-300",
	},
	{
		name:     "a hard threshold waits while the victim of a soft one ends",
		file:     "core/eviction/observe.go",
		old:      "		m.hastenVictim(source, env)\n",
		new:      "",
		scenario: "eviction-races", seeds: "34-53",
	},
	{
		name:     "no event says that the collection of containers fails",
		file:     "core/containergc/containergc.go",
		old:      "		env.Warn(reasonFailed, message)\n",
		new:      "",
		scenario: "image-churn", seeds: "1-300",
	},
	{
		name:     "the state file is not asked whether pods wait for a logind that does not answer",
		file:     "core/shutdown/shutdown.go",
		old:      "		if l.Delay.Failures >= answersMax && !m.mayGoOn(effects) {",
		new:      "		if l.Delay.Failures >= answersMax {",
		scenario: "shutdown-under-pressure", plan: "shutdown-known-by-file.yaml",
	},
	{
		name:     "images are detected only when the pods are known",
		file:     "core/imagegc/imagegc.go",
		old:      "		case !env.Ready && now.Before(c.DetectAt):\n",
		new:      "		case !env.Ready:\n			return now.Add(retryDelay)\n		case false:\n",
		scenario: "disk-full", plan: "images-detected-late.yaml",
	},
	{
		name:     "an image that was used once stays",
		file:     "core/imagegc/imagegc.go",
		old:      "		if !used[id] && !r.Pinned && !tried[id] {",
		new:      "		if !used[id] && !r.Pinned && !tried[id] && r.LastUsed.IsZero() {",
		scenario: "image-churn", seeds: "1-300",
	},
	{
		name:     "an end that the API server has is forgotten after the boot",
		file:     "core/pod/desired.go",
		old:      "	if phase := p.Spec.Status.Phase; IsTerminal(phase) {",
		new:      "	if phase := p.Spec.Status.Phase; IsTerminal(phase) && p.UID == \"\" {",
		scenario: "power-loss", plan: "refused-in-shutdown-ran.yaml",
	},
	{
		name:     "the images that containers mount are in use by the specs of their pods alone",
		file:     "core/imagegc.go",
		old:      "			refs = append(refs, p.Containers[i].MountedImages...)",
		new:      "			refs = append(refs, p.Containers[i].MountedImages[:0]...)",
		scenario: "image-churn", plan: "orphan-mounts-image.yaml",
	},
	{
		name:     "a pod uses an image that another one's secret has pulled",
		file:     "core/pullrecord/pullrecord.go",
		old:      "			case sameSecret:\n				granted = Recorded",
		new:      "			default:\n				granted = Recorded",
		scenario: "pull-secrets", seeds: "1-300",
	},
	{
		name:     "a pod without secrets uses any image that is on the node",
		file:     "core/pullrecord/pullrecord.go",
		old:      "	if good.NodePodsAccessible {\n		return Recorded",
		new:      "	if good.NodePodsAccessible || len(sources) == 0 {\n		return Recorded",
		scenario: "pull-secrets", seeds: "1-300",
	},
	{
		name:     "an image of an interrupted pull counts as one that was there before",
		file:     "core/pullrecord/pullrecord.go",
		old:      " || s.mayBePulled(ref, id, names) ||",
		new:      " ||",
		scenario: "pull-secrets", seeds: "59-300",
	},
	{
		name:     "a pull begins before its intent is on the disk",
		file:     "core/pullrecord/pullrecord.go",
		old:      "	return !i.IsGone && i.isSaved()",
		new:      "	return !i.IsGone && (i.isSaved() || i.Op == 0)",
		scenario: "pull-secrets", plan: "pull-without-intent.yaml",
	},
	{
		name: "intents are written for all images that wait for a pull",
		file: "core/image/image.go",
		old:  "	if at >= q.prepared(s.Limits) {",
		new:  "	if at < 0 {",
		also: &edit{"core/image/image.go", "	s.endFar(max(at, intentsKept))\n",
			"	s.endFar(len(q.Waiting))\n"},
		scenario: "hostile", plan: "many-intents.yaml",
	},
	{
		name:     "an image that comes after the timeout of its pull counts as one that was there before",
		file:     "core/image/image.go",
		old:      "	if i.mayCome(ev) {",
		new:      "	if i.mayCome(ev) && i.Ref == \"\" {",
		scenario: "pull-secrets", plan: "pull-after-timeout.yaml",
	},
	{
		name:     "an intent is removed before the record is on the disk",
		file:     "core/pullrecord/lines.go",
		old:      "r != nil && !r.isSaved() {\n			r.Awaiting",
		new:      "r != nil && r.Saved > r.Changes {\n			r.Awaiting",
		scenario: "pull-secrets", plan: "pull-without-record.yaml",
	},
	{
		name:     "an image that a service account's token has pulled is for all pods",
		file:     "core/image/account.go",
		old:      "i.Round.List[at].AccountUID == \"\" {",
		new:      "i.Round.List[at].AccountUID != \"\" {",
		scenario: "pull-accounts", seeds: "1-300",
	},
	{
		name:     "a response of a plugin counts for every service account",
		file:     "core/credentials/credentials.go",
		old:      "	if ask.Account != \"\" {",
		new:      "	if ask.Account == p.Name {",
		scenario: "pull-accounts", seeds: "1-300",
	},
	{
		name:     "only rounds see that an image is used",
		file:     "core/pod/images.go",
		old:      "	env.NoteImageUse(images.Container.ID)",
		new:      "	env.NoteImageUse(\"\")",
		scenario: "image-churn", plan: "image-used-between-rounds.yaml",
	},
	{
		name:     "a pressure condition lasts for two transition periods",
		file:     "core/eviction/observe.go",
		old:      "met && now.Sub(at) < m.Transition {",
		new:      "met && now.Sub(at) < 2*m.Transition {",
		scenario: "memory-storm", seeds: "11-30",
	},
	{
		name:     "the minimum reclaim does not count",
		file:     "core/eviction/threshold.go",
		old:      "	if t.MetForGrace {\n",
		new:      "	if !t.MetForGrace {\n",
		scenario: "memory-storm", seeds: "1-300",
	},
	{
		name:     "a victim of a soft threshold has no time to end",
		file:     "core/eviction/eviction.go",
		old:      "		e.Grace = max(min(m.GraceMax, c.Grace), immediateGrace)\n",
		new:      "		e.Grace = immediateGrace\n",
		scenario: "memory-storm", seeds: "1-300",
	},
	{
		name:     "the node is not observed while the victim of a soft threshold ends",
		file:     "core/eviction/eviction.go",
		old:      "	case !v.Soft:\n",
		new:      "	case v.UID != \"\":\n",
		scenario: "eviction-races", seeds: "1-300",
	},
	{
		name:     "a local volume is mounted from the directory above",
		file:     "core/volume/backing.go",
		old:      "bind := &world.BindMount{Source: b.Source, Path:",
		new:      "bind := &world.BindMount{Source: path.Dir(b.Source), Path:",
		scenario: "claims", seeds: "1-20",
	},
	{
		name:     "a volume counts as set up although nothing is mounted",
		file:     "core/volume/backing.go",
		old:      "		return v.localSteps(b, pod)",
		new:      "		return nil, nil",
		scenario: "claims", seeds: "1-20",
	},
	{
		name:     "the claim of an earlier pod of the name is used",
		file:     "core/claim/claim.go",
		old:      "!metav1.IsControlledBy(claim, pod)) {",
		new:      "metav1.IsControlledBy(claim, pod) && claim.UID == \"\") {",
		scenario: "claims", seeds: "12-31",
	},
	{
		name:     "containers can write to a claim that the pod has read-only",
		file:     "core/volume/backing.go",
		old:      "return Place{Path: b.path(dir), Name: b.Name, ReadOnly: b.ReadOnly,",
		new:      "return Place{Path: b.path(dir), Name: b.Name,",
		scenario: "claims", seeds: "1-20",
	},
	{
		name:     "devices stay mounted after their last pod",
		file:     "core/devicemounts.go",
		old:      `case r.Call == "Unmount" && ev.Err == nil && devices.NoteUnmount():`,
		new:      `case r.Call == "" && devices.NoteUnmount():`,
		scenario: "claims", seeds: "1-100",
	},
	{
		name:     "the runs of a pod are removed before its end is recorded",
		file:     "core/nodepressure.go",
		old:      "p.HasUnknownExits() ||\n\t\t\tp.UnreportedTerminalPhase() != \"\" {",
		new:      "p.HasUnknownExits() {",
		scenario: "disk-full", plan: "ended-ran-again.yaml",
	},
	{
		name:     "a reported exit code is taken back when the run is lost",
		file:     "core/statuswriter/merge.go",
		old:      "		keepEnds(merged.ContainerStatuses, stored.ContainerStatuses)\n",
		new:      "",
		scenario: "disk-full", plan: "exit-code-taken-back.yaml",
	},
	{
		name:     "a victim of an earlier agent is not waited for once it has ended",
		file:     "core/nodepressure.go",
		old:      "	holdsDisk := p.Stage == pod.Terminated && !p.HasFreedDisk()\n",
		new:      "	holdsDisk := false\n",
		scenario: "disk-full", plan: "victim-adopted-late.yaml",
	},
	{
		name:     "pods are evicted while a periodic round removes an image",
		file:     "core/imagegc/imagegc.go",
		old:      "c.Round != nil && (c.Round.All || c.isUnusedWanted())\n",
		new:      "c.Round != nil && c.Round.All\n",
		scenario: "disk-full", plan: "slow-periodic-removal.yaml",
	},
	{
		name:     "the volume of a claim that is bound later is not read",
		file:     "core/pod/references.go",
		old:      "case slices.Contains(p.Watches.Volumes, target), p.watch(target, env):",
		new:      "case slices.Contains(p.Watches.Volumes, target):",
		scenario: "claims", seeds: "1-20",
	},
	{
		name:     "the usage of a CSI volume is measured once",
		file:     "core/volumestats/volumestats.go",
		old:      "v.Op, v.NextAt, v.Latest = 0, ev.Time.Add(s.Period), nil",
		new:      "v.Op, v.NextAt, v.Latest = 0, ev.Time.Add(100*s.Period), nil",
		scenario: "csi-churn", seeds: "11-30",
	},
	{
		name:     "a mounted volume has the SELinux label that a pod needs",
		file:     "core/csi/selinux.go",
		old:      "u.SpecName, v.name()); err != nil {",
		new:      "u.SpecName, v.name()); err != nil && !isMounted {",
		scenario: "selinux-mount", seeds: "1-50",
	},
	{
		name:     "a volume with another SELinux label is never unstaged",
		file:     "core/csi/selinux.go",
		old:      "return other && !same",
		new:      "return other && !same && v.Staging.Label == \"\"",
		scenario: "selinux-mount", seeds: "1-50",
	},
	{
		name:     "the SELinux label of a volume is forgotten when the agent restarts",
		file:     "core/csi/search.go",
		old:      "if !selinux.IsLabel(data.Label) {",
		new:      "if selinux.IsLabel(data.Label) {",
		scenario: "selinux-mount", seeds: "1-50",
	},
	{
		name:     "a pod that wants its files relabeled gets its volume with a label",
		file:     "core/selinux/selinux.go",
		old:      "*s.SELinuxChangePolicy == v1.SELinuxChangePolicyRecursive {",
		new:      "*s.SELinuxChangePolicy == v1.SELinuxChangePolicyMountOption {",
		scenario: "selinux-mount", seeds: "1-50",
	},
	{
		name:     "files without labels of their own are relabeled, and others are not",
		file:     "core/csi/publish.go",
		old:      "p.Relabel = true, hasLabels(listed, n.publishedPath(p))",
		new:      "p.Relabel = true, !hasLabels(listed, n.publishedPath(p))",
		scenario: "selinux-mount", seeds: "1-50",
	},
	{
		name:     "a mounted disk has the SELinux label that a pod needs",
		file:     "core/scsi/selinux.go",
		old:      "return err == nil && label == d.Label",
		new:      "return err == nil || label == d.Label",
		scenario: "selinux-disks", seeds: "1-30",
	},
	{
		name:     "a disk with another SELinux label is never unmounted",
		file:     "core/scsi/selinux.go",
		old:      "return other && !same",
		new:      "return other && !same && d.Label == \"\"",
		scenario: "selinux-disks", seeds: "1-30",
	},
	{
		name:     "the SELinux label of a disk is forgotten when the agent restarts",
		file:     "core/scsi/selinux.go",
		old:      "Done, d.Source.IsFC\n\t\t\td.Label = selinux.Canonical(m.SELinuxContext)",
		new:      "Done, d.Source.IsFC\n\t\t\td.Label = selinux.Canonical(\"\")",
		scenario: "selinux-disks", seeds: "1-30",
	},
	{
		name:     "a disk that is mounted with an SELinux label is relabeled",
		file:     "core/volume/backing.go",
		old:      "b.Disk != nil && !b.HasLabel",
		new:      "b.Disk != nil",
		scenario: "selinux-disks", seeds: "1-20",
	},
	{
		name:     "a device that is read-only can be written to",
		file:     "core/criconfig/mounts.go",
		old:      `permissions = "r"`,
		new:      `permissions = "mrw"`,
		scenario: "block", seeds: "1-20",
	},
	{
		name:     "a device stays bound after its pod has ended",
		file:     "core/csi/block.go",
		old:      "case !p.Removal.Unbound:",
		new:      "case !p.Removal.Unbound && p.UID == \"\":",
		scenario: "block", seeds: "1-20",
	},
	{
		name:     "a claim has its new size before its volume was expanded",
		file:     "core/csi/expand.go",
		old:      "case e.Expanded && e.Bytes >= size.Value():",
		new:      "case status != v1.PersistentVolumeClaimNodeResizePending:",
		scenario: "expand", seeds: "1-20",
	},
	{
		name:     "an expansion in progress is not finished",
		file:     "core/csi/expand.go",
		old:      "	case status == v1.PersistentVolumeClaimNodeResizePending,\n",
		new:      "	case status == v1.PersistentVolumeClaimNodeResizePending, false &&\n",
		scenario: "expand", seeds: "11-30",
	},
	{
		name:     "a late write may take a volume back",
		file:     "core/node/node.go",
		old:      `patchFields{"resourceVersion": n.Object.ResourceVersion}`,
		new:      "patchFields{}",
		scenario: "expand", plan: "late-status-takes-volume.yaml",
	},
	{
		name: "a volume that was let go is still attached",
		file: "core/csi/volume.go",
		old: "v.Attachment.Known = false // it may have been detached meanwhile, if in use by force\n" +
			"\t\tif !v.mustStay() {",
		new:      "if v.Op != 0 {\n\t\t} else if v.Attachment.Known = false; !v.mustStay() {",
		scenario: "block", plan: "detached-during-operation.yaml",
	},
	{ // csi-volumes
		name:     "an inline volume has the handle of a pod of the same name",
		file:     "core/csi/use.go",
		old:      "u.Handle = EphemeralHandle(u.UID, v.Name)",
		new:      "u.Handle = EphemeralHandle(u.PodName, v.Name)",
		scenario: "csi-churn", seeds: "1-20",
	},
	{ // csi-volumes
		name:     "a CSI volume is published at another path in the directory of its pod",
		file:     "core/csi/volume.go",
		old:      "	return n.publicationDir(p) + \"/\" + mountDir",
		new:      "	return n.publicationDir(p) + \"/\" + mountDir + \"-\" + p.UID",
		scenario: "csi-churn", seeds: "1-20",
	},
	{ // csi-volumes
		name:     "an inline volume of an in-tree kind is in the directory of its name in the pod",
		file:     "core/volume/migrate.go",
		old:      "u.SpecName, u.Migrated, u.Inline = csi.EscapeName(pv.Name), true, true",
		new:      "u.SpecName, u.Migrated, u.Inline = v.Name, true, true",
		scenario: "csi-churn", seeds: "1-20",
	},
	{ // progress
		name:     "a persistent volume of an in-tree kind has another handle than for its controllers",
		file:     "core/volume/migrate.go",
		old:      "	return migrated, true, nil",
		new:      "	migrated.Spec.CSI.VolumeHandle = pv.Name\n	return migrated, true, nil",
		scenario: "csi-churn", seeds: "1-20",
	},
	{ // csi-volumes
		name:     "a volume that was found is unpublished although its pod is known",
		file:     "core/csi/release.go",
		old:      "p.Released || env.CleansUp && !env.IsKnownPod(p.UID)",
		new:      "p.Released || n.Search.Found > 0",
		scenario: "csi-churn", seeds: "1-100",
	},
	{ // csi-data
		name: "the agent unmounts a published volume itself",
		file: "core/csi/release.go",
		old: "v.call(subject, &world.UnpublishVolume{Driver: session.driver(v.Driver), " +
			"Handle: v.Handle,\n\t\t\tTargetPath: n.publishedPath(p)}, env)",
		new:      "v.call(subject, &world.Unmount{Path: n.publishedPath(p)}, env)",
		scenario: "csi-churn", seeds: "1-20",
	},
	{ // csi-data
		name: "the agent unmounts a staged volume itself",
		file: "core/csi/release.go",
		old: "v.call(subjectUnstaging, &world.UnstageVolume{Driver: session.driver(v.Driver)," +
			"\n\t\t\tHandle: v.Handle, StagingPath: n.stagingPath(v)}, env)",
		new:      "v.call(subjectUnstaging, &world.Unmount{Path: n.stagingPath(v)}, env)",
		scenario: "csi-churn", seeds: "1-20",
	},
	{ // csi-order
		name: "the next agent stages a volume at another place",
		file: "core/csi/volume.go",
		old:  "sha256.Sum256([]byte(v.Handle)))",
		new: "sha256.Sum256([]byte(v.Handle+" +
			"fmt.Sprint(n.Search.Found > 0 && v.Driver == \"csi-0.test\"))))",
		scenario: "csi-churn", seeds: "1-100",
	},
	{ // csi-order
		name: "a repeated call stages a volume at another place",
		file: "core/csi/volume.go",
		old:  "	return n.stagingDir(v) + \"/\" + globalMount\n",
		new: "	return n.stagingDir(v) + \"/\" + globalMount + " +
			"fmt.Sprint(v.Staging.Attempts.Failures)\n",
		also: &edit{"core/csi/stage.go", "		v.failStaging(ev.Time, ev.Err.Message, env)\n",
			"		v.failStaging(ev.Time, ev.Err.Message, env)\n		s.DirsMade = 0\n"},
		scenario: "csi-churn", seeds: "1-100",
	},
	{
		name:     "a pod waits for ever for a volume that the node has no room for",
		file:     "core/csi/attach.go",
		old:      "			u.NodeFull = true\n",
		new:      "			u.NodeFull = false\n",
		scenario: "csi-limit", seeds: "1-20",
	},
	{
		name:     "a pod ends also if the scheduler knows of no other number of volumes",
		file:     "core/csi/driver.go",
		old:      "return allocatablePeriod(d) > 0",
		new:      "return d != nil",
		scenario: "csi-limit", seeds: "1-20",
	},
	{
		name:     "a pod does not wait for a volume that the node has no room for",
		file:     "core/csi/attach.go",
		old:      "	subject := subjectAttach\n	if !env.Named.IsAttached",
		new:      "	subject := subjectAttach\n	a.Overdue = true\n	if !env.Named.IsAttached",
		also:     &edit{"core/csi/attach.go", "u.Attempts.Failures > 0 {", "u != nil {"},
		scenario: "csi-limit", seeds: "1-20",
	},
	{ // csi-content
		name:     "a volume of many nodes is asked for as that of one",
		file:     "core/csi/request.go",
		old:      "		return world.CSIMultiNodeMultiWriter\n",
		new:      "		return world.CSISingleNodeWriter\n",
		scenario: "block", seeds: "1-20",
	},
	{ // csi-content
		name:     "a driver is not given the type of the file system",
		file:     "core/csi/request.go",
		old:      "c := world.CSICapability{FSType: u.FSType, MountFlags",
		new:      "c := world.CSICapability{MountFlags",
		scenario: "csi-churn", seeds: "1-20",
	},
	{ // csi-content
		name:     "a driver publishes a volume writable that a pod may only read",
		file:     "core/csi/request.go",
		old:      "TargetPath: n.publishedPath(p), ReadOnly: u.ReadOnly,",
		new:      "TargetPath: n.publishedPath(p),",
		scenario: "csi-churn", seeds: "1-20",
	},
	{ // csi-content
		name:     "a driver gets a token that is being renewed",
		file:     "core/token/token.go",
		old:      "	case t.Op != 0:\n		return \"\", time.Time{}, \"\"\n",
		new:      "	case t.Op != 0 && t.Value == \"\":\n		return \"\", time.Time{}, \"\"\n",
		scenario: "ephemeral-claims", seeds: "31-50",
	},
	{ // csi-content
		name:     "a token is renewed whenever a volume is published",
		file:     "core/token/token.go",
		old:      "return t.Issued.Add(min(lifetime/5*4, ageMax))",
		new:      "return t.Issued.Add(min(lifetime/50, ageMax))",
		scenario: "ephemeral-claims", seeds: "1-20",
	},
	{ // csi-content
		name:     "a driver gets tokens as attributes that it wants in secrets",
		file:     "core/csi/request.go",
		old:      "		secrets = mergeMaps(secrets, tokens)\n",
		new:      "		maps.Copy(volumeContext, tokens)\n",
		scenario: "ephemeral-claims", seeds: "1-20",
	},
	{ // csi-content
		name:     "a volume is staged with the Secret of its publication",
		file:     "core/csi/request.go",
		old:      "secretOf(u.StageSecret,",
		new:      "secretOf(u.PublishSecret,",
		scenario: "ephemeral-claims", seeds: "1-20",
	},
	{ // csi-content
		name:     "a driver is told of a pod by the name of the volume",
		file:     "core/csi/request.go",
		old:      "prefix + \"pod.name\": u.PodName,",
		new:      "prefix + \"pod.name\": u.Volume,",
		scenario: "ephemeral-claims", seeds: "1-20",
	},
	{ // csi-republish
		name:     "a volume is published again once an hour",
		file:     "core/csi/publish.go",
		old:      "return p.PublishedAt.Add(env.Objects.StoragePeriod())",
		new:      "return p.PublishedAt.Add(60 * env.Objects.StoragePeriod())",
		scenario: "ephemeral-claims", seeds: "1-20",
	},
	{ // csi-republish
		name:     "a volume is published again four times a minute",
		file:     "core/csi/publish.go",
		old:      "return p.PublishedAt.Add(env.Objects.StoragePeriod())",
		new:      "return p.PublishedAt.Add(env.Objects.StoragePeriod() / 4)",
		scenario: "ephemeral-claims", seeds: "1-20",
	},
	{ // csi-republish
		name:     "a volume that was found is not published again",
		file:     "core/csi/plan.go",
		old:      "		p.PublishedAt = u.Since\n",
		new:      "		p.PublishedAt = u.Since.AddDate(1, 0, 0)\n",
		scenario: "ephemeral-claims", seeds: "1-30",
	},
	{ // csi-republish
		name:     "a volume is not published again after a failure",
		file:     "core/csi/publish.go",
		old:      "			p.PublishedAt = ev.Time // the next attempt follows its back-off\n",
		new:      "			p.PublishedAt = ev.Time.AddDate(1, 0, 0)\n",
		scenario: "ephemeral-claims", seeds: "1-30",
	},
	{ // csi-republish
		name:     "a volume that is published again keeps the groups of its files",
		file:     "core/csi/publish.go",
		old:      "p.State, p.PublishedAt, p.Regroup = Done, ev.Time, p.isReady()",
		new:      "p.State, p.PublishedAt = Done, ev.Time",
		scenario: "ephemeral-claims", seeds: "1-40",
	},
	{ // csi-republish
		name: "the Secret of a volume that is published is not watched",
		file: "core/csi/request.go",
		old:  "			if ref != nil && (!u.Inline",
		new: "			p := v.Publications[u.target()]\n" +
			"			if ref != nil && (p == nil || p.State != Done) && (!u.Ephemeral",
		scenario: "ephemeral-claims", seeds: "1-30",
	},
	{ // ephemeral-claims
		name: "a pod is not told whose claim it waits for",
		file: "core/claim/claim.go",
		old: "fmt.Errorf(\"PVC %s/%s was not created for pod %s/%s (pod is not owner)\",\n" +
			"			claim.Namespace, claim.Name, pod.Namespace, pod.Name)",
		new:      "processing(pod, name, errors.New(\"PVC is not bound\"))",
		scenario: "ephemeral-claims", seeds: "1-20",
	},
	{ // claims
		name:     "a pod gets the claim of an earlier pod of its name",
		file:     "core/claim/claim.go",
		old:      "!metav1.IsControlledBy(claim, pod)) {",
		new:      "metav1.GetControllerOf(claim) == nil) {",
		scenario: "ephemeral-claims", seeds: "1-20",
	},
	{
		name:     "nothing holds a device",
		file:     "core/csi/block.go",
		old:      "	case p.Held:\n",
		new:      "	case p.Held || p.Bound:\n",
		scenario: "block", seeds: "1-20",
	},
	{
		name:     "nothing holds the device of a local volume",
		file:     "core/volume/device.go",
		old:      "return append(steps, bind, &world.HoldDevice{Path: bound},",
		new:      "return append(steps, bind, &world.StatPath{Path: bound},",
		scenario: "block", seeds: "1-20",
	},
	{
		name:     "the directory of a pod goes while a device is bound for the pod",
		file:     "core/pod/volumes.go",
		old:      "if waitsForDriver || waitsForDevice || waitsForDisk {",
		new:      "if waitsForDriver || waitsForDevice && p.UID == \"\" || waitsForDisk {",
		scenario: "block", seeds: "1-20",
	},
	{
		name:     "a device of a local volume stays bound that an earlier agent has bound",
		file:     "core/devicemount/blocks.go",
		old:      "for _, entry := range listed.Entries {\n\t\t\tb.note(entry.Name, s.Dirs[0])",
		new:      "for range listed.Entries {\n\t\t\tb.noteVolume(s.Dirs[0])",
		scenario: "block", seeds: "1-20",
	},
	{
		name:     "a device of a local volume is taken from a pod that needs it",
		file:     "core/volumeop/device.go",
		old:      "return !b.Released && (!cleansUp || isKnownPod(uid))",
		new:      "return !b.Released && !cleansUp",
		scenario: "block", seeds: "1-20",
	},
	{
		// The volumes that an earlier agent has staged wait for that.
		name:     "nothing looks whether all pods were listed",
		file:     "core/csi/plan.go",
		old:      "wake = env.Effects.Now().Add(listedPeriod)",
		new:      "wake = time.Time{}",
		scenario: "block", plan: "staged-before-lists.yaml",
	},
	{
		name:     "a take-over: the hash of a container is not the kubelet's",
		file:     "core/manifest/hash.go",
		old:      "h.addText(`{\"image\":`)",
		new:      "h.addText(`{\"Image\":`)",
		scenario: "take-over", seeds: "1-300",
	},
	{
		name:     "a take-over: the UID of a static pod is not the kubelet's",
		file:     "core/manifest/uid.go",
		old:      "\"host:\"+from.node+\"file:\"",
		new:      "\"host:\"+from.node+\"path:\"",
		scenario: "take-over", seeds: "1-300",
	},
	{
		name:     "a take-over: restart counts of a kubelet are forgotten",
		file:     "core/criconfig/run.go",
		old:      "int32(parseNumber(annotations[AnnotationRestarts], int64(attempt)))",
		new:      "int32(attempt) - int32(attempt)",
		scenario: "take-over", seeds: "1-300",
	},
	{
		name:     "a take-over: no hook is written for a kubelet",
		file:     "core/criconfig/run.go",
		old:      "annotations[AnnotationPreStop] = marshal(r.PreStop)",
		new:      "_ = marshal(r.PreStop)",
		scenario: "take-over", seeds: "1-300",
	},
	{
		name:     "a take-over: a status is written at each start",
		file:     "core/statuswriter/merge.go",
		old:      "\tif stored.StartTime != nil {\n\t\tmerged",
		new:      "\tif stored.StartTime == nil {\n\t\tmerged",
		scenario: "take-over", seeds: "1-300",
	},
	{
		name:     "a take-over: what a kubelet has reported as ready is not known",
		file:     "core/pod/record.go",
		old:      "\t\tp.Reported = reportedHealth(&p.Spec.Status)\n",
		new:      "\t\tp.Reported.forget()\n",
		scenario: "take-over", seeds: "1-300",
	},
	{
		name:     "a take-over: sidecars of a kubelet end with the others",
		file:     "core/pod/stop.go",
		old:      "\t\t\tc.SidecarOrder = p.sidecarOrder(c.Name)\n",
		new:      "\t\t\tc.SidecarOrder = 0\n",
		scenario: "take-over", seeds: "1-300",
	},
	{
		name:     "a take-over: an orphan of a kubelet has no share",
		file:     "core/qos.go",
		old:      "\t\theld := a.heldBy(p)\n",
		new:      "\t\theld := &v1.Pod{}\n",
		scenario: "take-over", seeds: "1-300",
	},
	{
		name:     "a take-over: the data of a volume names another one",
		file:     "core/csi/request.go",
		old:      "\"specVolID\": p.SpecName, \"volumeHandle\"",
		new:      "\"specVolID\": v.Handle, \"volumeHandle\"",
		scenario: "take-over", seeds: "1-100",
	},
	{
		name:     "a take-over: the CSINode loses drivers that have not registered yet",
		file:     "core/csi/csinode.go",
		old:      "return e.Name == name\n",
		new:      "return n.Drivers[e.Name] == nil || e.Name == name\n",
		scenario: "take-over", seeds: "1-100",
	},
	{
		name:     "a take-over: host IDs are given before those of a kubelet's pods are known",
		file:     "core/pods.go",
		old:      "return other != uid && a.state.Pods[other].MayHaveUnknownIDs()",
		new:      "return other == uid && a.state.Pods[other].MayHaveUnknownIDs()",
		scenario: "take-over", seeds: "1-100",
	},
	{
		name:     "a take-over: host IDs are not recorded for a kubelet",
		file:     "core/pod/userns.go",
		old:      "if p.IDs.IsEmpty() || p.IDs == r.IDs {",
		new:      "if !p.IDs.IsEmpty() || p.IDs == r.IDs {",
		scenario: "take-over", seeds: "1-100",
	},
	{
		name:     "a take-over: the host IDs of a pod that has ended stay recorded",
		file:     "core/pod/plan.go",
		old:      "p.removeIDs(env, w)",
		new:      "p.Record.forgetIDs()",
		scenario: "take-over", seeds: "1-100",
	},
	{
		name:     "a take-over: the host IDs in a kubelet's file are given to another pod",
		file:     "core/pod/userns.go",
		old:      "if !r.IsEmpty() && r != p.IDs {",
		new:      "if r.IsEmpty() && r != p.IDs {",
		scenario: "take-over", seeds: "1-100",
	},
	{
		name:     "a take-over: a status without the name of the runtime",
		file:     "core/statuswrites.go",
		old:      "!a.knowsRuntime() && len(p.Containers) > 0",
		new:      "!a.knowsRuntime() && len(p.Containers) < 0",
		scenario: "take-over", seeds: "1-300",
	},
	{
		name:     "a take-over: a mirror is another agent's",
		file:     "core/mirror/mirror.go",
		old:      "object.Annotations[v1.MirrorPodAnnotationKey] == configHash(static) &&",
		new:      "object.Annotations[v1.MirrorPodAnnotationKey]+\"0\" == configHash(static) &&",
		scenario: "take-over", seeds: "1-300",
	},
	{
		name:     "a take-over: a checkpoint has a checksum of its own",
		file:     "core/allocation/store.go",
		old:      "h.Write([]byte(\"(string)\" + text))",
		new:      "h.Write([]byte(\"(text)\" + text))",
		scenario: "take-over", seeds: "1-300",
	},
	{
		name:     "a take-over: what was not inspected is reported as unknown",
		file:     "core/statuswriter/merge.go",
		old:      "\t\ts.ImageID = cmp.Or(s.ImageID, stored[j].ImageID)\n",
		new:      "",
		scenario: "take-over", seeds: "1-300",
	},
	{
		name: "a take-over: a hook that ended with the kubelet has failed",
		file: "core/pod/record.go",
		old:  "c.PostStart.Done, c.PostStart.Skip = record.PostStarted, c.FromOtherAgent\n",
		new: "c.PostStart.Done, c.PostStart.Skip = record.PostStarted, c.FromOtherAgent\n" +
			"if c.FromOtherAgent && hasPostStart(container) && !record.PostStarted &&" +
			" indexOfRecord(p.Reported.Containers, c.ID) < 0 {" +
			" c.PostStart.Skip, c.PostStart.Failure = false, \"it was interrupted\" }\n",
		scenario: "take-over", seeds: "1-100",
	},
	{
		name:     "a take-over: the records of a kubelet's pulls are those of nothing",
		file:     "core/pullrecord/files.go",
		old:      "DirName    = \"image_manager\"",
		new:      "DirName    = \"images\"",
		scenario: "take-over", seeds: "1-100",
	},
	{
		name:     "a take-over: a limit that a kubelet has reported is dropped",
		file:     "core/podstatus/resources.go",
		old:      "stored.Phase == v1.PodRunning && stored.Resources != nil {\n\t\thas",
		new:      "stored.Phase == v1.PodPending && stored.Resources != nil {\n\t\thas",
		scenario: "take-over", seeds: "1-300",
	},
	{
		name:     "a take-over: sub-paths are under the name that a volume has in its pod",
		file:     "core/criconfig/mounts.go",
		old:      "\"/\" + place.Name + \"/\" + container.Name",
		new:      "\"/\" + m.Name + \"/\" + container.Name",
		scenario: "take-over", seeds: "1-60",
	},
	{
		name:     "a take-over: a deleted pod has twenty times its grace period",
		file:     "core/pod/desired.go",
		old:      "grace = seconds(*s)",
		new:      "grace = 20 * seconds(*s)",
		scenario: "take-over", seeds: "1-300",
	},
	{
		name:     "a take-over: what a kubelet has allocated is not read",
		file:     "core/resize.go",
		old:      "if e == nil {\n\t\treturn a.actuatedOf(object)",
		new:      "if e != nil || e == nil {\n\t\treturn nil",
		scenario: "take-over", seeds: "1-300",
	},
	{
		name:     "a take-over: the record has what a kubelet has found since",
		file:     "core/pod/reported_health.go",
		old:      "isNewer := p.Reported.Since.After(written)",
		new:      "isNewer := p.Reported.Since.Before(written)",
		scenario: "take-over", seeds: "1-300",
	},
	{
		name:     "an exit code loses its signal",
		file:     "core/podstatus/container.go",
		old:      "ExitCode: c.ExitCode, Reason",
		new:      "ExitCode: c.ExitCode % 128, Reason",
		scenario: "mix", seeds: "1-300",
	},
	{
		name:     "the start of a run that has ended is its creation",
		file:     "core/podstatus/container.go",
		old:      "		StartedAt:   metav1.NewTime(c.StartedAt),\n",
		new:      "		StartedAt:   metav1.NewTime(c.CreatedAt),\n",
		scenario: "mix", seeds: "1-300",
	},
	{
		name:     "the end of a run is when it was seen",
		file:     "core/podstatus/container.go",
		old:      "metav1.NewTime(c.FinishedAt)",
		new:      "metav1.NewTime(c.ExitSeenAt)",
		scenario: "mix", seeds: "1-300",
	},
	{
		// The API server never has how it ends.
		name:     "a run counts as lost when another client ends its pod",
		file:     "core/statuswriter/merge.go",
		old:      "list[i].ContainerID != \"\"\n		}\n	}\n	return names",
		new:      "list[i].ContainerID == \"none\"\n		}\n	}\n	return names",
		scenario: "mix", seeds: "1-300",
	},
	{
		name:     "the IP of a pod is that of its oldest sandbox",
		file:     "core/pod/ips.go",
		old:      "for i := len(p.Sandboxes) - 1; i >= 0; i-- {\n		if s := &p.Sandboxes[i]; s.Ready &&",
		new:      "for i := range p.Sandboxes {\n		if s := &p.Sandboxes[i]; s.Ready &&",
		scenario: "mix", seeds: "1-300",
	},
	{
		name:     "a pod in the node's network has no IP",
		file:     "core/pod/ips.go",
		old:      "HostNetwork {\n		return node.IPs",
		new:      "HostNetwork {\n		return nil",
		scenario: "mix", seeds: "1-300",
	},
	{
		name:     "the Node keeps the boot that it was registered with",
		file:     "core/node/status.go",
		old:      "BootID: env.Boot.BootID,\n",
		new:      "BootID: current.BootID + env.Boot.BootID[len(current.BootID):],\n",
		scenario: "mix", seeds: "1-300",
	},
	{
		name:     "eviction thresholds are not subtracted from the allocatable",
		file:     "core/node/resources.go",
		old:      "allocatable[name] = subtract(unreserved[name], r.evictionThreshold(name, all))",
		new:      "allocatable[name] = unreserved[name]",
		scenario: "mix", seeds: "1-300",
	},
	{
		name:     "the Node has the images of its start",
		file:     "core/node/images.go",
		old:      "ev.Time.Add(imagesPeriod)",
		new:      "ev.Time.Add(1000 * imagesPeriod)",
		scenario: "mix", seeds: "1-300",
	},
	{
		name:     "a Node is ready whose network is not",
		file:     "core/node/status.go",
		old:      "	problems = append(problems, network...)\n",
		new:      "	problems = append(problems, network[:0]...)\n",
		scenario: "mix", seeds: "90-120",
	},
	{
		name:     "a Node under pressure has the reason of one without",
		file:     "core/node/status.go",
		old:      "\"KubeletHasDiskPressure\", \"kubelet has disk pressure\"",
		new:      "\"KubeletHasNoDiskPressure\", \"kubelet has disk pressure\"",
		scenario: "disk-full", seeds: "1-300",
	},
	{
		// The volume keeps the first certificate.
		name:     "a renewed certificate is not written",
		file:     "core/podcertificate/podcertificate.go",
		old:      "return c.Issued.PrivateKey, c.Issued.Chain, c.Issued.Request, nil",
		new:      "return c.Issued.PrivateKey, c.Issued.Chain, \"issued\", nil",
		scenario: "pod-certificates", seeds: "1-50",
	},
	{
		// The first creation has succeeded, and its answer was lost.
		name:     "a creation of unknown outcome is repeated with another key",
		file:     "core/podcertificate/podcertificate.go",
		old:      "s.Account.forget(r.IssuedAt) // it may be another one, which the server refuses",
		new:      "c.Request = nil",
		scenario: "pod-certificates", seeds: "1-100",
	},
	{
		name:     "a certificate is renewed when it has expired",
		file:     "core/podcertificate/podcertificate.go",
		old:      "env.Effects.Date().Before(c.Issued.RenewAt):",
		new:      "env.Effects.Date().Before(c.Issued.NotAfter):",
		scenario: "pod-certificates", seeds: "1-50",
	},
	{
		name:     "a certificate is renewed once a minute",
		file:     "core/podcertificate/podcertificate.go",
		old:      "env.Effects.Date().Before(c.Issued.RenewAt):",
		new:      "env.Effects.Date().Before(time.Time{}):",
		scenario: "pod-certificates", seeds: "1-50",
	},
	{
		name:     "a denied certificate is requested again",
		file:     "core/podcertificate/podcertificate.go",
		old:      "case c.Op != 0, c.Refusal != nil:",
		new:      "case c.Op != 0:",
		scenario: "pod-certificates", seeds: "1-50",
	},
	{
		name:     "a deleted request is awaited for ever",
		file:     "core/podcertificate/answer.go",
		old:      "!now.Before(c.lostAt(env)) {",
		new:      "false {",
		scenario: "pod-certificates", seeds: "1-200",
	},
	{
		name:     "a private key in an event",
		file:     "core/podcertificate/podcertificate.go",
		old:      "c.fail(record.Call+\": \"+ev.Err.Message, ev.Time,",
		new:      "c.fail(record.Call+\": \"+ev.Err.Message+r.PrivateKey, ev.Time,",
		scenario: "pod-certificates", seeds: "1-100",
	},
	{
		name:     "a key of another type",
		file:     "core/podcertificate/podcertificate.go",
		old:      "&world.MakeKey{Type: projection.KeyType}",
		new:      "&world.MakeKey{Type: \"ED25519\"}",
		scenario: "pod-certificates", seeds: "1-20",
	},
	{
		// Its author would choose the certificate of the pod.
		name:     "another request of the same name is believed",
		file:     "core/podcertificate/answer.go",
		old:      "case !r.isIn(found, projection, env):",
		new:      "case false && !r.isIn(found, projection, env):",
		scenario: "pod-certificates", seeds: "1-100",
	},
	{
		name:     "an expired certificate is reported late",
		file:     "core/podcertificate/answer.go",
		old:      "issued.NotAfter, \"CertificateExpired\"",
		new:      "issued.NotAfter.Add(time.Hour), \"CertificateExpired\"",
		scenario: "certificate-expiry", seeds: "1-20",
	},
	{
		// This is a bug of the simulator, which no change of the core brings about: each oracle would
		// be silent whenever a fault is still to come.
		name:     "a fault excuses what was before it",
		file:     "sim/faults/excuses.go",
		old:      "!i.from.IsZero() && !to.Before(i.from) && !from.After(i.to)",
		new:      "!i.from.IsZero() && !from.After(i.to)",
		scenario: "mix", seeds: "1-20",
	},
	{
		// A change of another request wakes the pod, or nothing does.
		name:     "the answer to a request wakes no pod",
		file:     "core/objects.go",
		old:      "meta.GetName()]; isAwaited {",
		new:      "meta.GetName()]; false && isAwaited {",
		scenario: "pod-certificates", seeds: "1-50",
	},
	{
		// A disk is taken from the node although another mount of it was seen.
		name:     "the file system of a disk is unmounted for the node before the pods let go of it",
		file:     "core/scsi/detach.go",
		old:      `device != "" && m.Device == device && m.Path != at &&`,
		new:      `device != "" && m.Device == device && m.Path == "" &&`,
		scenario: "iscsi", seeds: "1-40",
	},
	{
		name:     "the session of a disk is logged out of although another disk needs it",
		file:     "core/scsi/detach.go",
		old:      "if left[canonical(portal)] || session",
		new:      "if left[\"\"] || session",
		scenario: "iscsi", seeds: "1-40",
	},
	{
		name:     "an agent does not look for the disks of the agent before",
		file:     "core/scsi/search.go",
		old:      "n.Search.Complete = !hasVolumes",
		new:      "n.Search.Complete = true",
		scenario: "iscsi", seeds: "1-40",
	},
	{
		name:     "the file of a disk is written in the file system that is mounted over it",
		file:     "core/scsi/selinux.go",
		old:      "d.MayExist, d.Mounted, d.Taken = true, Done, d.Source.IsFC",
		new:      "d.MayExist = true",
		scenario: "iscsi", seeds: "1-40",
	},
	{
		name:     "a fibre channel disk of the agent before is not known by its directory",
		file:     "core/scsi/search.go",
		old:      "n.Search.Dirs = []string{iscsiDir, fcDir}",
		new:      "n.Search.Dirs = []string{iscsiDir}",
		scenario: "fc", seeds: "1-40",
	},
	{
		name:     "the hosts are not scanned for a fibre channel disk",
		file:     "core/scsi/fc.go",
		old:      "case !isJoined && !isScanned:",
		new:      "case false && !isJoined && !isScanned:",
		scenario: "fc", seeds: "1-20",
	},
	{
		name:     "a block volume is measured as the file system that its file is in",
		file:     "core/volume/backing.go",
		old:      "			return &world.MeasureDevice{Path: b.boundPath(pod)}, nil",
		new:      "			return &world.MeasureFilesystem{Path: b.boundPath(pod)}, nil",
		scenario: "block", seeds: "1-20",
	},
	{
		name:     "the size of a block volume is not measured",
		file:     "core/volume/backing.go",
		old:      "			return &world.MeasureDevice{Path: b.boundPath(pod)}, nil",
		new:      "			return nil, nil",
		scenario: "block", seeds: "1-40",
	},
	{
		name:     "two volumes that name one fibre channel disk in different ways do not share it",
		file:     "core/scsi/detach.go",
		old:      "!o.RemovedOnce && (d.overlaps(o) ||",
		new:      "!o.RemovedOnce && (false && d.overlaps(o) ||",
		scenario: "fc", seeds: "1-40",
	},
	{
		name:     "a fibre channel disk stays mounted while a pod has it by another name",
		file:     "core/scsi/detach.go",
		old:      `m.Path, n.Dir+"/") && !n.isOfOther(d, m.Path)`,
		new:      `m.Path, n.Dir+"/")`,
		scenario: "fc", seeds: "1-40",
	},
	{
		name:     "what a late scan brings back of a fibre channel disk is not removed",
		file:     "core/scsi/detach.go",
		old:      "u.LookedAt.Before(timer.Later(d.LateUntil, d.ScanUntil)):",
		new:      "u.LookedAt.Before(d.LateUntil):",
		scenario: "fc", seeds: "1-60",
	},
	{
		name:     "what a scan for another fibre channel disk brings back is not removed",
		file:     "core/scsi/fc.go",
		old:      "o != d && o.Source.IsFC && !o.RemovedOnce",
		new:      "false && o != d && o.Source.IsFC && !o.RemovedOnce",
		scenario: "fc", seeds: "1-40",
	},
	{
		name:     "a claim that is gone is read again a minute later",
		file:     "core/objectcache/read.go",
		old:      "i+1); w.isUsable() {",
		new:      "i+1); len(r.UnusableTo) == 0 {",
		scenario: "hostile-storage", plan: "claim-read-late.yaml",
	},
	{
		name:     "a scan of an earlier agent is not waited for",
		file:     "core/scsi/search.go",
		old:      "true, true, now.Add(lateMax)",
		new:      "true, true, now.Add(disksWait)",
		scenario: "fc", plan: "scanned-by-an-earlier-agent.yaml",
	},
	{
		name:     "a fibre channel disk of which only the mark is left stays",
		file:     "core/scsi/search.go",
		old:      "d = n.addFound(name, ev.Time)",
		new:      "continue",
		scenario: "fc", plan: "mark-without-its-disk.yaml",
	},
	{
		name:     "a disk that was mounted before is not the one that was found by another name",
		file:     "core/scsi/detach.go",
		old:      "\tn.identifySharers(d, listed.Mounts)\n",
		new:      "",
		scenario: "fc", plan: "left-under-another-name.yaml",
	},
	{
		name:     "an agent does not take over which fibre channel disk a mark is of",
		file:     "core/scsi/search.go",
		old:      "d.Taken, d.Marked = true, true; len(ids) == 1",
		new:      "d.Taken, d.Marked = true, true; false && len(ids) == 1",
		scenario: "fc", seeds: "1-60",
	},
	{
		name:     "a target gets the secret of a volume that has no CHAP",
		file:     "core/scsi/commands.go",
		old:      "if u.SessionCHAP {",
		new:      "if u.SessionCHAP || u.Secret != nil {",
		scenario: "iscsi", seeds: "1-20",
	},
	{
		name:     "the mark of a fibre channel disk has another name",
		file:     "core/scsi/fc.go",
		old:      "return d.IDs[0]\n",
		new:      "return d.IDs[0] + \"0\"\n",
		scenario: "fc", seeds: "1-20",
	},
	{
		name:     "a pod gets a volume of a driver before its files are its group's",
		file:     "core/csi/publish.go",
		old:      "p.GroupSet = p.GroupSet || !mustSetGroup(v, u, session, env)",
		new:      "p.GroupSet = true || !mustSetGroup(v, u, session, env)",
		scenario: "csi-churn", seeds: "1-20",
	},
	{
		name:     "a volume needs no expansion while its driver is missing",
		file:     "core/csi/expand.go",
		old:      "	case session == nil:\n		return false, false, wake\n",
		new:      "	case session == nil:\n		return false, true, wake\n",
		scenario: "expand", plan: "not-expanded-without-driver.yaml",
	},
	{
		name:     "containers of before a reboot are a sign that a volume is ready",
		file:     "core/pod/csi.go",
		old:      "return c.SandboxID == s.ID\n",
		new:      "return c.SandboxID != \"\"\n",
		scenario: "csi-reboot", plan: "killed-before-group-after-reboot.yaml",
	},
	{
		name:     "the device of a disk is taken from a pod that ends before its containers",
		file:     "core/volumeop/device.go",
		old:      "return !b.Released && (!cleansUp || isKnownPod(uid))",
		new:      "return !b.Released && false",
		scenario: "iscsi", seeds: "1-40",
	},
}

// Every edit applies to the source as it is, and the changed source compiles. This check is quick:
// nothing is built. Only the changed files are type-checked in full, against the export data of the
// imported packages.
func TestMutantsApply(t *testing.T) {
	sources, err := mutation.LoadSources("..", "./core/...", "./world/...", "./sim/faults")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range mutants {
		if err := sources.Check(editsOf(&m)); err != nil {
			t.Errorf("%s: %v", m.name, err)
		}
	}
}

func TestMutantsAreFound(t *testing.T) {
	if testing.Short() {
		t.Skip("skipped: -short builds no mutants")
	}
	shared, binaries := buildMutants(t)
	none := mutantBinary{path: shared}
	if first := firstFailure(t, none, "manifest-churn", "1-5"); first != nil {
		t.Fatalf("fails without a mutant: %s: %s", first.Oracle, first.Message)
	}
	for i, m := range mutants {
		if !isSampled(t, &m) {
			continue
		}
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			bin := binaries[i]
			if bin.path == "" {
				bin.path = buildAlone(t, editsOf(&m))
			}
			if m.plan != "" {
				checkPlanFails(t, bin, m.scenario, m.plan)
				return
			}
			first := firstFailure(t, bin, m.scenario, m.seeds)
			if first == nil { // the seeds may have other plans now: one of the first 500 must fail
				t.Logf("seeds %s of %s do not fail: trying seeds 1-500", m.seeds, m.scenario)
				first = firstFailure(t, bin, m.scenario, "1-500")
			}
			if first == nil {
				t.Fatalf("seeds 1-500 of %s do not fail with this bug", m.scenario)
			}
			t.Logf("found by seed %d: %s: %s", first.Seed, first.Oracle, first.Message)
			if want := oracleOf(m.name); want != "" && first.Oracle != want {
				t.Errorf("the table of known bugs names the oracle %s", want)
			}
			words := strings.Fields(first.Replay)
			if len(words) < 2 || words[0] != "seedsim" {
				t.Fatalf("%q is not a seedsim command", first.Replay)
			}
			again, err := bin.command(words[1:]...).CombinedOutput()
			if err == nil || !strings.Contains(string(again), first.Oracle) {
				t.Errorf("%s does not reproduce the failure", first.Replay)
			}
			if oracleOf(m.name) != "" && i%shrinkEvery == 0 {
				checkShrinks(t, bin, m.scenario, first)
			}
		})
	}
}

// sampledOf is of how many mutants one is run if MUTANTS is sample, as in make test: all of them
// take forty minutes on two cores.
const sampledOf = 10

// isSampled reports whether a mutant is run. The sample follows from the names of mutants and the
// source files that they change: a commit has one sample, and each change of a file another one.
func isSampled(t *testing.T, m *mutant) bool {
	switch which := os.Getenv("MUTANTS"); which {
	case "", "all":
		return true
	case "sample":
	default:
		t.Fatalf("MUTANTS=%s: want all or sample", which)
	}
	source, err := os.ReadFile(filepath.Join("..", m.file))
	if err != nil {
		t.Fatal(err)
	}
	h := fnv.New32a()
	h.Write([]byte(m.name))
	h.Write(source)
	return h.Sum32()%sampledOf == 0
}

// failure is a failing seed in the output of seedsim.
type failure struct {
	Seed            uint64
	Oracle, Message string
	Replay          string
}

// firstFailure returns the first failing seed; nil if none fails.
func firstFailure(t *testing.T, bin mutantBinary, scenario, seeds string) *failure {
	out, err := bin.command("run", scenario, "--seeds", seeds, "--json", "--fail-fast").Output()
	if err == nil {
		return nil
	}
	var report struct{ Failures []failure }
	if err := json.Unmarshal(out, &report); err != nil || len(report.Failures) == 0 {
		t.Fatalf("%v: %s", err, out)
	}
	return &report.Failures[0]
}

// Of the known bugs, the failures of one in shrinkEvery are shrunk: it takes up to half a minute.
const shrinkEvery = 5

// checkShrinks checks that what is left of a failing plan is short enough to be read.
func checkShrinks(t *testing.T, bin mutantBinary, scenario string, f *failure) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "plan.yaml")
	out, err := bin.command("shrink", scenario, "--seed", fmt.Sprint(f.Seed), "-o", file).
		CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	p, err := plan.Parse(file, data)
	if err != nil {
		t.Fatal(err)
	}
	if n := len(p.Spec.Happenings); n >= 10 {
		t.Errorf("the failure of seed %d is shrunk to %d happenings:\n%s", f.Seed, n, data)
	}
}

// checkPlanFails checks that a kept plan fails.
func checkPlanFails(t *testing.T, bin mutantBinary, scenario, name string) {
	out, err := bin.command("replay", scenario, "--plan", "../scenarios/bugs/"+name).Output()
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	last := lines[len(lines)-1]
	if err == nil || !strings.HasPrefix(last, "FAIL at ") {
		t.Fatalf("%s does not fail with this bug: %v: %s", name, err, last)
	}
	t.Logf("found by %s: %s", name, last)
}

// mutantBinary is a binary of seedsim with mutants, one of which is selected.
type mutantBinary struct {
	path   string
	number string
}

func (b mutantBinary) command(arguments ...string) *exec.Cmd {
	command := exec.Command(b.path, arguments...)
	command.Env = append(os.Environ(), mutation.SelectVariable+"="+b.number)
	return command
}

// buildMutants builds one binary for the mutants that can be selected. It returns its path, and the
// binary of each mutant in the order of the list; a mutant that needs one of its own has no path.
func buildMutants(t *testing.T) (shared string, binaries []mutantBinary) {
	changed, selectable := mutation.NewOverlay(".."), map[int]bool{}
	for i := range mutants {
		err := changed.Add(i+1, editsOf(&mutants[i]))
		if err != nil && !errors.Is(err, mutation.ErrNeedsOwnBinary) {
			t.Fatalf("%s: %v", mutants[i].name, err)
		}
		selectable[i] = err == nil
	}
	shared, err := changed.Build(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for i := range mutants {
		b := mutantBinary{number: fmt.Sprint(i + 1)}
		if selectable[i] {
			b.path = shared
		}
		binaries = append(binaries, b)
	}
	return shared, binaries
}

// buildAlone builds a binary of one mutant.
func buildAlone(t *testing.T, edits []mutation.Edit) string {
	changed := mutation.NewOverlay("..")
	if err := changed.Replace(edits); err != nil {
		t.Fatal(err)
	}
	path, err := changed.Build(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return path
}

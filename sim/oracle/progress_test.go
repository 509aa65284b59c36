package oracle

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"seedlet.dev/sim/truth"
)

// settleCases are scripts that end settled, or with one problem.
var settleCases = []struct {
	name, problem string // empty: settled
	tell          func(s *script)
}{
	{"running and served", "", func(s *script) {
		s.startPod(always)
		s.wait(6)
		s.serve("u1", v1.PodRunning, "app#0 ready")
	}},
	{"an ephemeral container beside an init container", "", func(s *script) {
		p := spec("u1", always, "init", "app")
		p.Spec.EphemeralContainers = []v1.EphemeralContainer{{
			EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: "debug", Image: "image:1"}}}
		s.setDesired(p)
		sandbox := s.sandbox("u1", 0)
		s.start(sandbox, "init", 0)
		s.start(sandbox, "debug", 0)
		s.wait(6)
		p = s.served("u1", v1.PodPending, "init#0 running", "debug#0 running")
		status := &p.Status
		status.ContainerStatuses, status.EphemeralContainerStatuses =
			[]v1.ContainerStatus{{Name: "app"}}, status.ContainerStatuses
		s.CheckServed(s.now, []*v1.Pod{p})
	}},
	{"no recent status served", "no right status of it was served yet", func(s *script) {
		s.startPod(always)
		s.wait(4)
		s.serve("u1", v1.PodRunning, "app#0 ready")
	}},
	{"no status served", "it is not served", func(s *script) { s.startPod(always) }},
	{"no sandbox", "it has no sandbox that is ready", func(s *script) {
		s.setDesired(spec("u1", always, "app"))
	}},
	{"not started", "container app #0 is not started", func(s *script) {
		s.setDesired(spec("u1", always, "app"))
		s.create(s.sandbox("u1", 0), "app", 0)
	}},
	{"a sub-path of a directory that nobody creates", "", func(s *script) {
		s.waitForHostDirectory(false, v1.HostPathUnset)
	}},
	{"a sub-path of a directory that the agent is to create", "app was never created",
		func(s *script) { s.waitForHostDirectory(false, v1.HostPathDirectoryOrCreate) }},
	{"a sub-path of a directory that exists", "app was never created", func(s *script) {
		s.waitForHostDirectory(true, v1.HostPathUnset)
	}},
	{"waiting for its restart", "", func(s *script) {
		first := s.startPod(always)
		first.exit(1, truth.CauseSelf)
		s.start("u1-s0", "app", 1).exit(1, truth.CauseSelf)
		first.change(truth.ContainerRemoved, "")
		s.wait(24)
		s.serve("u1", v1.PodRunning, "app#1 waiting")
	}},
	{"a dead run stays", "container app has 2 exited runs, of which 1 stays", func(s *script) {
		s.startPod(always).exit(1, truth.CauseSelf)
		s.start("u1-s0", "app", 1).exit(1, truth.CauseSelf)
		s.wait(6)
		s.serve("u1", v1.PodRunning, "app#1 waiting")
	}},
	{"not restarted", "container app #1 exited 26s ago, has to wait 10s", func(s *script) {
		s.startPod(always).exit(1, truth.CauseSelf)
		s.start("u1-s0", "app", 1).exit(1, truth.CauseSelf)
		s.wait(26)
		s.serve("u1", v1.PodRunning, "app#1 waiting")
	}},
	{"completed", "", func(s *script) {
		s.startPod(onFailure).exit(0, truth.CauseSelf)
		s.changeSandbox(truth.SandboxStopped, "u1-s0")
		s.wait(6)
		s.serve("u1", v1.PodSucceeded, "app#0 terminated")
	}},
	{"completed, the sandbox is ready", "its sandbox is still ready", func(s *script) {
		s.startPod(never).exit(1, truth.CauseSelf)
	}},
	{"completed, and a container created late", "", func(s *script) {
		first := s.startPod(onFailure)
		first.exit(1, truth.CauseSelf)
		s.changeSandbox(truth.SandboxStopped, "u1-s0")
		s.start(s.sandbox("u1", 1), "app", 1).exit(0, truth.CauseSelf)
		first.change(truth.ContainerRemoved, "")
		s.create("u1-s0", "app", 2)
		s.changeSandbox(truth.SandboxStopped, "u1-s1")
		s.wait(6)
		s.serve("u1", v1.PodSucceeded, "app#1 terminated")
	}},
	{"of an old spec", "container app #0 is not of the newest spec", func(s *script) {
		s.startPod(always)
		s.setDesired(spec("u1", always, "app"))
		s.pods["u1"].Spec.Containers[0].Image = "image:2"
	}},
	{"an init container was killed", "init container init has not run", func(s *script) {
		s.setDesired(spec("u1", always, "init", "app"))
		s.start(s.sandbox("u1", 0), "init", 0).exit(0, truth.CauseSelf)
		s.changeSandbox(truth.SandboxStopped, "u1-s0")
		s.sandbox("u1", 1)
	}},
	{"initialized", "", func(s *script) {
		s.setDesired(spec("u1", always, "init", "app"))
		s.start(s.sandbox("u1", 0), "init", 0).exit(0, truth.CauseSelf)
		s.start("u1-s0", "app", 0)
		s.wait(6)
		s.serve("u1", v1.PodRunning, "init#0 completed", "app#0 ready")
	}},
	{"one pod of a full name is enough", "", func(s *script) {
		s.setDesired(spec("u2", always, "app"))
		s.startPod(always)
		s.wait(6)
		s.serve("u1", v1.PodRunning, "app#0 ready")
	}},
	{"served in the wrong phase", "it is served as Pending, but is Running", func(s *script) {
		s.startPod(always)
		s.wait(6)
		s.serve("u1", v1.PodPending, "app#0 ready")
	}},
	{"served with an old ID", "container app is served with id", func(s *script) {
		s.startPod(always).exit(1, truth.CauseSelf)
		s.start("u1-s0", "app", 1)
		s.wait(6)
		s.serve("u1", v1.PodRunning, "app#0 waiting")
	}},
	{"served as terminating", "it is served as terminating", func(s *script) {
		s.startPod(always)
		s.wait(6)
		p := s.served("u1", v1.PodRunning, "app#0 ready")
		p.DeletionTimestamp = &metav1.Time{Time: s.now}
		s.CheckServed(s.now, []*v1.Pod{p})
	}},
	{"removed without a trace", "", func(s *script) {
		s.changePath(truth.PathCreated, podsDir+"/u1", "")
		s.changePath(truth.PathCreated, logsDir+"/ns_web_u1/app", "")
		r := s.startPod(always)
		s.PodNoLongerDesired(s.now, "u1")
		r.exit(0, truth.CauseStop)
		r.change(truth.ContainerRemoved, "")
		s.changeSandbox(truth.SandboxRemoved, "u1-s0")
		s.changePath(truth.PathRemoved, podsDir+"/u1", "")
		s.changePath(truth.PathRemoved, logsDir+"/ns_web_u1", "")
	}},
	{"its directory is left", "not desired, but " + podsDir + "/u1 is left", func(s *script) {
		s.changePath(truth.PathWritten, podsDir+"/u1/etc-hosts", "")
		s.changePath(truth.PathRemoved, podsDir+"/u1/etc-hosts", "")
	}},
	{"its logs are left", "not desired, but " + logsDir + "/ns_web_u1 is left",
		func(s *script) { s.changePath(truth.PathCreated, logsDir+"/ns_web_u1/app", "") }},
	{"all directories removed at once", "", func(s *script) {
		s.changePath(truth.PathCreated, podsDir+"/u1", "")
		s.changePath(truth.PathRemoved, "/var", truth.CauseAdministrator)
	}},
	{"a sandbox is left", "not desired, but sandbox u1-s0 is left", func(s *script) {
		s.sandbox("u1", 0)
	}},
	{"still served", "not desired, but still served", func(s *script) {
		s.setDesired(spec("u1", always, "app"))
		s.PodNoLongerDesired(s.now, "u1")
		s.serve("u1", v1.PodFailed)
	}},
}

// waitForHostDirectory has a pod in a sandbox whose container mounts a sub-path of a directory.
func (s *script) waitForHostDirectory(exists bool, kind v1.HostPathType) {
	s.model.opts.Exists = func(string) bool { return exists }
	s.setDesired(spec("u1", always, "app"))
	pod := &s.pods["u1"].Spec
	pod.Volumes = []v1.Volume{{Name: "v", VolumeSource: v1.VolumeSource{
		HostPath: &v1.HostPathVolumeSource{Path: "/mnt", Type: &kind}}}}
	pod.Containers[0].VolumeMounts = []v1.VolumeMount{{Name: "v", SubPath: "of"}}
	s.sandbox("u1", 0)
	s.wait(6)
	s.serve("u1", v1.PodPending)
}

func TestUnsettled(t *testing.T) {
	for _, c := range settleCases {
		t.Run(c.name, func(t *testing.T) {
			s := newScript()
			s.Healed(s.now)
			c.tell(s)
			got := s.unsettled()
			if c.problem == "" && got != "" || !strings.Contains(got, c.problem) {
				t.Errorf("unsettled %q, want %q", got, c.problem)
			}
			if strings.Contains(got, "\n") && c.problem != "" && c.name != "a sandbox is left" {
				t.Errorf("more than one line: %q", got)
			}
		})
	}
}

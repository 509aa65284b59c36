package e2e

import (
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"seedlet.dev/realworld/nodetest"
	"seedlet.dev/realworld/systemdtest"
)

// TestSystemd runs pods where systemd makes the cgroups: on a machine whose process 1 it is, with a
// containerd that is configured so. The agent asks the runtime for its cgroup driver.
func TestSystemd(t *testing.T) {
	t.Parallel()
	if !systemdtest.Inside(t) {
		return
	}
	s := startOnSystemd(t, podPidsLimit)
	testCgroupValues(t, s)
	t.Run("slices", func(t *testing.T) { testSlices(t, s) })
	t.Run("systemd is reloaded", func(t *testing.T) { testReload(t, s) })
	t.Run("the agent is killed", func(t *testing.T) { testKillOnSystemd(t, s) })
	t.Run("processor time", func(t *testing.T) { testProcessorShares(t, s) })
	t.Run("nothing is left", func(t *testing.T) {
		s.testAllRemoved(t)
		if left := podSlices(t); len(left) > 0 {
			t.Errorf("systemd still has %q", left)
		}
	})
}

// startOnSystemd starts an agent with a configuration on this machine, whose cgroups systemd
// manages. If the test fails, it logs the end of the agent's log.
func startOnSystemd(t *testing.T, config string) *suite {
	t.Helper()
	s := &suite{node: nodetest.NewWith(t, nodetest.Options{
		Version: nodetest.V2, SystemdCgroups: true})}
	s.agent = newAgent(t, s.node, config)
	s.agent.start(t)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the end of the agent's log:\n%s", s.agent.logTail(t, 60))
		}
	})
	return s
}

// TestSystemdCluster resizes pods where systemd makes the cgroups.
func TestSystemdCluster(t *testing.T) {
	t.Parallel()
	if !systemdtest.Inside(t) {
		return
	}
	c := newClusterSuiteOn(t, nodetest.Options{Version: nodetest.V2, SystemdCgroups: true})
	c.kubectl(t, "create", "namespace", testNamespace)
	c.waitUntil(t, "the namespace has a service account", func() bool {
		_, err := c.api.CoreV1().ServiceAccounts(testNamespace).Get(t.Context(), "default",
			metav1.GetOptions{})
		return err == nil
	})
	if !t.Run("containers are resized in place", c.testResize) {
		t.Logf("the end of the agent's log:\n%s", c.agent.logTail(t, 100))
	}
}

// podSlices returns the slices of pods that systemd has.
func podSlices(t *testing.T) []string {
	t.Helper()
	out, err := exec.Command("systemctl", "list-units", "--type=slice", "--all", "--plain",
		"--no-legend").Output()
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for line := range strings.Lines(string(out)) {
		if name, _, _ := strings.Cut(line, " "); strings.Contains(name, "-pod") {
			found = append(found, name)
		}
	}
	slices.Sort(found)
	return found
}

// testSlices checks that the cgroups of the pods of testCgroupValues are units of systemd.
func testSlices(t *testing.T, s *suite) {
	found := podSlices(t)
	if len(found) != 4 {
		t.Errorf("systemd has the slices %q, want those of 4 pods", found)
	}
	for _, tier := range []string{"kubepods", "kubepods-burstable", "kubepods-besteffort"} {
		root := strings.ReplaceAll(filepath.Base(nodetest.CgroupRoot(s.node.Dir)), "-", "_")
		name := root + "-" + tier + ".slice"
		out, err := exec.Command("systemctl", "is-active", name).CombinedOutput()
		if err != nil {
			t.Errorf("%s: %s: %v", name, out, err)
		}
	}
}

// testReload reloads systemd, which then sets all values that it has for its units again.
func testReload(t *testing.T, s *suite) {
	before := s.containerLines(t, "")
	for _, command := range []string{"daemon-reload", "daemon-reexec"} {
		if out, err := exec.Command("systemctl", command).CombinedOutput(); err != nil {
			t.Fatalf("systemctl %s: %s: %v", command, out, err)
		}
		s.checkCgroupLimits(t)
	}
	if after := s.containerLines(t, ""); !slices.Equal(before, after) {
		t.Errorf("containers before and after:\n%q\n%q", before, after)
	}
}

// testKillOnSystemd kills the agent. The next one changes nothing.
func testKillOnSystemd(t *testing.T, s *suite) {
	before := s.containerLines(t, "")
	s.agent.signalAndWait(t, syscall.SIGKILL)
	s.agent.start(t)
	s.eventually(t, "the agent serves all pods as running", func() bool {
		served := s.agent.servedPods(t)
		return len(served) == 4 && !slices.ContainsFunc(served, func(p v1.Pod) bool {
			return p.Status.Phase != v1.PodRunning
		})
	})
	s.checkCgroupLimits(t)
	if after := s.containerLines(t, ""); !slices.Equal(before, after) {
		t.Errorf("containers before and after:\n%q\n%q", before, after)
	}
}

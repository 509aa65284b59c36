package kubeadm

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// testReset runs "kubeadm reset" on a node whose pods run, and checks that nothing of it is left.
func (s *suite) testReset(t *testing.T, n *node) {
	if n == s.controlPlane {
		s.end() // the API server goes
	}
	containers, before := s.containers(t, n), tracesOf(t, n)
	s.say(t, "%s has %d containers, %d mounts, %d processes, %d files", n.HostName, len(containers),
		len(before["mounts"]), len(before["processes"]), len(before["files"]))
	for _, what := range []string{"mounts", "processes", "files"} {
		if len(before[what]) == 0 {
			t.Errorf("no %s before the reset: the check after it finds nothing", what)
		}
	}
	s.kubeadm(t, n, "reset", "--force")
	if out, err := n.Command(t.Context(), "systemctl", "is-active", "kubelet").Output(); err == nil {
		t.Errorf("the agent is %s after the reset", out)
	}
	if left := s.containers(t, n); len(left) > 0 {
		t.Errorf("containers after the reset: %q", left)
	}
	pods, err := n.runtime.ListPodSandbox(t.Context(), &runtimeapi.ListPodSandboxRequest{})
	if err != nil || len(pods.Items) > 0 {
		t.Errorf("pods after the reset: %v, %v", pods, err)
	}
	for what, left := range tracesOf(t, n) {
		if len(left) > 0 {
			t.Errorf("%s after the reset: %q", what, left)
		}
	}
	s.say(t, "%s has no container, pod, mount, process, file or interface of the cluster", n.HostName)
}

// tracesOf returns what a node of a cluster has on its machine, by kind.
func tracesOf(t *testing.T, n *node) map[string][]string {
	t.Helper()
	return map[string][]string{"mounts": mountsOfPods(t, n), "processes": foreignProcesses(t, n),
		"files": filesOfAgent(n), "interfaces": interfacesOfPods(t, n)}
}

// mountsOfPods returns the mounts of volumes, containers and network namespaces.
func mountsOfPods(t *testing.T, n *node) []string {
	t.Helper()
	data, err := os.ReadFile(n.Path("/proc/1/mounts"))
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for line := range strings.Lines(string(data)) {
		at := strings.Fields(line)[1]
		for _, parent := range []string{"/var/lib/kubelet", "/run/containerd/", "/run/netns/",
			"/var/run/netns/"} {
			if strings.HasPrefix(at, parent) {
				found = append(found, at)
			}
		}
	}
	return found
}

// standing are the programs of a machine without pods.
var standing = []string{"systemd", "systemd-journal", "systemd-logind", "dbus-daemon",
	"containerd", "(sd-pam)"}

// foreignProcesses returns the processes that a machine without pods does not have.
func foreignProcesses(t *testing.T, n *node) []string {
	t.Helper()
	names, err := filepath.Glob(n.Path("/proc") + "/[0-9]*/comm")
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, file := range names {
		data, err := os.ReadFile(file)
		name := strings.TrimSpace(string(data))
		if err == nil && !slices.Contains(standing, name) { // an error: it has ended
			found = append(found, name)
		}
	}
	return found
}

// filesOfAgent returns what is left of the agent's state, certificates and static pods.
func filesOfAgent(n *node) []string {
	var found []string
	for _, pattern := range []string{"/var/lib/kubelet/*", "/etc/kubernetes/*.conf",
		"/etc/kubernetes/manifests/*", "/etc/kubernetes/pki/*", "/var/lib/etcd/*"} {
		paths, _ := filepath.Glob(n.Path(pattern)) // fails only for a malformed pattern
		found = append(found, paths...)
	}
	return found
}

// interfacesOfPods returns the interfaces of the machine that lead to pods.
func interfacesOfPods(t *testing.T, n *node) []string {
	t.Helper()
	out, err := n.Command(t.Context(), "ip", "-oneline", "link").Output()
	if err != nil {
		t.Fatal(err)
	}
	return regexp.MustCompile(`veth[0-9a-f]+`).FindAllString(string(out), -1)
}

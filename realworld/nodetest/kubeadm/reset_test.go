package kubeadm

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// testReset runs "kubeadm reset" on a node whose pods run, and checks that nothing of it is left,
// except for what kubeadm leaves with any kubelet.
func (s *suite) testReset(t *testing.T, n *node) {
	if n == s.controlPlane {
		s.end() // the API server goes
	}
	containers, before := n.allContainers(t), tracesOf(t, n)
	s.say(t, "%s has %d containers, %d mounts, %d processes, %d processes in cgroups, %d files",
		n.HostName, len(containers), len(before["mounts"]), len(before["processes"]),
		len(before["processes in cgroups"]), len(before["files"]))
	for _, what := range []string{"mounts", "processes", "processes in cgroups", "files"} {
		if len(before[what]) == 0 {
			t.Errorf("no %s before the reset: the check after it finds nothing", what)
		}
	}
	s.kubeadm(t, n, "reset", "--force")
	n.runs, n.containers = false, nil
	out, err := n.Command(t.Context(), "systemctl", "is-active", "kubelet").Output()
	if state := strings.TrimSpace(string(out)); state != "inactive" {
		t.Errorf("the agent is %s after the reset, %v", state, err)
	}
	if left := n.allContainers(t); len(left) > 0 {
		t.Errorf("containers after the reset: %q", left)
	}
	pods, err := n.runtime.ListPodSandbox(t.Context(), &runtimeapi.ListPodSandboxRequest{})
	if err != nil || len(pods.Items) > 0 {
		t.Errorf("pods after the reset: %v, %v", pods, err)
	}
	// A process may end some time after its container has been removed.
	s.waitUntil(t, "no process of a pod is left on "+n.HostName, func() error {
		traces := tracesOf(t, n)
		left := append(traces["processes"], traces["processes in cgroups"]...)
		return missingUnless(len(left) == 0, "processes %q", left)
	})
	for what, left := range tracesOf(t, n) {
		if len(left) > 0 {
			t.Errorf("%s after the reset: %q", what, left)
		}
	}
	s.say(t, "%s has no container, pod, mount, process, file or interface of the cluster", n.HostName)
	logs, _ := filepath.Glob(n.Path("/var/log/pods/*")) // fails only for a malformed pattern
	s.say(t, "left, as with any kubelet: %d cgroups, %d directories of logs, chains %q",
		strings.Count(n.commandOutput(t, "find", "/sys/fs/cgroup", "-name", "kubepods*"), "\n"),
		len(logs), chainsOf(t, n))
}

// testJoinAgain joins the worker that was reset, after what the manual of kubeadm says: the
// administrator deletes the Node, and removes the network of its pods. The cluster still has the
// pods of the node, which run again.
func (s *suite) testJoinAgain(t *testing.T) {
	err := s.api.CoreV1().Nodes().Delete(t.Context(), s.worker.HostName, metav1.DeleteOptions{})
	if err != nil {
		t.Fatal(err)
	}
	s.worker.commandOutput(t, "sh", "-ec",
		"rm -r /etc/cni/net.d/* /var/lib/cni; ip link delete cni0")
	s.checkBootstrapped(t, s.join(t))
	s.installNetwork(t, s.worker)
	s.waitForDeployment(t, replicas+1)
	authority := s.authority(t)
	s.waitUntil(t, s.worker.HostName+" serves with a certificate of the cluster", func() error {
		_, err := handshake(t.Context(), s.worker, authority)
		return err
	})
	s.testKubectl(t)
}

// tracesOf returns what a node of a cluster has on its machine, by kind.
func tracesOf(t *testing.T, n *node) map[string][]string {
	t.Helper()
	return map[string][]string{"mounts": mountsOfPods(t, n), "processes": foreignProcesses(t, n),
		"files": filesOfAgent(n), "interfaces": interfacesOfPods(t, n),
		"processes in cgroups": processesInCgroups(t, n)}
}

// processesInCgroups returns the IDs of the processes in cgroups of pods. The cgroups of pods and
// of quality-of-service classes themselves are the kubelet's, which kubeadm stops before it removes
// containers.
func processesInCgroups(t *testing.T, n *node) []string {
	t.Helper()
	return strings.Fields(n.commandOutput(t, "find", "/sys/fs/cgroup", "-path", "*/kubepods*",
		"-name", "cgroup.procs", "-exec", "cat", "{}", "+"))
}

// chainsOf returns the chains of a kubelet in iptables, which kubeadm leaves to the administrator.
func chainsOf(t *testing.T, n *node) []string {
	t.Helper()
	rules := n.commandOutput(t, "iptables-save")
	return regexp.MustCompile(`(?m)^:KUBE-[A-Z-]+`).FindAllString(rules, -1)
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

package kubeadm

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"seedlet.dev/realworld/cluster"
	"seedlet.dev/realworld/nodetest"
	"seedlet.dev/realworld/porttest"
	"seedlet.dev/realworld/systemdtest"
)

// enabledEnv has the test run.
const enabledEnv = "SEEDLET_KUBEADM"

// TestKubeadm takes a cluster of two nodes through its life. Each step needs the one before.
func TestKubeadm(t *testing.T) {
	if os.Getenv(enabledEnv) == "" {
		t.Skip("run by `make kubeadm`")
	}
	// What is missing fails the test, which was asked for, before anything is started.
	if err := errors.Join(systemdtest.CheckBootable(), nodetest.Check(nodetest.V2)); err != nil {
		t.Fatal(err)
	}
	if err := cluster.InstallKubeadm(t.Context(), func(line string) { t.Log(line) }); err != nil {
		t.Fatal(err)
	}
	s := newSuite(t)
	t.Cleanup(s.end)
	for _, step := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"init", s.testInit},
		{"the control plane runs", s.testControlPlane},
		{"the network of the control plane", func(t *testing.T) { s.testNetwork(t, s.controlPlane) }},
		{"join", s.testJoin},
		{"the network of the worker", func(t *testing.T) { s.testNetwork(t, s.worker) }},
		{"a deployment", s.testDeployment},
		{"serving certificates", s.testServing},
		{"upgrade node: another configuration", s.testUpgradeNode},
		{"upgrade node: another control plane", s.testControlPlaneUpgrade},
		{"rotation of certificates", s.testRotation},
		{"reset of the worker", func(t *testing.T) { s.testReset(t, s.worker) }},
		{"join of the worker that was reset", s.testJoinAgain},
		{"another reset of the worker", func(t *testing.T) { s.testReset(t, s.worker) }},
		{"reset of the control plane", func(t *testing.T) { s.testReset(t, s.controlPlane) }},
	} {
		start := time.Now()
		if !t.Run(step.name, func(t *testing.T) { step.run(t); s.checkNodes(t) }) {
			s.logNodes(t)
			t.FailNow()
		}
		s.say(t, "%s: %.1fs", step.name, time.Since(start).Seconds())
	}
}

// suite is the cluster under test.
type suite struct {
	start                time.Time
	images               images
	controlPlane, worker *node
	api                  kubernetes.Interface
	ends                 []func() // what runs until the API server goes
}

// atEnd has a function called before the control plane is reset or the test ends.
func (s *suite) atEnd(f func()) { s.ends = append(s.ends, f) }

// end ends what runs beside the steps.
func (s *suite) end() {
	for _, f := range s.ends {
		f()
	}
	s.ends = nil
}

// say logs what was seen, with the time since the start of the test.
func (s *suite) say(t *testing.T, format string, args ...any) {
	t.Helper()
	t.Logf("[%6.1fs] %s", time.Since(s.start).Seconds(), fmt.Sprintf(format, args...))
}

// waitUntil waits until nothing is missing.
func (s *suite) waitUntil(t *testing.T, what string, missing func() error) {
	t.Helper()
	s.waitBefore(t, time.Now().Add(porttest.Patience), what, missing)
}

// waitBefore waits until nothing is missing, at most until a time. It reports every few seconds
// what it is waiting for.
func (s *suite) waitBefore(t *testing.T, deadline time.Time, what string, missing func() error) {
	t.Helper()
	progress := time.Now().Add(2 * time.Second)
	for err := missing(); err != nil; err = missing() {
		if time.Now().After(deadline) {
			t.Fatalf("not before %v: %s: %v", deadline.Format(time.TimeOnly), what, err)
		}
		if time.Now().After(progress) {
			s.say(t, "waiting: %s: %v", what, err)
			progress = time.Now().Add(10 * time.Second)
		}
		time.Sleep(250 * time.Millisecond)
	}
	s.say(t, "%s", what)
}

// logNodes logs the end of the agents' logs.
func (s *suite) logNodes(t *testing.T) {
	t.Helper()
	for _, n := range s.nodes() {
		for _, unit := range []string{"kubelet", "containerd"} {
			out, err := n.Command(t.Context(), "journalctl", "--no-pager", "--lines=40", "--output=cat",
				"--unit="+unit).CombinedOutput()
			t.Logf("%s of %s (%v):\n%s", unit, n.HostName, err, out)
		}
	}
}

// ignoredPreflightErrors are the checks of kubeadm that fail because of the machine that runs the
// test, each with its reason.
var ignoredPreflightErrors = []string{
	"SystemVerification", // the kernel has cgroup v1, and its configuration cannot be read
}

// skippedPhases are the addons, of which no image can be made: CoreDNS is no module of Kubernetes,
// and kube-proxy needs the programs and libraries of iptables beside it.
const skippedPhases = "--skip-phases=addon/coredns,addon/kube-proxy"

func ignoreErrors() string {
	return "--ignore-preflight-errors=" + strings.Join(ignoredPreflightErrors, ",")
}

// testInit runs "kubeadm init" to its end. At that, kubeadm lets the agent's kubeconfig refer to
// the client certificate that the agent has stored.
func (s *suite) testInit(t *testing.T) {
	n := s.controlPlane
	n.write(t, "/root/kubeadm.yaml", s.initConfiguration(), 0o600)
	lines := s.kubeadm(t, n, "init", "--config=/root/kubeadm.yaml", skippedPhases, ignoreErrors())
	if !slices.ContainsFunc(lines, func(line string) bool {
		return strings.HasPrefix(line, "[kubelet-finalize] Updating")
	}) {
		t.Errorf("kubeadm has not found %s", currentClient)
	}
	s.checkKubeconfig(t, n)
	n.runs, n.starts = true, n.starts+2 // the second lets the agent read the changed kubeconfig
	data, err := os.ReadFile(n.Path("/etc/kubernetes/admin.conf"))
	if err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.RESTConfigFromKubeConfig(data)
	if err != nil {
		t.Fatal(err)
	}
	if s.api, err = kubernetes.NewForConfig(config); err != nil {
		t.Fatal(err)
	}
	s.keepContainers(t, n)
}

// testJoin joins the worker by a bootstrap token. Afterwards it has a certificate of its own, which
// the cluster has approved and issued.
func (s *suite) testJoin(t *testing.T) {
	s.checkBootstrapped(t, s.join(t))
}

// join runs "kubeadm join" on the worker with a new bootstrap token, whose user it returns.
func (s *suite) join(t *testing.T) (user string) {
	t.Helper()
	command := strings.Fields(s.output(t, s.controlPlane, "kubeadm", "token", "create",
		"--print-join-command"))
	at := slices.Index(command, "--token")
	if at < 2 || len(command) < at+2 || command[0] != "kubeadm" || command[1] != "join" {
		t.Fatalf("the command to join is %q", command)
	}
	s.kubeadm(t, s.worker, append(command[1:], ignoreErrors())...)
	s.worker.runs, s.worker.starts = true, s.worker.starts+1
	id, _, _ := strings.Cut(command[at+1], ".")
	return "system:bootstrap:" + id
}

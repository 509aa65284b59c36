package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"seedlet.dev/realworld/nodetest"
	"seedlet.dev/realworld/provision"
	"seedlet.dev/realworld/systemdtest"
)

// TestPackage follows docs/install.md on a machine with systemd, from a node with a kubelet's
// package on. Meanwhile a pod runs, of which no container is touched.
func TestPackage(t *testing.T) {
	t.Parallel()
	if !systemdtest.Inside(t) {
		return
	}
	p := newPackagedNode(t)
	checks := map[string]func(*testing.T, pageSection){
		"Build the package":                  p.testBuild,
		"Replace the kubelet's package":      p.testReplace,
		"Go back to the kubelet":             p.testGoBack,
		"A new node":                         p.testNewNode,
		"Upgrade":                            p.testUpgrade,
		"The watchdog":                       p.testWatchdog,
		"When it goes wrong":                 p.follow,
		"Remove it":                          p.testRemove,
		"From a checkout, without a package": p.testInstall,
		"As a container":                     p.testContainer,
	}
	for _, section := range p.page {
		check := checks[section.heading]
		if check == nil && len(section.steps) == 0 {
			continue
		}
		if check == nil || !t.Run(section.heading, func(t *testing.T) { check(t, section) }) {
			t.Fatalf("section %q: failed, or no check follows it\n%s", section.heading,
				run(t, "journalctl", "--no-pager", "--lines=60", "--unit=kubelet", "--unit=seedlet"))
		}
		delete(checks, section.heading)
	}
	if len(checks) > 0 {
		t.Errorf("sections that the page does not have: %v", checks)
	}
}

// packagedNode is a node whose agent is a service.
type packagedNode struct {
	*suite
	reader
	page     installPage
	packages standInPackages
	versions int      // packages that were built
	running  []string // what runs on the node, and must not change
}

// newPackagedNode prepares the machine: a runtime at the kubelet's default socket, a checkout that
// may be written to, and a node that kubeadm has set up with the packages of Kubernetes.
func newPackagedNode(t *testing.T) *packagedNode {
	t.Helper()
	node := nodetest.NewWith(t, nodetest.Options{Version: nodetest.V2, SystemdCgroups: true})
	checkout, err := provision.Checkout()
	if err != nil {
		t.Fatal(err)
	}
	binary, err := seedletBinary()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	p := &packagedNode{page: readInstallPage(t, checkout), packages: buildStandIns(t, dir),
		suite: &suite{node: node,
			agent: &agent{manifestDir: "/etc/kubernetes/manifests", sampleImage: node.Images.Sample}}}
	// The kernel's settings are those of the machine around this one, so the agent leaves them alone.
	p.reader = reader{checkout: checkout, env: []string{"AGENT=" + binary, "DEB_COMPRESSION=none",
		"SOURCE_DATE_EPOCH=1", "APT_CONFIG=" + p.packages.aptConfig,
		"CONTAINERD_ADDRESS=" + strings.TrimPrefix(node.Endpoint, "unix://")},
		flags:   "--hostname-override=" + nodeName + " --kernel-settings-root= -v=4",
		instead: map[string]string{"make build": "test -x $AGENT"}}
	for _, name := range []string{"above", "work"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	run(t, "mount", "-t", "overlay", "overlay", checkout, "-o",
		fmt.Sprintf("lowerdir=%s,upperdir=%[2]s/above,workdir=%[2]s/work", checkout, dir))
	t.Cleanup(func() { run(t, "umount", "--lazy", checkout) })
	// A link would lead out of what the agent in a container has of the machine.
	run(t, "install", "-D", "/dev/null", "/run/containerd/containerd.sock")
	run(t, "mount", "--bind", strings.TrimPrefix(node.Endpoint, "unix://"),
		"/run/containerd/containerd.sock")
	t.Cleanup(func() { run(t, "umount", "/run/containerd/containerd.sock") })
	// The policy of a container that is no machine: no package may start a service.
	if err := os.RemoveAll("/usr/sbin/policy-rc.d"); err != nil {
		t.Fatal(err)
	}
	run(t, "apt-get", "-c", p.packages.aptConfig, "update")
	// As the documentation of Kubernetes advises. apt installs what the kubelet's package needs.
	run(t, "apt-get", "-c", p.packages.aptConfig, "install", "kubelet=1.36.3-*", "kubeadm=1.36.3-*")
	run(t, "apt-mark", "hold", "kubelet", "kubeadm")
	p.writeKubeadmFiles(t)
	p.writeFile(t, flagsFile, "KUBELET_EXTRA_ARGS=\"\"\n")
	run(t, "systemctl", "start", "kubelet")
	return p
}

// kubeadmFiles are what kubeadm has written on a node. No API server answers.
var kubeadmFiles = map[string]string{
	"/var/lib/kubelet/config.yaml": "apiVersion: kubelet.config.k8s.io/v1beta1\n" +
		"kind: KubeletConfiguration\nstaticPodPath: /etc/kubernetes/manifests\nenableServer: false\n",
	"/var/lib/kubelet/kubeadm-flags.env": "KUBELET_KUBEADM_ARGS=\"--node-labels=by=kubeadm\"\n",
	"/etc/kubernetes/kubelet.conf": "apiVersion: v1\nkind: Config\ncurrent-context: x\n" +
		"contexts: [{name: x, context: {cluster: x, user: x}}]\n" +
		"clusters: [{name: x, cluster: {server: 'https://127.0.0.1:1'}}]\n" +
		"users: [{name: x, user: {token: x}}]\n",
}

// writeKubeadmFiles writes the files of kubeadm.
func (p *packagedNode) writeKubeadmFiles(t *testing.T) {
	t.Helper()
	for path, content := range kubeadmFiles { //ordered: each file is written once
		p.writeFile(t, path, content)
	}
}

// checkCommandLine checks with which flags the service runs, after the path of its program.
func (p *packagedNode) checkCommandLine(t *testing.T, service string, flags ...string) {
	t.Helper()
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", mainPID(t, service)))
	want := strings.Join(append(flags, p.flags), " ")
	_, got, _ := strings.Cut(strings.TrimSuffix(strings.ReplaceAll(string(line), "\x00", " "), " "),
		" ")
	if err != nil || got != want {
		t.Errorf("%s runs with %q, %v, want %q", service, got, err, want)
	}
}

// kubeadmFlags are those of a service with kubeadm's drop-in, before the administrator's.
var kubeadmFlags = []string{"--bootstrap-kubeconfig=/etc/kubernetes/bootstrap-kubelet.conf",
	"--kubeconfig=/etc/kubernetes/kubelet.conf", "--config=/var/lib/kubelet/config.yaml",
	"--node-labels=by=kubeadm"}

// checkClosed checks that no client gets in on the ports of an agent.
func checkClosed(t *testing.T) {
	t.Helper()
	for _, port := range []string{"10250", "10255"} {
		conn, err := net.Dial("tcp", "127.0.0.1:"+port)
		if err == nil {
			_ = conn.Close() // nothing was sent
			t.Errorf("port %s is open", port)
		} else if !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("port %s: %v", port, err)
		}
	}
}

// checkVerified checks that systemd has nothing to say about a unit.
func checkVerified(t *testing.T, service string) {
	t.Helper()
	out, err := exec.Command("systemd-analyze", "verify", service+".service").CombinedOutput()
	if err != nil || len(out) > 0 {
		t.Errorf("the unit of %s: %v\n%s", service, err, out)
	}
}

// waitRefused waits until the journal of a service says that it has not started for want of flags.
func (p *packagedNode) waitRefused(t *testing.T, service string) {
	t.Helper()
	p.eventually(t, service+" has refused to start", func() bool {
		return strings.Contains(run(t, "journalctl", "--no-pager", "--unit="+service),
			"Error: KUBELET_EXTRA_ARGS has neither --config nor --kubeconfig")
	})
	if isActive(service) {
		t.Errorf("%s is active without flags", service)
	}
	checkClosed(t)
	p.checkUntouched(t, "the start of "+service+" without flags")
}

// follow follows a section. Each package that it builds has a later version.
func (p *packagedNode) follow(t *testing.T, s pageSection) { p.followWith(t, s, func(string) {}) }

func (p *packagedNode) followWith(t *testing.T, s pageSection, check func(line string)) {
	t.Helper()
	p.versions++
	r := p.reader
	r.env = append(slices.Clone(r.env), fmt.Sprintf("DEB_VERSION=1.36.3+test%d", p.versions))
	r.follow(t, s, func(line string) {
		check(line)
		p.checkUntouched(t, line)
	})
}

// testBuild checks that two builds make the same bytes.
func (p *packagedNode) testBuild(t *testing.T, s pageSection) {
	var built [2][]byte
	for i := range built {
		p.versions = 0
		p.follow(t, s)
		paths, err := filepath.Glob(filepath.Join(p.checkout, "bin", "seedlet_*.deb"))
		if err != nil || len(paths) != 1 {
			t.Fatalf("packages %q, %v", paths, err)
		}
		if built[i], err = os.ReadFile(paths[0]); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(built[0], built[1]) {
		t.Error("two builds of the package differ")
	}
}

// checkUntouched checks that what ran before runs now.
func (p *packagedNode) checkUntouched(t *testing.T, after string) {
	t.Helper()
	if p.running == nil {
		return
	}
	if now := p.runningLines(t); !slices.Equal(now, p.running) {
		t.Errorf("after %s there run\n%q\nbefore it\n%q", after, now, p.running)
	}
}

// mainPID returns the process of a service, 0 for none.
func mainPID(t *testing.T, service string) int {
	t.Helper()
	pid, err := strconv.Atoi(run(t, "systemctl", "show", "--property=MainPID", "--value", service))
	if err != nil {
		t.Fatal(err)
	}
	return pid
}

// isActive reports whether a service is active.
func isActive(service string) bool {
	return exec.Command("systemctl", "is-active", "--quiet", service).Run() == nil
}

// waitReplaced waits until the service is active with another process than the given one.
func (p *packagedNode) waitReplaced(t *testing.T, service string, old int) {
	t.Helper()
	p.eventually(t, service+" is active again", func() bool {
		pid := mainPID(t, service)
		return pid != 0 && pid != old && isActive(service)
	})
	p.checkUntouched(t, "a restart")
}

// testReplace checks that the agent runs as the kubelet, within the limits of its unit, and starts
// the pod that is observed from now on.
func (p *packagedNode) testReplace(t *testing.T, s pageSection) {
	if !isActive("kubelet") {
		t.Fatal("the kubelet is not active")
	}
	before, err := os.ReadFile(flagsFile)
	if err != nil {
		t.Fatal(err)
	}
	p.follow(t, s)
	if after, err := os.ReadFile(flagsFile); err != nil ||
		string(before) != string(after) {
		t.Errorf("/etc/default/kubelet is %q, %v, and was %q", after, err, before)
	}
	state := run(t, "dpkg-query", "-W", "-f=${db:Status-Status}", "kubelet")
	if state != "config-files" {
		t.Errorf("the kubelet's package is %q", state)
	}
	run(t, "dpkg", "--audit")
	checkVerified(t, "kubelet")
	p.checkCommandLine(t, "kubelet", kubeadmFlags...)
	// The plugins of the network were installed for the kubelet's package alone.
	removed := run(t, "apt-get", "-c", p.packages.aptConfig, "--simulate", "autoremove")
	if strings.Contains(removed, "Remv kubernetes-cni") ||
		!strings.Contains(run(t, "apt-mark", "showauto"), "kubernetes-cni") {
		t.Errorf("kubernetes-cni was installed by hand, or autoremove removes it:\n%s", removed)
	}
	p.addMemoryPod(t, "kept")
	p.running = p.runningLines(t)
	t.Logf("running:\n%s", strings.Join(p.running, "\n"))
	testUnitLimits(t)
	p.eventually(t, "the chains of iptables are there", func() bool {
		return strings.Contains(run(t, "journalctl", "--no-pager", "--unit=kubelet"),
			`"the chains of iptables are there" program="iptables"`)
	})
}

// addMemoryPod adds a pod with a volume in memory, named as the pod, and waits until it runs.
func (p *packagedNode) addMemoryPod(t *testing.T, name string) {
	t.Helper()
	p.agent.addManifest(t, name, podManifest(name, fmt.Sprintf(`
  containers:
  - name: main
    image: sample
    args: [sleep]
    volumeMounts: [{name: %[1]s, mountPath: /memory}]
  volumes:
  - {name: %[1]s, emptyDir: {medium: Memory}}`, name)))
	p.waitRunning(t, name, "main", 0)
}

// checkMounted checks that the machine sees the mount of a volume.
func checkMounted(t *testing.T, volume string) {
	t.Helper()
	mounts, err := os.ReadFile("/proc/1/mountinfo")
	if err != nil || !strings.Contains(string(mounts),
		"/volumes/kubernetes.io~empty-dir/"+volume+" ") {
		t.Errorf("the machine does not see the mount of the volume %s: %v", volume, err)
	}
}

// testUnitLimits checks that the limits of the unit hold, and that the machine sees the agent's
// mounts.
func testUnitLimits(t *testing.T) {
	t.Helper()
	pid := mainPID(t, "kubelet")
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{"\nNoNewPrivs:\t1\n", "\nSeccomp:\t2\n"} {
		if !strings.Contains(string(status), line) {
			t.Errorf("the agent's process has no %q:\n%s", line, status)
		}
	}
	for _, kind := range []string{"mnt", "uts", "net"} {
		own, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/%s", pid, kind))
		if machine, _ := os.Readlink("/proc/1/ns/" + kind); err != nil || own != machine {
			t.Errorf("the agent is in %s, the machine in %s: %v", own, machine, err)
		}
	}
	checkMounted(t, "kept")
}

// testGoBack checks that the kubelet's package is back, of the same release and on hold.
func (p *packagedNode) testGoBack(t *testing.T, s pageSection) {
	p.follow(t, s)
	program, err := os.ReadFile("/usr/bin/kubelet")
	if err != nil || !strings.HasPrefix(string(program), "#!/bin/sh") {
		t.Errorf("/usr/bin/kubelet is not the kubelet's: %v", err)
	}
	version := run(t, "dpkg-query", "-W", "-f=${Version}", "kubelet")
	if held := run(t, "apt-mark", "showhold"); version != "1.36.3-1.1" ||
		!slices.Contains(strings.Fields(held), "kubelet") {
		t.Errorf("version %s of the kubelet is there, and on hold are %q", version, held)
	}
	// The rest of seedlet's package goes without a trace in the kubelet's service.
	run(t, "dpkg", "-P", "seedlet")
	if !isActive("kubelet") || run(t, "systemctl", "is-enabled", "kubelet") != "enabled" {
		t.Error("the kubelet is not active and enabled any more")
	}
	// From here on the node is a new one: without a kubelet and kubeadm, and without their files.
	run(t, "apt-mark", "unhold", "kubelet", "kubeadm")
	run(t, "dpkg", "-P", "kubelet", "kubeadm", "kubernetes-cni")
	for path := range kubeadmFiles { //ordered: each file is removed once
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
	p.checkUntouched(t, "dpkg -P kubelet")
}

// testNewNode checks that the service is enabled and started, and that it runs with kubeadm's
// drop-in, while no API server answers.
func (p *packagedNode) testNewNode(t *testing.T, s pageSection) {
	if !t.Run("the package comes before the files", func(t *testing.T) {
		p.testPackageFirst(t, s)
	}) {
		return
	}
	p.follow(t, s)
	if state := run(t, "systemctl", "is-enabled", "kubelet"); state != "enabled" {
		t.Errorf("the service is %s", state)
	}
	p.checkCommandLine(t, "kubelet", configFlag)
	p.writeKubeadmFiles(t)
	old := mainPID(t, "kubelet")
	run(t, "systemctl", "restart", "kubelet")
	p.waitReplaced(t, "kubelet", old)
	p.checkCommandLine(t, "kubelet", append(kubeadmFlags, configFlag)...)
}

// configFlag is in the page's flags of a new node.
const configFlag = "--config=/var/lib/kubelet/config.yaml"

// testPackageFirst checks that an agent without flags does not start, and starts by itself once it
// has the files of the section. Then the package and the files are removed.
func (p *packagedNode) testPackageFirst(t *testing.T, s pageSection) {
	packages, err := filepath.Glob(filepath.Join(p.checkout, "bin", "seedlet_*.deb"))
	if err != nil {
		t.Fatal(err)
	}
	run(t, "dpkg", append([]string{"-i"}, packages...)...)
	checkClosed(t)
	checkVerified(t, "kubelet")
	p.waitRefused(t, "kubelet")
	for _, step := range s.steps {
		if step.path != "" {
			p.writeFile(t, step.path, step.content)
		}
	}
	p.waitReplaced(t, "kubelet", 0)
	p.checkCommandLine(t, "kubelet", configFlag)
	run(t, "dpkg", "-P", "seedlet")
	for _, step := range s.steps {
		if step.path != "" {
			if err := os.Remove(step.path); err != nil {
				t.Fatal(err)
			}
		}
	}
	p.checkUntouched(t, "dpkg -P seedlet")
}

// testUpgrade checks that the agent is replaced; not if it was stopped.
func (p *packagedNode) testUpgrade(t *testing.T, s pageSection) {
	old := mainPID(t, "kubelet")
	p.follow(t, s)
	p.waitReplaced(t, "kubelet", old)
	pid := mainPID(t, "kubelet")
	if program, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid)); err != nil ||
		program != "/usr/bin/kubelet" {
		t.Errorf("the agent runs %q, %v", program, err)
	}
	version := run(t, "dpkg-query", "-W", "-f=${Version}", "seedlet")
	if want := fmt.Sprintf("1.36.3+test%d", p.versions); version != want {
		t.Errorf("version %s is installed, want %s", version, want)
	}
	run(t, "systemctl", "stop", "kubelet")
	p.follow(t, s)
	if isActive("kubelet") {
		t.Error("an upgrade has started an agent that was stopped")
	}
	run(t, "systemctl", "start", "kubelet")
	t.Run("the agent is killed", func(t *testing.T) {
		old := mainPID(t, "kubelet")
		if err := syscall.Kill(old, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		p.waitReplaced(t, "kubelet", old)
	})
}

// testWatchdog stops the agent without ending it.
func (p *packagedNode) testWatchdog(t *testing.T, s pageSection) {
	p.follow(t, s)
	old := mainPID(t, "kubelet")
	if err := syscall.Kill(old, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	p.waitReplaced(t, "kubelet", old)
	journal := run(t, "journalctl", "--no-pager", "--unit=kubelet")
	for _, words := range []string{"Watchdog timeout", "SIGABRT: abort", `] "starting" version=`} {
		if !strings.Contains(journal, words) {
			t.Errorf("the journal has no line with %q", words)
		}
	}
}

// testRemove checks that the agent is gone, and the state of the node is not.
func (p *packagedNode) testRemove(t *testing.T, s pageSection) {
	run(t, "dpkg", "-i", p.packages.kubeadm)
	p.follow(t, s)
	if isActive("kubelet") {
		t.Error("the service is active")
	}
	for _, pattern := range []string{"/var/lib/kubelet/pods/*/volumes/*/kept",
		"/var/lib/kubelet/config.yaml", "/etc/kubernetes/manifests/kept.yaml", "/var/log/pods/*kept*"} {
		if found, err := filepath.Glob(pattern); err != nil || len(found) != 1 {
			t.Errorf("%s: %q, %v", pattern, found, err)
		}
	}
	for _, pattern := range []string{"/usr/bin/kubelet", "/usr/bin/seedlet",
		"/etc/systemd/system/*.wants/kubelet.service", "/run/seedlet*",
		"/var/lib/systemd/deb-systemd-helper-*/kubelet.service*", "/var/lib/dpkg/info/seedlet.*"} {
		if found, err := filepath.Glob(pattern); err != nil || len(found) > 0 {
			t.Errorf("%s: %q, %v", pattern, found, err)
		}
	}
}

// testInstall checks that the agent of `make install` runs beside and before a kubelet's package,
// which is there again afterwards.
func (p *packagedNode) testInstall(t *testing.T, s pageSection) {
	run(t, "apt-get", "-c", p.packages.aptConfig, "-o", "Dpkg::Options::=--force-confold",
		"install", "kubelet=1.36.3-*")
	run(t, "systemctl", "start", "kubelet")
	run(t, "rm", "/etc/systemd/system/kubelet.service.d/10-kubeadm.conf")
	if !t.Run("seedlet has no flags", p.testNoFlags) {
		return
	}
	p.followWith(t, s, func(line string) {
		switch line {
		case "sudo systemctl enable --now seedlet":
			if isActive("kubelet") {
				t.Error("the kubelet runs beside seedlet")
			}
			// What is enabled is what the next boot starts.
			enabled := exec.Command("systemctl", "is-enabled", "kubelet", "seedlet")
			if out, _ := enabled.Output(); string(out) != "disabled\nenabled\n" {
				t.Errorf("kubelet and seedlet are %q", out)
			}
			p.checkCommandLine(t, "seedlet", append(kubeadmFlags, configFlag)...)
		case "sudo systemctl restart kubelet":
			program, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", mainPID(t, "kubelet")))
			t.Logf("kubelet runs %s", program)
			_, absent := os.Stat("/usr/local/bin/kubelet")
			if err != nil || (program == "/usr/local/bin/kubelet") != (absent == nil) {
				t.Errorf("the service kubelet runs %q, %v", program, err)
			}
			if absent == nil {
				p.testSysconfig(t)
			}
		}
	})
	if found, err := filepath.Glob("/usr/local/lib/systemd/system/*"); err != nil || len(found) > 0 {
		t.Errorf("left: %q, %v", found, err)
	}
}

// testNoFlags checks that an agent beside a kubelet's package does not start before it has flags.
func (p *packagedNode) testNoFlags(t *testing.T) {
	p.follow(t, pageSection{steps: []pageStep{{line: "make install NAME=seedlet"},
		{line: "systemctl daemon-reload"}}})
	if out, err := exec.Command("systemctl", "start", "seedlet").CombinedOutput(); err == nil {
		t.Errorf("seedlet has started without flags: %s", out)
	}
	p.waitRefused(t, "seedlet")
	checkVerified(t, "seedlet")
	run(t, "systemctl", "start", "kubelet")
	if state := run(t, "systemctl", "show", "--property=ActiveState", "--value",
		"seedlet"); state == "activating" {
		t.Error("seedlet is tried again beside the kubelet")
	}
	p.follow(t, pageSection{steps: []pageStep{{line: "make uninstall NAME=seedlet"},
		{line: "systemctl daemon-reload"}}})
}

// testSysconfig checks that the agent has its flags from where the kubelet's RPM has them, too.
func (p *packagedNode) testSysconfig(t *testing.T) {
	t.Helper()
	move := func(from, to string) {
		run(t, "install", "-D", "--mode=644", from, to)
		run(t, "rm", from)
		old := mainPID(t, "kubelet")
		run(t, "systemctl", "restart", "kubelet")
		p.waitReplaced(t, "kubelet", old)
		p.checkCommandLine(t, "kubelet", append(kubeadmFlags, configFlag)...)
	}
	move(flagsFile, "/etc/sysconfig/kubelet")
	move("/etc/sysconfig/kubelet", flagsFile)
}

// testContainer checks that the agent in a container knows the pods, and that the machine sees what
// it mounts. The runtime's directory is where this node has it.
func (p *packagedNode) testContainer(t *testing.T, s pageSection) {
	const start = " agent /seedlet "
	for i, command := range s.steps {
		before, after, is := strings.Cut(command.line, start)
		if is {
			before = strings.ReplaceAll(before, "/var/lib/containerd", p.node.Dir)
			s.steps[i].line = before + start + "--hostname-override=" + nodeName +
				" --kernel-settings-root= " + after
		}
	}
	// On a machine that is none itself, systemd leaves this to the one around it.
	run(t, "mount", "--make-rshared", "/")
	p.followWith(t, s, func(line string) {
		if !strings.HasPrefix(line, "curl ") {
			return
		}
		p.checkUntouched(t, line)
		p.addMemoryPod(t, "contained")
		checkMounted(t, "contained")
		p.running = p.runningLines(t)
	})
}

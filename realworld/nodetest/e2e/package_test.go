package e2e

import (
	"bytes"
	"fmt"
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
		if check == nil && len(section.commands) == 0 {
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
	kubelet  string   // a package as the kubelet's is
	versions int      // packages that were built
	running  []string // what runs on the node, and must not change
}

// newPackagedNode prepares the machine: a runtime at the kubelet's default socket, a checkout that
// may be written to, and the packages of a kubelet and of kubeadm.
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
	p := &packagedNode{page: readInstallPage(t, checkout), suite: &suite{node: node,
		agent: &agent{manifestDir: "/etc/kubernetes/manifests", sampleImage: node.Images.Sample}}}
	p.reader = reader{checkout: checkout, env: []string{"AGENT=" + binary, "DEB_COMPRESSION=none",
		"SOURCE_DATE_EPOCH=1",
		"CONTAINERD_ADDRESS=" + strings.TrimPrefix(node.Endpoint, "unix://")}}
	dir := t.TempDir()
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
	p.kubelet = buildPackage(t, filepath.Join(dir, "kubelet"), kubeletPackage)
	p.instead = map[string]string{
		"make build":                   "test -x $AGENT",
		"sudo apt-get install kubelet": "apt-get install -q -y " + p.kubelet,
	}
	run(t, "dpkg", "-i", p.kubelet, buildPackage(t, filepath.Join(dir, "kubeadm"), kubeadmPackage))
	run(t, "systemctl", "start", "kubelet")
	// As the documentation of Kubernetes advises.
	run(t, "apt-mark", "hold", "kubelet", "kubeadm")
	p.writeSettings(t)
	return p
}

// kubeletPackage are the files of a package as the kubelet's is, of a program that waits. The path
// of the unit and the scripts are as in that package: it enables the service, does not start it,
// and disables it when it is removed.
var kubeletPackage = map[string]string{
	"DEBIAN/control": "Package: kubelet\nVersion: 1.36.3-1.1\nArchitecture: all\n" +
		"Maintainer: x <x@localhost>\nDescription: x\n",
	"DEBIAN/conffiles": "/etc/default/kubelet\n",
	"DEBIAN/postinst":  "#!/bin/sh\nsystemctl --no-reload preset kubelet\nsystemctl daemon-reload\n",
	"DEBIAN/prerm": "#!/bin/sh\nif [ $1 = remove ]; then\n" +
		"systemctl --no-reload disable kubelet\nsystemctl stop kubelet\nfi\n",
	"usr/bin/kubelet": "#!/bin/sh\nexec sleep infinity\n",
	"lib/systemd/system/kubelet.service": "[Service]\nExecStart=/usr/bin/kubelet\n" +
		"[Install]\nWantedBy=multi-user.target\n",
	"etc/default/kubelet":                    "KUBELET_EXTRA_ARGS=\n",
	"etc/kubernetes/manifests/.kubelet-keep": "",
	"var/lib/kubelet/.kubelet-keep":          "",
}

// kubeadmPackage are the files of a package that needs a kubelet's.
var kubeadmPackage = map[string]string{
	"DEBIAN/control": "Package: kubeadm\nVersion: 1.36.3-1.1\nArchitecture: all\n" +
		"Maintainer: x <x@localhost>\nDescription: x\nDepends: kubelet (>= 1.36.0)\n",
}

// buildPackage builds a Debian package of some files and returns its path.
func buildPackage(t *testing.T, dir string, files map[string]string) string {
	t.Helper()
	for name, content := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	run(t, "dpkg-deb", "--root-owner-group", "-Znone", "--build", dir, dir+".deb")
	return dir + ".deb"
}

// writeSettings writes the files that the page has the reader write. The kernel's settings are
// those of the machine around this one, so the agent leaves them alone.
func (p *packagedNode) writeSettings(t *testing.T) {
	t.Helper()
	for _, section := range p.page {
		section.writeFiles(t)
	}
	const path = "/etc/default/kubelet"
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	more := fmt.Sprintf(`--hostname-override=%s --kernel-settings-root= -v=4"`, nodeName)
	changed := strings.Replace(string(text), `config.yaml"`, "config.yaml "+more, 1)
	for _, path := range []string{path, "/etc/default/seedlet"} {
		if err := os.WriteFile(path, []byte(changed), 0o644); err != nil {
			t.Fatal(err)
		}
	}
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
	before, err := os.ReadFile("/etc/default/kubelet")
	if err != nil {
		t.Fatal(err)
	}
	p.follow(t, s)
	if after, err := os.ReadFile("/etc/default/kubelet"); err != nil ||
		string(before) != string(after) {
		t.Errorf("/etc/default/kubelet is %q, %v, and was %q", after, err, before)
	}
	state := run(t, "dpkg-query", "-W", "-f=${db:Status-Status}", "kubelet")
	if state != "config-files" {
		t.Errorf("the kubelet's package is %q", state)
	}
	run(t, "dpkg", "--audit")
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

// testGoBack checks that the kubelet's package is back.
func (p *packagedNode) testGoBack(t *testing.T, s pageSection) {
	p.follow(t, s)
	program, err := os.ReadFile("/usr/bin/kubelet")
	if err != nil || !strings.HasPrefix(string(program), "#!/bin/sh") {
		t.Errorf("/usr/bin/kubelet is not the kubelet's: %v", err)
	}
	// The rest of seedlet's package goes without a trace in the kubelet's service.
	run(t, "dpkg", "-P", "seedlet")
	if !isActive("kubelet") || run(t, "systemctl", "is-enabled", "kubelet") != "enabled" {
		t.Error("the kubelet is not active and enabled any more")
	}
	run(t, "dpkg", "-P", "--force-depends", "kubelet")
	p.checkUntouched(t, "dpkg -P kubelet")
	p.writeSettings(t)
}

// testNewNode checks that the service is enabled and started, and that it runs with kubeadm's
// drop-in, while no API server answers.
func (p *packagedNode) testNewNode(t *testing.T, s pageSection) {
	p.follow(t, s)
	if state := run(t, "systemctl", "is-enabled", "kubelet"); state != "enabled" {
		t.Errorf("the service is %s", state)
	}
	const kubeconfig = "apiVersion: v1\nkind: Config\ncurrent-context: x\n" +
		"contexts: [{name: x, context: {cluster: x, user: x}}]\n" +
		"clusters: [{name: x, cluster: {server: 'https://127.0.0.1:1'}}]\n" +
		"users: [{name: x, user: {token: x}}]\n"
	err := os.WriteFile("/etc/kubernetes/kubelet.conf", []byte(kubeconfig), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	err = os.WriteFile("/var/lib/kubelet/kubeadm-flags.env",
		[]byte("KUBELET_KUBEADM_ARGS=\"--node-labels=by=kubeadm\"\n"), 0o644)
	if err != nil {
		t.Fatal(err)
	}
	old := mainPID(t, "kubelet")
	run(t, "systemctl", "restart", "kubelet")
	p.waitReplaced(t, "kubelet", old)
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", mainPID(t, "kubelet")))
	want := "/usr/bin/kubelet --bootstrap-kubeconfig=/etc/kubernetes/bootstrap-kubelet.conf " +
		"--kubeconfig=/etc/kubernetes/kubelet.conf --config=/var/lib/kubelet/config.yaml " +
		"--node-labels=by=kubeadm --config=/var/lib/kubelet/config.yaml --hostname-override="
	if got := strings.ReplaceAll(string(line), "\x00", " "); err != nil ||
		!strings.HasPrefix(got, want) {
		t.Errorf("the agent runs as %q, %v, want %q", got, err, want)
	}
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
	if out, err := exec.Command("dpkg", "-r", "seedlet").CombinedOutput(); err == nil {
		t.Errorf("a package that kubeadm's needs is removed: %s", out)
	}
	run(t, "dpkg", "-P", "kubeadm")
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
	run(t, "dpkg", "--force-confold", "-i", p.kubelet)
	run(t, "systemctl", "start", "kubelet")
	run(t, "rm", "/etc/systemd/system/kubelet.service.d/10-kubeadm.conf")
	p.followWith(t, s, func(line string) {
		switch line {
		case "sudo systemctl enable --now seedlet":
			if isActive("kubelet") {
				t.Error("the kubelet runs beside seedlet")
			}
		case "sudo systemctl restart kubelet":
			program, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", mainPID(t, "kubelet")))
			t.Logf("kubelet runs %s", program)
			_, absent := os.Stat("/usr/local/bin/kubelet")
			if err != nil || (program == "/usr/local/bin/kubelet") != (absent == nil) {
				t.Errorf("the service kubelet runs %q, %v", program, err)
			}
		}
	})
	if found, err := filepath.Glob("/usr/local/lib/systemd/system/*"); err != nil || len(found) > 0 {
		t.Errorf("left: %q, %v", found, err)
	}
}

// testContainer checks that the agent in a container knows the pods, and that the machine sees what
// it mounts. The runtime's directory is where this node has it.
func (p *packagedNode) testContainer(t *testing.T, s pageSection) {
	const start = " agent /seedlet "
	for i, command := range s.commands {
		before, after, is := strings.Cut(command.line, start)
		if is {
			before = strings.ReplaceAll(before, "/var/lib/containerd", p.node.Dir)
			s.commands[i].line = before + start + "--hostname-override=" + nodeName +
				" --kernel-settings-root= " + after
		}
	}
	// On a machine that is none itself, systemd leaves this to the one around it.
	run(t, "mount", "--make-rshared", "/")
	run(t, "systemctl", "disable", "--now", "kubelet")
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

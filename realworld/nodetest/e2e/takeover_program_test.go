package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// isolated is a script that runs a program in a mount namespace of its own, where the fixed paths
// that a kubelet writes to are in a directory: the first argument. The second is the root directory
// of the program, whose mounts reach the machine; its other mounts stay in the namespace.
const isolated = `set -e
dir=$1 root=$2
shift 2
cut -d' ' -f5 /proc/self/mountinfo | sort -u | while read -r at; do
	case $at in "$root"*) continue ;; esac
	mount --make-slave "$at" 2>/dev/null || true # or it is unmounted now
done
for at in /var/log /var/lib; do
	mkdir -p "$dir$at"
	mount --bind "$dir$at" "$at"
done
for at in vm/overcommit_memory vm/panic_on_oom kernel/panic kernel/panic_on_oops \
	kernel/keys/root_maxkeys kernel/keys/root_maxbytes; do
	mkdir -p "$dir/sys/${at%/*}"
	[ -e "$dir/sys/$at" ] || cat "/proc/sys/$at" > "$dir/sys/$at"
	mount --bind "$dir/sys/$at" "/proc/sys/$at"
done
exec "$@"
`

// startIsolated starts a program with the flags that a kubelet and the agent both have. It becomes
// the process of the agent of the suite.
func (c *takeOverSuite) startIsolated(t testing.TB, program string) {
	t.Helper()
	a := c.agent
	log, err := os.OpenFile(a.logFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = log.Close() }() // the program has its own file descriptor
	a.cmd = exec.Command("unshare", append([]string{"--mount", "--propagation", "unchanged", "sh",
		"-c", isolated, "sh", c.machineDir, a.rootDir, program}, a.flags...)...)
	a.cmd.Stdout, a.cmd.Stderr = log, log
	if err := a.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	a.waitHealthy(t)
}

// newIsolatedAgent makes the directories of a program for startIsolated, and its configuration, to
// which the lines of more are appended. The first program requests a certificate, which the others
// use.
func (c *takeOverSuite) newIsolatedAgent(t testing.TB, more ...string) {
	t.Helper()
	token, err := c.cluster.BootstrapKubeconfig(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	c.agent = newAgent(t, c.node, append(more, takeOverConfiguration)...)
	c.machineDir = filepath.Join(c.node.Dir, "machine")
	c.agent.logLinkDir = filepath.Join(c.machineDir, "var/log/containers")
	c.agent.flags = []string{"--config=" + c.agent.configFile, "--root-dir=" + c.agent.rootDir,
		"--hostname-override=" + nodeName, "--cert-dir=" + c.agent.certDir, "-v=4",
		"--bootstrap-kubeconfig=" + token, "--kubeconfig=" + filepath.Join(c.machineDir, "kubelet.conf"),
		"--node-ip=" + c.cluster.Address.String(),
		"--address=0.0.0.0", "--client-ca-file=" + c.cluster.AuthorityFile()}
	for _, dir := range []string{c.agent.rootDir, c.machineDir} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, args := range [][]string{{"--bind", c.agent.rootDir, c.agent.rootDir},
		{"--make-private", c.agent.rootDir}, {"--make-shared", c.agent.rootDir}} {
		if out, err := exec.Command("mount", args...).CombinedOutput(); err != nil {
			t.Fatalf("mount %s: %v: %s", strings.Join(args, " "), err, out)
		}
	}
}

// takeOverConfiguration is for both programs on a machine that others use as well.
const takeOverConfiguration = `failCgroupV1: false
failSwapOn: false
makeIPTablesUtilChains: false
cgroupDriver: cgroupfs
maxOpenFiles: 10000
rotateCertificates: true
clusterDomain: cluster.local
authentication: {anonymous: {enabled: false}, webhook: {enabled: true}}
authorization: {mode: Webhook}
`

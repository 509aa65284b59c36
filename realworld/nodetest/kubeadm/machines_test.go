package kubeadm

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/realworld/cleanup"
	"seedlet.dev/realworld/cluster"
	"seedlet.dev/realworld/nodetest"
	"seedlet.dev/realworld/provision"
	"seedlet.dev/realworld/systemdtest"
)

// guardKind is the kind of the guard process of the bridge.
const guardKind = "kubeadm"

func init() {
	cleanup.RunGuard(guardKind, sweep)
}

// sweep removes the bridge of a directory, what is attached to it, and the directory. A machine
// that was killed leaves its interface as long as the kernel tries to end its connections: minutes.
func sweep(dir string) error {
	var problems []error
	attached, _ := filepath.Glob(filepath.Join("/sys/class/net", cleanup.BridgeName(dir), "brif/*"))
	for _, path := range attached {
		out, err := exec.Command("ip", "link", "delete", filepath.Base(path)).CombinedOutput()
		if err != nil { // it may have gone meanwhile
			problems = append(problems, fmt.Errorf("%w: %s", err, out))
		}
	}
	return errors.Join(append(problems, cleanup.RemoveBridge(dir), os.RemoveAll(dir))...)
}

// node is a machine of the cluster.
type node struct {
	*systemdtest.Node
	address netip.Addr
	runtime runtimeapi.RuntimeServiceClient
	serving *x509.Certificate // the first with which its kubelet's port serves

	// What the steps before expect of the node (checkNode).
	runs       bool              // the agent
	starts     int               // of the agent, since the machine was booted
	containers map[string]string // those that run: names by ID

	startsSeen int    // by the last checkNode
	pid        string // of the agent, at the last checkNode
}

// nodes returns both nodes.
func (s *suite) nodes() []*node { return []*node{s.controlPlane, s.worker} }

// newSuite boots the machines, and installs a container runtime and the agent on them: what kubeadm
// expects on a node.
func newSuite(t *testing.T) *suite {
	t.Helper()
	s := &suite{start: time.Now()}
	dir, err := os.MkdirTemp("", "seedlet-kubeadm-")
	if err != nil {
		t.Fatal(err)
	}
	guard, err := cleanup.StartGuard(guardKind, dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(guard.Dismiss) // which sweeps
	subnet, err := cleanup.FreeSubnet(dir)
	if err != nil {
		t.Fatal(err)
	}
	gateway := netip.PrefixFrom(subnet.Addr().Next(), subnet.Bits())
	if err := cleanup.MakeBridge(dir, gateway); err != nil {
		t.Fatal(err)
	}
	s.say(t, "bridge %s is %v", cleanup.BridgeName(dir), gateway)
	s.images = s.publishImages(t, gateway.Addr().String())
	s.say(t, "building the agent")
	agent, err := nodetest.BuildProgram(t.Context(), "seedlet")
	if err != nil {
		t.Fatal(err)
	}
	suffix := strings.TrimPrefix(cleanup.BridgeName(dir), "sdl-")[:6]
	address := gateway.Addr()
	for _, n := range []struct {
		name string
		node **node
	}{{"cp-" + suffix, &s.controlPlane}, {"work-" + suffix, &s.worker}} {
		address = address.Next()
		*n.node = &node{address: address, Node: systemdtest.StartNode(t, systemdtest.NodeOptions{
			HostName: n.name, Bridge: cleanup.BridgeName(dir), DiskDirs: []string{containerdRoot}})}
		s.prepare(t, *n.node, netip.PrefixFrom(address, subnet.Bits()), gateway.Addr(), agent)
		s.say(t, "%s is up: %v", n.name, address)
	}
	return s
}

// prepare installs everything on a node.
func (s *suite) prepare(t *testing.T, n *node, address netip.Prefix, gateway netip.Addr,
	agent []byte) {
	t.Helper()
	checkout, err := provision.Checkout()
	if err != nil {
		t.Fatal(err)
	}
	n.write(t, "/root/seedlet", string(agent), 0o755)
	n.write(t, "/etc/hosts", fmt.Sprintf("127.0.0.1 localhost\n%s %s\n", address.Addr(), n.HostName),
		0o644)
	n.write(t, "/etc/containerd/config.toml", s.images.containerdConfig(t), 0o644)
	n.write(t, "/etc/containerd/certs.d/"+s.images.registry.Address+"/hosts.toml",
		s.images.hostsConfig(), 0o644)
	containerd, err := nodetest.V2Dir()
	if err != nil {
		t.Fatal(err)
	}
	n.write(t, "/etc/systemd/system/containerd.service",
		strings.ReplaceAll(containerdUnit, "DIR", containerd), 0o644)
	out, err := n.Command(t.Context(), "sh", "-exc", prepareScript, "sh", address.String(),
		gateway.String(), checkout, n.HostName).CombinedOutput()
	if err != nil {
		t.Fatalf("preparing %s: %v\n%s", n.HostName, err, out)
	}
	conn, err := nodetest.Dial("unix://" + n.Path("/run/containerd/containerd.sock"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() }) // it has no data to lose
	n.runtime = runtimeapi.NewRuntimeServiceClient(conn)
}

// prepareScript gets the address, the gateway, the checkout and the host name. systemd has taken
// the host name of the machine around the node from its file. The settings of the kernel that a
// kubelet sets are those of the machine around the node, and read-only: they are covered by files.
const prepareScript = `
echo "$4" > /etc/hostname
hostname "$4"
ip link set host0 up
ip address add "$1" dev host0
ip route add default via "$2"
echo 1 > /proc/sys/net/ipv4/ip_forward
for at in vm/overcommit_memory vm/panic_on_oom kernel/panic kernel/panic_on_oops \
	kernel/keys/root_maxkeys kernel/keys/root_maxbytes; do
	mkdir -p "/run/sysctl/${at%/*}"
	cat "/proc/sys/$at" > "/run/sysctl/$at"
	mount --bind "/run/sysctl/$at" "/proc/sys/$at"
done
export NAME=kubelet AGENT=/root/seedlet DESTDIR= BINDIR=/usr/bin UNITDIR=/lib/systemd/system
export DEFAULTDIR=/etc/default KUBEADM=yes
"$3"/hack/install.sh install
systemctl daemon-reload
systemctl start containerd
systemctl enable kubelet
`

// write writes a file of the node.
func (n *node) write(t *testing.T, path, text string, mode os.FileMode) {
	t.Helper()
	path = n.Path(path)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
}

// program returns a command of a built program on the node. kubectl is the administrator's.
func (n *node) program(ctx context.Context, t *testing.T, name string, args ...string) *exec.Cmd {
	t.Helper()
	if name == "kubectl" {
		args = append([]string{"--kubeconfig=/etc/kubernetes/admin.conf"}, args...)
	}
	return n.Command(ctx, programPath(t, name), args...)
}

// programPath returns the path of a built program, which is the same on the nodes.
func programPath(t *testing.T, name string) string {
	t.Helper()
	path, err := cluster.Program(name)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// kubeadm runs kubeadm on a node, logs what it prints, and returns it.
func (s *suite) kubeadm(t *testing.T, n *node, args ...string) (lines []string) {
	t.Helper()
	s.say(t, "%s# kubeadm %s", n.HostName, strings.Join(args, " "))
	path := programPath(t, "kubeadm")
	err := n.RunLines(t.Context(), func(line string) {
		// The system verification has a line in color for each option of the kernel.
		if strings.TrimSpace(line) != "" && !strings.Contains(line, "\x1b[") {
			s.say(t, "%s| %s", n.HostName, line)
			lines = append(lines, line)
		}
	}, path, args...)
	if err != nil {
		t.Fatalf("kubeadm %s: %v", args[0], err)
	}
	return lines
}

// output returns what a program prints.
func (s *suite) output(t *testing.T, n *node, name string, args ...string) string {
	t.Helper()
	out, err := n.program(t.Context(), t, name, args...).Output()
	if exit, is := err.(*exec.ExitError); is {
		t.Fatalf("%s %s: %v\n%s%s", name, strings.Join(args, " "), err, out, exit.Stderr)
	}
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

package kubeadm

import (
	"fmt"
	"os"
	"os/exec"
	"path"
	"strings"
	"testing"
	"time"

	"seedlet.dev/realworld/cluster"
	"seedlet.dev/realworld/nodetest"
)

// containerdRoot is where containerd has images and snapshots.
const containerdRoot = "/var/lib/containerd"

// podSubnet is the network of all pods, of which each node has a part. It is neither the default of
// services nor, as FreeSubnet's are above 10.200.0.0, the network of the nodes.
const podSubnet = "10.180.0.0/16"

// signingDuration is how long the certificates that the cluster issues are valid: so short that the
// test sees rotations. They begin five minutes before they are issued, and a rotation is due after
// 70 to 90 % of the whole: 36 to 132 s after the issue, which leaves 48 s.
const signingDuration = 3 * time.Minute

// images are those of the cluster.
type images struct {
	registry *nodetest.Registry
	pause    string
}

// publishImages serves all images that kubeadm lists.
func (s *suite) publishImages(t *testing.T, host string) images {
	t.Helper()
	registry, err := nodetest.StartRegistryAt(t.Context(), host)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(registry.Close)
	out, err := exec.CommandContext(t.Context(), programPath(t, "kubeadm"), "config", "images", "list",
		"--kubernetes-version="+cluster.Version, "--image-repository="+registry.Address).Output()
	if err != nil {
		t.Fatal(err)
	}
	sample, err := nodetest.BuildProgram(t.Context(), "sample")
	if err != nil {
		t.Fatal(err)
	}
	i := images{registry: registry}
	for ref := range strings.FieldsSeq(string(out)) {
		named := strings.TrimPrefix(ref, registry.Address+"/")
		name, _, _ := strings.Cut(path.Base(named), ":")
		// The image of a skipped addon is pulled, but never run.
		binary, program, args := sample, "sample", []string{"pause"}
		switch name {
		case "pause":
			i.pause = ref
		case "etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler":
			binary, program, args = readProgram(t, name), name, nil
		}
		err := registry.PublishCommand(t.Context(), named, program, binary, args...)
		if err != nil {
			t.Fatal(err)
		}
		s.say(t, "image %s has %s, %d MB", ref, program, len(binary)>>20)
	}
	return i
}

func readProgram(t *testing.T, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(programPath(t, name))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// initConfiguration is the configuration of "kubeadm init". The API server verifies the serving
// certificates of kubelets, which it does not by default.
func (s *suite) initConfiguration() string {
	return fmt.Sprintf(`apiVersion: kubeadm.k8s.io/v1beta4
kind: InitConfiguration
localAPIEndpoint: {advertiseAddress: %s}
---
apiVersion: kubeadm.k8s.io/v1beta4
kind: ClusterConfiguration
kubernetesVersion: %s
imageRepository: %s
networking: {podSubnet: %s}
apiServer:
  extraArgs:
  - {name: kubelet-certificate-authority, value: /etc/kubernetes/pki/ca.crt}
controllerManager:
  extraArgs:
  - {name: cluster-signing-duration, value: %s}
---
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
serverTLSBootstrap: true
failCgroupV1: false
`, s.controlPlane.address, cluster.Version, s.images.registry.Address, podSubnet, signingDuration)
}

// containerdConfig is the configuration of containerd. Without CAP_SYS_RESOURCE no process may have
// a lower oom_score_adj than its parent: restrict_oom_score_adj.
func (i images) containerdConfig(t *testing.T) string {
	t.Helper()
	runc, err := exec.LookPath("runc")
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf(`version = 3
root = %q

[plugins."io.containerd.cri.v1.images".pinned_images]
  sandbox = %q
[plugins."io.containerd.cri.v1.images".registry]
  config_path = "/etc/containerd/certs.d"

[plugins."io.containerd.cri.v1.runtime"]
  restrict_oom_score_adj = true
  [plugins."io.containerd.cri.v1.runtime".cni]
    bin_dirs = ["/usr/lib/cni", "/opt/cni/bin"]
  [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
      BinaryName = %q
      SystemdCgroup = true
`, containerdRoot, i.pause, runc)
}

// hostsConfig permits plain HTTP with the registry.
func (i images) hostsConfig() string {
	return fmt.Sprintf("server = %q\n\n[host.%q]\n  capabilities = [\"pull\", \"resolve\"]\n",
		i.registry.URL(), i.registry.URL())
}

// containerdUnit is containerd's own unit, but for the path of the program.
const containerdUnit = `[Unit]
Description=containerd
[Service]
Type=notify
Environment=PATH=DIR:/usr/sbin:/usr/bin:/sbin:/bin
ExecStart=DIR/containerd
Delegate=yes
KillMode=process
LimitNPROC=infinity
LimitCORE=infinity
TasksMax=infinity
`

// networkConfig is the CNI configuration of a node with its part of the pods' network.
func networkConfig(subnet string) string {
	return fmt.Sprintf(`{"cniVersion": "1.0.0", "name": "pods", "plugins": [{
  "type": "bridge", "bridge": "cni0", "isGateway": true,
  "ipam": {"type": "host-local", "ranges": [[{"subnet": %q}]],
    "routes": [{"dst": "0.0.0.0/0"}]}}]}
`, subnet)
}

package nodetest

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"text/template"
)

// Paths inside a node's directory.
func socketPath(dir string) string { return filepath.Join(dir, "containerd.sock") }
func configPath(dir string) string { return filepath.Join(dir, "containerd.toml") }
func rootPath(dir string) string   { return filepath.Join(dir, "root") }
func statePath(dir string) string  { return filepath.Join(dir, "state") }
func cniPath(dir string) string    { return filepath.Join(dir, "cni") }
func logPath(dir string) string    { return filepath.Join(dir, "containerd.log") }
func hostsPath(dir string) string  { return filepath.Join(dir, "hosts") }

// isNodeDir reports whether a directory is a node's: only a node's directory has this configuration
// file or, if a start was interrupted before the file was written, this CNI directory.
func isNodeDir(dir string) bool {
	_, config := os.Stat(configPath(dir))
	_, network := os.Stat(cniPath(dir))
	return config == nil || network == nil
}

// settings are the values in the configuration of containerd.
type settings struct {
	Dir, Socket, Root, State, CNIConf, CNIBin, Hosts, Runc, Pause, Snapshotter string
	SystemdCgroups                                                             bool
}

// configV2 is for containerd 1.x.
//
// restrict_oom_score_adj: without CAP_SYS_RESOURCE (a container, a small virtual machine) no
// process may have a lower oom_score_adj than its parent, and every sandbox would fail.
// netns_mounts_under_state_dir: keeps the pods' network namespaces inside the node's directory.
// timeouts: on a busy machine a shim answers late, and after its restart containerd takes a sandbox
// whose shim does not answer for dead.
var configV2 = template.Must(template.New("containerd 1.x").Parse(`version = 2
root = "{{.Root}}"
state = "{{.State}}"
disabled_plugins = ["io.containerd.internal.v1.tracing", "io.containerd.tracing.processor.v1.otlp"]

[grpc]
  address = "{{.Socket}}"

[timeouts]
  "io.containerd.timeout.shim.load" = "1m"
  "io.containerd.timeout.task.state" = "1m"

[plugins."io.containerd.internal.v1.opt"]
  path = "{{.Dir}}/opt"

[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{{.Pause}}"
  restrict_oom_score_adj = true
  netns_mounts_under_state_dir = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{{.CNIBin}}"
    conf_dir = "{{.CNIConf}}"
  [plugins."io.containerd.grpc.v1.cri".registry]
    config_path = "{{.Hosts}}"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "{{.Snapshotter}}"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        BinaryName = "{{.Runc}}"
        SystemdCgroup = {{.SystemdCgroups}}
        Root = "{{.State}}/runc"
`))

// configV3 is the same for containerd 2.x, where the CRI consists of several plugins.
//
// nri is disabled: its socket is one for the whole machine, and of two nodes that start together
// one would fail. Processor time is measured every ten seconds, as by a kubelet. By default that is
// every second, by a request to the shim of each container and of each sandbox
// (internal/cri/server/stats_collector.go): in TestCluster the shims so used a fifth of a core.
var configV3 = template.Must(template.New("containerd 2.x").Parse(`version = 3
root = "{{.Root}}"
state = "{{.State}}"

[grpc]
  address = "{{.Socket}}"

[timeouts]
  "io.containerd.timeout.shim.load" = "1m"
  "io.containerd.timeout.task.state" = "1m"

[plugins."io.containerd.internal.v1.opt"]
  path = "{{.Dir}}/opt"

[plugins."io.containerd.nri.v1.nri"]
  disable = true

[plugins."io.containerd.cri.v1.images"]
  snapshotter = "{{.Snapshotter}}"
  [plugins."io.containerd.cri.v1.images".pinned_images]
    sandbox = "{{.Pause}}"
  [plugins."io.containerd.cri.v1.images".registry]
    config_path = "{{.Hosts}}"

[plugins."io.containerd.cri.v1.runtime"]
  restrict_oom_score_adj = true
  netns_mounts_under_state_dir = true
  stats_collect_period = "10s"
  [plugins."io.containerd.cri.v1.runtime".cni]
    bin_dirs = ["{{.CNIBin}}"]
    conf_dir = "{{.CNIConf}}"
  [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
      BinaryName = "{{.Runc}}"
      SystemdCgroup = {{.SystemdCgroups}}
      Root = "{{.State}}/runc"
`))

// writeConfig writes containerd's configuration, and the registry configuration that permits plain
// HTTP.
func writeConfig(dir string, t tools, r *Registry, systemdCgroups bool) error {
	config, err := configFor(t.containerd)
	if err != nil {
		return err
	}
	var text bytes.Buffer
	err = config.Execute(&text, settings{
		Dir: dir, Socket: socketPath(dir), Root: rootPath(dir), State: statePath(dir),
		CNIConf: cniPath(dir), CNIBin: t.cniDir, Hosts: hostsPath(dir), Runc: t.runc,
		Pause: r.Images.Pause, Snapshotter: chooseSnapshotter(dir),
		SystemdCgroups: systemdCgroups,
	})
	if err != nil {
		return fmt.Errorf("making containerd's configuration: %w", err)
	}
	if err := writeFile(configPath(dir), text.Bytes()); err != nil {
		return err
	}
	hosts := fmt.Sprintf("server = %q\n\n[host.%q]\n  capabilities = [\"pull\", \"resolve\"]\n",
		r.URL(), r.URL())
	return writeFile(filepath.Join(hostsPath(dir), r.Address, "hosts.toml"), []byte(hosts))
}

// configFor returns the configuration for the version of a containerd binary.
func configFor(binary string) (*template.Template, error) {
	// The output is like "containerd github.com/containerd/containerd 1.6.20~ds1
	// 1.6.20~ds1-1+deb12u3".
	out, err := exec.Command(binary, "--version").Output()
	if err != nil {
		return nil, fmt.Errorf("asking %s for its version: %w", binary, err)
	}
	fields := strings.Fields(string(out))
	if len(fields) < 3 {
		return nil, fmt.Errorf("asking %s for its version: it answered %q", binary, out)
	}
	if strings.HasPrefix(strings.TrimPrefix(fields[2], "v"), "1.") {
		return configV2, nil
	}
	return configV3, nil
}

func writeFile(path string, data []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	if err := os.WriteFile(path, data, 0o644); err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	return nil
}

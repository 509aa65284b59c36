package cluster

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// KubectlPath returns the path of kubectl, in the cluster's version.
func (c *Cluster) KubectlPath() string { return c.tools.path("kubectl") }

// KubeletPath returns the path of the kubelet, in the cluster's version.
func (c *Cluster) KubeletPath() string { return c.tools.path(kubelet) }

// Kubectl runs kubectl as the administrator and returns its output.
func (c *Cluster) Kubectl(ctx context.Context, args ...string) (string, error) {
	return c.kubectl(ctx, "", args...)
}

// Apply applies manifests, in YAML.
func (c *Cluster) Apply(ctx context.Context, manifests string) error {
	_, err := c.kubectl(ctx, manifests, "apply", "-f", "-")
	return err
}

// KubectlCommand returns a kubectl command as the administrator, not started yet. It uses no
// settings of the user, and no cache in the user's home directory.
func (c *Cluster) KubectlCommand(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, c.KubectlPath(), args...)
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + c.Dir, "KUBECONFIG=" + c.AdminKubeconfig(),
		"KUBECACHEDIR=" + filepath.Join(c.Dir, "kubectl-cache"),
	}
	return cmd
}

func (c *Cluster) kubectl(ctx context.Context, input string, args ...string) (string, error) {
	cmd := c.KubectlCommand(ctx, args...)
	var out, problems bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(input), &out, &problems
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err,
			bytes.TrimSpace(problems.Bytes()))
	}
	return out.String(), nil
}

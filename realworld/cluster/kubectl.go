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

// KubectlPath is the kubectl of the cluster's own version.
func (c *Cluster) KubectlPath() string { return c.tools.path("kubectl") }

// Kubectl runs kubectl as the administrator and returns what it prints.
func (c *Cluster) Kubectl(ctx context.Context, args ...string) (string, error) {
	return c.kubectl(ctx, "", args...)
}

// Apply applies manifests, in YAML.
func (c *Cluster) Apply(ctx context.Context, manifests string) error {
	_, err := c.kubectl(ctx, manifests, "apply", "-f", "-")
	return err
}

// Command is a kubectl that is still to be started, as the administrator. It has nothing of the
// user's own settings, and no cache in their home.
func (c *Cluster) Command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, c.KubectlPath(), args...)
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + c.Dir, "KUBECONFIG=" + c.Admin(),
		"KUBECACHEDIR=" + filepath.Join(c.Dir, "kubectl-cache"),
	}
	return cmd
}

func (c *Cluster) kubectl(ctx context.Context, input string, args ...string) (string, error) {
	cmd := c.Command(ctx, args...)
	var out, problems bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(input), &out, &problems
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err,
			bytes.TrimSpace(problems.Bytes()))
	}
	return out.String(), nil
}

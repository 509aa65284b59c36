package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"seedlet.dev/realworld/nodetest"
	"seedlet.dev/realworld/provision"
)

// writeImage writes an image of the agent, which it builds unless there is a built one
// (`make image`).
func writeImage(ctx context.Context, built string) error {
	checkout, err := provision.Checkout()
	if err != nil {
		return err
	}
	bin := filepath.Join(checkout, "bin")
	if err := os.MkdirAll(bin, 0o755); err != nil {
		return fmt.Errorf("writing an image: %w", err)
	}
	var binary []byte
	if built != "" {
		binary, err = os.ReadFile(built)
	} else {
		binary, err = nodetest.BuildProgram(ctx, "seedlet")
	}
	if err != nil {
		return fmt.Errorf("writing an image: %w", err)
	}
	version, err := versionOf(ctx, binary)
	if err != nil {
		return err
	}
	path := filepath.Join(bin, "seedlet-image.tar")
	ref, err := nodetest.WriteAgentImage(path, version, binary)
	if err != nil {
		return err
	}
	printProgress(ref + " is in bin/seedlet-image.tar")
	return nil
}

// versionOf returns the release of Kubernetes that an agent implements, as in v1.36.3.
func versionOf(ctx context.Context, agent []byte) (string, error) {
	dir, err := os.MkdirTemp("", "seedlet-image-")
	if err != nil {
		return "", fmt.Errorf("asking the agent for its version: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }() // a file left in the temporary directory does no harm
	path := filepath.Join(dir, "seedlet")
	if err := os.WriteFile(path, agent, 0o755); err != nil {
		return "", fmt.Errorf("asking the agent for its version: %w", err)
	}
	out, err := exec.CommandContext(ctx, path, "--version").Output()
	if err != nil {
		return "", fmt.Errorf("asking the agent for its version: %w", err)
	}
	version, is := strings.CutPrefix(strings.TrimSpace(string(out)), "Kubernetes ")
	if !is {
		return "", fmt.Errorf("asking the agent for its version: it answered %q", out)
	}
	return version, nil
}

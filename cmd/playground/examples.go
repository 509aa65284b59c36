package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// exampleImage is the placeholder in the example manifests for the image of the local registry.
const exampleImage = "seedlet.dev/sample:v1"

// copyExamples copies the example manifests to the agent's directory, with the image filled in.
func copyExamples(from, to, image string) error {
	files, err := filepath.Glob(filepath.Join(from, "*.yaml"))
	if err != nil || len(files) == 0 {
		return fmt.Errorf("no manifests in %s: run from the root of the checkout", from)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			return fmt.Errorf("reading an example: %w", err)
		}
		text := strings.ReplaceAll(string(data), exampleImage, image)
		target := filepath.Join(to, filepath.Base(file))
		if err := os.WriteFile(target, []byte(text), 0o644); err != nil {
			return fmt.Errorf("writing a manifest: %w", err)
		}
	}
	return nil
}

// removeExamples removes all manifests, so that the agent ends their pods.
func removeExamples(dir string) error {
	files, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	if err != nil {
		return fmt.Errorf("removing the manifests: %w", err)
	}
	for _, file := range files {
		if err := os.Remove(file); err != nil {
			return fmt.Errorf("removing a manifest: %w", err)
		}
	}
	return nil
}

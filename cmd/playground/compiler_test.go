package main

import (
	"strings"
	"testing"
)

// Set-up says that a machine has neither a compiler nor apt-get, and goes on.
func TestCompilerCannotBeInstalled(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	said := ""
	if err := installCompiler(t.Context(), func(line string) { said += line }); err != nil {
		t.Fatal(err)
	}
	if want := "tests with the race detector will fail"; !strings.HasPrefix(said, want) {
		t.Errorf("set-up says %q, want %q", said, want)
	}
}

func TestToolCannotBeInstalled(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	for _, tool := range tools {
		said := ""
		if err := installTool(t.Context(), tool, func(line string) { said += line }); err != nil {
			t.Fatal(err)
		}
		if want := "the test of " + tool.test + " will not run"; !strings.HasPrefix(said, want) {
			t.Errorf("set-up says %q, want %q", said, want)
		}
	}
}

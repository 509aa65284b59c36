package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"seedlet.dev/realworld/provision"
)

// goScript is the beginning of a go command that keeps what follows -o.
const goScript = `#!/bin/sh
for made; do
	[ "$last" = -o ] && break
	last=$made
done
`

// checkout makes a checkout whose go command is a script, and goes there. The script is called as
// in "go build FLAGS -o DIR/ tool".
func checkout(t *testing.T, script string) (target string) {
	t.Helper()
	root := t.TempDir()
	for path, text := range map[string]string{
		"go.mod":                               "module seedlet.dev\n",
		"realworld/cluster/tools/here":         "",
		"realworld/cluster/metricsserver/here": "",
		"bin/go":                               goScript + script,
	} {
		path = filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(root)
	t.Setenv("PATH", filepath.Join(root, "bin")+":/usr/bin:/bin")
	target, err := provision.CacheDir("kubernetes", Version)
	if err != nil {
		t.Fatal(err)
	}
	return target
}

// compiles makes every program, and says which package it is at.
var compiles = fmt.Sprintf("[ -e here ] && mkdir -p $made && for p in %s; do"+
	" echo k8s.io/$p; echo '#!' > $made$p; chmod +x $made$p; done", strings.Join(programs, " "))

func TestBuild(t *testing.T) {
	target := checkout(t, compiles)
	// What a build that was killed left, and a directory that lacks a program.
	for _, stale := range []string{target + ".building", target} {
		if err := os.MkdirAll(stale, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	var said []string
	err := build(t.Context(), func(line string) { said = append(said, line) })
	if err != nil || len(said) != 1 {
		t.Fatalf("%v, and it said %q; want one line", err, said)
	}
	for _, name := range programs {
		if !provision.Executable(filepath.Join(target, name)) {
			t.Errorf("no %s was built", name)
		}
	}
	if _, err := os.Lstat(target + ".building"); err == nil {
		t.Error("the directory of the build is still there")
	}
}

// TestBuildThatFails leaves nothing that could be taken for a build.
func TestBuildThatFails(t *testing.T) {
	target := checkout(t, compiles+"; echo no space left; exit 1")
	err := build(t.Context(), func(string) {})
	if err == nil || !strings.HasSuffix(err.Error(), "no space left\n") {
		t.Errorf("got %v, want what the compiler said last", err)
	}
	if _, err := os.Lstat(target); err == nil {
		t.Error("half a build is there")
	}
}

func TestBuildThatIsInterrupted(t *testing.T) {
	target := checkout(t, compiles+"; exec sleep 60")
	ctx, interrupt := context.WithCancel(t.Context())
	start := time.Now()
	err := build(ctx, func(string) { time.AfterFunc(50*time.Millisecond, interrupt) })
	if !errors.Is(err, context.Canceled) || time.Since(start) > 30*time.Second {
		t.Errorf("after %v: %v", time.Since(start), err)
	}
	if _, err := os.Lstat(target); err == nil {
		t.Error("half a build is there")
	}
}

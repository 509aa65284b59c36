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

	"seedlet.dev/realworld/porttest"
	"seedlet.dev/realworld/provision"
)

// goScript is the start of a fake go command; it stores the value of -o.
const goScript = `#!/bin/sh
for made; do
	[ "$last" = -o ] && break
	last=$made
done
`

// checkout creates a checkout whose go command is a script, and changes to it. The script is called
// with "go build FLAGS -o DIR/ tool".
func checkout(t *testing.T, script string) (target string) {
	t.Helper()
	root, target := changeToCheckout(t, map[string]string{
		"realworld/cluster/tools/here":         "",
		"realworld/cluster/metricsserver/here": "",
		"realworld/cluster/sidecars/here":      "",
		"bin/go":                               goScript + script,
	})
	t.Setenv("PATH", filepath.Join(root, "bin")+":/usr/bin:/bin")
	return target
}

// changeToCheckout creates a checkout with some files, changes to it, and returns it and its
// directory of programs.
func changeToCheckout(t *testing.T, files map[string]string) (root, target string) {
	t.Helper()
	root = t.TempDir()
	files["go.mod"] = "module seedlet.dev\n"
	for path, text := range files {
		path = filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(root)
	target, err := provision.CacheDir("kubernetes", Version)
	if err != nil {
		t.Fatal(err)
	}
	return root, target
}

// compiles creates every program, and prints its package.
var compiles = fmt.Sprintf("[ -e here ] && mkdir -p $made && for p in %s; do"+
	" echo k8s.io/$p; echo '#!' > $made$p; chmod +x $made$p; done", strings.Join(programs, " "))

func TestBuild(t *testing.T) {
	target := checkout(t, compiles)
	// The leftover of a killed build, and a directory without the programs.
	for _, stale := range []string{target + ".building", target} {
		if err := os.MkdirAll(stale, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	var progress []string
	err := build(t.Context(), func(line string) { progress = append(progress, line) })
	if err != nil || len(progress) != 1 {
		t.Fatalf("%v, progress %q; want one line", err, progress)
	}
	for _, name := range programs {
		if !provision.Executable(filepath.Join(target, name)) {
			t.Errorf("no %s was built", name)
		}
	}
	if _, err := os.Lstat(target + ".building"); err == nil {
		t.Error("the temporary directory still exists")
	}
}

// TestBuildOfMissingModule checks that the programs of other modules are kept.
func TestBuildOfMissingModule(t *testing.T) {
	target := checkout(t, compiles)
	if err := build(t.Context(), func(string) {}); err != nil {
		t.Fatal(err)
	}
	kept, err := os.Stat(filepath.Join(target, modules[0].programs[0]))
	if err != nil {
		t.Fatal(err)
	}
	last := modules[len(modules)-1]
	if err := os.Remove(filepath.Join(target, last.programs[0])); err != nil {
		t.Fatal(err)
	}
	// The build of another module would fail.
	script := fmt.Sprintf("[ ${PWD##*/} = %s ] && for p in %s; do echo '#!' > $made$p;"+
		" chmod +x $made$p; done", last.dir, strings.Join(last.programs, " "))
	if err := os.WriteFile(filepath.Join(strings.Split(os.Getenv("PATH"), ":")[0], "go"),
		[]byte(goScript+script), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := build(t.Context(), func(string) {}); err != nil {
		t.Fatal(err)
	}
	for _, name := range programs {
		if !provision.Executable(filepath.Join(target, name)) {
			t.Errorf("there is no %s", name)
		}
	}
	now, err := os.Stat(filepath.Join(target, modules[0].programs[0]))
	if err != nil || !os.SameFile(kept, now) {
		t.Errorf("the first module was built again: %v", err)
	}
}

// TestBuildThatFails checks that a failed build leaves no target directory.
func TestBuildThatFails(t *testing.T) {
	target := checkout(t, compiles+"; echo no space left; exit 1")
	err := build(t.Context(), func(string) {})
	if err == nil || !strings.HasSuffix(err.Error(), "no space left\n") {
		t.Errorf("got %v, want the end of the compiler's output", err)
	}
	if _, err := os.Lstat(target); err == nil {
		t.Error("the target of a failed build exists")
	}
}

func TestBuildThatIsInterrupted(t *testing.T) {
	target := checkout(t, compiles+"; exec sleep 3600")
	ctx, interrupt := context.WithCancel(t.Context())
	start := time.Now()
	err := build(ctx, func(string) { time.AfterFunc(50*time.Millisecond, interrupt) })
	if !errors.Is(err, context.Canceled) || time.Since(start) > porttest.Patience {
		t.Errorf("after %v: %v", time.Since(start), err)
	}
	if _, err := os.Lstat(target); err == nil {
		t.Error("the target of an interrupted build exists")
	}
}

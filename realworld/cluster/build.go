package cluster

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"time"

	"seedlet.dev/realworld/provision"
)

// The variables that hold the version of a program; a build from modules sets none of them.
const (
	versionPackage = "k8s.io/component-base/version."
	versionFlags   = " -X " + versionPackage + "gitVersion=" + Version +
		" -X " + versionPackage + "gitMajor=1 -X " + versionPackage + "gitMinor=36"
)

// A module holds the tool lines of programs, and the versions of what they are made of.
type module struct {
	dir   string // beside this file
	flags string // for the linker
}

// Two, for metrics-server wants other versions of libraries than Kubernetes was released with.
var modules = []module{{"tools", "-s -w" + versionFlags}, {"metricsserver", "-s -w"}}

// buildSayEvery is how often a build tells that it goes on.
const buildSayEvery = 20 * time.Second

// build builds the programs, unless someone else just has.
func build(ctx context.Context, progress func(string)) error {
	target, err := provision.CacheDir("kubernetes", Version)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
		return fmt.Errorf("building Kubernetes: %w", err)
	}
	lock, err := os.Create(target + ".lock")
	if err != nil {
		return fmt.Errorf("building Kubernetes: %w", err)
	}
	defer func() { _ = lock.Close() }() // which gives it up
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return fmt.Errorf("waiting for another build of Kubernetes: %w", err)
	}
	if _, err := findTools(); err == nil {
		return nil
	}
	// Built beside where they belong and moved there at once: half a build is none.
	made := target + ".building"
	if err := os.RemoveAll(made); err != nil {
		return fmt.Errorf("building Kubernetes: %w", err)
	}
	if err := compile(ctx, made, progress); err != nil {
		return err
	}
	if err := os.RemoveAll(target); err != nil { // not complete, or findTools had found it
		return fmt.Errorf("building Kubernetes: %w", err)
	}
	if err := os.Rename(made, target); err != nil {
		return fmt.Errorf("building Kubernetes: %w", err)
	}
	return nil
}

// compile compiles what the tool lines of all modules name, into a directory.
func compile(ctx context.Context, dir string, progress func(string)) error {
	root, err := provision.Checkout()
	if err != nil {
		return err
	}
	progress("building Kubernetes " + Version + " (up to twelve minutes on two cores, once)")
	var out lines
	stop := out.report(progress)
	defer stop()
	for _, m := range modules {
		// -v names each package when it has been compiled; tool stands for the tool lines.
		cmd := exec.CommandContext(ctx, "go", "build", "-v", "-buildvcs=false", "-ldflags", m.flags,
			"-o", dir+"/", "tool")
		cmd.Dir = filepath.Join(root, "realworld/cluster", m.dir)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=", "GOWORK=off")
		cmd.Stdout, cmd.Stderr = &out, &out
		err := cmd.Run()
		if ctx.Err() != nil {
			return fmt.Errorf("building Kubernetes %s: %w", Version, ctx.Err())
		}
		if err != nil {
			return fmt.Errorf("building %s of Kubernetes %s: %w\n%s", m.dir, Version, err, out.tail())
		}
	}
	return nil
}

// lines counts the lines that a build prints, and keeps the text.
type lines struct {
	count atomic.Int64
	text  bytes.Buffer
}

func (l *lines) Write(data []byte) (int, error) {
	l.count.Add(int64(bytes.Count(data, []byte("\n"))))
	return l.text.Write(data)
}

// tail is the end of what was printed.
func (l *lines) tail() string {
	const tailMax = 2000
	text := l.text.Bytes()
	return string(text[max(0, len(text)-tailMax):])
}

// report tells now and then how far the build has come, until it is stopped.
func (l *lines) report(progress func(string)) (stop func()) {
	start, done, ended := time.Now(), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(buildSayEvery)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-tick.C:
				progress(fmt.Sprintf("building Kubernetes: %d packages compiled in %v",
					l.count.Load(), time.Since(start).Round(time.Second)))
			}
		}
	}()
	return func() { close(done); <-ended }
}

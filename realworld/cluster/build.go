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

// The variables with the version of a program; a build from modules sets none of them.
const (
	versionPackage = "k8s.io/component-base/version."
	versionFlags   = " -X " + versionPackage + "gitVersion=" + Version +
		" -X " + versionPackage + "gitMajor=1 -X " + versionPackage + "gitMinor=36"
)

// module has the tool lines of programs, and the versions of their dependencies.
type module struct {
	dir      string // relative to this file
	flags    string // for the linker
	programs []string
}

// There are several, because metrics-server and the sidecars of CSI drivers need other versions of
// libraries than Kubernetes.
var modules = []module{
	{"tools", "-s -w" + versionFlags, []string{"kube-apiserver", "kube-controller-manager",
		"kube-scheduler", "kubectl", kubelet}},
	{"metricsserver", "-s -w", []string{metricsServer}},
	{"sidecars", "-s -w", []string{Provisioner, Attacher, Resizer}},
}

// programs are those of all modules.
var programs = func() (names []string) {
	for _, m := range modules {
		names = append(names, m.programs...)
	}
	return names
}()

// missing returns the first program of a module that a directory does not have; empty if it has
// all.
func (m module) missing(dir string) string {
	for _, name := range m.programs {
		if !provision.Executable(filepath.Join(dir, name)) {
			return name
		}
	}
	return ""
}

// keep links the programs of a module from a directory to another, and reports whether all of them
// were there.
func (m module) keep(from, to string) (bool, error) {
	if m.missing(from) != "" {
		return false, nil
	}
	if err := os.MkdirAll(to, 0o755); err != nil {
		return false, fmt.Errorf("keeping programs: %w", err)
	}
	for _, name := range m.programs {
		if err := os.Link(filepath.Join(from, name), filepath.Join(to, name)); err != nil {
			return false, fmt.Errorf("keeping programs: %w", err)
		}
	}
	return true, nil
}

// buildProgressInterval is how often a build reports its progress.
const buildProgressInterval = 20 * time.Second

// lockPrograms returns the directory of the programs, and keeps other processes from building into
// it until it is released.
func lockPrograms() (dir string, release func(), err error) {
	dir, err = provision.CacheDir("kubernetes", Version)
	if err != nil {
		return "", nil, err
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return "", nil, fmt.Errorf("building Kubernetes: %w", err)
	}
	lock, err := os.Create(dir + ".lock")
	if err != nil {
		return "", nil, fmt.Errorf("building Kubernetes: %w", err)
	}
	release = func() { _ = lock.Close() } // releases the lock
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		release()
		return "", nil, fmt.Errorf("waiting for another build of Kubernetes: %w", err)
	}
	return dir, release, nil
}

// build builds the programs, unless another process has just built them.
func build(ctx context.Context, progress func(string)) error {
	target, release, err := lockPrograms()
	if err != nil {
		return err
	}
	defer release()
	if _, err := findTools(); err == nil {
		return nil
	}
	// The programs are built in a temporary directory that is renamed, so that the target is
	// complete.
	temporary := target + ".building"
	if err := os.RemoveAll(temporary); err != nil {
		return fmt.Errorf("building Kubernetes: %w", err)
	}
	var outdated []module
	for _, m := range modules {
		kept, err := m.keep(target, temporary)
		if err != nil {
			return err
		}
		if !kept {
			outdated = append(outdated, m)
		}
	}
	if err := compile(ctx, outdated, temporary, progress); err != nil {
		return err
	}
	if err := os.RemoveAll(target); err != nil { // incomplete, or findTools would have found it
		return fmt.Errorf("building Kubernetes: %w", err)
	}
	if err := os.Rename(temporary, target); err != nil {
		return fmt.Errorf("building Kubernetes: %w", err)
	}
	return nil
}

// goBuild builds packages of the module in a directory.
func goBuild(ctx context.Context, dir string, out *buildOutput, args ...string) error {
	args = append([]string{"build", "-v", "-buildvcs=false"}, args...)
	cmd := exec.CommandContext(ctx, "go", args...) // -v prints each package when it has been compiled
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=", "GOWORK=off")
	cmd.Stdout, cmd.Stderr = out, out
	err := cmd.Run()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		return fmt.Errorf("%w\n%s", err, out.tail())
	}
	return nil
}

// compile builds the programs of modules' tool lines into a directory.
func compile(ctx context.Context, wanted []module, dir string, progress func(string)) error {
	root, err := provision.Checkout()
	if err != nil {
		return err
	}
	progress("building Kubernetes " + Version + " (up to twenty minutes on two cores, once)")
	var out buildOutput
	stop := out.reportProgress(progress)
	defer stop()
	for _, m := range wanted {
		// "tool" selects the tool lines.
		err := goBuild(ctx, filepath.Join(root, "realworld/cluster", m.dir), &out, "-ldflags", m.flags,
			"-o", dir+"/", "tool")
		if err != nil {
			return fmt.Errorf("building %s of Kubernetes %s: %w", m.dir, Version, err)
		}
	}
	return nil
}

// buildOutput counts the lines that a build prints, and has the text.
type buildOutput struct {
	count atomic.Int64
	text  bytes.Buffer
}

func (l *buildOutput) Write(data []byte) (int, error) {
	l.count.Add(int64(bytes.Count(data, []byte("\n"))))
	return l.text.Write(data)
}

// tail returns the end of the output.
func (l *buildOutput) tail() string {
	const tailMax = 2000
	text := l.text.Bytes()
	return string(text[max(0, len(text)-tailMax):])
}

// reportProgress reports the progress of a build at intervals, until it is stopped.
func (l *buildOutput) reportProgress(progress func(string)) (stop func()) {
	start, done, ended := time.Now(), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(buildProgressInterval)
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

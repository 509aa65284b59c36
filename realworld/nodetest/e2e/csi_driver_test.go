package e2e

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"seedlet.dev/realworld/cleanup"
	"seedlet.dev/realworld/csi/loopcsi"
	"seedlet.dev/realworld/porttest"
)

// csiDriver is a process of cmd/loopcsi that registers at an agent.
type csiDriver struct {
	*cleanup.Daemon
	dir      string // of its volumes
	endpoint string
	args     []string // without faults
}

// newCSIDriver returns a driver of a name for an agent, which is not started. Its volumes are
// removed when the test ends, or by a guard process if the test process is killed.
func newCSIDriver(t testing.TB, a *agent, name string, more ...string) *csiDriver {
	t.Helper()
	for _, program := range []string{"losetup", "mkfs.ext4"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("no %s: run `make test`", program)
		}
	}
	path := filepath.Join(t.TempDir(), "loopcsi")
	out, err := exec.Command("go", "build", "-o", path, "seedlet.dev/cmd/loopcsi").CombinedOutput()
	if err != nil {
		t.Fatalf("building loopcsi: %v\n%s", err, out)
	}
	d := &csiDriver{dir: guardedDir(t),
		endpoint: filepath.Join(a.rootDir, "plugins", name, "csi.sock")}
	d.args = append([]string{"--name=" + name, "--dir=" + d.dir, "--node-id=" + nodeName,
		"--endpoint=" + d.endpoint,
		"--registration=" + filepath.Join(a.rootDir, "plugins_registry", name+"-reg.sock")}, more...)
	d.Daemon = &cleanup.Daemon{Program: path, Dir: "/", Env: []string{"PATH=" + os.Getenv("PATH")},
		LogFile: filepath.Join(filepath.Dir(a.logFile), name+".log")}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the driver's log:\n%s", d.log(t))
		}
		d.Stop()
	})
	return d
}

// guardedDir returns a directory whose images are detached from loop devices, with their mounts,
// when the test ends, or by a guard process if the test process is killed.
func guardedDir(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	guard, err := cleanup.StartGuard(loopcsi.GuardKind, dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := loopcsi.Sweep(dir); err != nil {
			t.Error(err)
		}
		guard.Dismiss()
	})
	return dir
}

// start starts the driver with faults.
func (d *csiDriver) start(t testing.TB, faults ...string) {
	t.Helper()
	d.Args = slices.Clone(d.args)
	for _, fault := range faults {
		d.Args = append(d.Args, "--fault="+fault)
	}
	if err := d.Start(); err != nil {
		t.Fatal(err)
	}
}

// log returns the output of all runs of the driver.
func (d *csiDriver) log(t testing.TB) string {
	t.Helper()
	data, err := os.ReadFile(d.LogFile)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return string(data)
}

// count returns how often the driver has answered a call successfully for a volume.
func (d *csiDriver) count(t *testing.T, call, handle string) (n int) {
	t.Helper()
	for line := range strings.Lines(d.log(t)) {
		if strings.HasPrefix(line, call+" ") && strings.Contains(line, handle) &&
			strings.Contains(line, ": OK in ") {
			n++
		}
	}
	return n
}

// nodeCalls returns the lines of the log about the agent's calls for volumes. Sidecars detach and
// remove those of other pods whenever they come to it.
func (d *csiDriver) nodeCalls(t *testing.T) []string {
	t.Helper()
	return regexp.MustCompile(`(?m)^Node\w+Volume .*$`).FindAllString(d.log(t), -1)
}

// countDelays returns how often a fault has delayed a call.
func (d *csiDriver) countDelays(t *testing.T, call string) (n int) {
	t.Helper()
	for line := range strings.Lines(d.log(t)) {
		if strings.HasPrefix(line, call+" ") && strings.Contains(line, ": delayed by ") {
			n++
		}
	}
	return n
}

// makeVolume has the driver make a volume, and returns its handle.
func (d *csiDriver) makeVolume(t testing.TB, name string) string {
	t.Helper()
	var handle string
	d.control(t, func(ctx context.Context, controller csi.ControllerClient) error {
		made, err := controller.CreateVolume(ctx, &csi.CreateVolumeRequest{Name: name,
			CapacityRange:      &csi.CapacityRange{RequiredBytes: 32 << 20},
			VolumeCapabilities: []*csi.VolumeCapability{fileSystemOf("")}})
		handle = made.GetVolume().GetVolumeId()
		return err
	})
	return handle
}

// fileSystemOf returns the capability of a volume of a file system; empty: the driver's default.
func fileSystemOf(kind string) *csi.VolumeCapability {
	return &csi.VolumeCapability{
		AccessType: &csi.VolumeCapability_Mount{
			Mount: &csi.VolumeCapability_MountVolume{FsType: kind}},
		AccessMode: &csi.VolumeCapability_AccessMode{
			Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER}}
}

// removeVolume has the driver remove a volume, which it refuses while the volume is staged.
func (d *csiDriver) removeVolume(t testing.TB, handle string) {
	t.Helper()
	d.control(t, func(ctx context.Context, controller csi.ControllerClient) error {
		_, err := controller.DeleteVolume(ctx, &csi.DeleteVolumeRequest{VolumeId: handle})
		return err
	})
}

// volumes returns the handles of all volumes of the driver.
func (d *csiDriver) volumes(t *testing.T) (handles []string) {
	t.Helper()
	d.control(t, func(ctx context.Context, controller csi.ControllerClient) error {
		list, err := controller.ListVolumes(ctx, &csi.ListVolumesRequest{})
		for _, entry := range list.GetEntries() {
			handles = append(handles, entry.Volume.VolumeId)
		}
		return err
	})
	return handles
}

// control makes a call to the driver's controller service, as a sidecar would.
func (d *csiDriver) control(t testing.TB,
	call func(context.Context, csi.ControllerClient) error) {
	t.Helper()
	conn := d.dial(t)
	defer func() { _ = conn.Close() }() // after the last call
	ctx, cancel := context.WithTimeout(t.Context(), porttest.Patience)
	defer cancel()
	if err := call(ctx, csi.NewControllerClient(conn)); err != nil {
		t.Fatal(err)
	}
}

// dial returns a connection to the driver, which may have just been started.
func (d *csiDriver) dial(t testing.TB) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient("unix:"+d.endpoint,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.WaitForReady(true)))
	if err != nil {
		t.Fatal(err)
	}
	return conn
}

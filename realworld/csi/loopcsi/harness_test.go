package loopcsi

import (
	"context"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"seedlet.dev/realworld/cleanup"
	"seedlet.dev/realworld/porttest"
)

// driverEnv makes this test binary a driver of the directory in its value, which a test can kill.
const driverEnv = "LOOPCSI_TEST_DRIVER"

func TestMain(m *testing.M) {
	if dir := os.Getenv(driverEnv); dir != "" {
		if _, err := Start(optionsOf(dir)); err != nil {
			panic(err)
		}
		_, _ = io.Copy(io.Discard, os.Stdin) // ends when the test process does
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func optionsOf(dir string) Options {
	return Options{Dir: filepath.Join(dir, "data"), Endpoint: filepath.Join(dir, "csi.sock"),
		NodeID: "node-1"}
}

// client is a connection to a driver of a test, with the paths of one volume.
type client struct {
	csi.ControllerClient
	csi.NodeClient
	t               *testing.T
	dir             string
	staging, target string
	conn            *grpc.ClientConn
}

// newDir returns a directory whose loop devices and mounts are removed at the end of the test, or
// by a guard process if the test process is killed.
func newDir(t *testing.T) string {
	t.Helper()
	if os.Geteuid() != 0 || testing.Short() {
		t.Skip("loop devices need root, and not -short")
	}
	for _, program := range []string{"losetup", "mkfs.ext4", "mkfs.xfs"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("no %s: run `make test`", program)
		}
	}
	dir := t.TempDir()
	guard, err := cleanup.StartGuard(GuardKind, dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		guard.Dismiss()
		if left, err := findLeftovers(dir); err != nil || len(left.Lines()) > 0 {
			t.Errorf("left after the test: %q, %v", left.Lines(), err)
		}
	})
	return dir
}

// start starts a driver in this process, and connects to it.
func start(t *testing.T, o Options) (*Driver, *client) {
	t.Helper()
	o.Log = func(line string) { t.Log(line) }
	d, err := Start(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Stop)
	return d, connect(t, o)
}

func connect(t *testing.T, o Options) *client {
	t.Helper()
	conn, err := grpc.NewClient("unix:"+o.Endpoint,
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() }) // after the last call
	dir := filepath.Join(filepath.Dir(o.Endpoint), o.NodeID)
	c := &client{csi.NewControllerClient(conn), csi.NewNodeClient(conn), t, o.Dir,
		filepath.Join(dir, "staging"), filepath.Join(dir, "pod", "target"), conn}
	for _, path := range []string{c.staging, filepath.Dir(c.target)} {
		if err := os.MkdirAll(path, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

// startProcess starts a driver as a process of its own, and returns how to kill it.
func startProcess(t *testing.T, dir string) (kill func(), c *client) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), driverEnv+"="+dir)
	cmd.Stderr = os.Stderr
	if _, err := cmd.StdinPipe(); err != nil { // closed by Wait
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	kill = func() {
		_ = cmd.Process.Kill() // or it has ended
		_ = cmd.Wait()         // an error: it was killed
	}
	t.Cleanup(kill)
	o := optionsOf(dir)
	porttest.Eventually(t, "the driver serves", func() bool {
		conn, err := net.Dial("unix", o.Endpoint)
		if err == nil {
			_ = conn.Close() // it was only a test
		}
		return err == nil
	})
	return kill, connect(t, o)
}

func fileSystem(name string) *csi.VolumeCapability {
	return withMode(&csi.VolumeCapability{AccessType: &csi.VolumeCapability_Mount{
		Mount: &csi.VolumeCapability_MountVolume{FsType: name}}},
		csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER)
}

func rawBlock() *csi.VolumeCapability {
	return withMode(&csi.VolumeCapability{AccessType: &csi.VolumeCapability_Block{
		Block: &csi.VolumeCapability_BlockVolume{}}},
		csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER)
}

func withMode(c *csi.VolumeCapability, mode csi.VolumeCapability_AccessMode_Mode,
) *csi.VolumeCapability {
	c.AccessMode = &csi.VolumeCapability_AccessMode{Mode: mode}
	return c
}

// within bounds a call that must not hang.
func (c *client) within() context.Context {
	ctx, cancel := context.WithTimeout(c.t.Context(), porttest.Patience)
	c.t.Cleanup(cancel)
	return ctx
}

// create makes a volume of the smallest size, and returns its ID.
func (c *client) create(name string, capability *csi.VolumeCapability) string {
	c.t.Helper()
	answer, err := c.CreateVolume(c.within(), &csi.CreateVolumeRequest{Name: name,
		VolumeCapabilities: []*csi.VolumeCapability{capability},
		CapacityRange:      &csi.CapacityRange{RequiredBytes: 1}})
	if err != nil {
		c.t.Fatal(err)
	}
	return answer.Volume.VolumeId
}

func (c *client) stage(id string, capability *csi.VolumeCapability) error {
	_, err := c.NodeStageVolume(c.within(), &csi.NodeStageVolumeRequest{VolumeId: id,
		StagingTargetPath: c.staging, VolumeCapability: capability,
		PublishContext: map[string]string{publishedNodeKey: "node-1"}})
	return err
}

func (c *client) publish(id string, capability *csi.VolumeCapability, readOnly bool) error {
	_, err := c.NodePublishVolume(c.within(), &csi.NodePublishVolumeRequest{VolumeId: id,
		StagingTargetPath: c.staging, TargetPath: c.target, VolumeCapability: capability,
		Readonly: readOnly})
	return err
}

func (c *client) unpublish(id string) error {
	_, err := c.NodeUnpublishVolume(c.within(), &csi.NodeUnpublishVolumeRequest{VolumeId: id,
		TargetPath: c.target})
	return err
}

func (c *client) unstage(id string) error {
	_, err := c.NodeUnstageVolume(c.within(), &csi.NodeUnstageVolumeRequest{VolumeId: id,
		StagingTargetPath: c.staging})
	return err
}

func (c *client) remove(id string) error {
	_, err := c.DeleteVolume(c.within(), &csi.DeleteVolumeRequest{VolumeId: id})
	return err
}

// mustAll fails the test at the first error.
func mustAll(t *testing.T, all ...error) {
	t.Helper()
	for i, err := range all {
		if err != nil {
			t.Fatalf("step %d: %v", i+1, err)
		}
	}
}

// wantCode fails the test if an error has another code.
func wantCode(t *testing.T, err error, want codes.Code) {
	t.Helper()
	if status.Code(err) != want {
		t.Errorf("got %v, want %v", err, want)
	}
}

// wantNothingLeft fails the test if volumes of a directory are mounted or have loop devices.
func wantNothingLeft(t *testing.T, dir string) {
	t.Helper()
	if left, err := findLeftovers(dir); err != nil || len(left.Lines()) > 0 {
		t.Errorf("left: %s, %v", strings.Join(left.Lines(), "; "), err)
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func wantFile(t *testing.T, path, want string) {
	t.Helper()
	if got, err := os.ReadFile(path); err != nil || string(got) != want {
		t.Errorf("%s: %q, %v, want %q", path, got, err, want)
	}
}

// moment is long enough for a call to begin.
const moment = 50 * time.Millisecond

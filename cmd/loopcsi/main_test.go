package main

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"

	"seedlet.dev/realworld/csi/loopcsi"
	"seedlet.dev/realworld/porttest"
)

// programEnv makes this test binary the program, with the arguments in its value.
const programEnv = "LOOPCSI_TEST_PROGRAM"

func TestMain(m *testing.M) {
	if args := os.Getenv(programEnv); args != "" {
		os.Args = append(os.Args[:1], strings.Fields(args)...)
		main()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func TestReadSettings(t *testing.T) {
	s, err := readSettings([]string{"--dir", "/d", "--endpoint", "/e", "--registration", "/r",
		"--node-id", "n", "--zone", "z", "--volumes-max", "3", "--capacity", "1Gi", "--attach",
		"--mount-group", "--temporary", "--fault", "Probe:before=UNAVAILABLE",
		"--secret", "NodeStageVolume=a=b"})
	o := s.options
	if err != nil || o.Dir != "/d" || o.Endpoint != "/e" || o.RegistrationEndpoint != "/r" ||
		o.NodeID != "n" || o.Zone != "z" || o.VolumesMax != 3 || o.Capacity != 1<<30 || !o.Attach ||
		!o.MountGroup || !s.temporary || o.Secrets["NodeStageVolume"] != "a=b" ||
		s.faults["Probe"] != (loopcsi.Fault{Before: codes.Unavailable}) {
		t.Errorf("got %+v, %v", s, err)
	}
	for _, args := range [][]string{{"x"}, {"--capacity", "x"}, {"--fault", "x:y"}, {"--what"}} {
		if _, err := readSettings(args); err == nil {
			t.Errorf("%q: no error", args)
		}
	}
}

// TestTemporary: the volumes of a temporary driver are unmounted and detached after it has ended
// with its parent, and after it was killed.
func TestTemporary(t *testing.T) {
	if os.Geteuid() != 0 || testing.Short() {
		t.Skip("loop devices need root, and not -short")
	}
	for name, end := range map[string]func(cmd *exec.Cmd, alive interface{ Close() error }) error{
		"ended":  func(_ *exec.Cmd, alive interface{ Close() error }) error { return alive.Close() },
		"killed": func(cmd *exec.Cmd, _ interface{ Close() error }) error { return cmd.Process.Kill() },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			self, err := os.Executable()
			if err != nil {
				t.Fatal(err)
			}
			socket := filepath.Join(dir, "csi.sock")
			cmd := exec.Command(self)
			cmd.Env = append(os.Environ(), programEnv+"=--temporary --node-id n --endpoint "+socket+
				" --dir "+dir)
			alive, err := cmd.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				_ = cmd.Process.Kill() // or it has ended
				_ = cmd.Wait()         // an error if it was killed
			})
			porttest.Eventually(t, "the driver serves", func() bool {
				conn, err := net.Dial("unix", socket)
				if err == nil {
					_ = conn.Close() // it was only a test
				}
				return err == nil
			})
			stageBlock(t, socket, dir)
			if !hasLoopDevice(t, dir) {
				t.Fatal("a staged volume has no loop device")
			}
			if err := end(cmd, alive); err != nil {
				t.Fatal(err)
			}
			porttest.Eventually(t, "no loop device is left", func() bool {
				return !hasLoopDevice(t, dir)
			})
		})
	}
}

func stageBlock(t *testing.T, socket, dir string) {
	t.Helper()
	conn, err := grpc.NewClient("unix:"+socket,
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }() // after the last call
	capability := &csi.VolumeCapability{
		AccessType: &csi.VolumeCapability_Block{Block: &csi.VolumeCapability_BlockVolume{}},
		AccessMode: &csi.VolumeCapability_AccessMode{
			Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER}}
	made, err := csi.NewControllerClient(conn).CreateVolume(t.Context(), &csi.CreateVolumeRequest{
		Name: "volume", VolumeCapabilities: []*csi.VolumeCapability{capability}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := csi.NewNodeClient(conn).NodeStageVolume(t.Context(), &csi.NodeStageVolumeRequest{
		VolumeId: made.Volume.VolumeId, StagingTargetPath: filepath.Join(dir, "staging"),
		VolumeCapability: capability}); err != nil {
		t.Fatal(err)
	}
}

// hasLoopDevice reports whether a volume of a driver is attached to a loop device.
func hasLoopDevice(t *testing.T, dir string) bool {
	t.Helper()
	left, err := loopcsi.Leftovers(dir)
	if err != nil {
		t.Fatal(err)
	}
	return len(left) > 0
}

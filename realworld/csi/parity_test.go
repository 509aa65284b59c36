package csi

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"

	"seedlet.dev/realworld/cleanup"
	"seedlet.dev/realworld/csi/loopcsi"
	"seedlet.dev/realworld/disk"
	"seedlet.dev/realworld/pluginconn"
	"seedlet.dev/realworld/porttest"
	"seedlet.dev/world"
	"seedlet.dev/world/parity"
)

// parityWorld runs the suite on the driver loopcsi and the file system of this machine.
type parityWorld struct {
	*porttest.World
	t          *testing.T
	dir        string
	driver     *loopcsi.Driver
	controller spec.ControllerClient
	made       int
}

// route hands each effect to its port.
type route map[world.PortName]world.Port

// Do implements world.Port.
func (r route) Do(eff world.Effect) { r[world.PortOf(eff.Body)].Do(eff) }

func newParityWorld(t *testing.T) parity.CSI {
	t.Helper()
	if os.Geteuid() != 0 || testing.Short() {
		t.Skip("loop devices need root, and not -short")
	}
	for _, program := range []string{"losetup", "mkfs.xfs"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("no %s: run `make test`", program)
		}
	}
	dir, err := os.MkdirTemp("", "csi") // the path of a socket has at most 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	w := &parityWorld{World: porttest.New(), t: t, dir: dir}
	guard, err := cleanup.StartGuard(loopcsi.GuardKind, dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		w.driver.Stop()
		guard.Dismiss() // which removes loop devices and mounts
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	w.start()
	port := New(Options{Clock: w.Clock, Deliver: w.Deliver})
	files := disk.New(disk.Options{Clock: w.Clock, Deliver: w.Deliver,
		Warn: func(problem string) { t.Log(problem) }})
	t.Cleanup(port.Close)
	t.Cleanup(files.Close)
	w.Port = route{world.PortCSI: port, world.PortFS: files}
	conn, err := pluginconn.Open(w.Driver().Endpoint, world.CSIAnswerBytesMax)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	w.controller = spec.NewControllerClient(conn)
	if err := os.Mkdir(w.Dir(), 0o750); err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *parityWorld) start() {
	w.t.Helper()
	var err error
	w.driver, err = loopcsi.Start(loopcsi.Options{Dir: filepath.Join(w.dir, "data"),
		Endpoint: w.Driver().Endpoint, NodeID: "node-1", Log: func(line string) { w.t.Log(line) }})
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *parityWorld) Dir() string { return filepath.Join(w.dir, "suite") }

func (w *parityWorld) Driver() world.CSIDriver {
	return world.CSIDriver{Name: loopcsi.Name, Endpoint: filepath.Join(w.dir, "csi.sock")}
}

func (w *parityWorld) Restart() func() {
	w.driver.Stop()
	return w.start
}

func (w *parityWorld) NewVolume() string {
	w.t.Helper()
	w.made++
	ctx, cancel := context.WithTimeout(w.t.Context(), porttest.Patience)
	defer cancel()
	made, err := w.controller.CreateVolume(ctx, &spec.CreateVolumeRequest{
		Name: fmt.Sprint("volume-", w.made), CapacityRange: &spec.CapacityRange{RequiredBytes: 1},
		VolumeCapabilities: []*spec.VolumeCapability{capability(&world.CSICapability{FSType: "xfs",
			Access: world.CSISingleNodeMultiWriter})}})
	if err != nil {
		w.t.Fatal(err)
	}
	return made.Volume.VolumeId
}

func (w *parityWorld) GrowVolume(handle string) int64 {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), porttest.Patience)
	defer cancel()
	grown, err := w.controller.ControllerExpandVolume(ctx, &spec.ControllerExpandVolumeRequest{
		VolumeId: handle, CapacityRange: &spec.CapacityRange{RequiredBytes: 1 << 30}})
	if err != nil {
		w.t.Fatal(err)
	}
	return grown.CapacityBytes
}

func (w *parityWorld) Fault(call string, fault parity.CSIFault) {
	w.t.Helper()
	f := map[parity.CSIFault]loopcsi.Fault{
		parity.CSIFailsBefore: {Before: codes.Unavailable},
		parity.CSIFailsAfter:  {After: codes.Unavailable},
		parity.CSILate:        {Delay: parity.CSILateness},
	}[fault]
	f.Times = 1
	if err := w.driver.Inject("Node"+call, f); err != nil {
		w.t.Fatal(err)
	}
}

func TestParity(t *testing.T) { parity.CSIPort(t, newParityWorld) }

// Package loopcsi is a CSI driver for tests and demonstrations. A volume is a sparse file with ext4
// or xfs, or without a file system for raw block volumes, on a loop device of this machine.
//
// The contract:
//
//  1. No answer depends on the memory of the process. Volumes, snapshots, attachments and nodes are
//     files of one directory; what is staged and published is read from the kernel: loop devices
//     from sysfs, mounts from mountinfo. So a driver may be killed at any time, and the next one on
//     the same directory goes on. Several drivers, with a node ID each, may share a directory:
//     their nodes are on one machine, and see each other's volumes.
//  2. Each call is idempotent and answers with the codes of the CSI specification. A volume is
//     locked while a call works on it; a second call gets ABORTED.
//  3. A volume is detached from its loop device when it is unstaged and nothing else mounts it.
//  4. Nothing outside the directory is written but staging and target paths, and what is removed
//     there is empty and not mounted.
//
// Limits: mounted ext4 grows only if the process has CAP_SYS_RESOURCE, which the kernel demands;
// xfs always does. A raw block volume on two nodes of one machine keeps its loop device until it is
// deleted, if it is still attached to one of them when the other unstages it. A file system that
// was being made when the driver was killed is made again only if blkid finds none.
//
// The files: identity.go, controller.go, attach.go and snapshot.go are for the controller; node.go,
// ext4.go, block.go, ephemeral.go and usage.go for the node; store.go, loop.go and mounts.go read
// the state; fault.go makes calls late or fail, and secrets.go refuses those without their secret,
// for tests of the caller. Start reading at Start.
package loopcsi

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
	mount "k8s.io/mount-utils"
	"k8s.io/utils/exec"
)

// Name is the driver's usual name, as in CSIDriver objects.
const Name = "loop.csi.seedlet.dev"

// ZoneKey is the key of the driver's only topology segment.
const ZoneKey = "topology." + Name + "/zone"

// capacityDefault is the sum of all volumes and snapshots. Images are sparse, so the disk may have
// less.
const capacityDefault = 64 << 30

// Options are what a driver needs to know. Fields without "optional" are required.
type Options struct {
	Dir      string // of images and records; made if it is missing
	Endpoint string // the path of the socket that serves CSI
	NodeID   string

	// RegistrationEndpoint is the path of a second socket, in the directory that a node agent
	// watches for plugins. It does what the program node-driver-registrar does beside other
	// drivers. Optional.
	RegistrationEndpoint string
	// Registered is called with what the agent reports of the registration. Optional.
	Registered func(*registerapi.RegistrationStatus)

	Name       string // as in CSIDriver objects; optional: Name
	Zone       string // where the node is; optional: without it there is no topology
	VolumesMax int64  // on the node; optional: no limit
	Capacity   int64  // in bytes; optional
	// Attach requires ControllerPublishVolume before a volume is staged, as CSIDriver objects with
	// attachRequired do.
	Attach bool
	// MountGroup announces VOLUME_MOUNT_GROUP: the driver gives volumes the group of the pod, instead
	// of the agent.
	MountGroup bool
	// Secrets are the values that calls need as their secret "passphrase", by call as in
	// "NodeStageVolume". Optional: a call without an entry needs none.
	Secrets map[string]string
	// Log gets a line for each call, and one for each delay that begins, without secrets. Optional.
	Log func(line string)
}

// Driver is a running driver.
type Driver struct {
	faults  *faults
	servers []*grpc.Server
	ended   chan struct{} // closed when all servers have ended
}

// Start starts a driver on a directory that may have the volumes of an earlier one.
func Start(o Options) (*Driver, error) {
	if err := checkOptions(&o); err != nil {
		return nil, err
	}
	s, err := openStore(o.Dir, o.Capacity)
	if err != nil {
		return nil, err
	}
	if err := s.thawAll(); err != nil {
		return nil, err
	}
	if err := s.writeNode(o.NodeID, nodeRecord{Zone: o.Zone, VolumesMax: o.VolumesMax}); err != nil {
		return nil, err
	}
	executor := exec.New()
	d := &Driver{faults: newFaults(o.Log), ended: make(chan struct{})}
	server := grpc.NewServer(grpc.ChainUnaryInterceptor(logCalls(o.Log), d.faults.intercept,
		demandSecrets(o.Secrets)), grpc.WaitForHandlers(true))
	csi.RegisterIdentityServer(server, &identity{options: o})
	csi.RegisterControllerServer(server, &controller{options: o, store: s})
	csi.RegisterNodeServer(server, &node{options: o, store: s,
		mounter: mount.NewSafeFormatAndMount(newMounter(), executor),
		resizer: mount.NewResizeFs(executor)})
	listening := map[string]*grpc.Server{o.Endpoint: server}
	if o.RegistrationEndpoint != "" {
		registrar := grpc.NewServer()
		registerapi.RegisterRegistrationServer(registrar, &registration{options: o})
		listening[o.RegistrationEndpoint] = registrar
	}
	if err := d.serve([]string{o.Endpoint, o.RegistrationEndpoint}, listening); err != nil {
		return nil, err
	}
	return d, nil
}

func checkOptions(o *Options) error {
	o.Name = cmp.Or(o.Name, Name)
	if err := checkID("node", o.NodeID); err != nil {
		return err
	}
	if o.Zone != "" {
		if err := checkID("zone", o.Zone); err != nil {
			return err
		}
	}
	for _, path := range []string{o.Dir, o.Endpoint} {
		if !filepath.IsAbs(path) {
			return fmt.Errorf("path %q: want an absolute one", path)
		}
	}
	if err := checkSecretCalls(o.Secrets); err != nil {
		return err
	}
	if o.RegistrationEndpoint != "" && !filepath.IsAbs(o.RegistrationEndpoint) {
		return fmt.Errorf("path %q: want an absolute one", o.RegistrationEndpoint)
	}
	if o.Capacity == 0 {
		o.Capacity = capacityDefault
	}
	if o.Capacity < 0 || o.VolumesMax < 0 {
		return fmt.Errorf("capacity %d and %d volumes must not be negative", o.Capacity, o.VolumesMax)
	}
	return nil
}

// serve listens on the sockets in their order, because the socket of the registration names the
// other one.
func (d *Driver) serve(endpoints []string, servers map[string]*grpc.Server) error {
	running := make(chan struct{}, len(endpoints))
	for _, endpoint := range endpoints {
		server, has := servers[endpoint]
		if !has {
			continue
		}
		listener, err := listen(endpoint)
		if err != nil {
			for _, started := range d.servers {
				started.Stop()
			}
			return err
		}
		d.servers = append(d.servers, server)
		go func() {
			_ = server.Serve(listener) // ends with Stop
			running <- struct{}{}
		}()
	}
	go func(n int) {
		for range n {
			<-running
		}
		close(d.ended)
	}(len(d.servers))
	return nil
}

// listen replaces the socket of a driver that was killed.
func listen(endpoint string) (net.Listener, error) {
	info, err := os.Lstat(endpoint)
	switch {
	case err == nil && info.Mode()&fs.ModeSocket == 0:
		return nil, fmt.Errorf("%s is there, and is not a socket", endpoint)
	case err == nil:
		err = os.Remove(endpoint)
	case errors.Is(err, fs.ErrNotExist):
		err = os.MkdirAll(filepath.Dir(endpoint), 0o750)
	}
	if err != nil {
		return nil, fmt.Errorf("preparing socket %s: %w", endpoint, err)
	}
	return net.Listen("unix", endpoint)
}

// Stop ends the driver. Calls in flight are completed, those that a fault delays fail. Volumes stay
// as they are.
func (d *Driver) Stop() {
	d.faults.end()
	for i := len(d.servers) - 1; i >= 0; i-- {
		d.servers[i].Stop()
	}
	<-d.ended
}

// Inject lets calls of a name fail or be late from now on, instead of an earlier fault of the name.
// The zero Fault heals it.
func (d *Driver) Inject(call string, f Fault) error { return d.faults.inject(call, f) }

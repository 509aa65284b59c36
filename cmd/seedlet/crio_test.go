package main

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"seedlet.dev/core/cgroup"
	"seedlet.dev/core/op"
	"seedlet.dev/core/runtime"
	"seedlet.dev/realworld/clock"
	"seedlet.dev/realworld/cri"
	"seedlet.dev/realworld/porttest"
	"seedlet.dev/world"
)

// crio answers the requests about the runtime as CRI-O does (server/version.go,
// runtime_status.go, runtime_config.go there).
type crio struct {
	runtimeapi.UnimplementedRuntimeServiceServer
	noConfig bool // a release before 1.28
}

func (crio) Version(context.Context, *runtimeapi.VersionRequest) (*runtimeapi.VersionResponse,
	error) {
	return &runtimeapi.VersionResponse{Version: "0.1.0", RuntimeName: "cri-o",
		RuntimeVersion: "1.36.0", RuntimeApiVersion: "v1"}, nil
}

func (c crio) RuntimeConfig(context.Context, *runtimeapi.RuntimeConfigRequest) (
	*runtimeapi.RuntimeConfigResponse, error) {
	if c.noConfig {
		return nil, status.Error(codes.Unimplemented, "unknown method RuntimeConfig")
	}
	return &runtimeapi.RuntimeConfigResponse{Linux: &runtimeapi.LinuxRuntimeConfiguration{
		CgroupDriver: runtimeapi.CgroupDriver_SYSTEMD}}, nil
}

func (crio) Status(context.Context, *runtimeapi.StatusRequest) (*runtimeapi.StatusResponse, error) {
	features := func(userNamespaces bool) *runtimeapi.RuntimeHandlerFeatures {
		return &runtimeapi.RuntimeHandlerFeatures{RecursiveReadOnlyMounts: true,
			UserNamespaces: userNamespaces}
	}
	return &runtimeapi.StatusResponse{
		Status: &runtimeapi.RuntimeStatus{Conditions: []*runtimeapi.RuntimeCondition{
			{Type: runtimeapi.RuntimeReady, Status: true},
			{Type: runtimeapi.NetworkReady, Reason: "NetworkPluginNotReady",
				Message: "Network plugin returns error: No CNI configuration file in " +
					"/etc/cni/net.d/. Has your network provider started?"},
		}},
		RuntimeHandlers: []*runtimeapi.RuntimeHandler{
			{Name: "", Features: features(true)}, // the default one, a second time without its name
			{Name: "crun", Features: features(true)},
			{Name: "runc", Features: features(false)},
		},
		Features: &runtimeapi.RuntimeFeatures{SupplementalGroupsPolicy: true},
	}, nil
}

// observeRuntime has the core ask a runtime until it has a status, over the real port.
func observeRuntime(t *testing.T, server runtimeapi.RuntimeServiceServer) *runtime.Runtime {
	t.Helper()
	dir, err := os.MkdirTemp("", "crio") // short enough for a socket's path
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	listener, err := net.Listen("unix", filepath.Join(dir, "crio.sock"))
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	runtimeapi.RegisterRuntimeServiceServer(s, server)
	go func() { _ = s.Serve(listener) }()
	t.Cleanup(s.Stop)
	completions := make(chan world.Event, 1)
	ticks := clock.New()
	port, err := cri.New(cri.Options{RuntimeEndpoint: "unix://" + listener.Addr().String(),
		Clock: ticks, Deliver: func(ev world.Event) { completions <- ev }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = port.Close() })

	r, table := &runtime.Runtime{}, &op.Table{}
	for r.AsOf.IsZero() {
		effects := &op.Effects{}
		effects.Reset(table, ticks.Now())
		r.Plan(effects)
		if len(effects.List()) != 1 {
			t.Fatalf("the core asks for %v", effects.List())
		}
		port.Do(effects.List()[0])
		select {
		case ev := <-completions:
			record, _ := table.Complete(ev.Op)
			r.HandleCompletion(record, ev, effects)
			if r.Problem != "" {
				t.Fatal(r.Problem)
			}
		case <-time.After(porttest.Patience):
			t.Fatal("no answer")
		}
	}
	return r
}

// What CRI-O says of itself decides on the prefix of container IDs, the cgroup driver, the handlers
// that pods may use, and the readiness of the Node.
func TestCRIO(t *testing.T) {
	r := observeRuntime(t, crio{})
	if r.Name != "cri-o" || r.Version != "1.36.0" || r.CgroupDriver != "SYSTEMD" ||
		!r.RecursiveReadOnly || r.SupplementalGroupsPolicy == nil || !*r.SupplementalGroupsPolicy {
		t.Errorf("%+v", r)
	}
	want := []runtime.Handler{{UserNamespaces: true, RecursiveReadOnly: true},
		{Name: "crun", UserNamespaces: true, RecursiveReadOnly: true},
		{Name: "runc", RecursiveReadOnly: true}}
	if d := cmp.Diff(want, r.Handlers); d != "" {
		t.Error(d)
	}
	if r.NotReadyMessage() != "" || r.NetworkNotReadyMessage() == "" {
		t.Errorf("not ready: %q; network: %q", r.NotReadyMessage(), r.NetworkNotReadyMessage())
	}
	layout := cgroup.LayoutFromConfig(&kubeletconfig.KubeletConfiguration{CgroupDriver: "cgroupfs"})
	layout.SetDriver(r.CgroupDriver)
	if !layout.Systemd {
		t.Error("the configured driver has priority over the runtime's")
	}
}

// A CRI-O that does not report its driver leaves the configured one.
func TestCRIOWithoutRuntimeConfig(t *testing.T) {
	r := observeRuntime(t, crio{noConfig: true})
	layout := cgroup.LayoutFromConfig(&kubeletconfig.KubeletConfiguration{CgroupDriver: "systemd"})
	layout.SetDriver(r.CgroupDriver)
	if !layout.Systemd || !layout.DriverKnown {
		t.Errorf("%+v", layout)
	}
}

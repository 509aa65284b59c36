package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"seedlet.dev/realworld/porttest"
)

// csiDriver is a CSI driver that registers, and passes on what it is notified of.
type csiDriver struct {
	registration.UnimplementedRegistrationServer
	version  string
	notified chan *registration.RegistrationStatus
}

// GetInfo implements the API.
func (d *csiDriver) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo,
	error) {
	return &registration.PluginInfo{Type: "CSIPlugin", Name: "driver.test",
		Endpoint: "/csi/csi.sock", SupportedVersions: []string{d.version}}, nil
}

// NotifyRegistrationStatus implements the API.
func (d *csiDriver) NotifyRegistrationStatus(_ context.Context,
	status *registration.RegistrationStatus) (*registration.RegistrationStatusResponse, error) {
	d.notified <- status
	return &registration.RegistrationStatusResponse{}, nil
}

// serveDriver serves a driver of a version. The returned function ends it.
func serveDriver(t *testing.T, socket, version string) (driver *csiDriver, end func()) {
	t.Helper()
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	driver = &csiDriver{version: version, notified: make(chan *registration.RegistrationStatus, 64)}
	server := grpc.NewServer()
	registration.RegisterRegistrationServer(server, driver)
	var served sync.WaitGroup
	served.Go(func() { _ = server.Serve(listener) }) // until the end
	end = sync.OnceFunc(func() {
		server.Stop()
		served.Wait()
	})
	t.Cleanup(end)
	return driver, end
}

func (d *csiDriver) expect(t *testing.T, registered bool, text string) {
	t.Helper()
	select {
	case got := <-d.notified:
		if got.PluginRegistered != registered || !strings.Contains(got.Error, text) {
			t.Errorf("the driver is notified of %v, want %v and %q", got, registered, text)
		}
	case <-time.After(porttest.Patience):
		t.Errorf("the driver is not notified")
	}
}

// A driver registers with each agent, and so does another one in its place. The socket is found
// whether the agent or the driver is first.
func TestPlugins(t *testing.T) {
	dir, err := os.MkdirTemp("", "seedlet") // the path of a socket has at most 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	config := write(t, filepath.Join(dir, "config.yaml"), header+
		"enableServer: false\npodLogsDir: "+filepath.Join(dir, "logs")+"\n")
	port := freePort(t)
	agent := func() *exec.Cmd {
		return command(t, "--config", config, "--root-dir", dir, "--hostname-override", "node-a",
			"--container-runtime-endpoint", "unix://"+filepath.Join(dir, "none.sock"),
			"--healthz-port", fmt.Sprint(port))
	}
	kill := func(cmd *exec.Cmd) {
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait() // it was killed
	}
	cmd := agent()
	start(t, cmd)
	registry := filepath.Join(dir, "plugins_registry")
	porttest.Eventually(t, "the agent makes the directory", func() bool {
		info, err := os.Stat(registry)
		return err == nil && info.IsDir()
	})
	socket := filepath.Join(registry, "driver-reg.sock")
	first, end := serveDriver(t, socket, "1.0.0")
	first.expect(t, true, "")
	kill(cmd)
	cmd = agent()
	start(t, cmd)
	first.expect(t, true, "")
	end()
	second, _ := serveDriver(t, socket, "2.0.0")
	second.expect(t, false, "none of the versions is supported")
	kill(cmd)
	if len(first.notified) > 0 {
		t.Errorf("the first driver is notified again: %v", <-first.notified)
	}
}

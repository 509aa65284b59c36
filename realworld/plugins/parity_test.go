package plugins

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"seedlet.dev/world"
	"seedlet.dev/world/parity"
)

// parityWorld runs the suite on real plugins.
type parityWorld struct {
	*harness
	plugins map[string]*plugin // by name of the socket
	ends    map[string]func()
}

func (w *parityWorld) Serve(name string, info *world.PluginInfo, wrong parity.PluginFault) {
	w.Remove(name)
	path := w.Path(name)
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		w.t.Fatal(err)
	}
	p := &plugin{hangs: wrong == parity.PluginHangs, info: &registration.PluginInfo{Type: info.Type,
		Name: info.Name, Endpoint: info.Endpoint, SupportedVersions: info.Versions}}
	switch wrong {
	case parity.PluginFails:
		p.err = errors.New("not ready")
	case parity.PluginTooLong:
		p.info.Name = strings.Repeat("x", world.PluginInfoBytesMax)
	case parity.PluginDown:
		listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: path})
		if err != nil {
			w.t.Fatal(err)
		}
		listener.SetUnlinkOnClose(false)
		if err := listener.Close(); err != nil {
			w.t.Fatal(err)
		}
		return
	}
	w.plugins[name], w.ends[name] = p, w.serve(name, p)
}

func (w *parityWorld) Remove(name string) {
	if end := w.ends[name]; end != nil {
		end()
	}
	_ = os.Remove(w.Path(name)) // the end of a server removes its socket
}

func (w *parityWorld) Path(name string) string { return filepath.Join(w.dir, name) }

func (w *parityWorld) Observed() []world.PluginSocket { return w.observed() }

func (w *parityWorld) Notified(name string) []world.NotifyPluginRegistration {
	p := w.plugins[name]
	p.access.Lock()
	defer p.access.Unlock()
	var all []world.NotifyPluginRegistration
	for _, s := range p.statuses {
		all = append(all,
			world.NotifyPluginRegistration{Registered: s.PluginRegistered, Error: s.Error})
	}
	return all
}

func (w *parityWorld) CallWithin(body any, timeout time.Duration) (any, *world.Error) {
	return w.call(body, timeout)
}

func (w *parityWorld) Sleep(d time.Duration) { time.Sleep(d) }

func (w *parityWorld) Now() time.Time { return time.Now() }

func TestParity(t *testing.T) {
	parity.PluginsPort(t, func(t *testing.T) parity.Plugins {
		return &parityWorld{newHarness(t), map[string]*plugin{}, map[string]func(){}}
	})
}

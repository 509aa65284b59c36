package apiserver_test

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"seedlet.dev/realworld/apiserver"
	"seedlet.dev/realworld/cluster"
	"seedlet.dev/realworld/identity"
	"seedlet.dev/realworld/porttest"
	"seedlet.dev/world"
	"seedlet.dev/world/parity"
)

const (
	nodeName  = "parity-node"
	namespace = "parity"
)

// realCluster is a real API server behind two ports: one of the node, one of an administrator.
type realCluster struct {
	*porttest.World
	admin *porttest.World
}

func (c *realCluster) Node() string      { return nodeName }
func (c *realCluster) Namespace() string { return namespace }

func (c *realCluster) Admin(body any) (any, *world.Error) { return c.admin.Call(body) }

// newPort returns a port with the identity of the options.
func newPort(t *testing.T, opts identity.Options, contentType string) *porttest.World {
	t.Helper()
	opts.NodeName, opts.UserAgent = nodeName, "seedlet/parity"
	opts.Warn = func(problem string) { t.Log(problem) }
	id, err := identity.Load(opts)
	if err != nil {
		t.Fatal(err)
	}
	w := porttest.New()
	port, err := apiserver.New(apiserver.Options{
		Identity: id, NodeName: nodeName, ContentType: contentType,
		HeartbeatTimeout: 10 * time.Second, Clock: w.Clock, Deliver: w.Deliver,
	})
	if err != nil {
		t.Fatal(err)
	}
	w.Port = port
	t.Cleanup(func() { port.Close(); id.Close() })
	id.Start()
	return w
}

func TestWithCluster(t *testing.T) {
	c := cluster.New(t, cluster.Options{})
	for _, args := range [][]string{
		{"create", "namespace", namespace},
		{"wait", "--for=create", "--timeout=60s", "-n", namespace, "serviceaccount/default"},
	} {
		if _, err := c.Kubectl(t.Context(), args...); err != nil {
			t.Fatal(err)
		}
	}
	t.Run("parity", func(t *testing.T) {
		node, err := c.NodeKubeconfig(nodeName)
		if err != nil {
			t.Fatal(err)
		}
		parity.API(t, &realCluster{
			World: newPort(t, identity.Options{Kubeconfig: node}, runtime.ContentTypeProtobuf),
			admin: newPort(t, identity.Options{Kubeconfig: c.AdminKubeconfig()}, ""),
		})
	})
	t.Run("events of a node", func(t *testing.T) { testEvents(t, c) })
	t.Run("bootstrap", func(t *testing.T) { testBootstrap(t, c) })
	t.Run("server restart", func(t *testing.T) { testServerRestart(t, c) })
}

// testEvents checks that a node may record events of its pods and of itself, and that they are
// counted.
func testEvents(t *testing.T, c *cluster.Cluster) {
	kubeconfig, err := c.NodeKubeconfig(nodeName)
	if err != nil {
		t.Fatal(err)
	}
	w := newPort(t, identity.Options{Kubeconfig: kubeconfig}, runtime.ContentTypeProtobuf)
	for _, regarding := range []v1.ObjectReference{
		{Kind: "Pod", APIVersion: "v1", Namespace: namespace, Name: "web", UID: "u1",
			FieldPath: "spec.containers{web}"},
		{Kind: "Node", Name: nodeName, UID: nodeName},
	} {
		for range 2 {
			w.Send(&world.RecordEvent{Regarding: regarding, Type: v1.EventTypeWarning,
				Reason: "BackOff", Message: "back-off"})
		}
		porttest.Eventually(t, "the "+regarding.Kind+" event is counted twice", func() bool {
			out, err := c.Kubectl(t.Context(), "get", "events", "--all-namespaces", "-o",
				"jsonpath={.items[?(@.involvedObject.kind==\""+regarding.Kind+"\")].count}",
				"--field-selector", "reason=BackOff,involvedObject.name="+regarding.Name)
			return err == nil && strings.TrimSpace(out) == "2"
		})
	}
}

// testBootstrap checks that a bootstrap token yields a certificate with the node's identity.
func testBootstrap(t *testing.T, c *cluster.Cluster) {
	token, err := c.BootstrapKubeconfig(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	as := identity.Options{Kubeconfig: filepath.Join(dir, "kubelet.conf"), Bootstrap: token,
		CertDir: dir, Rotate: true}
	w := newPort(t, as, runtime.ContentTypeProtobuf)
	read := &world.GetObject{Resource: world.ResourceNodes, Name: nodeName}
	porttest.Eventually(t, "the node can read its Node object", func() bool {
		_, err := w.Call(read)
		return err == nil || err.Has(world.KindNotFound)
	})
	other := &world.GetObject{Resource: world.ResourceNodes, Name: "another"}
	if _, err := w.Call(other); !err.Has(world.KindRefused) {
		t.Errorf("reading another Node: %v", err)
	}
	as.Bootstrap = filepath.Join(dir, "none")
	again := newPort(t, as, runtime.ContentTypeProtobuf)
	if _, err := again.Call(read); err != nil && !err.Has(world.KindNotFound) {
		t.Errorf("after a restart of the agent: %v", err)
	}
}

// testServerRestart checks that a watch reports a server that is down, and misses no change after
// the server is back.
func testServerRestart(t *testing.T, c *cluster.Cluster) {
	w := newPort(t, identity.Options{Kubeconfig: c.AdminKubeconfig()}, runtime.ContentTypeProtobuf)
	w.Send(&world.WatchObjects{Watch: 1, WatchTarget: world.WatchTarget{
		Resource: world.ResourceConfigMaps, Namespace: namespace, Name: "seen"}})
	last := func() any {
		event := w.WatchEvents()
		if len(event) == 0 {
			return nil
		}
		return event[len(event)-1]
	}
	porttest.Eventually(t, "the watch has listed", func() bool { return last() != nil })
	if err := c.StopAPIServer(); err != nil {
		t.Fatal(err)
	}
	create := &world.CreateObject{Object: world.Object{ConfigMap: &v1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "seen"}}}}
	if _, err := w.Call(create); !err.Has(world.KindUnavailable) {
		t.Errorf("create without a server: %v", err)
	}
	porttest.Eventually(t, "the watch reports the failure", func() bool {
		failing, is := last().(*world.WatchFailing)
		return is && failing.Err.Has(world.KindUnavailable)
	})
	if err := c.StartAPIServer(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Call(create); err != nil {
		t.Fatal(err)
	}
	porttest.Eventually(t, "the watch delivers the created object", func() bool {
		switch event := last().(type) {
		case *world.ObjectsListed:
			return len(event.Objects) == 1
		case *world.ObjectChanged:
			return true
		}
		return false
	})
}

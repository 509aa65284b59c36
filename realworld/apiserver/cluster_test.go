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

// realCluster is a real API server, asked through the port: by the node, and by somebody who may
// do everything.
type realCluster struct {
	*porttest.World
	admin *porttest.World
}

func (c *realCluster) Node() string      { return nodeName }
func (c *realCluster) Namespace() string { return namespace }

func (c *realCluster) Admin(body any) (any, *world.Error) { return c.admin.Call(body) }

// newPort makes a port for whoever the options say.
func newPort(t *testing.T, as identity.Options, contentType string) *porttest.World {
	t.Helper()
	as.NodeName, as.UserAgent = nodeName, "seedlet/parity"
	as.Warn = func(problem string) { t.Log(problem) }
	who, err := identity.Load(as)
	if err != nil {
		t.Fatal(err)
	}
	w := porttest.New()
	port, err := apiserver.New(apiserver.Options{
		Identity: who, NodeName: nodeName, ContentType: contentType,
		HeartbeatTimeout: 10 * time.Second, Clock: w.Clock, Deliver: w.Deliver,
	})
	if err != nil {
		t.Fatal(err)
	}
	w.Port = port
	t.Cleanup(func() { port.Close(); who.Close() })
	who.Start()
	return w
}

// until waits until something is so.
func until(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !is(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("within a minute it is not so that %s", what)
		}
	}
}

func TestOnACluster(t *testing.T) {
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
			admin: newPort(t, identity.Options{Kubeconfig: c.Admin()}, ""),
		})
	})
	t.Run("users see what a node tells", func(t *testing.T) { tells(t, c) })
	t.Run("a node asks for its certificate", func(t *testing.T) { bootstraps(t, c) })
	t.Run("the server dies and comes back", func(t *testing.T) { restarts(t, c) })
}

// tells checks that a node may tell of its pods and of itself, and that it is counted.
func tells(t *testing.T, c *cluster.Cluster) {
	kubeconfig, err := c.NodeKubeconfig(nodeName)
	if err != nil {
		t.Fatal(err)
	}
	w := newPort(t, identity.Options{Kubeconfig: kubeconfig}, runtime.ContentTypeProtobuf)
	for _, about := range []v1.ObjectReference{
		{Kind: "Pod", APIVersion: "v1", Namespace: namespace, Name: "web", UID: "u1",
			FieldPath: "spec.containers{web}"},
		{Kind: "Node", Name: nodeName, UID: nodeName},
	} {
		for range 2 {
			w.Tell(&world.RecordEvent{Regarding: about, Type: v1.EventTypeWarning,
				Reason: "BackOff", Message: "back-off"})
		}
		until(t, "the "+about.Kind+" is told of twice", func() bool {
			out, err := c.Kubectl(t.Context(), "get", "events", "--all-namespaces", "-o",
				"jsonpath={.items[?(@.involvedObject.kind==\""+about.Kind+"\")].count}",
				"--field-selector", "reason=BackOff,involvedObject.name="+about.Name)
			return err == nil && strings.TrimSpace(out) == "2"
		})
	}
}

// bootstraps checks that a token becomes a certificate, which the server knows as the node's.
func bootstraps(t *testing.T, c *cluster.Cluster) {
	token, err := c.BootstrapKubeconfig(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	as := identity.Options{Kubeconfig: filepath.Join(dir, "kubelet.conf"), Bootstrap: token,
		CertDir: dir, Rotate: true}
	w := newPort(t, as, runtime.ContentTypeProtobuf)
	read := &world.GetObject{Resource: world.ResourceNodes, Name: nodeName}
	until(t, "the node reads its object", func() bool {
		_, err := w.Call(read)
		return err == nil || err.Has(world.KindNotFound)
	})
	other := &world.GetObject{Resource: world.ResourceNodes, Name: "another"}
	if _, err := w.Call(other); !err.Has(world.KindRefused) {
		t.Errorf("reads another's: %v", err)
	}
	as.Bootstrap = filepath.Join(dir, "none")
	again := newPort(t, as, runtime.ContentTypeProtobuf)
	if _, err := again.Call(read); err != nil && !err.Has(world.KindNotFound) {
		t.Errorf("in the next life: %v", err)
	}
}

// restarts checks that a server that was away is told of, and that nothing is missed of what was
// changed after it came back.
func restarts(t *testing.T, c *cluster.Cluster) {
	w := newPort(t, identity.Options{Kubeconfig: c.Admin()}, runtime.ContentTypeProtobuf)
	w.Tell(&world.WatchObjects{Watch: 1, Watched: world.Watched{
		Resource: world.ResourceConfigMaps, Namespace: namespace, Name: "seen"}})
	last := func() any {
		told := w.Told()
		if len(told) == 0 {
			return nil
		}
		return told[len(told)-1]
	}
	until(t, "the watch has listed", func() bool { return last() != nil })
	if err := c.StopAPIServer(); err != nil {
		t.Fatal(err)
	}
	seen := &world.CreateObject{Object: world.Object{ConfigMap: &v1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "seen"}}}}
	if _, err := w.Call(seen); !err.Has(world.KindUnavailable) {
		t.Errorf("made with nobody there: %v", err)
	}
	until(t, "the watch is told to fail", func() bool {
		failing, is := last().(*world.WatchFailing)
		return is && failing.Err.Has(world.KindUnavailable)
	})
	if err := c.StartAPIServer(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Call(seen); err != nil {
		t.Fatal(err)
	}
	until(t, "the watch tells of what was made", func() bool {
		switch told := last().(type) {
		case *world.ObjectsListed:
			return len(told.Objects) == 1
		case *world.ObjectChanged:
			return true
		}
		return false
	})
}

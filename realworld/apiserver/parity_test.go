package apiserver_test

import (
	"testing"
	"time"

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

// newPort makes a port for whoever a kubeconfig is of.
func newPort(t *testing.T, kubeconfig, contentType string) *porttest.World {
	t.Helper()
	who, err := identity.Load(identity.Options{
		Kubeconfig: kubeconfig, NodeName: nodeName, UserAgent: "seedlet/parity",
		Warn: func(problem string) { t.Error(problem) },
	})
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
	return w
}

func TestParity(t *testing.T) {
	c := cluster.New(t, cluster.Options{})
	for _, args := range [][]string{
		{"create", "namespace", namespace},
		{"wait", "--for=create", "--timeout=60s", "-n", namespace, "serviceaccount/default"},
	} {
		if _, err := c.Kubectl(t.Context(), args...); err != nil {
			t.Fatal(err)
		}
	}
	node, err := c.NodeKubeconfig(nodeName)
	if err != nil {
		t.Fatal(err)
	}
	parity.API(t, &realCluster{
		World: newPort(t, node, runtime.ContentTypeProtobuf), admin: newPort(t, c.Admin(), ""),
	})
}

package apiserver

import (
	"net/http"
	"testing"
	"time"

	"seedlet.dev/world"
)

// A request that waits for its rate limit until the deadline is never sent; a request with another
// limit is not delayed by it.
func TestLimits(t *testing.T) {
	f := newFake(t, func(w http.ResponseWriter, _ *http.Request) {
		respond(w, 200, object("Pod", "ns", "web", "1"))
	}, func(o *Options) { o.QPS, o.Burst = 0.001, 1 })
	get := &world.GetObject{Resource: world.ResourcePods, Namespace: "ns", Name: "web"}
	if _, err := f.call(get, waitMax); err != nil {
		t.Fatal(err)
	}
	if _, err := f.call(get, time.Second); !err.Has(world.KindCanceled) {
		t.Errorf("over the limit: got %v", err)
	}
	if _, err := f.call(&world.PatchObject{Resource: world.ResourcePods, Namespace: "ns",
		Name: "web", Status: true, Patch: []byte("{}")}, waitMax); err != nil {
		t.Errorf("a status patch is delayed: %v", err)
	}
	f.setHandler(func(w http.ResponseWriter, _ *http.Request) {
		respond(w, 200, object("Node", "", "node-1", "1"))
	})
	for range 3 {
		if _, err := f.call(&world.GetObject{Resource: world.ResourceNodes, Name: "node-1"},
			waitMax); err != nil {
			t.Errorf("a heartbeat is delayed: %v", err)
		}
	}
}

// Heartbeats have a connection of their own. After a heartbeat without a response, all connections
// are opened again. An error status is a response.
func TestReconnect(t *testing.T) {
	node, pod := "/api/v1/nodes/node-1", "/api/v1/namespaces/ns/pods/web"
	silent := make(chan struct{})
	f := newFake(t, nil, func(o *Options) { o.HeartbeatTimeout = 100 * time.Millisecond })
	respondAll := func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == node {
			respondError(w, 500, "InternalError", nil)
			return
		}
		respond(w, 200, object("Pod", "ns", "web", "1"))
	}
	f.setHandler(respondAll)
	beat := func() {
		_, _ = f.call(&world.GetObject{Resource: world.ResourceNodes, Name: "node-1"}, waitMax)
	}
	read := func() {
		if _, err := f.call(&world.GetObject{Resource: world.ResourcePods, Namespace: "ns",
			Name: "web"}, waitMax); err != nil {
			t.Fatal(err)
		}
	}
	beat()
	read()
	beat()
	read()
	f.setHandler(func(_ http.ResponseWriter, r *http.Request) { <-silent })
	beat() // over the old connection
	close(silent)
	f.setHandler(respondAll)
	beat()
	read()
	beats, reads := f.remoteAddrs(node), f.remoteAddrs(pod)
	if beats[0] == reads[0] {
		t.Error("heartbeats share a connection")
	}
	if beats[0] != beats[1] || beats[1] != beats[2] || reads[0] != reads[1] {
		t.Errorf("connections changed without need: %v, %v", beats, reads)
	}
	if beats[3] == beats[2] || reads[2] == reads[1] {
		t.Errorf("connections were reused after a heartbeat without a response: %v, %v", beats, reads)
	}
}

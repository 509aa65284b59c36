package runtime

import (
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/sim/truth"
)

// listeningScript makes the container app listen on port 80, log on port 81, and any on every port.
func listeningScript(i Instance) Script {
	return Script{Ports: map[string][]int32{"app": {80}, "log": {81}}[i.Container]}
}

func (w *simWorld) mustCreateAndStart(t *testing.T, sandbox, uid, name string) string {
	t.Helper()
	id := w.mustCreate(t, sandbox, uid, name, 0)
	w.mustStart(t, id)
	return id
}

func (w *simWorld) listenerName(address string, port int32) string {
	if c := w.runtime.listenerAt(address, port); c != nil {
		return c.Name
	}
	return ""
}

func TestListenerAt(t *testing.T) {
	w := newWorld(1, func(o *Options) { o.Behaviour = listeningScript })
	s := w.mustRun(t, "u1")
	ip := w.runtime.Sandboxes()[0].IP
	w.mustCreateAndStart(t, s, "u1", "log")
	if got := w.listenerName(ip, 80); got != "" {
		t.Errorf("%s listens on the port of another container", got)
	}
	app := w.mustCreateAndStart(t, s, "u1", "app")
	w.mustCreateAndStart(t, s, "u1", "any")
	for port, want := range map[int32]string{80: "app", 81: "log", 82: "any"} { //ordered: each alone
		if got := w.listenerName(ip, port); got != want {
			t.Errorf("port %d: %q listens, want %q", port, got, want)
		}
	}
	if got := w.listenerName("10.88.9.9", 80) + w.listenerName("", 80); got != "" {
		t.Errorf("%s listens elsewhere", got)
	}
	if _, err := w.Call(&runtimeapi.StopContainerRequest{ContainerId: app, Timeout: 1}); err != nil {
		t.Fatal(err)
	}
	if got := w.listenerName(ip, 80); got != "any" { // the port has become free
		t.Errorf("%q listens on 80", got)
	}
	if _, err := w.Call(&runtimeapi.StopPodSandboxRequest{PodSandboxId: s}); err != nil {
		t.Fatal(err)
	}
	if got := w.listenerName(ip, 82); got != "" {
		t.Errorf("%s listens in a stopped sandbox", got)
	}
}

func TestListenerInHostNetwork(t *testing.T) {
	w := newWorld(1, func(o *Options) { o.NodeAddresses = []string{"192.0.2.10", "127.0.0.1"} })
	config := w.sandboxConfig("u1")
	config.Linux = &runtimeapi.LinuxPodSandboxConfig{
		SecurityContext: &runtimeapi.LinuxSandboxSecurityContext{
			NamespaceOptions: &runtimeapi.NamespaceOption{Network: runtimeapi.NamespaceMode_NODE},
		},
	}
	body, err := w.Call(&runtimeapi.RunPodSandboxRequest{Config: config})
	if err != nil {
		t.Fatal(err)
	}
	w.mustCreateAndStart(t, body.(*runtimeapi.RunPodSandboxResponse).PodSandboxId, "u1", "host")
	for address, want := range map[string]string{ //ordered: each alone
		"192.0.2.10": "host", "127.0.0.1": "host", "": "", "10.88.0.3": "",
	} {
		if got := w.listenerName(address, 80); got != want {
			t.Errorf("%q listens at %q, want %q", got, address, want)
		}
	}
}

func TestSendRequestAndCancel(t *testing.T) {
	slow := ReplyRule{Match: "slow", Delay: time.Minute, Reply: truth.ReplySuccess}
	w, _ := replyingContainer(t, nil, slow)
	ip := w.runtime.Sandboxes()[0].IP
	var replies []truth.Reply
	send := func(text string) func() {
		return w.runtime.SendRequest(ip, 80, text, func(r truth.Reply) { replies = append(replies, r) })
	}
	cancelQuick, cancelSlow := send("http :80/quick"), send("http :80/slow")
	if cancelQuick == nil || cancelSlow == nil ||
		w.runtime.SendRequest("elsewhere", 80, "x", nil) != nil {
		t.Fatal("SendRequest found the wrong listeners")
	}
	w.Sleep(5 * time.Second)
	cancelSlow()
	cancelSlow()
	cancelQuick() // has no effect, as the request has ended
	w.Sleep(2 * time.Minute)
	w.wantRequestFacts(t, "0s Asked http :80/quick; 0s Asked http :80/slow; "+
		"0s Replied http :80/quick good; 5s Replied http :80/slow none")
	if len(replies) != 2 || replies[0] != truth.ReplySuccess || replies[1] != truth.ReplyNone {
		t.Errorf("replies %v", replies)
	}
}

package runtime

import (
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/sim/truth"
)

// listening is a world in which app listens on port 80, log on 81, and any on every port.
func listening(i Instance) Script {
	return Script{Ports: map[string][]int32{"app": {80}, "log": {81}}[i.Container]}
}

func (w *simWorld) start(t *testing.T, sandbox, uid, name string) string {
	t.Helper()
	id := w.mustCreate(t, sandbox, uid, name, 0)
	w.mustStart(t, id)
	return id
}

func (w *simWorld) listener(address string, port int32) string {
	if c := w.runtime.listener(address, port); c != nil {
		return c.Name
	}
	return ""
}

func TestWhoListens(t *testing.T) {
	w := newWorld(1, func(o *Options) { o.Behaviour = listening })
	s := w.mustRun(t, "u1")
	ip := w.runtime.Sandboxes()[0].IP
	w.start(t, s, "u1", "log")
	if got := w.listener(ip, 80); got != "" {
		t.Errorf("%s listens on a port of another", got)
	}
	app := w.start(t, s, "u1", "app")
	w.start(t, s, "u1", "any")
	for port, want := range map[int32]string{80: "app", 81: "log", 82: "any"} { //ordered: each alone
		if got := w.listener(ip, port); got != want {
			t.Errorf("port %d: %q listens, want %q", port, got, want)
		}
	}
	if got := w.listener("10.88.9.9", 80) + w.listener("", 80); got != "" {
		t.Errorf("%s listens elsewhere", got)
	}
	if _, err := w.Call(&runtimeapi.StopContainerRequest{ContainerId: app, Timeout: 1}); err != nil {
		t.Fatal(err)
	}
	if got := w.listener(ip, 80); got != "any" { // a port that became free
		t.Errorf("%q listens on 80", got)
	}
	if _, err := w.Call(&runtimeapi.StopPodSandboxRequest{PodSandboxId: s}); err != nil {
		t.Fatal(err)
	}
	if got := w.listener(ip, 82); got != "" {
		t.Errorf("%s listens in a stopped sandbox", got)
	}
}

func TestTheNodesNetwork(t *testing.T) {
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
	w.start(t, body.(*runtimeapi.RunPodSandboxResponse).PodSandboxId, "u1", "host")
	for address, want := range map[string]string{ //ordered: each alone
		"192.0.2.10": "host", "127.0.0.1": "host", "": "", "10.88.0.3": "",
	} {
		if got := w.listener(address, 80); got != want {
			t.Errorf("%q listens at %q, want %q", got, address, want)
		}
	}
}

func TestReachAndHangUp(t *testing.T) {
	w, _ := asked(t, nil, Answer{Match: "slow", Takes: time.Minute, Reply: truth.ReplyGood})
	ip := w.runtime.Sandboxes()[0].IP
	var replies []truth.Reply
	reach := func(text string) func() {
		return w.runtime.Reach(ip, 80, text, func(r truth.Reply) { replies = append(replies, r) })
	}
	late, hangUp := reach("http :80/quick"), reach("http :80/slow")
	if late == nil || hangUp == nil || w.runtime.Reach("elsewhere", 80, "x", nil) != nil {
		t.Fatal("who is there?")
	}
	w.Sleep(5 * time.Second)
	hangUp()
	hangUp()
	late() // it has been answered
	w.Sleep(2 * time.Minute)
	w.wantReplies(t, "0s Asked http :80/quick; 0s Asked http :80/slow; "+
		"0s Replied http :80/quick good; 5s Replied http :80/slow none")
	if len(replies) != 2 || replies[0] != truth.ReplyGood || replies[1] != truth.ReplyNone {
		t.Errorf("told %v", replies)
	}
}

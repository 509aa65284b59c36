package core

import (
	"strings"
	"testing"
	"time"

	"seedlet.dev/world"
)

// paged is a node with a manifest URL.
func paged(manifests map[string]string, page string) *node {
	n := newNode(manifests)
	n.url, n.page = "http://me:hush@host/pods?token=hush", page
	return n
}

func listOf(pods ...string) string {
	return "{apiVersion: v1, kind: PodList, items: [" + strings.Join(pods, ",\n") + "]}"
}

func TestAPodOfAURL(t *testing.T) {
	n := paged(nil, listOf(podNamed("a"), podNamed("b")))
	n.restart()
	n.pass(5 * time.Second)
	if len(n.containers) != 2 {
		t.Fatalf("containers %v", n.containers)
	}
	n.takeCalls()
	for _, page := range []string{"", "kind: Nonsense", "# nothing\n"} {
		n.page = page
		n.pass(time.Minute)
	}
	if got := n.takeCalls(); got != "" {
		t.Errorf("a URL that fails led to %q", got)
	}
	n.page = listOf(podNamed("b"))
	n.pass(time.Minute)
	if got := n.takeCalls(); got != "stop web 30, stop sandbox, remove web, remove sandbox" {
		t.Errorf("ended by %q", got)
	}
}

// Until the URL was read once, what runs may be its: nothing is ended. Static pods of files run
// all the same.
func TestNothingIsEndedBeforeTheURLWasRead(t *testing.T) {
	n := paged(map[string]string{"f.yaml": podNamed("f")}, podNamed("a"))
	n.restart()
	n.pass(5 * time.Second)
	n.takeCalls()
	n.page, n.manifests = "", map[string]string{"g.yaml": podNamed("g")}
	n.restart()
	n.pass(time.Minute)
	if got := n.takeCalls(); got != "run sandbox, create web, start web" {
		t.Errorf("with the URL away: %q", got)
	}
	n.page = podNamed("a")
	n.pass(time.Minute)
	if got := n.takeCalls(); got != "stop web 30, stop sandbox, remove web, remove sandbox" {
		t.Errorf("once it is back: %q, want the end of what the file had", got)
	}
}

// A file that claims the name of a pod of the URL has it; and the other way round it has not.
func TestTheFileWins(t *testing.T) {
	n := paged(nil, podNamed("a"))
	n.restart()
	n.pass(5 * time.Second)
	n.takeCalls()
	n.manifests = map[string]string{"a.yaml": podNamed("a")}
	n.pass(time.Minute)
	want := "stop web 30, stop sandbox, remove web, run sandbox, remove sandbox, create web, start web"
	if got := n.takeCalls(); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	n.page = listOf(podNamed("a"), podNamed("a"))
	n.restart()
	n.pass(time.Minute)
	if got := n.takeCalls(); got != "" {
		t.Errorf("what the URL says of the name led to %q", got)
	}
}

func TestTheURLIsNotShown(t *testing.T) {
	n := paged(nil, podNamed("a"))
	n.restart()
	n.event(world.Event{Body: &world.StateRequest{}})
	if !strings.Contains(n.state, "X-Token") || strings.Contains(n.state, "hush") {
		t.Error("the state that is shown lacks the header or has its value")
	}
}

// The mirror of a file's pod does not wait for the URL; one that may be of the URL stays.
func TestMirrorsWhileTheURLIsAway(t *testing.T) {
	n := paged(map[string]string{"f.yaml": podNamed("f")}, podNamed("a"))
	n.server = newServer()
	n.restart()
	n.pass(10 * time.Second)
	n.page, n.manifests["g.yaml"] = "", podNamed("g")
	n.restart()
	n.pass(time.Minute)
	for _, name := range []string{"default/a-n1", "default/f-n1", "default/g-n1"} {
		if n.server.objects[name] == nil {
			t.Errorf("no %s there, writes %q", name, n.server.writes)
		}
	}
	n.page = listOf()
	n.pass(time.Minute)
	if n.server.objects["default/a-n1"] != nil || len(n.server.objects) != 2 {
		t.Errorf("there are %d, writes %q", len(n.server.objects), n.server.writes)
	}
}

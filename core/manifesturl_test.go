package core

import (
	"strings"
	"testing"
	"time"

	"seedlet.dev/world"
)

// nodeWithManifestURL returns a node with a manifest URL, at which the page is served.
func nodeWithManifestURL(manifests map[string]string, page string) *fakeNode {
	n := newNode(manifests)
	n.manifestURL, n.manifestURLBody = "http://me:hush@host/pods?token=hush", page
	return n
}

func podList(pods ...string) string {
	return "{apiVersion: v1, kind: PodList, items: [" + strings.Join(pods, ",\n") + "]}"
}

func TestPodOfAManifestURL(t *testing.T) {
	n := nodeWithManifestURL(nil, podList(podNamed("a"), podNamed("b")))
	n.restart()
	n.advance(5 * time.Second)
	if len(n.containers) != 2 {
		t.Fatalf("containers %v", n.containers)
	}
	n.takeCalls()
	for _, page := range []string{"", "kind: Nonsense", "# nothing\n"} {
		n.manifestURLBody = page
		n.advance(time.Minute)
	}
	if got := n.takeCalls(); got != "" {
		t.Errorf("a URL that fails led to %q", got)
	}
	n.manifestURLBody = podList(podNamed("b"))
	n.advance(time.Minute)
	if got := n.takeCalls(); got != "stop web 30, stop sandbox, remove web, remove sandbox" {
		t.Errorf("terminated with %q", got)
	}
}

// Until the URL was read once, a running pod may belong to it: no pod is terminated. Static pods of
// files are run in the meantime.
func TestNothingIsTerminatedBeforeTheURLWasRead(t *testing.T) {
	n := nodeWithManifestURL(map[string]string{"f.yaml": podNamed("f")}, podNamed("a"))
	n.restart()
	n.advance(5 * time.Second)
	n.takeCalls()
	n.manifestURLBody, n.manifests = "", map[string]string{"g.yaml": podNamed("g")}
	n.restart()
	n.advance(time.Minute)
	if got := n.takeCalls(); got != "run sandbox, create web, start web" {
		t.Errorf("with the URL unavailable: %q", got)
	}
	n.manifestURLBody = podNamed("a")
	n.advance(time.Minute)
	if got := n.takeCalls(); got != "stop web 2, stop sandbox, remove web, remove sandbox" {
		t.Errorf("once it is available: %q, want the end of the file's first pod", got)
	}
}

// If a file and the URL have a pod of the same name, the file's pod runs.
func TestFileHasPrecedenceOverURL(t *testing.T) {
	n := nodeWithManifestURL(nil, podNamed("a"))
	n.restart()
	n.advance(5 * time.Second)
	n.takeCalls()
	n.manifests = map[string]string{"a.yaml": podNamed("a")}
	n.advance(time.Minute)
	want := "stop web 30, stop sandbox, remove web, run sandbox, remove sandbox, create web, start web"
	if got := n.takeCalls(); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	n.manifestURLBody = podList(podNamed("a"), podNamed("a"))
	n.restart()
	n.advance(time.Minute)
	if got := n.takeCalls(); got != "" {
		t.Errorf("the pods of that name at the URL led to %q", got)
	}
}

func TestManifestURLIsRedacted(t *testing.T) {
	n := nodeWithManifestURL(nil, podNamed("a"))
	n.restart()
	n.event(world.Event{Body: &world.StateRequest{}})
	if !strings.Contains(n.stateJSON, "X-Token") || strings.Contains(n.stateJSON, "hush") {
		t.Error("the served state lacks the header or has its value")
	}
}

// The mirror of a file's pod does not wait for the URL; a mirror that may belong to the URL stays.
func TestMirrorsWhileTheURLIsUnavailable(t *testing.T) {
	n := nodeWithManifestURL(map[string]string{"f.yaml": podNamed("f")}, podNamed("a"))
	n.apiServer = newServer()
	n.restart()
	n.advance(10 * time.Second)
	n.manifestURLBody, n.manifests["g.yaml"] = "", podNamed("g")
	n.restart()
	n.advance(time.Minute)
	for _, name := range []string{"default/a-n1", "default/f-n1", "default/g-n1"} {
		if n.apiServer.objects[name] == nil {
			t.Errorf("no mirror %s, writes %q", name, n.apiServer.writes)
		}
	}
	n.manifestURLBody = podList()
	n.advance(time.Minute)
	if n.apiServer.objects["default/a-n1"] != nil || len(n.apiServer.objects) != 2 {
		t.Errorf("%d mirrors, writes %q", len(n.apiServer.objects), n.apiServer.writes)
	}
}

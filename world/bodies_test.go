package world

import (
	"testing"

	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Every body can be encoded and decoded, and keeps its type.
func TestBodiesRoundTrip(t *testing.T) {
	for _, name := range BodyNames() {
		body, err := ParseBody(name, emptyEncoding(name))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if BodyName(body) != name {
			t.Errorf("%s came back as %s", name, BodyName(body))
		}
		if _, err := AppendBody(nil, body); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := ParseBody("NoSuchThing", nil); err == nil {
		t.Error("an unknown body was accepted")
	}
}

func emptyEncoding(name string) []byte {
	if _, isProto := newBody(name).(proto.Message); isProto {
		return nil
	}
	return []byte("{}")
}

func TestEncodingIsDeterministic(t *testing.T) {
	labels := map[string]string{}
	for _, key := range []string{"a", "b", "c", "d", "e", "f", "g", "h"} {
		labels[key] = key
	}
	body := &runtimeapi.PodSandboxConfig{Labels: labels}
	request := &runtimeapi.RunPodSandboxRequest{Config: body}
	first, err := AppendBody(nil, request)
	if err != nil {
		t.Fatal(err)
	}
	for range 50 {
		if again, _ := AppendBody(nil, request); string(again) != string(first) {
			t.Fatal("the same body has two encodings")
		}
	}
}

func TestPortOfPanicsForACompletion(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("PortOf accepted a completion")
		}
	}()
	if got := PortOf(&RemoveTree{}); got != PortFS {
		t.Errorf("RemoveTree is of port %q", got)
	}
	if got := CallName(&runtimeapi.StopContainerRequest{}); got != "StopContainer" {
		t.Errorf("call %q", got)
	}
	PortOf(&Done{})
}

func TestErrorTextAndKind(t *testing.T) {
	err := Errorf(KindNotFound, "StopContainer", "no container %q", "x")
	if got := err.Error(); got != `StopContainer: NotFound: no container "x"` {
		t.Errorf("error reads %q", got)
	}
	if !err.Has(KindNotFound) || err.Has(KindTimeout) || (*Error)(nil).Has(KindNotFound) {
		t.Error("Has is wrong")
	}
}

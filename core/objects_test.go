package core

import (
	"bytes"
	"encoding/base64"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"seedlet.dev/world"
)

const lastAppliedText = `{"data":{"k":"hidden-applied"}}`

func objectMeta(name, version string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: "default", Name: name, UID: "o", ResourceVersion: version,
		Annotations: map[string]string{annotationLastApplied: lastAppliedText}}
}

func configMapOf(name, version, value string) world.Object {
	return world.Object{ConfigMap: &v1.ConfigMap{ObjectMeta: objectMeta(name, version),
		Data: map[string]string{"k": value}}}
}

// podWithSecrets returns a pod that refers to each kind of object of the API server.
func podWithSecrets() *v1.Pod {
	p := apiPodNamed("web", "u1")
	name := func(name string) v1.LocalObjectReference { return v1.LocalObjectReference{Name: name} }
	p.Annotations = map[string]string{annotationLastApplied: lastAppliedText}
	p.Spec.Containers[0].Env = []v1.EnvVar{{Name: "PLAIN", Value: "hidden-value"},
		{Name: "X", ValueFrom: &v1.EnvVarSource{SecretKeyRef: &v1.SecretKeySelector{
			LocalObjectReference: name("s"), Key: "k"}}}}
	p.Spec.Volumes = []v1.Volume{{Name: "v", VolumeSource: v1.VolumeSource{
		Projected: &v1.ProjectedVolumeSource{Sources: []v1.VolumeProjection{
			{Secret: &v1.SecretProjection{LocalObjectReference: name("s")}},
			{ConfigMap: &v1.ConfigMapProjection{LocalObjectReference: name("c")}},
			{ServiceAccountToken: &v1.ServiceAccountTokenProjection{Path: "token"}},
		}}}}}
	mountAll(&p.Spec)
	return p
}

func nodeWithSecrets() *fakeNode {
	n := newNode(nil)
	n.apiServer = newServer()
	n.apiServer.put(podWithSecrets())
	n.apiServer.undelivered = nil
	n.apiServer.others = map[string]world.Object{"c": configMapOf("c", "1", "hidden-config"),
		"s": {Secret: &v1.Secret{ObjectMeta: objectMeta("s", "1"),
			Data: map[string][]byte{"k": []byte("hidden-secret")}}}}
	n.restart()
	n.advance(5 * time.Second)
	return n
}

// The served state has no secrets, the snapshot has all of them.
func TestServedStateHasNoAPISecrets(t *testing.T) {
	n := nodeWithSecrets()
	if p := n.agent.state.Pods["u1"]; p == nil || len(p.Containers) != 1 {
		t.Fatalf("the pod does not run: %+v", p)
	}
	whole, err := n.agent.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	shown, err := n.agent.redactedSnapshot()
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"hidden-secret", "hidden-config", "hidden-token", "hidden-value",
		"hidden-applied"} {
		encoded := base64.StdEncoding.EncodeToString([]byte(text))
		if !bytes.Contains(whole, []byte(text)) && !bytes.Contains(whole, []byte(encoded)) {
			t.Errorf("the snapshot has no %s, so this test proves nothing", text)
		}
		if bytes.Contains(shown, []byte(text)) || bytes.Contains(shown, []byte(encoded)) {
			t.Errorf("%s is served", text)
		}
	}
	if !bytes.Contains(shown, []byte(redactedText)) {
		t.Error("nothing is redacted")
	}
}

// Volumes follow their objects, also in running pods. A restart of the agent and an unavailable API
// server change nothing.
func TestVolumesFollowTheServer(t *testing.T) {
	n := nodeWithSecrets()
	var written []string
	n.apiServer.onEffect = func(effect any) {
		if dir, ok := effect.(*world.WriteDir); ok {
			for _, f := range dir.Files {
				written = append(written, f.Path+"="+string(f.Bytes()))
			}
		}
	}
	var watch world.WatchID
	for id, key := range n.agent.state.Objects.Keys {
		if key == "configmaps/default/c" {
			watch = id
		}
	}
	changed := configMapOf("c", "2", "new")
	n.event(world.Event{Body: &world.ObjectChanged{Watch: watch, Object: changed}})
	if got := strings.Join(written, " "); got != "k=new token=hidden-token" {
		t.Errorf("written: %s", got)
	}
	n.apiServer.others["c"] = changed
	n.apiServer.unavailable, written = true, nil
	n.restart()
	n.advance(time.Minute)
	if len(written) > 0 || len(n.containers) != 1 {
		t.Errorf("server unavailable: %d containers, written %v", len(n.containers), written)
	}
	n.event(world.Event{Body: &world.ObjectGone{Watch: watch, Object: changed}})
	n.advance(time.Minute)
	if len(written) > 0 {
		t.Errorf("after the removal of the object: written %v", written)
	}
}

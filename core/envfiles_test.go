package core

import (
	"bytes"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// podOfEnvFile returns a pod that takes the variable A from a file.
func podOfEnvFile() *v1.Pod {
	p := apiPodNamed("a", "u1")
	p.Spec.Volumes = []v1.Volume{{Name: "data",
		VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}}}
	p.Spec.Containers[0].Env = []v1.EnvVar{{Name: "A", ValueFrom: &v1.EnvVarSource{
		FileKeyRef: &v1.FileKeySelector{VolumeName: "data", Path: "env", Key: "K"}}}}
	return p
}

// A container waits for the file that its variables are taken from, and starts once it is there. An
// agent that is killed or restored in between reads it again. The state that is served does not
// have the values.
func TestVariablesFromAFile(t *testing.T) {
	n := bootWithPods(map[string]string{}, podOfEnvFile())
	var values []string
	n.apiServer.onEffect = func(effect any) {
		if create, ok := effect.(*runtimeapi.CreateContainerRequest); ok {
			for _, v := range create.Config.Envs {
				if v.Key == "A" {
					values = append(values, string(v.Value))
				}
			}
		}
	}
	n.advance(30 * time.Second)
	if got := n.waitingMessage("u1"); got != "couldn't parse env file" || len(values) > 0 {
		t.Errorf("without the file: %q, created with %q", got, values)
	}
	events := n.takeEvents()
	if strings.Count(events, "Error: couldn't parse env file") != 1 {
		t.Errorf("events:\n%s", events)
	}
	n.volumeFile = "J='1'"
	n.advance(12 * time.Second)
	want := `environment variable key "K" not found in file ` +
		`"/var/lib/kubelet/pods/u1/volumes/kubernetes.io~empty-dir/data/env"`
	if got := n.waitingMessage("u1"); got != want {
		t.Errorf("without the key: %q", got)
	}
	n.restart()
	n.advance(5 * time.Second)
	n.restore(t)
	n.volumeFile = "K='hush hush'"
	n.failingCalls = map[string]bool{"CreateContainer": true}
	n.advance(12 * time.Second)
	shown, err := n.agent.redactedSnapshot()
	if err != nil || bytes.Contains(shown, []byte("hush hush")) {
		t.Errorf("the value is shown, or %v", err)
	}
	values, n.failingCalls = nil, nil
	n.advance(time.Minute)
	if len(values) != 1 || values[0] != "hush hush" {
		t.Errorf("created with %q", values)
	}
	n.volumeFile = "K='other'"
	n.restart()
	n.advance(time.Minute)
	if len(values) != 1 {
		t.Errorf("after a restart of the agent: created with %q", values)
	}
}

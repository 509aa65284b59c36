package plan

import (
	"fmt"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/core/keyring"
	"seedlet.dev/core/token"
)

const hostilePods = `apiVersion: sim.seedlet.dev/v1alpha1
kind: Scenario
metadata: {name: hostile}
spec:
  description: d
  duration: 1m
  settle: 1m
  node: {api: true}
  pods:
  - count: 8
    api: true
    hostile: {tokens: 100..200, references: 300, doublings: 5, envFrom: 3, files: 2,
      object: bulk, containers: 7, grace: 9s, pullSecrets: 3, registries: 9, longNames: 2,
      longImage: 1, statusRoom: 5000, probeCommand: 3}
    manifest:
      apiVersion: v1
      kind: Pod
      metadata: {name: greedy}
      spec:
        containers:
        - {name: app, image: "registry.test/app:1"}
    behaviour:
    - {container: app, ignoresTerm: 1}
`

// A hostile pod has what its entry says, and the plan stays small.
func TestHostile(t *testing.T) {
	s, err := ParseScenario("hostile.yaml", []byte(hostilePods), nil)
	if err != nil {
		t.Fatal(err)
	}
	p, err := Generate(s, 1)
	if err != nil {
		t.Fatal(err)
	}
	if text := p.YAML(); len(text) > 8<<10 {
		t.Errorf("the plan has %d bytes", len(text))
	}
	again, err := Parse("plan.yaml", p.YAML())
	if err != nil {
		t.Fatal(err)
	}
	seen := map[bool]int{}
	for i := range again.Spec.Pods {
		entry := &again.Spec.Pods[i]
		h := entry.Hostile
		pod, err := entry.BoundPod()
		if err != nil {
			t.Fatal(err)
		}
		app := &pod.Spec.Containers[0]
		got := fmt.Sprint(token.Count(pod), len(app.EnvFrom), len(app.Env), len(pod.Spec.Containers),
			*pod.Spec.TerminationGracePeriodSeconds, len(pod.Spec.ImagePullSecrets), len(app.Image) > 1<<10)
		want := fmt.Sprint(h.Tokens, h.References+h.EnvFrom, h.Doublings+h.LongNames/2, 1+h.Containers,
			9, h.PullSecrets, h.LongImage > 0)
		if got != want {
			t.Errorf("pod %d has %s, its entry says %s", i, got, want)
		}
		command := 0
		if app.ReadinessProbe != nil {
			command = len(app.ReadinessProbe.Exec.Command[1])
		}
		if command != h.ProbeCommand<<10 {
			t.Errorf("pod %d has a probe of %d bytes, its entry says %d KiB", i, command, h.ProbeCommand)
		}
		secret := again.Spec.ObjectNamed(pullSecretName(entry.Name))
		if (secret != nil) != (h.PullSecrets > 0) {
			t.Errorf("pod %d names %d pull secrets, the plan has %+v", i, h.PullSecrets, secret)
		} else if secret != nil {
			o, err := secret.Decode()
			if err != nil || keyring.Decode(o.Secret) == nil ||
				strings.Count(string(o.Secret.Data[v1.DockerConfigJsonKey]), "username") != 1+h.Registries {
				t.Errorf("the pull secret of pod %d is %+v: %v", i, o.Secret, err)
			}
		}
		seen[h.Tokens > 0]++
		last := pod.Spec.Containers[len(pod.Spec.Containers)-1].Name
		if b := entry.BehaviourOf(last); b == nil || !b.IgnoresTerm {
			t.Errorf("container %s behaves as %+v", last, b)
		}
	}
	if seen[true] == 0 || seen[false] == 0 {
		t.Errorf("pods with and without tokens: %v", seen)
	}
}

func TestHostileBounds(t *testing.T) {
	for _, c := range []struct{ change, want string }{
		{"tokens: 100..200>tokens: 100..99999", "0 to 10000"},
		{"doublings: 5>doublings: 40", "0 to 18 doublings"},
		{"statusRoom: 5000>statusRoom: 100", "at least 2048 bytes"},
		{"longNames: 2>longNames: 2000", "at most 1024 KiB"},
		{"probeCommand: 3>probeCommand: 2000", "at most 1024 KiB"},
		{"object: bulk, >", "want the name of a ConfigMap"},
		{"api: true\n    hostile>api: false\n    hostile", "this one is static"},
	} {
		from, to, _ := strings.Cut(c.change, ">")
		s, err := ParseScenario("hostile.yaml",
			[]byte(strings.Replace(hostilePods, from, to, 1)), nil)
		for seed := uint64(1); err == nil && seed < 20; seed++ {
			_, err = Generate(s, seed)
		}
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", c.change, err, c.want)
		}
	}
}

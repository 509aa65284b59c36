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
      longImage: 1, statusRoom: 5000, probeCommand: 3, stays: 5s..9s,
      storage: {claims: 4, ephemeral: 5, classes: [a, b], inline: 6, drivers: [c, d], attributes: 3,
        secrets: 4, object: login, certificates: 2, signer: sign.test/a}}
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
		checkHostileVolumes(t, pod, h.Storage)
		seen[h.Tokens > 0]++
		last := pod.Spec.Containers[len(pod.Spec.Containers)-1].Name
		if b := entry.BehaviourOf(last); b == nil || !b.IgnoresTerm {
			t.Errorf("container %s behaves as %+v", last, b)
		}
	}
	deleted := 0
	for _, h := range again.Spec.Happenings {
		if h.Act != nil && h.Act.Verb == VerbDelete {
			deleted++
		}
	}
	if deleted != len(again.Spec.Pods) {
		t.Errorf("%d of %d pods are deleted", deleted, len(again.Spec.Pods))
	}
	if seen[true] == 0 || seen[false] == 0 {
		t.Errorf("pods with and without tokens: %v", seen)
	}
}

// checkHostileVolumes checks that a pod has the volumes of an entry.
func checkHostileVolumes(t *testing.T, pod *v1.Pod, s *HostileStorage) {
	got, attributes := HostileStorage{}, 0
	for i := range pod.Spec.Volumes {
		switch v := &pod.Spec.Volumes[i]; {
		case v.PersistentVolumeClaim != nil:
			got.Claims++
		case v.Ephemeral != nil:
			got.Ephemeral++
		case v.CSI != nil:
			got.Inline++
			attributes += len(v.CSI.VolumeAttributes["long"])
			if v.CSI.NodePublishSecretRef != nil {
				got.Secrets++
			}
		case v.Name == "certificates":
			got.Certificates = len(v.Projected.Sources)
		}
	}
	want := HostileStorage{Claims: s.Claims, Ephemeral: s.Ephemeral, Inline: s.Inline,
		Secrets: min(s.Secrets, s.Inline), Certificates: s.Certificates}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("the pod has %+v, its entry says %+v", got, want)
	}
	if s.Inline > 0 && attributes != s.Attributes<<10/s.Inline*s.Inline {
		t.Errorf("attributes of %d bytes, the entry says %d KiB", attributes, s.Attributes)
	}
}

func TestHostileBounds(t *testing.T) {
	for _, c := range []struct{ change, want string }{
		{"tokens: 100..200>tokens: 100..99999", "0 to 10000"},
		{"doublings: 5>doublings: 40", "0 to 18 doublings"},
		{"statusRoom: 5000>statusRoom: 100", "at least 2048 bytes"},
		{"longNames: 2>longNames: 2000", "at most 1024 KiB"},
		{"probeCommand: 3>probeCommand: 2000", "at most 1024 KiB"},
		{"claims: 4>claims: 2000", "want 0 to 1024 of anything"},
		{"classes: [a, b], >", "want the class of claims"},
		{"drivers: [c, d], >", "want the driver of inline volumes"},
		{"object: login, >", "want the name of a Secret"},
		{", signer: sign.test/a>", "want the signer"},
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

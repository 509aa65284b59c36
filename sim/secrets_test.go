package sim

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"seedlet.dev/core"
	"seedlet.dev/sim/plan"
	"seedlet.dev/world"
)

// secretScenario has a secret wherever there can be one. Each secret is MARK and a word.
const secretScenario = `apiVersion: sim.seedlet.dev/v1alpha1
kind: Scenario
metadata: {name: secretive}
spec:
  description: d
  duration: 90s
  settle: 5m
  node:
    api: true
    config: {featureGates: {PodCertificateRequest: true},
      staticPodURL: "http://me:MARK-url@host/pods?token=MARK-query",
      staticPodURLHeader: {Authorization: [MARK-urlheader]}}
    credentialPlugins:
    - {name: cloud, apiVersion: credentialprovider.kubelet.k8s.io/v1, matchImages: [registry.test],
      defaultCacheDuration: 1m, env: [{name: KEY, value: MARK-pluginenv}], tokenAttributes: {
      serviceAccountTokenAudience: registry, cacheType: Token, requireServiceAccount: true,
      optionalServiceAccountAnnotationKeys: [registry.test/zone]}}
  signers: [{name: sign.test/a, within: 2s}]
  objects:
  - name: secret
    object: {apiVersion: v1, kind: Secret, metadata: {name: secret, annotations: {
      kubectl.kubernetes.io/last-applied-configuration: "MARK-applied"}},
      data: {key: B64(MARK-secret)}}
  - name: settings
    object: {apiVersion: v1, kind: ConfigMap, metadata: {name: settings}, data: {text: MARK-config},
      binaryData: {bin: B64(MARK-binary)}}
  - name: robot
    object: {apiVersion: v1, kind: ServiceAccount, metadata: {name: robot, annotations: {
      registry.test/zone: MARK-zone}}}
  - name: pull
    object: {apiVersion: v1, kind: Secret, metadata: {name: pull},
      type: kubernetes.io/dockerconfigjson, data: {.dockerconfigjson: B64(PULL)}}
  pods:
  - count: 2
    api: true
    manifest:
      apiVersion: v1
      kind: Pod
      metadata: {name: web, annotations: {
        kubectl.kubernetes.io/last-applied-configuration: "MARK-podapplied"}}
      spec:
        imagePullSecrets: [{name: pull}]
        serviceAccountName: robot
        initContainers: [{name: setup, image: "registry.test/setup:1", env: [
          {name: I, value: MARK-initenv}]}]
        containers:
        - name: web
          image: "registry.test/web:1"
          env:
          - {name: PLAIN, value: MARK-env}
          - {name: S, valueFrom: {secretKeyRef: {name: secret, key: key}}}
          envFrom: [{configMapRef: {name: settings}}, {secretRef: {name: secret}}]
          readinessProbe: {periodSeconds: 2, httpGet: {port: 80, path: /, httpHeaders: [
            {name: Authorization, value: MARK-probe}]}}
          lifecycle:
            postStart: {httpGet: {port: 80, path: /, httpHeaders: [
              {name: Authorization, value: MARK-postStart}]}}
            preStop: {httpGet: {port: 80, path: /, httpHeaders: [
              {name: Authorization, value: MARK-preStop}]}}
          volumeMounts: [{name: all, mountPath: /all}]
        volumes:
        - name: all
          projected: {sources: [{secret: {name: secret}}, {configMap: {name: settings}},
            {serviceAccountToken: {path: token, expirationSeconds: 600}},
            {podCertificate: {signerName: sign.test/a, keyType: ED25519, maxExpirationSeconds: 3600,
              credentialBundlePath: tls.pem}}]}
    behaviour:
    - {container: setup, runs: 1s}
    - {container: web, runs: 5s..30s, exitCodes: [1], answers: [{reply: [bad, refused]}]}
  - manifest:
      apiVersion: v1
      kind: Pod
      metadata: {name: static}
      spec:
        containers:
        - {name: web, image: "registry.test/static:1", env: [{name: A, value: MARK-static}],
          lifecycle: {preStop: {httpGet: {port: 80, path: /, httpHeaders: [
            {name: Authorization, value: MARK-staticHook}]}}}}
    behaviour:
    - {container: web, runs: 5s..30s, exitCodes: [1]}
  actors: {debugs: 1, deletions: 1, always: true}
  images: {absent: 1, pullTakes: 1s..10s, failures: 1..2}
  requests: 10
  faults:
  - {class: error-before, windows: 2, for: 5s..20s, probability: 0.5, always: true}
  - {class: lost, windows: 1, for: 5s..20s, probability: 0.3, takes: 1s..10s, always: true}
  strikes: {agent: 2, agentDown: 1s..5s, always: true}
`

const mark = "unspeakable"

// secretWords are the words of the secrets in the scenario.
var secretWords = []string{"url", "query", "urlheader", "applied", "secret", "config", "binary",
	"podapplied", "initenv", "env", "probe", "postStart", "preStop", "static", "staticHook", "pull",
	"broken", "zone", "pluginenv"}

func generateSecretPlan(t *testing.T, seed uint64) *plan.Plan {
	t.Helper()
	encode := func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }
	text := strings.ReplaceAll(secretScenario, "MARK", mark)
	for _, word := range []string{"secret", "binary"} {
		text = strings.ReplaceAll(text, "B64("+mark+"-"+word+")", encode(mark+"-"+word))
	}
	text = strings.ReplaceAll(text, "B64(PULL)", encode(fmt.Sprintf(
		`{"auths": {"registry.test": {"auth": %q}}}`, encode("user:"+mark+"-pull"))))
	s, err := plan.ParseScenario("secretive.yaml", []byte(text), nil)
	if err != nil {
		t.Fatal(err)
	}
	p, err := plan.Generate(s, seed)
	if err != nil {
		t.Fatal(err)
	}
	broken := strings.ReplaceAll(
		`{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "b"}, "spec": {"containers": [
		{"name": "c", "image": "i", "env": [{"name": "E", "value": {"MARK-broken": "MARK-broken"}}]}]}}`,
		"MARK", mark)
	p.Spec.Happenings = append(p.Spec.Happenings,
		plan.Happening{Manifest: &plan.ManifestChange{File: "broken.yaml", Text: broken}})
	return p
}

// findSecrets returns the words of the secrets that are in a text, in plain text or in base64.
func findSecrets(data []byte, tokens map[string]bool) []string {
	var found []string
	add := func(name string, texts ...string) {
		for _, text := range texts {
			if bytes.Contains(data, []byte(text)) {
				found = append(found, name)
				return
			}
		}
	}
	for _, word := range secretWords {
		text := mark + "-" + word
		// Within a longer text that is encoded a secret begins at one of three offsets.
		texts := []string{text}
		for skip := range 3 {
			encoded := base64.StdEncoding.EncodeToString([]byte(strings.Repeat("-", skip) + text))
			texts = append(texts, encoded[4:len(encoded)-4])
		}
		add(word, texts...)
	}
	for token := range tokens {
		add("token", token)
	}
	return found
}

// Logs, events, patches, responses and the state that the agent serves contain no secret.
func TestNoSecretIsReportedOrServed(t *testing.T) {
	known := map[string]bool{} // the secrets that the agent's state has contained
	effects, states, keys := 0, 0, 0
	for seed := range uint64(3) {
		tokens := map[string]bool{}
		check := func(s Step, source string, body any) {
			data, err := json.Marshal(body)
			if state, ok := body.(*world.StateAnswer); ok {
				data = state.State
			}
			if err != nil {
				t.Fatal(err)
			}
			if found := findSecrets(data, tokens); len(found) > 0 {
				t.Errorf("seed %d, event %d: %s contains %v", seed, s.Number, source, found)
			}
		}
		watch := func(s Step) {
			if created, ok := s.Event.Body.(*world.TokenCreated); ok {
				tokens[created.Token] = true
			}
			if made, ok := s.Event.Body.(*world.KeyMade); ok { // JSON has no ends of lines
				keys++
				tokens[strings.Split(made.PrivateKey, "\n")[1]] = true
			}
			for _, eff := range s.Effects {
				switch eff.Body.(type) {
				case *world.Log, *world.RecordEvent, *world.PatchObject, *world.HealthAnswer,
					*world.MetricsAnswer, *world.RunningPodsAnswer:
					effects++
					check(s, world.BodyName(eff.Body), eff.Body)
				}
			}
			if s.Number%9 != 0 {
				return
			}
			states++
			snapshot, err := s.Agent.Snapshot()
			if err != nil {
				t.Fatal(err)
			}
			for _, word := range findSecrets(snapshot, tokens) {
				known[word] = true
			}
			restored, err := core.Restore(snapshot)
			if err != nil {
				t.Fatal(err)
			}
			responses := restored.Step(world.Event{Time: s.Event.Time, Body: &world.StateRequest{}})
			for _, eff := range responses {
				if state, ok := eff.Body.(*world.StateAnswer); ok {
					check(s, "the state", state)
				}
			}
		}
		verdict, err := Run(generateSecretPlan(t, seed), Options{Watch: watch})
		if err != nil || verdict.Failure != nil {
			t.Fatalf("seed %d: %v %+v", seed, err, verdict.Failure)
		}
	}
	for _, word := range append([]string{"token"}, secretWords...) {
		if !known[word] && word != "broken" {
			t.Errorf("the agent never had %s in its state: the test proves nothing about it", word)
		}
	}
	if effects < 500 || states < 100 || keys < 3 {
		t.Errorf("only %d effects and %d states were checked, %d keys made", effects, states, keys)
	}
}

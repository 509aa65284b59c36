package e2e

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

var environmentParts = []part{
	{"variables, fields and resources", false, func(t *testing.T, s *suite) {
		s.runPod(t, "environment", `
  containers:
  - name: main
    image: sample
    args: [report, --stay, "/$(A)", "$$(A)", "$(NOBODY)"]
    resources: {limits: {cpu: 1500m, memory: 64Mi}, requests: {cpu: 250m, memory: 32Mi}}
    env:
    - {name: A, value: a}
    - {name: AB, value: "$(A)b"}
    - {name: LITERAL, value: "$$(A)"}
    - {name: UNKNOWN, value: "$(NOBODY)"}
    - {name: NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
    - {name: SPACE, valueFrom: {fieldRef: {fieldPath: metadata.namespace}}}
    - {name: NODE, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}
    - {name: APP, valueFrom: {fieldRef: {fieldPath: "metadata.labels['app']"}}}
    - {name: UID_, valueFrom: {fieldRef: {fieldPath: metadata.uid}}}
    - {name: IP, valueFrom: {fieldRef: {fieldPath: status.podIP}}}
    - {name: CPU, valueFrom: {resourceFieldRef: {resource: limits.cpu}}}
    - {name: MILLI, valueFrom: {resourceFieldRef: {resource: requests.cpu, divisor: 1m}}}
    - {name: MEMORY, valueFrom: {resourceFieldRef: {resource: requests.memory, divisor: 1Mi}}}`)
		r := s.waitReport(t, "environment", "main")
		got := r.environment()
		for _, name := range []string{"PATH", "HOSTNAME", "HOME"} {
			delete(got, name) // set by the runtime
		}
		want := map[string]string{
			"A": "a", "AB": "ab", "LITERAL": "$(A)", "UNKNOWN": "$(NOBODY)",
			"NAME": "environment-e2e", "SPACE": "default", "NODE": nodeName, "APP": "environment",
			"UID_": string(s.agent.servedPod(t, "environment").UID), "IP": s.podIP(t, "environment"),
			"CPU": "2", "MILLI": "250", "MEMORY": "32",
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("unexpected environment (-want +got):\n%s", diff)
		}
		if want := []string{"/a", "$(A)", "$(NOBODY)"}; !slices.Equal(r.Args[3:], want) {
			t.Errorf("the arguments are %q, want %q", r.Args[3:], want)
		}
	}},
}

// podIP returns the IP of a pod at the runtime.
func (s *suite) podIP(t *testing.T, pod string) string {
	t.Helper()
	containers := s.listContainers(t, pod, "")
	if len(containers) == 0 {
		t.Fatalf("pod %s has no container", pod)
	}
	response, err := s.node.Runtime().PodSandboxStatus(t.Context(),
		&runtimeapi.PodSandboxStatusRequest{PodSandboxId: containers[0].PodSandboxId})
	if err != nil {
		t.Fatalf("requesting the status of the sandbox of %s: %v", pod, err)
	}
	return response.Status.GetNetwork().GetIp()
}

package core

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/core/pleg"
	"seedlet.dev/world"
)

// The fuzz targets of this file drive a whole agent with input from outside: no panic is reachable
// from it. Seeds have the shapes that have once ended an agent, or kept it busy.

// fuzzPod returns the pod of a JSON text, as the API server would bind it to this node.
func fuzzPod(text string) *v1.Pod {
	p := &v1.Pod{}
	if json.Unmarshal([]byte(text), p) != nil {
		return nil
	}
	p.Namespace, p.Name, p.UID, p.Spec.NodeName = "default", "web", "u1", "n1"
	return p
}

// podSeeds are the shapes of security findings, and one pod of everything.
func podSeeds() []string {
	tokens := make([]string, 70)
	for i := range tokens {
		tokens[i] = fmt.Sprintf(`{"serviceAccountToken":{"path":"t","expirationSeconds":%d}}`, 600+i)
	}
	return []string{
		`{"spec":{"containers":[{"name":"c","image":"i"}]}}`,
		`{"spec":{"containers":[{"name":"c","image":"i"}],"volumes":[{"name":"v",` +
			`"projected":{"sources":[` +
			strings.Join(tokens, ",") + `]}}]}}`,
		`{"spec":{"containers":[{"name":"c","image":"i","envFrom":[{"prefix":"A","configMapRef":` +
			`{"name":"big"}},{"configMapRef":{"name":"big"}},{"secretRef":{"name":"s",` +
			`"optional":true}}],` +
			`"env":[{"name":"A0","value":"xxxxxxxx"},{"name":"A1","value":"$(A0)$(A0)"},{"name":"A2",` +
			`"value":"$(A1)$(A1)$$(A)$("},{"name":"F","valueFrom":{"fieldRef":{"fieldPath":` +
			`"metadata.labels['x']"}}},{"name":"R","valueFrom":{"resourceFieldRef":{"resource":` +
			`"limits.cpu","divisor":"0"}}}],"command":["$(A2)"],"args":["$(F)"]}]}}`,
		`{"status":{"phase":"Running","startTime":"2026-01-01T00:00:00Z"},` +
			`"spec":{"containers":[{"name":` +
			`"c","image":"i","volumeMounts":[{"name":"v","mountPath":"/v"},` +
			`{"name":"none","mountPath":"x"}]}` +
			`],"volumes":[{"name":"v","persistentVolumeClaim":{"claimName":"x"}},{"name":"w"}]}}`,
		`{"spec":{"containers":[{"name":"c","image":"i","volumeMounts":[{"name":"v",` +
			`"mountPath":"/v",` +
			`"subPathExpr":"$(A)/../b"},{"name":"d","mountPath":"/v/d"}]}],"volumes":[{"name":"v",` +
			`"emptyDir":{"sizeLimit":"-1","medium":"Memory"}},{"name":"d",` +
			`"downwardAPI":{"items":[{"path":` +
			`"../x","fieldRef":{"fieldPath":"x"}},{"path":"a/b"},{"path":"a",` +
			`"mode":-1}]}},{"name":"h",` +
			`"hostPath":{"path":"/x","type":"odd"}},{"name":"i","image":{"reference":""}}]}}`,
		`{"spec":{"restartPolicy":"Never","activeDeadlineSeconds":-1,` +
			`"terminationGracePeriodSeconds":-1,` +
			`"containers":[{"name":"c","image":"i","livenessProbe":{"exec":{},"timeoutSeconds":-1,` +
			`"periodSeconds":2147483647},"readinessProbe":{},"startupProbe":{"httpGet":{"port":"x"}},` +
			`"lifecycle":{"postStart":{"sleep":{"seconds":-1}},` +
			`"preStop":{"tcpSocket":{"port":-1}}}}]}}`,
		`{"metadata":{"deletionTimestamp":"2026-01-01T00:00:00Z"},` +
			`"status":{"phase":"Failed"},"spec":{}}`,
		`{"spec":{"hostNetwork":true,"priority":2000001000,"containers":[{"name":"c",` +
			`"image":"i","ports":[` +
			`{"hostPort":-1,"containerPort":99999,"hostIP":"x"}],` +
			`"resources":{"requests":{"cpu":"1e30",` +
			`"memory":"-5","hugepages-3x":"1","x/y":"7"}}},{"name":"c","image":""}],` +
			`"initContainers":[{"name":` +
			`"c","restartPolicy":"Always"}],"ephemeralContainers":[{"name":"e",` +
			`"targetContainerName":"c"}]}}`,
		`{"spec":{"securityContext":{"sysctls":[{"name":"","value":""}],"seccompProfile":{"type":` +
			`"Localhost"},"fsGroup":-1,"supplementalGroups":[-1]},"hostUsers":false,` +
			`"dnsPolicy":"None",` +
			`"overhead":{"cpu":"1"},"resources":{"limits":{"memory":"9e18"}},"runtimeClassName":"",` +
			`"tolerations":[{"operator":"odd"}],"affinity":{"nodeAffinity":{` +
			`"requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":[{` +
			`"matchExpressions":[{"operator":"odd"}]}]}}},"containers":[{"name":"c",` +
			`"securityContext":{"procMount":"Odd",` +
			`"windowsOptions":{},"appArmorProfile":{"type":"Localhost"},` +
			`"capabilities":{"add":[""]}}}]}}`,
		`{"spec":{"containers":[{"name":"c","image":"i","securityContext":{` +
			`"seccompProfile":{"type":"Localhost"}}}]}}`,
		`{"spec":{"containers":[{"name":"c","image":"i","securityContext":{` +
			`"appArmorProfile":{"type":"Localhost"}}}]}}`,
	}
}

// FuzzAPIPod gives the agent a pod of the API server, a changed one, and a ConfigMap that both may
// refer to; then the pod is deleted.
func FuzzAPIPod(f *testing.F) {
	seeds := podSeeds()
	for i, seed := range seeds {
		f.Add(seed, seeds[(i+1)%len(seeds)], `{"data":{"k":"v","a/b":"","..":"x"}}`, byte(i))
	}
	f.Fuzz(func(t *testing.T, text, changed, objects string, flags byte) {
		first, second := fuzzPod(text), fuzzPod(changed)
		if first == nil || second == nil {
			t.Skip()
		}
		n := newNode(nil)
		n.apiServer = newServer()
		configMap := &v1.ConfigMap{}
		if json.Unmarshal([]byte(objects), configMap) == nil {
			configMap.Namespace, configMap.Name, configMap.ResourceVersion = "default", "big", "1"
			n.apiServer.others = map[string]world.Object{"big": {ConfigMap: configMap}}
		}
		if flags&1 != 0 { // the pod is there before the agent is
			n.apiServer.put(first)
			n.apiServer.undelivered = nil
		}
		if flags&2 != 0 {
			n.podDirs = []string{"u1"}
		}
		n.restart()
		n.advance(3 * time.Second)
		n.apiServer.put(first)
		n.advance(10 * time.Second)
		n.apiServer.put(second)
		n.runAndSnapshot(t)
	})
}

// FuzzManifests gives the agent a directory of two manifests, then without one, and a list of a
// URL.
func FuzzManifests(f *testing.F) {
	for _, seed := range podSeeds() {
		whole := `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web"},` +
			strings.TrimPrefix(seed, "{")
		f.Add(whole, `{apiVersion: v1, kind: Pod, metadata: {name: x, uid: ../x}, spec: {}}`,
			`{"apiVersion":"v1","kind":"PodList","items":[`+whole+`]}`)
	}
	f.Fuzz(func(t *testing.T, one, other, list string) {
		n := newNode(map[string]string{"one.yaml": one, "other.json": other})
		n.manifestURL, n.manifestURLBody = "http://x/", list
		n.apiServer = newServer()
		n.failOnForbiddenEffects(t)
		n.restart()
		n.advance(25 * time.Second)
		delete(n.manifests, "one.yaml")
		n.manifests["other.json"] = one
		n.advance(time.Minute)
		n.event(world.Event{Body: &world.PodsRequest{}})
		n.event(world.Event{Body: &world.StateRequest{}})
	})
}

// fuzzAnswers answers the calls to the runtime about one pod.
func (n *fakeNode) fuzzAnswers(id, text string, number int64, failing byte) func(any) any {
	calls := 0
	return func(effect any) any {
		calls++
		if failing != 0 && calls%(int(failing)) == 0 && world.PortOf(effect) == world.PortCRI {
			kinds := []world.ErrorKind{world.KindTimeout, world.KindNotFound, world.KindInternal,
				world.KindUnavailable, world.KindInvalid, world.KindExhausted,
				world.KindTooLarge}
			return world.Errorf(kinds[calls%len(kinds)], world.CallName(effect), "%s", text)
		}
		switch e := effect.(type) {
		case *runtimeapi.RunPodSandboxRequest:
			return &runtimeapi.RunPodSandboxResponse{PodSandboxId: id}
		case *runtimeapi.CreateContainerRequest:
			return &runtimeapi.CreateContainerResponse{ContainerId: id + text}
		case *runtimeapi.StartContainerRequest:
			if n.containers[e.ContainerId] == nil {
				return &runtimeapi.StartContainerResponse{}
			}
		case *runtimeapi.ContainerStatusRequest:
			return &runtimeapi.ContainerStatusResponse{Status: &runtimeapi.ContainerStatus{
				Id: e.ContainerId, State: runtimeapi.ContainerState(number % 5), CreatedAt: number,
				StartedAt: number, FinishedAt: -number, ExitCode: int32(number), Reason: text, Message: text,
				ImageRef: text, ImageId: text}, Info: map[string]string{"info": text}}
		case *runtimeapi.PodSandboxStatusRequest:
			return &runtimeapi.PodSandboxStatusResponse{Status: &runtimeapi.PodSandboxStatus{
				Id: id, Network: &runtimeapi.PodSandboxNetworkStatus{Ip: text,
					AdditionalIps: []*runtimeapi.PodIP{{Ip: id}}}}}
		case *runtimeapi.ImageStatusRequest:
			return &runtimeapi.ImageStatusResponse{Image: &runtimeapi.Image{Id: id, Size: uint64(number),
				RepoDigests: []string{text}, Username: text, Uid: &runtimeapi.Int64Value{Value: number}}}
		case *runtimeapi.PullImageRequest:
			return &runtimeapi.PullImageResponse{ImageRef: text}
		case *runtimeapi.StatusRequest:
			return &runtimeapi.StatusResponse{Status: &runtimeapi.RuntimeStatus{
				Conditions: []*runtimeapi.RuntimeCondition{{Type: runtimeapi.RuntimeReady, Status: true},
					{Type: runtimeapi.NetworkReady, Status: true}, {Type: text, Reason: id}}},
				Info: map[string]string{"config": text}}
		case *runtimeapi.VersionRequest:
			return &runtimeapi.VersionResponse{RuntimeName: text, RuntimeVersion: id,
				RuntimeApiVersion: text}
		case *runtimeapi.StopContainerRequest:
			if n.containers[e.ContainerId] == nil {
				return world.Errorf(world.KindNotFound, "StopContainer", "none")
			}
		case *runtimeapi.RemoveContainerRequest:
			if n.containers[e.ContainerId] == nil {
				return &runtimeapi.RemoveContainerResponse{}
			}
		case *runtimeapi.StopPodSandboxRequest:
			if n.sandboxes[e.PodSandboxId] == nil {
				return &runtimeapi.StopPodSandboxResponse{}
			}
		}
		return nil
	}
}

// FuzzAnswers gives the agent answers of the runtime to what it asks for two pods, some of which
// run already, and events of the runtime's stream.
func FuzzAnswers(f *testing.F) {
	f.Add("s1", "10.0.0.1", int64(1), byte(0), true)
	f.Add("", "", int64(0), byte(3), true)
	f.Add("c1", `{"containerd":{}}`, int64(-1<<63), byte(2), false)
	f.Add("..", "a\x00b\xff", int64(1<<63-1), byte(1), true)
	f.Add("s2", "sha256:x", int64(1e18), byte(5), false)
	f.Fuzz(func(t *testing.T, id, text string, number int64, failing byte, running bool) {
		n := newNode(nil)
		n.apiServer = newServer()
		n.apiServer.put(fuzzPod(`{"spec":{"initContainers":[{"name":"setup",` +
			`"image":"i"}],"containers":[{` +
			`"name":"c","image":"i","livenessProbe":{"exec":{"command":["b"]}},` +
			`"terminationMessagePolicy":"FallbackToLogsOnError",` +
			`"lifecycle":{"preStop":{"exec":{"command":` +
			`["a"]}}}},{"name":"d","image":"i2","imagePullPolicy":"Always"}]}}`))
		n.apiServer.put(apiPodNamed("other", "u2"))
		if running {
			n.restart()
			n.advance(5 * time.Second)
			n.podDirs = []string{"u1", "u2"}
		}
		n.answer = n.fuzzAnswers(id, text, number, failing)
		n.restart()
		n.advance(20 * time.Second)
		meta := &runtimeapi.PodSandboxMetadata{Uid: "u1", Namespace: "default", Name: "web"}
		for kind := range int32(5) {
			n.event(world.Event{Body: &runtimeapi.ContainerEventResponse{ContainerId: id,
				ContainerEventType: runtimeapi.ContainerEventType(kind), CreatedAt: number,
				PodSandboxStatus: &runtimeapi.PodSandboxStatus{Id: text, Metadata: meta}}})
		}
		n.event(world.Event{Body: &runtimeapi.ContainerEventResponse{}})
		n.runAndSnapshot(t)
	})
}

// isMissing reports whether a call is about a container or sandbox that does not exist.
func (n *fakeNode) isMissing(effect any) bool {
	switch e := effect.(type) {
	case *runtimeapi.StartContainerRequest:
		return n.containers[e.ContainerId] == nil
	case *runtimeapi.ContainerStatusRequest:
		return n.containers[e.ContainerId] == nil
	case *runtimeapi.StopContainerRequest:
		return n.containers[e.ContainerId] == nil
	case *runtimeapi.RemoveContainerRequest:
		return n.containers[e.ContainerId] == nil
	case *runtimeapi.StopPodSandboxRequest:
		return n.sandboxes[e.PodSandboxId] == nil
	}
	return false
}

// FuzzLists gives the agent lists of the runtime in which anything may occur twice, in any state,
// and with the names of any pod.
func FuzzLists(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte("\x00\x01\x02\x03\x10\x11\x12\x13\x20\x21\x22\x23\x80\x81\x92\xa3"))
	f.Add(bytes.Repeat([]byte{0x15, 0x9a, 0x6e}, 40))
	f.Fuzz(func(t *testing.T, items []byte) {
		n := bootWithPods(nil, apiPodNamed("web", "u1"))
		n.apiServer.put(apiPodNamed("other", "u2"))
		n.advance(5 * time.Second)
		n.failOnForbiddenEffects(t)
		pick := func(from ...string) string { // takes a byte
			if len(items) == 0 {
				return from[0]
			}
			i := int(items[0]) % len(from)
			items = items[1:]
			return from[i]
		}
		id := func() string { return pick("s1", "c1", "", "s2", "c2", "../x", "s3") }
		uid := func() string { return pick("u1", "u2", "u3", "..", "") }
		name := func() string { return pick("web", "other", "a/b", "c", "") }
		number := func() int64 { return int64(len(items))*math.MaxInt64/3 + int64(len(items)) }
		n.answer = func(effect any) any {
			if e, ok := effect.(*runtimeapi.StopPodSandboxRequest); ok && e.PodSandboxId == "" {
				t.Error("the agent stops a sandbox without ID")
			}
			if n.isMissing(effect) {
				return world.Errorf(world.KindNotFound, world.CallName(effect), "it does not exist")
			}
			if len(items) == 0 {
				return nil
			}
			switch effect.(type) {
			case *runtimeapi.ListPodSandboxRequest:
				list := &runtimeapi.ListPodSandboxResponse{}
				for range min(len(items), 8) {
					list.Items = append(list.Items, &runtimeapi.PodSandbox{Id: id(),
						State: runtimeapi.PodSandboxState(number() % 3), CreatedAt: number(),
						Metadata: &runtimeapi.PodSandboxMetadata{Uid: uid(), Namespace: "default",
							Name: name(), Attempt: uint32(number())},
						Annotations: map[string]string{pleg.AnnotationCgroup: "/kubepods/pod" + uid(),
							pleg.AnnotationUserNamespace: pick("", "0+65536", "65536+65536")}})
				}
				return list
			case *runtimeapi.ListContainersRequest:
				list := &runtimeapi.ListContainersResponse{}
				for range min(len(items), 8) {
					container := name()
					list.Containers = append(list.Containers, &runtimeapi.Container{Id: id(),
						PodSandboxId: id(), State: runtimeapi.ContainerState(number() % 5),
						CreatedAt: number(), Metadata: &runtimeapi.ContainerMetadata{Name: container,
							Attempt: uint32(number())},
						Labels: map[string]string{pleg.LabelPodUID: uid(), pleg.LabelPodName: name(),
							pleg.LabelPodNamespace: "default", pleg.LabelContainer: container}})
				}
				return list
			}
			return nil
		}
		n.advance(time.Minute)
		n.restart()
		n.runAndSnapshot(t)
	})
}

// FuzzFiles gives the agent the content of the files that it reads: the record of a pod, host
// files, termination messages and names in directories.
func FuzzFiles(f *testing.F) {
	f.Add("{}", "x", int64(1))
	f.Add(`{"startTime":"2026-01-01T00:00:00Z","phase":"Failed","containers":{"c":{"ready":true}}}`,
		"nameserver 1.2.3.4\nsearch a b", int64(0))
	f.Add(`{"round":-1,"containers":[]`, "\x00\xff", int64(-1))
	f.Add(`null`, "../../x", int64(1<<62))
	f.Fuzz(func(t *testing.T, record, text string, size int64) {
		n := newNode(nil)
		n.apiServer = newServer()
		n.apiServer.put(fuzzPod(`{"spec":{"restartPolicy":"OnFailure",` +
			`"containers":[{"name":"setup",` +
			`"image":"i"}],"volumes":[{"name":"v","emptyDir":{"sizeLimit":"1Gi"}}]}}`))
		n.podDirs = []string{"u1", text}
		n.answer = func(effect any) any {
			switch e := effect.(type) {
			case *world.ReadFiles:
				switch {
				case strings.HasPrefix(e.Path, "/var/lib/kubelet/pods"):
					return &world.FilesRead{Files: []world.File{{Name: "f", Data: []byte(record)}}}
				case e.Path != "/manifests":
					return &world.FilesRead{Files: []world.File{{Name: text, Data: []byte(text)},
						{Name: record}}}
				}
			case *world.ReadTail:
				return &world.TailRead{Data: []byte(text + record)}
			case *world.ReadLinks:
				return &world.LinksRead{Links: []world.Link{{Name: text, Target: record}}}
			case *world.MeasureTree:
				return &world.TreeMeasured{Bytes: size}
			case *world.StatPath:
				return &world.PathInfo{Kind: world.PathKind(text)}
			case *world.ListCgroups:
				return &world.CgroupsListed{Names: []string{text, "pod" + record, "podu1"}}
			}
			return nil
		}
		n.restart()
		n.advance(2 * time.Minute)
		n.runAndSnapshot(t)
	})
}

// FuzzRequests gives the agent requests of clients about any names.
func FuzzRequests(f *testing.F) {
	f.Add("default", "web", "u1", "c", true)
	f.Add("", "", "", "", false)
	f.Add("a/b", "..", "\x00", "\xff", true)
	f.Fuzz(func(t *testing.T, namespace, pod, uid, container string, setAside bool) {
		n := newNode(map[string]string{"s.yaml": `{apiVersion: v1, kind: Pod, metadata: {name: web},
			spec: {containers: [{name: c, image: i}]}}`})
		n.apiServer = newServer()
		n.apiServer.put(apiPodNamed("web", "u1"))
		if setAside {
			n.setAside = []world.PodSetAside{{UID: uid, Panics: 1, Remaining: time.Minute}}
		}
		ask := func() {
			n.event(world.Event{Body: &world.ContainerRequest{Namespace: namespace, Pod: pod, UID: uid,
				Container: container}})
			for _, body := range []any{&world.PodsRequest{}, &world.RunningPodsRequest{},
				&world.StateRequest{}, &world.HealthRequest{}, &world.MetricsRequest{},
				&world.MetricsRequest{Probes: true}, &world.FileChanged{Path: namespace}} {
				n.event(world.Event{Body: body})
			}
		}
		n.restart()
		ask()
		n.advance(5 * time.Second)
		ask()
		n.runAndSnapshot(t)
		ask()
	})
}

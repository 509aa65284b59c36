package parity

import (
	"fmt"
	"slices"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/world"
)

const namespace = "parity"

// pod is the pod of one case. Its methods send requests to the runtime and fail the test on
// unexpected results.
type pod struct {
	*testing.T
	w         Runtime
	uid, name string
}

// must carries out a request that must succeed.
func must[Answer any](p *pod, body any) Answer {
	p.Helper()
	result, err := p.w.Call(body)
	if err != nil {
		p.Fatalf("%s failed: %v", world.CallName(body), err)
	}
	return result.(Answer)
}

// mustFail carries out a request that must fail with an error of the given kind.
func (p *pod) mustFail(body any, kind world.ErrorKind) {
	p.Helper()
	_, err := p.w.Call(body)
	if !err.Has(kind) {
		p.Errorf("%s: got %v, want an error of kind %s", world.CallName(body), err, kind)
	}
}

func (p *pod) check(ok bool, format string, args ...any) {
	p.Helper()
	if !ok {
		p.Errorf(format, args...)
	}
}

// labels returns the labels that the agent sets on all its objects.
func (p *pod) labels() map[string]string {
	return map[string]string{"io.kubernetes.pod.name": p.name,
		"io.kubernetes.pod.namespace": namespace, "io.kubernetes.pod.uid": p.uid}
}

func (p *pod) config(attempt uint32) *runtimeapi.PodSandboxConfig {
	config := p.w.Sandbox()
	config.Metadata = &runtimeapi.PodSandboxMetadata{
		Name: p.name, Namespace: namespace, Uid: p.uid, Attempt: attempt,
	}
	config.Labels = p.labels()
	return config
}

func (p *pod) sandboxRequest(attempt uint32) *runtimeapi.RunPodSandboxRequest {
	return &runtimeapi.RunPodSandboxRequest{Config: p.config(attempt)}
}

func (p *pod) createSandbox(attempt uint32) (id string) {
	p.Helper()
	return must[*runtimeapi.RunPodSandboxResponse](p, p.sandboxRequest(attempt)).PodSandboxId
}

func (p *pod) sandboxStatus(id string) *runtimeapi.PodSandboxStatus {
	p.Helper()
	req := &runtimeapi.PodSandboxStatusRequest{PodSandboxId: id}
	return must[*runtimeapi.PodSandboxStatusResponse](p, req).Status
}

func (p *pod) stopSandbox(id string) {
	p.Helper()
	must[*runtimeapi.StopPodSandboxResponse](p, &runtimeapi.StopPodSandboxRequest{
		PodSandboxId: id})
}

func (p *pod) removeSandbox(id string) {
	p.Helper()
	must[*runtimeapi.RemovePodSandboxResponse](p, &runtimeapi.RemovePodSandboxRequest{
		PodSandboxId: id})
}

func (p *pod) ownSandboxes() *runtimeapi.PodSandboxFilter {
	return &runtimeapi.PodSandboxFilter{LabelSelector: p.labels()}
}

func (p *pod) sandboxes(f *runtimeapi.PodSandboxFilter) []*runtimeapi.PodSandbox {
	p.Helper()
	req := &runtimeapi.ListPodSandboxRequest{Filter: f}
	return must[*runtimeapi.ListPodSandboxResponse](p, req).Items
}

func (p *pod) containerRequest(sandbox string, process Process, attempt uint32) (
	req *runtimeapi.CreateContainerRequest) {
	config := p.w.Container(process)
	config.Metadata = &runtimeapi.ContainerMetadata{Name: string(process), Attempt: attempt}
	config.Labels = p.labels()
	config.Labels["io.kubernetes.container.name"] = string(process)
	config.Annotations = map[string]string{"parity/attempt": fmt.Sprint(attempt)}
	config.LogPath = p.logName(process, attempt)
	return &runtimeapi.CreateContainerRequest{
		PodSandboxId: sandbox, Config: config, SandboxConfig: p.config(0),
	}
}

func (p *pod) createContainer(sandbox string, process Process, attempt uint32) (id string) {
	p.Helper()
	req := p.containerRequest(sandbox, process, attempt)
	return must[*runtimeapi.CreateContainerResponse](p, req).ContainerId
}

func (p *pod) start(id string) {
	p.Helper()
	must[*runtimeapi.StartContainerResponse](p, &runtimeapi.StartContainerRequest{ContainerId: id})
}

// startNewContainer creates and starts a container, and waits until its process handles signals: as
// PID 1 of its namespace, a process without a handler ignores TERM.
func (p *pod) startNewContainer(sandbox string, process Process, attempt uint32) (id string) {
	p.Helper()
	id = p.createContainer(sandbox, process, attempt)
	p.start(id)
	if process == Runs || process == IgnoresTerm || process == HandlesTerm7 {
		p.w.WaitHandlers(p.logName(process, attempt))
	}
	return id
}

func (p *pod) status(id string) *runtimeapi.ContainerStatus {
	p.Helper()
	req := &runtimeapi.ContainerStatusRequest{ContainerId: id}
	return must[*runtimeapi.ContainerStatusResponse](p, req).Status
}

// waitForExit waits until a container has exited.
func (p *pod) waitForExit(id string) *runtimeapi.ContainerStatus {
	p.Helper()
	for late := p.w.Now().Add(Patience); p.w.Now().Before(late); p.w.Sleep(100 * time.Millisecond) {
		if s := p.status(id); s.State == exited {
			return s
		}
	}
	p.Fatalf("the container has not exited after %v", Patience)
	return nil
}

// stop stops a container.
func (p *pod) stop(id string, graceSeconds int64) (took time.Duration) {
	p.Helper()
	started := p.w.Now()
	must[*runtimeapi.StopContainerResponse](p, &runtimeapi.StopContainerRequest{
		ContainerId: id, Timeout: graceSeconds})
	return p.w.Now().Sub(started)
}

func (p *pod) remove(id string) {
	p.Helper()
	must[*runtimeapi.RemoveContainerResponse](p, &runtimeapi.RemoveContainerRequest{
		ContainerId: id})
}

func (p *pod) containers(f *runtimeapi.ContainerFilter) []*runtimeapi.Container {
	p.Helper()
	req := &runtimeapi.ListContainersRequest{Filter: f}
	return must[*runtimeapi.ListContainersResponse](p, req).Containers
}

// expectList checks that a filter selects exactly these containers.
func (p *pod) expectList(f *runtimeapi.ContainerFilter, want ...string) {
	p.Helper()
	var got []string
	for _, c := range p.containers(f) {
		got = append(got, c.Id)
	}
	slices.Sort(got)
	slices.Sort(want)
	p.check(slices.Equal(got, want), "filter %v lists %v, want %v", f, got, want)
}

// cleanUp removes the sandboxes of the case, whether it passed or failed.
func (p *pod) cleanUp() {
	for _, s := range p.sandboxes(p.ownSandboxes()) {
		_, err := p.w.Call(&runtimeapi.RemovePodSandboxRequest{PodSandboxId: s.Id})
		p.check(err == nil, "cleaning up: %v", err)
	}
}

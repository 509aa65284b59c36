package cri_test

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/realworld/porttest"
	"seedlet.dev/world"
)

// serveContainers serves the lists of a runtime with three sandboxes. It sends no list of more than
// one container, as if that were the most that fits into a message.
func (r *fakeRuntime) serveContainers(fail error) {
	r.stream = func(stream grpc.ServerStream) error {
		method, _ := grpc.MethodFromServerStream(stream)
		if strings.HasSuffix(method, "/ListPodSandbox") {
			list := &runtimeapi.ListPodSandboxResponse{}
			for i := range 3 {
				list.Items = append(list.Items, &runtimeapi.PodSandbox{Id: fmt.Sprint(i),
					Metadata: &runtimeapi.PodSandboxMetadata{Name: "web"}})
			}
			return stream.SendMsg(list)
		}
		request := &runtimeapi.ListContainersRequest{}
		if err := stream.RecvMsg(request); err != nil {
			return err
		}
		sandbox := request.GetFilter().GetPodSandboxId()
		if sandbox == "" {
			return fail
		}
		return stream.SendMsg(&runtimeapi.ListContainersResponse{Containers: []*runtimeapi.Container{
			{Id: "c" + sandbox, PodSandboxId: sandbox,
				Metadata: &runtimeapi.ContainerMetadata{Name: "web"}}}})
	}
}

// One pod must not keep the agent from knowing what all others run.
func TestListTooLongForAMessage(t *testing.T) {
	r := newRuntime(t)
	r.serveContainers(status.Error(codes.ResourceExhausted,
		"grpc: trying to send message larger than max (17000000 vs. 16777216)"))
	r.start(t)
	defer r.kill(t)
	h := newHarness(t, r)
	body, err := h.call(&runtimeapi.ListContainersRequest{}, porttest.Patience)
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for _, c := range body.(*runtimeapi.ListContainersResponse).Containers {
		ids = append(ids, c.Id)
	}
	if got := strings.Join(ids, " "); got != "c0 c1 c2" {
		t.Errorf("containers %q", got)
	}
}

// Any other failure of a list is not met with more requests.
func TestListThatFails(t *testing.T) {
	r := newRuntime(t)
	r.serveContainers(status.Error(codes.ResourceExhausted, "too many requests"))
	r.start(t)
	defer r.kill(t)
	_, err := newHarness(t, r).call(&runtimeapi.ListContainersRequest{}, porttest.Patience)
	if !err.Has(world.KindExhausted) {
		t.Errorf("error %v, want Exhausted", err)
	}
}

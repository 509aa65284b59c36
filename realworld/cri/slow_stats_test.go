package cri_test

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// A busy runtime answers the list within the time that its caller has, as each part of it.
func TestStatsOfBusyRuntime(t *testing.T) {
	const deadline = 3 * time.Second
	for _, hung := range []string{"", "1 2"} {
		r := newRuntime(t)
		r.serveContainers(nil)
		lists := r.stream
		r.stream = func(stream grpc.ServerStream) error {
			if method, _ := grpc.MethodFromServerStream(stream); !strings.HasSuffix(method, "Stats") {
				return lists(stream)
			}
			request := &runtimeapi.ListPodSandboxStatsRequest{}
			if err := stream.RecvMsg(request); err != nil {
				return err
			}
			id := request.GetFilter().GetId()
			takes := deadline * 6 / 10 / 3
			if id == "" {
				takes = deadline * 6 / 10
			}
			if hung != "" {
				takes = 0
				if id == "" || strings.Contains(hung, id) {
					takes = time.Hour
				}
			}
			select {
			case <-time.After(takes):
			case <-stream.Context().Done():
				return stream.Context().Err()
			}
			return stream.SendMsg(&runtimeapi.ListPodSandboxStatsResponse{
				Stats: []*runtimeapi.PodSandboxStats{{Attributes: &runtimeapi.PodSandboxAttributes{
					Id: "x"}}}})
		}
		r.start(t)
		body, err := newHarness(t, r).call(&runtimeapi.ListPodSandboxStatsRequest{}, deadline)
		if err != nil {
			t.Errorf("hung %q: %v, %v", hung, body, err)
		}
		r.kill(t)
	}
}

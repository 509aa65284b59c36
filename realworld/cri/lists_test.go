package cri_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/realworld/porttest"
	"seedlet.dev/world"
)

// serveContainers serves the lists of a runtime with three sandboxes. It sends no list of more than
// one container, as if that were the most that fits into a message.
func (r *fakeRuntime) serveContainers(fail error) {
	r.stream = func(stream grpc.ServerStream) error {
		method, _ := grpc.MethodFromServerStream(stream)
		if r.away.Load() {
			return errRuntimeWent
		}
		if strings.HasSuffix(method, "/ListPodSandbox") {
			list := &runtimeapi.ListPodSandboxResponse{}
			for i := range 3 + r.moreSandboxes {
				list.Items = append(list.Items, &runtimeapi.PodSandbox{Id: fmt.Sprint(i),
					Metadata: &runtimeapi.PodSandboxMetadata{Name: "web"}})
			}
			return stream.SendMsg(list)
		}
		if strings.HasSuffix(method, "Stats") {
			return sendStats(stream, method, fail)
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

// sendStats sends the stats of one sandbox, or of its container.
func sendStats(stream grpc.ServerStream, method string, fail error) error {
	if strings.HasSuffix(method, "/ListPodSandboxStats") {
		request := &runtimeapi.ListPodSandboxStatsRequest{}
		if err := stream.RecvMsg(request); err != nil || request.GetFilter().GetId() == "" {
			return errors.Join(err, fail)
		}
		return stream.SendMsg(&runtimeapi.ListPodSandboxStatsResponse{
			Stats: []*runtimeapi.PodSandboxStats{{Attributes: &runtimeapi.PodSandboxAttributes{
				Id: request.Filter.Id}}}})
	}
	request := &runtimeapi.ListContainerStatsRequest{}
	if err := stream.RecvMsg(request); err != nil || request.GetFilter().GetPodSandboxId() == "" {
		return errors.Join(err, fail)
	}
	return stream.SendMsg(&runtimeapi.ListContainerStatsResponse{
		Stats: []*runtimeapi.ContainerStats{{Attributes: &runtimeapi.ContainerAttributes{
			Id: "c" + request.Filter.PodSandboxId}}}})
}

// The stats of one pod must not keep the agent from serving those of all others.
func TestStatsTooLongForAMessage(t *testing.T) {
	r := newRuntime(t)
	r.serveContainers(status.Error(codes.ResourceExhausted,
		"grpc: trying to send message larger than max (17000000 vs. 16777216)"))
	r.start(t)
	defer r.kill(t)
	client, ids := newHarness(t, r).port.Runtime(), []string{}
	sandboxes, err := client.ListPodSandboxStats(t.Context(), &runtimeapi.ListPodSandboxStatsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range sandboxes.Stats {
		ids = append(ids, s.Attributes.Id)
	}
	containers, err := client.ListContainerStats(t.Context(), &runtimeapi.ListContainerStatsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range containers.Stats {
		ids = append(ids, c.Attributes.Id)
	}
	if got := strings.Join(ids, " "); got != "0 1 2 c0 c1 c2" {
		t.Errorf("stats of %q", got)
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

// The metrics of a thousand pods are longer than other messages may be.
func TestLongListOfMetrics(t *testing.T) {
	const pods = 1000
	r := newRuntime(t)
	r.stream = func(stream grpc.ServerStream) error {
		list := &runtimeapi.ListPodSandboxMetricsResponse{}
		for i := range pods {
			list.PodMetrics = append(list.PodMetrics, metricsOfPod(fmt.Sprint(i)))
		}
		if size := proto.Size(list); size <= 16<<20 {
			return status.Errorf(codes.FailedPrecondition, "the list has only %d bytes", size)
		}
		return stream.SendMsg(list)
	}
	r.start(t)
	defer r.kill(t)
	list, err := newHarness(t, r).port.Runtime().ListPodSandboxMetrics(t.Context(),
		&runtimeapi.ListPodSandboxMetricsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if got := len(list.PodMetrics); got != pods {
		t.Errorf("metrics of %d pods", got)
	}
}

// metricsOfPod returns metrics of a pod with one container: as many as the kubelet has of cAdvisor,
// each with the usual labels.
func metricsOfPod(id string) *runtimeapi.PodSandboxMetrics {
	var all []*runtimeapi.Metric
	for i := range 100 {
		all = append(all, &runtimeapi.Metric{Name: fmt.Sprintf("container_memory_of_kind_%d_bytes", i),
			LabelValues: []string{"/kubepods/burstable/" + strings.Repeat("u", 36) + "/" +
				strings.Repeat("c", 64), strings.Repeat("c", 64), "registry.example/app:1.2.3", "web"},
			Value: &runtimeapi.UInt64Value{Value: 1 << 40}})
	}
	return &runtimeapi.PodSandboxMetrics{PodSandboxId: id,
		ContainerMetrics: []*runtimeapi.ContainerMetrics{{ContainerId: id, Metrics: all}}}
}

// serveStats serves the stats of a runtime with three sandboxes: after wait has returned without an
// error, for the sandbox with an ID, or for all if that is empty.
func (r *fakeRuntime) serveStats(wait func(ctx context.Context, id string) error) {
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
		if err := wait(stream.Context(), id); err != nil {
			return err
		}
		return stream.SendMsg(&runtimeapi.ListPodSandboxStatsResponse{
			Stats: []*runtimeapi.PodSandboxStats{{Attributes: &runtimeapi.PodSandboxAttributes{
				Id: id}}}})
	}
}

// errRuntimeWent is the error of a runtime that answers nothing from then on.
var errRuntimeWent = status.Error(codes.Unavailable, "the runtime went")

// The stats of one sandbox that cannot be read fail the list of all, and are left out. A runtime
// that answers for no sandbox, or goes away, has no stats.
func TestStatsOfOneSandboxThatFail(t *testing.T) {
	joined := status.Error(codes.Unknown, "failed to decode metrics of sandbox 1")
	for _, c := range []struct {
		name  string
		whole error
		parts map[string]error
		want  string
	}{
		{"one", joined, map[string]error{"1": joined}, "0 2"},
		{"all", joined, map[string]error{"0": joined, "1": joined, "2": joined}, "Internal"},
		{"a shim went", joined, map[string]error{"2": status.Error(codes.Unavailable, "x")}, "0 1"},
		{"a shim has none", status.Error(codes.Unimplemented, "x"),
			map[string]error{"1": status.Error(codes.Unimplemented, "x")}, "0 2"},
		{"the runtime went", joined, map[string]error{"2": errRuntimeWent}, "Unavailable"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRuntime(t)
			r.serveStats(func(_ context.Context, id string) error {
				if id == "" {
					return c.whole
				}
				if c.parts[id] == errRuntimeWent {
					r.away.Store(true)
				}
				return c.parts[id]
			})
			r.start(t)
			defer r.kill(t)
			body, err := newHarness(t, r).call(&runtimeapi.ListPodSandboxStatsRequest{}, porttest.Patience)
			var got []string
			if err != nil {
				got = append(got, string(err.Kind))
			} else {
				for _, s := range body.(*runtimeapi.ListPodSandboxStatsResponse).Stats {
					got = append(got, s.Attributes.Id)
				}
			}
			if strings.Join(got, " ") != c.want {
				t.Errorf("%q, want %q: %v", got, c.want, err)
			}
		})
	}
}

// A busy runtime answers the list within the time that its caller has, as each part of it.
func TestStatsOfBusyRuntime(t *testing.T) {
	const deadline = 3 * time.Second
	for _, hung := range []string{"", "1 2"} {
		r := newRuntime(t)
		r.serveStats(func(ctx context.Context, id string) error {
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
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
		r.start(t)
		body, err := newHarness(t, r).call(&runtimeapi.ListPodSandboxStatsRequest{}, deadline)
		if err != nil {
			t.Errorf("hung %q: %v, %v", hung, body, err)
		}
		r.kill(t)
	}
}

// Sandboxes without an answer do not cost the stats of the others, however many they are.
func TestStatsBesideManyHungSandboxes(t *testing.T) {
	r := newRuntime(t)
	r.moreSandboxes = 10
	r.serveStats(func(ctx context.Context, id string) error {
		if id == "0" || id == "9" {
			return nil
		}
		<-ctx.Done()
		return ctx.Err()
	})
	r.start(t)
	defer r.kill(t)
	// The list of all takes half of the time, and the rest is not enough for statsTimeout of each.
	body, err := newHarness(t, r).call(&runtimeapi.ListPodSandboxStatsRequest{}, 4*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	if got := body.(*runtimeapi.ListPodSandboxStatsResponse).Stats; len(got) != 2 {
		t.Errorf("stats of %d sandboxes, want two", len(got))
	}
}

package cri

import (
	"fmt"
	"testing"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// containerList returns a list of n containers as a runtime has it.
func containerList(n int) *runtimeapi.ListContainersResponse {
	list := &runtimeapi.ListContainersResponse{}
	for i := range n {
		c := &runtimeapi.Container{
			Id:           fmt.Sprintf("%064d", i),
			PodSandboxId: fmt.Sprintf("%064d", i+1),
			Metadata:     &runtimeapi.ContainerMetadata{Name: "main", Attempt: 3},
			Image:        &runtimeapi.ImageSpec{Image: "registry.example/image:1"},
			State:        runtimeapi.ContainerState_CONTAINER_RUNNING,
			CreatedAt:    int64(i),
			Labels:       map[string]string{},
			Annotations:  map[string]string{},
		}
		for j := range 10 {
			c.Labels[fmt.Sprint("label-", j)] = "x"
			c.Annotations[fmt.Sprint("annotation-", j)] = "y"
		}
		list.Containers = append(list.Containers, c)
	}
	return list
}

// decodeContainers decodes an encoding of a list.
func decodeContainers(t testing.TB, codec interface {
	Unmarshal(mem.BufferSlice, any) error
}, list *runtimeapi.ListContainersResponse) *runtimeapi.ListContainersResponse {
	t.Helper()
	data, err := proto.Marshal(list)
	if err != nil {
		t.Fatal(err)
	}
	got := &runtimeapi.ListContainersResponse{}
	if err := codec.Unmarshal(mem.BufferSlice{mem.SliceBuffer(data)}, got); err != nil {
		t.Fatal(err)
	}
	if !proto.Equal(got, list) {
		t.Fatalf("the list is decoded as %v, want %v", got, list)
	}
	return got
}

// Items that are those of the last list are shared with it, in whatever order their labels come.
// Any change of an item is seen.
func TestListsShareItems(t *testing.T) {
	t.Parallel()
	codec, list := newContainerCodec(), containerList(20)
	before := decodeContainers(t, codec, list)
	list.Containers[3].State = runtimeapi.ContainerState_CONTAINER_EXITED
	list.Containers[4].Labels["label-5"] = "z"
	list.Containers[6].Annotations["annotation-5"] = "x"
	list.Containers[8].Metadata.Attempt++
	after := decodeContainers(t, codec, list)
	for i, c := range after.Containers {
		changed := i == 3 || i == 4 || i == 6 || i == 8
		if shared := c == before.Containers[i]; shared == changed {
			t.Errorf("container %d is shared: %v, and has changed: %v", i, shared, changed)
		}
	}
	list.Containers = list.Containers[:2]
	if decodeContainers(t, codec, list); len(codec.last) != 2 {
		t.Errorf("%d items are kept of a list of 2", len(codec.last))
	}
}

// A list that cannot be decoded is an error, and the next one is decoded.
func TestListCodecErrors(t *testing.T) {
	t.Parallel()
	codec := newContainerCodec()
	for _, data := range []string{"\n\x7f", "\xff", "\n\x02\n\x7f", "\n\x03\n\x01\xff"} {
		list := &runtimeapi.ListContainersResponse{}
		if err := codec.Unmarshal(mem.BufferSlice{mem.SliceBuffer(data)}, list); err == nil {
			t.Errorf("%q is decoded as %v", data, list)
		}
	}
	if err := codec.Unmarshal(nil, &runtimeapi.Container{}); err == nil {
		t.Error("a list is decoded as a container")
	}
	decodeContainers(t, codec, containerList(2))
}

// A list is decoded, twice, as it is without the codec.
func FuzzListCodec(f *testing.F) {
	data, err := proto.MarshalOptions{Deterministic: true}.Marshal(containerList(2))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Add([]byte("\n\x00\x12\x03abc\n\x03\n\x01a"))
	f.Fuzz(func(t *testing.T, data []byte) {
		want, codec := &runtimeapi.ListContainersResponse{}, newContainerCodec()
		wantErr := proto.Unmarshal(data, want)
		for range 2 {
			got := &runtimeapi.ListContainersResponse{}
			err := codec.Unmarshal(mem.BufferSlice{mem.SliceBuffer(data)}, got)
			if (err == nil) != (wantErr == nil) {
				t.Fatalf("error %v, want %v", err, wantErr)
			}
			if err == nil && !proto.Equal(got, want) {
				t.Fatalf("decoded as %v, want %v", got, want)
			}
		}
	})
}

// BenchmarkListCodec decodes a list of a hundred containers that has not changed.
func BenchmarkListCodec(b *testing.B) {
	data, err := proto.Marshal(containerList(100))
	if err != nil {
		b.Fatal(err)
	}
	codec := newContainerCodec()
	b.ReportAllocs()
	for b.Loop() {
		list := &runtimeapi.ListContainersResponse{}
		if err := codec.Unmarshal(mem.BufferSlice{mem.SliceBuffer(data)}, list); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkListWithoutCodec decodes the same list as gRPC does.
func BenchmarkListWithoutCodec(b *testing.B) {
	data, err := proto.Marshal(containerList(100))
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if err := proto.Unmarshal(data, &runtimeapi.ListContainersResponse{}); err != nil {
			b.Fatal(err)
		}
	}
}

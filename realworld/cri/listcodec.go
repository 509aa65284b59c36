package cri

import (
	"fmt"
	"hash/maphash"
	"sync"

	"google.golang.org/grpc/encoding"
	grpcproto "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// itemsField is the number of the field of a list that has its items.
const itemsField protowire.Number = 1

// listCodec decodes lists of sandboxes or containers. Most items are those of the last list, a
// second ago: they are shared with it instead of decoded again, so they are never changed. An item
// is the same if its encoding is, whatever the order of its labels and annotations, which Go draws
// for each encoding.
type listCodec[List, Item proto.Message] struct {
	encoding.CodecV2 // encodes requests, and has the name
	items            func(List) *[]Item
	seed             maphash.Seed // an encoding with the sum of another one cannot be made on purpose
	maps             map[protowire.Number]bool

	mu   sync.Mutex
	last map[itemSum]Item
}

// listBuffers have the size of a list, rounded up to a power of two from 4 KiB to 16 MiB. Those of
// gRPC have 1 MiB for what is larger than 32 KiB, as a list of a hundred containers is.
var listBuffers = func() mem.BufferPool {
	pool, err := mem.NewBinaryTieredBufferPool(12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24)
	if err != nil {
		panic("cri: " + err.Error())
	}
	return pool
}()

// itemSum stands for the encoding of an item.
type itemSum struct {
	bytes  int
	fields uint64 // in their order
	maps   uint64 // the sum of those of all entries
}

func newListCodec[List, Item proto.Message](items func(List) *[]Item) *listCodec[List, Item] {
	var item Item
	fields, maps := item.ProtoReflect().Descriptor().Fields(), map[protowire.Number]bool{}
	for i := range fields.Len() {
		if fields.Get(i).IsMap() {
			maps[fields.Get(i).Number()] = true
		}
	}
	return &listCodec[List, Item]{CodecV2: encoding.GetCodecV2(grpcproto.Name), items: items,
		seed: maphash.MakeSeed(), maps: maps}
}

func newContainerCodec() *listCodec[*runtimeapi.ListContainersResponse, *runtimeapi.Container] {
	return newListCodec(func(m *runtimeapi.ListContainersResponse) *[]*runtimeapi.Container {
		return &m.Containers
	})
}

func newSandboxCodec() *listCodec[*runtimeapi.ListPodSandboxResponse, *runtimeapi.PodSandbox] {
	return newListCodec(func(m *runtimeapi.ListPodSandboxResponse) *[]*runtimeapi.PodSandbox {
		return &m.Items
	})
}

// Unmarshal decodes a list into v.
func (c *listCodec[List, Item]) Unmarshal(data mem.BufferSlice, v any) error {
	list, ok := v.(List)
	if !ok {
		return fmt.Errorf("a list is decoded as %T", v)
	}
	buffer := data.MaterializeToBuffer(listBuffers)
	defer buffer.Free()
	return c.decode(buffer.ReadOnlyData(), list)
}

func (c *listCodec[List, Item]) decode(data []byte, list List) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	items, decoded := make([]Item, 0, len(c.last)), make(map[itemSum]Item, len(c.last))
	var rest []byte // fields that are no items
	for len(data) > 0 {
		number, kind, n := protowire.ConsumeField(data)
		if n < 0 {
			return protowire.ParseError(n)
		}
		field := data[:n]
		data = data[n:]
		if number != itemsField || kind != protowire.BytesType {
			rest = append(rest, field...)
			continue
		}
		_, _, tag := protowire.ConsumeTag(field)
		encoded, _ := protowire.ConsumeBytes(field[tag:])
		sum := c.sum(encoded)
		item, known := c.last[sum]
		if !known {
			item = item.ProtoReflect().New().Interface().(Item)
			if err := proto.Unmarshal(encoded, item); err != nil {
				return err
			}
		}
		items = append(items, item)
		decoded[sum] = item
	}
	if err := proto.Unmarshal(rest, list); err != nil {
		return err
	}
	*c.items(list), c.last = items, decoded
	return nil
}

// sum returns the sum of an encoded item. What follows a malformed field counts as a field.
func (c *listCodec[List, Item]) sum(encoded []byte) itemSum {
	sum := itemSum{bytes: len(encoded)}
	var fields maphash.Hash
	fields.SetSeed(c.seed)
	for len(encoded) > 0 {
		number, _, n := protowire.ConsumeField(encoded)
		if n < 0 {
			n = len(encoded)
		}
		if c.maps[number] {
			sum.maps += maphash.Bytes(c.seed, encoded[:n])
		} else {
			_, _ = fields.Write(encoded[:n]) // never fails
		}
		encoded = encoded[n:]
	}
	sum.fields = fields.Sum64()
	return sum
}

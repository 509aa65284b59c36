package canonical

import (
	"encoding/binary"
	"slices"
	"time"

	"github.com/cespare/xxhash/v2"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/world"
)

// Hash is the rolling hash of a run: of every event and every effect, in canonical encoding.
type Hash struct {
	start   time.Time // times are hashed as distances from it
	digest  xxhash.Digest
	encoder Encoder
	// known are the hashes of items of lists and of served pods, by pointer. An item that has not
	// changed is the same message as before (see sim/runtime and core.Agent), so most items are
	// hashed once.
	known        map[any]uint64
	statusBuffer []byte // holds the encoding of a pod's status
}

// knownMax bounds the size of known. When it is reached all entries are dropped.
const knownMax = 4096

// NewHash returns the hash of a run that begins at start and has no steps yet.
func NewHash(start time.Time) *Hash {
	h := &Hash{start: start}
	h.digest.Reset()
	return h
}

// Sum returns the hash of all steps up to now.
func (h *Hash) Sum() uint64 { return h.digest.Sum64() }

// Step adds a step of an incarnation of the agent: an event and the effects of it.
func (h *Hash) Step(incarnation int, ev world.Event, effects []world.Effect) {
	h.writeNumbers(uint64(incarnation), uint64(ev.Time.Sub(h.start)), uint64(ev.Op),
		uint64(len(effects)))
	h.writeBody(ev.Body)
	if ev.Err != nil {
		h.writeString(string(ev.Err.Kind))
		h.writeString(ev.Err.Message)
		if ev.Err.RetryAfter != 0 {
			h.writeNumbers(uint64(ev.Err.RetryAfter))
		}
	}
	for i := range effects {
		eff := &effects[i]
		var deadline uint64
		if eff.Op != 0 {
			deadline = uint64(eff.Deadline.Sub(h.start))
		}
		h.writeNumbers(uint64(eff.Op), deadline)
		h.writeBody(eff.Body)
	}
}

func (h *Hash) writeBody(body any) {
	if body == nil {
		return
	}
	h.writeString(world.BodyName(body))
	switch b := body.(type) {
	case *runtimeapi.ListPodSandboxResponse:
		h.writeNumbers(uint64(len(b.Items)))
		for _, item := range b.Items {
			h.writeItem(item)
		}
	case *runtimeapi.ListContainersResponse:
		h.writeNumbers(uint64(len(b.Containers)))
		for _, item := range b.Containers {
			h.writeItem(item)
		}
	case *world.PodsAnswer:
		h.writePods(b)
	default:
		h.writeBytes(h.encoder.Encode(body))
	}
}

// writeItem hashes an item of a list.
func (h *Hash) writeItem(item any) {
	sum, known := h.known[item]
	if !known {
		sum = xxhash.Sum64(h.encoder.Encode(item))
		h.remember(item, sum)
	}
	h.writeNumbers(sum)
}

// remember keeps the hash of a message that does not change any more.
func (h *Hash) remember(message any, sum uint64) {
	if h.known == nil || len(h.known) >= knownMax {
		h.known = map[any]uint64{}
	}
	h.known[message] = sum
}

// writePods hashes the statuses of the pods in a response. Their specs come from the plan.
func (h *Hash) writePods(answer *world.PodsAnswer) {
	for _, pod := range answer.Pods {
		sum, known := h.known[pod]
		if !known {
			size := pod.Status.Size()
			h.statusBuffer = slices.Grow(h.statusBuffer[:0], size)[:size]
			if _, err := pod.Status.MarshalToSizedBuffer(h.statusBuffer); err != nil {
				panic("canonical: " + err.Error())
			}
			sum = xxhash.Sum64(h.statusBuffer)
			h.remember(pod, sum)
		}
		h.writeString(string(pod.UID))
		h.writeNumbers(sum)
	}
}

func (h *Hash) writeString(s string) {
	h.writeNumbers(uint64(len(s)))
	h.digest.WriteString(s)
}

func (h *Hash) writeBytes(data []byte) {
	h.writeNumbers(uint64(len(data)))
	h.digest.Write(data)
}

func (h *Hash) writeNumbers(numbers ...uint64) {
	var b [8]byte
	for _, n := range numbers {
		binary.LittleEndian.PutUint64(b[:], n)
		h.digest.Write(b[:])
	}
}

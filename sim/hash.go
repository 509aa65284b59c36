package sim

import (
	"encoding/binary"
	"slices"

	"github.com/cespare/xxhash/v2"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/world"
)

// rolling is the hash of a run: every event and every effect, in their forms.
type rolling struct {
	digest xxhash.Digest
	ready  bool
	form   former
	// items are the hashes of lines of lists and of pods as they are shown: what has not changed
	// is the same message as before (see sim/runtime, and core.Agent), so most of what there is
	// to hash is hashed once.
	items  map[any]uint64
	status []byte // the last one that was hashed
}

// itemsMax bounds the hashes kept; beyond it all are forgotten and made again.
const itemsMax = 4096

func (h *rolling) sum() uint64 { return h.digest.Sum64() }

func (h *rolling) step(life int, ev world.Event, effects []world.Effect) {
	if !h.ready {
		h.digest.Reset()
		h.ready = true
	}
	h.number(uint64(life), uint64(ev.Time.Sub(Start)), uint64(ev.Op), uint64(len(effects)))
	h.body(ev.Body)
	if ev.Err != nil {
		h.text(string(ev.Err.Kind))
		h.text(ev.Err.Message)
		if ev.Err.RetryAfter != 0 {
			h.number(uint64(ev.Err.RetryAfter))
		}
	}
	for i := range effects {
		eff := &effects[i]
		var deadline uint64
		if eff.Op != 0 {
			deadline = uint64(eff.Deadline.Sub(Start))
		}
		h.number(uint64(eff.Op), deadline)
		h.body(eff.Body)
	}
}

func (h *rolling) body(body any) {
	if body == nil {
		return
	}
	h.text(world.BodyName(body))
	switch b := body.(type) {
	case *runtimeapi.ListPodSandboxResponse:
		h.number(uint64(len(b.Items)))
		for _, item := range b.Items {
			h.item(item)
		}
	case *runtimeapi.ListContainersResponse:
		h.number(uint64(len(b.Containers)))
		for _, item := range b.Containers {
			h.item(item)
		}
	case *world.PodsAnswer:
		h.pods(b)
	default:
		h.write(h.form.of(body))
	}
}

func (h *rolling) item(line any) {
	sum, known := h.items[line]
	if !known {
		sum = xxhash.Sum64(h.form.of(line))
		h.keep(line, sum)
	}
	h.number(sum)
}

// keep remembers the hash of something that nobody changes any more.
func (h *rolling) keep(what any, sum uint64) {
	if h.items == nil || len(h.items) >= itemsMax {
		h.items = map[any]uint64{}
	}
	h.items[what] = sum
}

// pods hashes what an answer says of the agent; the specs in it came from the plan.
func (h *rolling) pods(answer *world.PodsAnswer) {
	for _, pod := range answer.Pods {
		sum, known := h.items[pod]
		if !known {
			size := pod.Status.Size()
			h.status = slices.Grow(h.status[:0], size)[:size]
			if _, err := pod.Status.MarshalToSizedBuffer(h.status); err != nil {
				panic("hash: " + err.Error())
			}
			sum = xxhash.Sum64(h.status)
			h.keep(pod, sum)
		}
		h.text(string(pod.UID))
		h.number(sum)
	}
}

func (h *rolling) text(s string) {
	h.number(uint64(len(s)))
	h.digest.WriteString(s)
}

func (h *rolling) write(data []byte) {
	h.number(uint64(len(data)))
	h.digest.Write(data)
}

func (h *rolling) number(numbers ...uint64) {
	var b [8]byte
	for _, n := range numbers {
		binary.LittleEndian.PutUint64(b[:], n)
		h.digest.Write(b[:])
	}
}

package loop

import (
	"fmt"
	"testing"

	"seedlet.dev/world"
)

// BenchmarkWaitingForDriver is a search for a call that may start, while a driver that hangs holds
// its part of the lane. It costs as much with two hundred waiting calls of each pod as with two.
func BenchmarkWaitingForDriver(b *testing.B) {
	const pods = 100
	for _, calls := range []int{2, 200} {
		b.Run(fmt.Sprint(calls), func(b *testing.B) {
			s := newSlots(LaneCSI, 64)
			for i := range pods * calls {
				s.enqueue(csiCall(fmt.Sprint("pod-", i%pods), "hung", i))
			}
			for op := s.dequeue(); op != nil; op = s.dequeue() {
				s.take(op)
			}
			if s.inFlight == 0 || s.waiters == 0 {
				b.Fatalf("%d calls are in flight, %d wait", s.inFlight, s.waiters)
			}
			b.ReportAllocs()
			for b.Loop() {
				if s.dequeue() != nil {
					b.Fatal("a call may start")
				}
			}
		})
	}
}

// csiCall returns a call of a driver for a pod.
func csiCall(pod, driver string, number int) *operation {
	eff := world.Effect{Op: world.OpID(number + 1), Tenant: pod, Body: publishBy(driver)}
	return &operation{effect: eff, lane: LaneCSI, group: groupOf(LaneCSI, &eff)}
}

// The calls of one pod start in their order, but for those whose driver has no slot.
func TestOldestCallOfDriversWithSlots(t *testing.T) {
	s := newSlots(LaneCSI, 64)
	s.take(csiCall("other", "hung", 0))
	s.byGroup = map[string]int{"hung": 64}
	calls := []string{"hung", "b", "hung", "c", "b", "c", "hung", "b"}
	var last *operation
	for i, driver := range calls {
		last = csiCall("pod", driver, i)
		s.enqueue(last)
	}
	s.withdraw(last)
	var got []int
	for op := s.dequeue(); op != nil; op = s.dequeue() {
		got = append(got, int(op.effect.Op)-1)
	}
	if want := []int{1, 3, 4, 5}; fmt.Sprint(got) != fmt.Sprint(want) || s.waiters != 3 {
		t.Errorf("started %v, want %v; %d wait", got, want, s.waiters)
	}
	s.byGroup = nil
	if op := s.dequeue(); op == nil || op.effect.Op != 1 {
		t.Errorf("once the driver has a slot, %+v starts", op)
	}
}

package loop

import (
	"cmp"
	"slices"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/world"
)

// How tenants share the slots of a lane.
//
// A slot belongs to an operation from its start to its completion. The tenant of an operation is
// Effect.Tenant; operations of the node itself have none.
//
//  1. A tenant may hold a share of the slots that are free: one slot, or an eighth of them. The
//     share shrinks as the lane fills (the dynamic threshold of Choudhury and Hahne for shared
//     buffers). So one tenant holds at most a ninth of a lane, and a pod of many containers is fast
//     while the node is idle.
//  2. In a lane whose operations take as long as the author of a pod likes, a tenant also never
//     holds more than a part of all slots, so small that every pod of a large node has room for its
//     part: the tenants that came first would otherwise leave nothing to those that come later.
//  3. Some slots are reserved for the node.
//  4. Operations that have no slot wait. Tenants that wait take turns, each with its oldest
//     operation; a tenant that holds its share is passed over.
//     Creations and starts of containers are first, but every fourth turn is one of the others.
//  5. Calls of CSI drivers are shared by driver as well, and operations that may hang on what the
//     author of a pod has chosen by the namespace of the pod: all of such a group may hold as many
//     slots as are free, so at most half of the lane. A driver that hangs, or a namespace with many
//     pods whose file server does not respond, leaves the rest to the others, also of what replaces
//     hung operations. In its turn a pod starts the oldest call whose driver has a slot.
//  6. A hung operation is one that has not completed by its deadline. It keeps its slot, since it
//     still costs what the slot stands for, and counts against the share of its tenant. The lane
//     gets a replacement, as many as it has slots: so neither other tenants nor the node lose
//     capacity to a tenant whose operations hang, and what hangs is bounded all the same.
const (
	shareDivisor = 8
	podsMax      = 256 // of a large node; the default of maxPods is 110
	reserveMax   = 4   // the node has few operations in flight, most of them one at a time
)

// isOpenEnded reports whether the operations of a lane take as long as the author of a pod likes:
// a grace period, and the timeout of a probe or of a hook.
func (l Lane) isOpenEnded() bool { return l == LaneStop || l == LaneProbe }

// slots are the slots of one lane, and the operations that wait for one.
type slots struct {
	limit    int
	shareMax int // slots of one tenant
	inFlight int
	hung     int            // of those in flight
	byTenant map[string]int // of those in flight; the node's have no name
	byGroup  map[string]int // of those in flight that have a group
	waiting  [2]turns       // by urgency
	waiters  int            // operations that wait
	// urgentInRow is how many urgent operations were started in a row while others waited.
	urgentInRow int
}

// newSlots returns the slots of a lane.
func newSlots(lane Lane, limit int) slots {
	s := slots{limit: limit, shareMax: limit}
	if lane.isOpenEnded() {
		s.shareMax = max(1, limit/podsMax)
	}
	return s
}

// capacity returns how many operations may be in flight now.
func (s *slots) capacity() int { return s.limit + min(s.hung, s.limit) }

// reserve returns how many slots only the node may use.
func (s *slots) reserve() int {
	if s.limit == 1 {
		return 0
	}
	return min(max(1, s.limit/shareDivisor), reserveMax)
}

// unknownNamespace stands for the namespaces of all tenants that have none, or whose pods are not
// known any more. No namespace has this name.
const unknownNamespace = "-"

// groupOf returns the group with which an operation shares its lane, besides the others of its
// tenant: the CSI driver that it calls, or the namespace of its tenant in a lane whose operations
// may hang. It is empty for all others, and for the node's own.
func groupOf(lane Lane, eff *world.Effect) string {
	call, isCall := eff.Body.(world.CSICall)
	switch {
	case isCall:
		return call.CalledDriver().Name
	case eff.Tenant == "" || !lane.mayHang():
		return ""
	}
	return cmp.Or(eff.Namespace, unknownNamespace)
}

// hasSlot reports whether a tenant may start an operation now.
func (s *slots) hasSlot(tenant string) bool {
	free := s.capacity() - s.inFlight
	if tenant == "" {
		return free > 0
	}
	free -= max(0, s.reserve()-s.byTenant[""])
	return free > 0 && s.byTenant[tenant] < min(s.shareMax, max(1, free/shareDivisor))
}

// hasGroupSlot reports whether an operation of a group may start now.
func (s *slots) hasGroupSlot(group string) bool {
	return group == "" || s.byGroup[group] < max(1, s.capacity()-s.inFlight)
}

// take gives a slot to an operation.
func (s *slots) take(op *operation) {
	if s.byTenant == nil {
		s.byTenant, s.byGroup = map[string]int{}, map[string]int{}
	}
	s.inFlight++
	s.byTenant[op.effect.Tenant]++
	if op.group != "" {
		s.byGroup[op.group]++
	}
}

// release takes the slot of a completed operation back.
func (s *slots) release(op *operation) {
	s.inFlight--
	if op.hung {
		s.hung--
	}
	tenant := op.effect.Tenant
	if s.byTenant[tenant]--; s.byTenant[tenant] == 0 {
		delete(s.byTenant, tenant)
	}
	if s.byGroup[op.group]--; s.byGroup[op.group] <= 0 {
		delete(s.byGroup, op.group)
	}
}

// mostOfOne returns how many slots the tenant that holds most of them has.
func (s *slots) mostOfOne() int {
	most := 0
	for tenant, held := range s.byTenant { //ordered: a maximum
		if tenant != "" {
			most = max(most, held)
		}
	}
	return most
}

// urgency returns the queue of an operation: CreateContainer and StartContainer are first, all
// others second. So when many pods start at once some of them run soon; otherwise all of them would
// stay half started for a long time.
func urgency(op *operation) int {
	switch op.effect.Body.(type) {
	case *runtimeapi.CreateContainerRequest, *runtimeapi.StartContainerRequest:
		return 0
	}
	return 1
}

// enqueue makes an operation wait for a slot.
func (s *slots) enqueue(op *operation) {
	s.waiting[urgency(op)].push(op)
	s.waiters++
}

// urgentInRowMax is how many urgent operations start before one of the others has its turn. Tenants
// that restart containers without end would otherwise keep the sandboxes of all others waiting.
const urgentInRowMax = 3

// dequeue returns the next operation that may start, in the order of turns; nil if none may.
func (s *slots) dequeue() *operation {
	if s.inFlight >= s.capacity() {
		return nil
	}
	order := [...]int{0, 1}
	if s.urgentInRow >= urgentInRowMax {
		order = [...]int{1, 0}
	}
	for _, i := range order {
		op := s.waiting[i].pop(s)
		if op == nil {
			continue
		}
		s.waiters--
		if s.urgentInRow++; i == 1 || len(s.waiting[1].order) == 0 {
			s.urgentInRow = 0
		}
		return op
	}
	return nil
}

// withdraw removes an operation that waits.
func (s *slots) withdraw(op *operation) {
	s.waiting[urgency(op)].remove(op)
	s.waiters--
}

// turns are the operations of tenants that wait, and the order in which the tenants take turns. An
// operation never overtakes another one of its tenant, unless they call different drivers.
type turns struct {
	order    []string // the tenants that wait, the next one first
	byTenant map[string]*tenantQueue
	pushed   int // operations, ever
}

// tenantQueue are the operations of one tenant that wait. Those that may overtake each other are in
// lines of their own: in LaneCSI the calls of each driver. So a turn looks at the first of each
// line, however many calls wait for a driver that has no slot.
type tenantQueue struct{ lines []line }

// line is a queue of operations, and never empty.
type line struct {
	key        string
	operations []*operation
}

// lineOf returns the key of the line of an operation. In the lanes other than LaneCSI all
// operations of a tenant are of one namespace.
func lineOf(op *operation) string {
	if op.lane == LaneCSI {
		return op.group
	}
	return ""
}

// find returns the position of the line of an operation; -1 if there is none.
func (q *tenantQueue) find(op *operation) int {
	key := lineOf(op)
	return slices.IndexFunc(q.lines, func(l line) bool { return l.key == key })
}

// oldest returns the oldest operation of a tenant whose group has a slot; nil if there is none.
func (q *tenantQueue) oldest(s *slots) (oldest *operation) {
	for i := range q.lines {
		first := q.lines[i].operations[0]
		if s.hasGroupSlot(first.group) && (oldest == nil || first.number < oldest.number) {
			oldest = first
		}
	}
	return oldest
}

func (t *turns) push(op *operation) {
	if t.byTenant == nil {
		t.byTenant = map[string]*tenantQueue{}
	}
	t.pushed++
	op.number = t.pushed
	tenant := op.effect.Tenant
	q := t.byTenant[tenant]
	if q == nil {
		q = &tenantQueue{}
		t.byTenant[tenant] = q
		t.order = append(t.order, tenant)
	}
	if at := q.find(op); at >= 0 {
		q.lines[at].operations = append(q.lines[at].operations, op)
		return
	}
	q.lines = append(q.lines, line{lineOf(op), []*operation{op}})
}

// pop returns the oldest operation that may start of the first tenant that has one; nil if none
// has. That tenant has its next turn after all others.
func (t *turns) pop(s *slots) *operation {
	for i, tenant := range t.order {
		if !s.hasSlot(tenant) {
			continue
		}
		if op := t.byTenant[tenant].oldest(s); op != nil {
			t.order = append(slices.Delete(t.order, i, i+1), tenant)
			t.remove(op)
			return op
		}
	}
	return nil
}

// remove removes an operation.
func (t *turns) remove(op *operation) {
	tenant := op.effect.Tenant
	q := t.byTenant[tenant]
	at := q.find(op)
	waiting := q.lines[at].operations
	if i := slices.Index(waiting, op); i == 0 {
		waiting[0] = nil // the array stays with the rest of the line
		waiting = waiting[1:]
	} else {
		waiting = slices.Delete(waiting, i, i+1)
	}
	if q.lines[at].operations = waiting; len(waiting) > 0 {
		return
	}
	if q.lines = slices.Delete(q.lines, at, at+1); len(q.lines) > 0 {
		return
	}
	delete(t.byTenant, tenant)
	at = slices.Index(t.order, tenant)
	t.order = slices.Delete(t.order, at, at+1)
}

// startOrQueue starts an operation if it may have a slot, and if no other has its turn before.
func (l *Loop) startOrQueue(eff world.Effect) {
	lane := LaneOf(eff)
	op := &operation{effect: eff, lane: lane, group: groupOf(lane, &eff)}
	l.lanes[op.lane].enqueue(op)
	l.queued.push(op)
	l.waiting[eff.Op] = op
	l.startWaiting(op.lane)
}

func (l *Loop) start(op *operation) {
	l.lanes[op.lane].take(op)
	l.inFlight[op.effect.Op] = op
	l.started.push(op)
	l.opts.Ports[world.PortOf(op.effect.Body)].Do(op.effect)
}

// startWaiting starts operations that wait, while their lane has slots for them.
func (l *Loop) startWaiting(lane Lane) {
	for op := l.lanes[lane].dequeue(); op != nil; op = l.lanes[lane].dequeue() {
		l.queued.remove(op)
		delete(l.waiting, op.effect.Op)
		l.start(op)
	}
}

// ShareMax returns the bound of one tenant in a lane whose operations take as long as the author
// of a pod likes, by default. In the other lanes only rule 1 bounds a tenant.
func ShareMax(lane Lane) int { return newSlots(lane, defaultLimits.InFlight[lane]).shareMax }

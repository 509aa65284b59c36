package agenda

// heapArity is the number of children of a node. With four, the heap is half as deep as a binary
// one, and the children are adjacent in memory.
const heapArity = 4

// push adds an entry, moving its parents down until it fits.
func (a *Agenda) push(e entry) {
	a.heap = append(a.heap, e)
	i := len(a.heap) - 1
	for i > 0 {
		parent := (i - 1) / heapArity
		if !e.before(&a.heap[parent]) {
			break
		}
		a.heap[i] = a.heap[parent]
		i = parent
	}
	a.heap[i] = e
}

// pop removes and returns the earliest entry. The heap must not be empty.
func (a *Agenda) pop() entry {
	first := a.heap[0]
	last := len(a.heap) - 1
	e := a.heap[last]
	a.heap[last] = entry{} // releases the closure
	a.heap = a.heap[:last]
	if last > 0 {
		a.sink(e)
	}
	return first
}

// sink puts an entry at the root, moving children up until it fits.
func (a *Agenda) sink(e entry) {
	i, n := 0, len(a.heap)
	for {
		least := i*heapArity + 1
		if least >= n {
			break
		}
		for child, end := least+1, min(least+heapArity, n); child < end; child++ {
			if a.heap[child].before(&a.heap[least]) {
				least = child
			}
		}
		if !a.heap[least].before(&e) {
			break
		}
		a.heap[i] = a.heap[least]
		i = least
	}
	a.heap[i] = e
}

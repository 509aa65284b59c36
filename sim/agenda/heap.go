package agenda

// The entries are a heap with four children per node: half as deep as a binary one, and the
// children lie next to each other in memory.
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

// pop takes the earliest entry out; the heap is not empty.
func (a *Agenda) pop() entry {
	first := a.heap[0]
	last := len(a.heap) - 1
	e := a.heap[last]
	a.heap[last] = entry{} // let go of the closure
	a.heap = a.heap[:last]
	if last > 0 {
		a.sink(e)
	}
	return first
}

// sink puts an entry in the place of the root, moving children up until it fits.
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

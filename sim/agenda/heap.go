package agenda

// heapArity is the number of children of a node. With four, the heap is half as deep as a binary
// one, and the children are adjacent in memory.
const heapArity = 4

// push adds an entry.
func (a *queue) push(e entry) {
	a.heap = append(a.heap, e)
	a.rise(e, len(a.heap)-1)
}

// rise puts an entry at a place, moving its parents down until it fits.
func (a *queue) rise(e entry, i int) {
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
func (a *queue) pop() entry {
	first := a.heap[0]
	last := len(a.heap) - 1
	e := a.heap[last]
	a.heap[last] = entry{} // releases the closure
	a.heap = a.heap[:last]
	if last > 0 {
		a.sink(e, 0)
	}
	return first
}

// removeAt removes and returns the entry at a place of the heap.
func (a *queue) removeAt(i int) entry {
	if i == 0 {
		return a.pop()
	}
	removed := a.heap[i]
	last := len(a.heap) - 1
	e := a.heap[last]
	a.heap[last] = entry{} // releases the closure
	a.heap = a.heap[:last]
	switch {
	case i == last:
	case e.before(&a.heap[(i-1)/heapArity]):
		a.rise(e, i)
	default:
		a.sink(e, i)
	}
	return removed
}

// sink puts an entry at a place, moving children up until it fits.
func (a *queue) sink(e entry, i int) {
	n := len(a.heap)
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

package task

// What goes on at a time, whether it has been answered by then or not.

import (
	"container/heap"

	"ringside/proxy/link"
)

// timer is what a rule wants done at a time.
type timer struct {
	At int64 // on the loop's clock
	do func()
}

// timers is a heap by time, the next one first.
type timers []timer

func (h timers) Len() int           { return len(h) }
func (h timers) Less(i, j int) bool { return h[i].At < h[j].At }
func (h timers) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *timers) Push(x any)        { *h = append(*h, x.(timer)) }

func (h *timers) Pop() any {
	last := len(*h) - 1
	x := (*h)[last]
	(*h)[last] = timer{} // else the array keeps the task alive
	*h = (*h)[:last]
	return x
}

// After does do when the loop's clock shows at: a read is hedged then, or who has met a
// mark has given its owner some time.
func (e *Tasks) After(at int64, do func()) {
	heap.Push(&e.Later, timer{at, do})
	e.At(link.TaskTimer, e.Later[0].At)
}

// FireTimers does what is due.
func (e *Tasks) FireTimers() {
	for len(e.Later) > 0 && e.Later[0].At <= e.Now {
		heap.Pop(&e.Later).(timer).do()
	}
	if len(e.Later) > 0 {
		e.At(link.TaskTimer, e.Later[0].At)
	}
}

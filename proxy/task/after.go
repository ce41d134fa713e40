package task

// This file implements the timers of rules, which run whether a reply has arrived by then or
// not.

import (
	"container/heap"

	"ringside/proxy/link"
)

// timer is a function that a rule wants to run at a time.
type timer struct {
	At int64 // on the loop's clock
	do func()
}

// timers is a heap by time, the earliest first.
type timers []timer

func (h timers) Len() int           { return len(h) }
func (h timers) Less(i, j int) bool { return h[i].At < h[j].At }
func (h timers) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *timers) Push(x any)        { *h = append(*h, x.(timer)) }

func (h *timers) Pop() any {
	last := len(*h) - 1
	x := (*h)[last]
	(*h)[last] = timer{} // clears the popped entry, because the array would otherwise keep its task from being freed
	*h = (*h)[:last]
	return x
}

// After runs the function do when the loop's clock reaches the time `at`: to continue after a delay for the owner of a tombstone.
func (e *Tasks) After(at int64, do func()) {
	heap.Push(&e.Later, timer{at, do})
	e.At(link.TaskTimer, e.Later[0].At)
}

// FireTimers runs the timers that are due.
func (e *Tasks) FireTimers() {
	for len(e.Later) > 0 && e.Later[0].At <= e.Now {
		heap.Pop(&e.Later).(timer).do()
	}
	if len(e.Later) > 0 {
		e.At(link.TaskTimer, e.Later[0].At)
	}
}

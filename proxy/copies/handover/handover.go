// Package handover says by which table keys of several copies are held while a reload that
// gives them other holders goes round the Ringsides.
//
// All Ringsides go through these stages, each within one of the others: see package
// health/barrier, which says when.
//
//	stage     it serves keys by    and a key that gets other holders
//	waiting   the table of before  is served as ever: others may not have the new one yet
//	pausing   the table of before  may be read where it is, and nothing of it is written, touched or copied
//	moving    the new table        leaves its former holders before anything is decided
//
// So no Ringside writes by the new table while another one does by that of before. A read that
// has begun in the pause repairs nothing, whenever it ends: a key that it has seen missing may
// have left. A table that comes while others may be in another stage waits for them.
//
// # What it does not promise
//
// That holds only where a Ringside sees the others: what it knows of them are the view
// records, see package health. One that was started anew knows nothing of the table of before.
package handover

import (
	"slices"

	"ringside/proxy/health/barrier"
)

// Handover is one that goes on.
type Handover struct {
	Formers []*Arrangement // by which servers may have keys, the oldest first
	Serving *Arrangement   // one of them, by which keys are still served; nil: the present one
	paused  bool           // keys that get other holders are not written
}

const maxFormers = 4 // arrangements that are remembered

// New is the handover from the arrangement before to that of a table that has come now. was
// is the handover that goes on by then, or nil. tooMany: so many arrangements are remembered
// that the oldest is forgotten.
func New(before *Arrangement, was *Handover) (h *Handover, tooMany bool) {
	h = &Handover{Serving: before}
	if was != nil {
		h.Formers = slices.DeleteFunc(was.Formers, func(a *Arrangement) bool { return a.Print == before.Print })
		if was.Serving != nil {
			h.Serving = was.Serving
		}
	}
	if h.Formers = append(h.Formers, before); len(h.Formers) > maxFormers {
		h.Formers, tooMany = h.Formers[1:], true
	}
	return h, tooMany
}

// Proceed goes to another stage if all Ringsides do, pool by pool, and reports whether it has.
// The last of the pools is followed: who is Done with all knows that nobody is waiting with any.
func (h *Handover) Proceed(pools []barrier.Stage) bool {
	waits, done := false, true
	for _, p := range pools {
		waits = waits || p == barrier.Waiting
		done = done && p == barrier.Done
	}
	switch was := h.paused; {
	case h.Serving == nil:
		return false
	case done:
		h.Serving, h.paused = nil, false
		return true
	default:
		h.paused = !waits
		return was != h.paused
	}
}

// Pauses reports whether nothing may be given to holders that change. h may be nil.
func (h *Handover) Pauses() bool { return h != nil && h.paused }

// Moving reports whether keys move. h may be nil.
func (h *Handover) Moving() bool { return h != nil && h.Serving == nil }

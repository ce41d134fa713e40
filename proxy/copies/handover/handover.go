// Package handover says by which table keys of several copies are held while a reload that
// gives them other holders goes round the Ringsides.
//
// Each Ringside goes through these stages by itself:
//
//	stage     it serves keys by    and a key that gets other holders                          until
//	waiting   the table of before  is served as ever: others may not have the new one yet     no Ringside with another list was seen for twenty pings
//	pausing   the table of before  may be read where it is, and is not written or copied      no other can be waiting any more
//	moving    the new table        leaves its former holders before anything is decided       all have what they are to have, and nothing else
//
// So no Ringside writes by the new table while another one does by that of before. It is
// not sure of that where others can't be seen: what a Ringside knows of them are the lists
// in the view records, see package health. One that was started anew knows nothing of the
// table of before.
package handover

import (
	"slices"
	"time"
)

// Handover is one that goes on. Times are on the loop's clock.
type Handover struct {
	Formers []*Arrangement // by which servers may have keys, the oldest first
	Serving *Arrangement   // one of them, by which keys are still served; nil: the present one

	begun     int64 // when the present table came
	pauseEnds int64 // until when it pauses; 0: it waits
}

const (
	maxFormers = 4 // arrangements that are remembered

	// Who reloads last may see no other list any more, and is seen for twenty pings by
	// those before, give or take those between two looks. So it waits nearly as long by
	// itself, and then longer than they can differ by.
	waitPings  = 18
	pausePings = 6
)

// New is the handover from the arrangement before to that of a table that has come now. was
// is the one that goes on, or nil. tooMany: so many go on that the oldest is forgotten.
func New(before *Arrangement, was *Handover, now int64) (h *Handover, tooMany bool) {
	h = &Handover{Serving: before, begun: now}
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

// Proceed goes on to another stage if it is time. It reports whether it has. agreed: all
// Ringsides that are seen have the same list of servers.
func (h *Handover) Proceed(now int64, agreed bool, ping, deadline time.Duration) bool {
	switch {
	case h.Serving == nil:
		return false
	case !agreed:
		paused := h.pauseEnds != 0
		h.pauseEnds = 0
		return paused
	case now < h.begun+int64(waitPings*ping):
		return false
	case h.pauseEnds == 0:
		h.pauseEnds = now + int64(pausePings*ping+deadline)
	case now >= h.pauseEnds:
		h.Serving = nil
	default:
		return false
	}
	return true
}

// Ends is when a pause does; 0: there is none.
func (h *Handover) Ends() int64 {
	if h == nil || h.Serving == nil {
		return 0
	}
	return h.pauseEnds
}

// Moving reports whether keys move. h may be nil.
func (h *Handover) Moving() bool { return h != nil && h.Serving == nil }

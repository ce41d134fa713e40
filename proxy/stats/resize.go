package stats

// This file describes changes of the servers of pools (package health/resize), for operators.

import (
	"cmp"
	"encoding/json"
	"time"

	"ringside/proxy/health/resize"
	"ringside/proxy/table"
)

// ResizeSnapshot is the state of a change of a pool's servers, as one instance sees it. Pools that do not
// coordinate changes have none.
type ResizeSnapshot struct {
	resize.Status
	Since time.Duration // how long this instance has known the stage; in resize.Stable, at most how long it has had its list
	Waits string        // why keys do not begin to move, in words; empty: no reason is known
	For   table.Target  // the server to which Waits applies; zero: none, or other instances
	Work  ResizeWork
	Ours  bool // this instance does Work
	Keys  ResizeKeys
}

// Due reports whether a change has not ended, or this instance does not know the list in force.
func (s *ResizeSnapshot) Due() bool {
	return s.N != 0 && (s.Stage() != resize.Stable || s.List != s.Required() || s.Serves() == resize.Nothing)
}

// Waiting returns why a change can't go on now, in words; empty: it goes on, or none is due.
func (s *ResizeSnapshot) Waiting() string {
	switch {
	case !s.Due() || s.Serves() == resize.Nothing:
		return ""
	case s.Retreats: // the work does not have to end
		return s.Waits
	}
	return cmp.Or(s.Waits, s.Work.Why)
}

// ResizeWork is the progress of the work on the servers in one stage of a change. The instance that does the
// work stores it on the servers as JSON, so that all instances can show it.
type ResizeWork struct {
	By       string  `json:"by"`       // name of the instance that does the work; empty: not known
	Server   string  `json:"server"`   // server that is being listed or emptied; empty: none
	At       int     `json:"at"`       // number of Server in the order of the work, from 1
	Of       int     `json:"of"`       // number of servers
	Done     uint64  `json:"done"`     // keys that the work has moved or removed so far
	Rejected uint64  `json:"rejected"` // keys that are lost: see ResizeKeys
	Left     uint64  `json:"left"`     // keys that the last listing of Server has found, and that are not handled yet
	Listed   bool    `json:"listed"`   // the listing of Server has ended, so Left is known
	Listing  int64   `json:"listing"`  // how long the listing of Server has taken so far, in seconds; 0: there is none
	Rate     float64 `json:"rate"`     // handled keys per second
	Why      string  `json:"why"`      // why the work must wait; empty: it goes on
}

// JSON returns the text that is stored on servers.
func (w *ResizeWork) JSON() []byte {
	b, _ := json.Marshal(w) // can't fail for these types
	return b
}

// ParseResizeWork parses such a text. The result is the zero ResizeWork if the text is invalid.
func ParseResizeWork(b []byte) (w ResizeWork) {
	if len(b) > mostResizeWork || json.Unmarshal(b, &w) != nil || w.Rate < 0 || w.Rate > mostResizeRate || w.Listing < 0 {
		return ResizeWork{}
	}
	return w
}

// Texts that are longer (in bytes), or have a higher rate, are invalid.
const (
	mostResizeWork = 1 << 10
	mostResizeRate = 1e9
)

// ResizeKeys counts keys of a pool, since the start of the process.
type ResizeKeys struct {
	Moved    uint64 // keys that the work of this instance has moved to their new servers
	Copied   uint64 // keys that reads have copied to their new servers
	Removed  uint64 // keys that the work has removed, because their server must not have them
	Rejected uint64 // keys that are lost: their new server has rejected them, or was out for a minute, or their old one is out
}

// Resize returns the state of a change of the pool's servers. It creates one if there is none.
func (s *Snapshot) Resize(pool string) *ResizeSnapshot { return Entry(&s.Resizes, pool) }

// Metrics of each pool with `resize.mode` flush or warm.
var (
	resizeStage = PerPool.Gauge("resize_stage",
		"Stage of a change of the pool's servers. 0: none is due. 1: it waits until all instances have the same list, or until old "+
			"values have left the servers that gain keys, or until all instances know that keys are about to move. 2: writes of keys that move wait. 3: keys move. 4: the old servers are listed "+
			"again. 5: keys have moved, and the change ends soon. 6: keys that move are not served. 7: this instance serves no key, "+
			"because it does not know the list in force. Absent without resize.mode flush or warm.")
	resizeWaiting = PerPool.Gauge("resize_waiting",
		"1 if a change of the pool's servers can't go on, as far as this instance knows, or if this instance uses other servers than its peers; else 0. "+
			"The dashboard, ringside top and ringside server list have the cause. Absent without resize.mode flush or warm.")
	resizeKeys = PerPool.Counter("resize_keys_total",
		"Keys that this instance has handled in changes of the pool's servers with resize.mode warm, by result. moved: moved by the "+
			"instance that lists the old servers. copied: copied by a read; they are later in moved, too. removed: removed from a server "+
			"that must not have them. rejected: lost, because their new server has rejected them, or was out for a minute, or because their old server went out.",
		"result")
	resizeLeft = PerPool.Gauge("resize_keys_left",
		"Keys that the last listing of a server has found, and that are not moved or removed yet. 0 on instances that do not list the "+
			"servers. Keys on servers that are listed later are not included.")
)

// Figures returns the numbers of a change. The other label of their metrics is the pool.
func (s *ResizeSnapshot) Figures() []Figure {
	stage, left := int(s.Stage())+1, uint64(0)
	switch serves := s.Serves(); {
	case serves == resize.Nothing && s.N != 0 && !s.UsesOwn():
		stage = 7
	case !s.Due():
		stage = 0
	case s.Announced:
		stage = 1
	}
	if s.Ours {
		left = s.Work.Left
	}
	return []Figure{
		{resizeStage, "", "", stage},
		{resizeWaiting, "", "", s.Waiting() != "" || s.UsesOwn()},
		{resizeKeys, "moved", "", s.Keys.Moved},
		{resizeKeys, "copied", "", s.Keys.Copied},
		{resizeKeys, "removed", "", s.Keys.Removed},
		{resizeKeys, "rejected", "", s.Keys.Rejected},
		{resizeLeft, "", "", float64(left)},
	}
}

package live

// This file describes the sources of servers of pools in words.

import (
	"fmt"
	"time"
)

// Source is the state of a source of servers of a pool.
type Source struct {
	Pool   string `json:"pool"`
	Source string `json:"source"` // its text in the configuration

	Servers        int       `json:"servers"`           // number of its servers in force; 0: they are not known yet
	State          string    `json:"state"`             // unasked, ok, failing or held
	Problem        string    `json:"problem,omitempty"` // why the last answer is not in force; empty: it is
	Added, Removed int       `json:"-"`                 // number of servers that the held answer adds and removes
	At             time.Time `json:"at"`                // when the last usable answer came; the zero Time: there was none
	Succeeded      uint64    `json:"-"`                 // number of lookups since the start with an answer that is in force
	Failed         uint64    `json:"-"`                 // number of lookups that have failed or got an unusable answer
	Held           uint64    `json:"-"`                 // number of lookups with an answer that changes too much
}

// trouble returns a sentence about a source, if its last answer is not in force; empty: it is in force.
func (s *Source) trouble() string {
	switch {
	case s.Problem == "":
		return ""
	case s.Servers == 0:
		return fmt.Sprintf("The source %s has not given its servers yet: %s.", s.Source, s.Problem)
	case s.State == "held":
		return fmt.Sprintf("The answer of %s is not applied: %s.", s.Source, s.Problem)
	}
	return fmt.Sprintf("The source %s fails, so its servers stay as they are: %s.", s.Source, s.Problem)
}

// warnOfSources adds the problems of a pool's sources to its health.
func (h *Health) warnOfSources(sources []Source, pool string) {
	for i := range sources {
		if text := sources[i].trouble(); text != "" && sources[i].Pool == pool {
			h.warn(text)
		}
	}
}

package admin

// Tags: invalidations by people, and the metrics of routes with tags.

import (
	"encoding/json"
	"net/http"

	"ringside/proxy/stats"
)

// Invalidate names tags to be invalidated.
type Invalidate struct {
	Names []string `json:"names"`
	Pool  string   `json:"pool,omitempty"` // only on the servers of this one
}

// Invalidated is what one server says to it.
type Invalidated struct {
	Pool    string `json:"pool"`
	Server  string `json:"server"`
	Done    bool   `json:"done"`
	Skipped bool   `json:"skipped,omitempty"` // it is out, and flushed before anybody reads it
	Why     string `json:"why,omitempty"`     // it is not done
}

func (s *Server) postInvalidate(r *http.Request) (int, any, error) {
	if err := onlyQuery(r); err != nil {
		return 0, nil, err
	}
	var what Invalidate
	d := json.NewDecoder(r.Body)
	d.DisallowUnknownFields()
	if err := d.Decode(&what); err != nil || len(what.Names) == 0 {
		return 0, nil, refuse(http.StatusBadRequest, `the body must be {"names": ["NAME"]}, and may have a "pool"`)
	}
	answers, err := s.heart.p.InvalidateTags(what.Names, what.Pool)
	if err != nil {
		return 0, nil, refuse(http.StatusConflict, "%w", err)
	}
	list := []Invalidated{}
	for _, a := range answers {
		list = append(list, Invalidated{Pool: a.Pool, Server: a.Server, Done: a.Why == "", Skipped: a.Skipped, Why: a.Why})
	}
	return http.StatusOK, struct {
		Servers []Invalidated `json:"servers"`
	}{list}, nil
}

// Routes with tags, by prefix.
var (
	tagHits = counter("tags_hits_total",
		"Values with tags that were found, and all their tags were the same still.",
		"route")
	tagInvalid = counter("tags_invalid_total",
		"Values that were found, and a tag had changed since, or one was missing that the key must have.",
		"route")
	tagBroken = counter("tags_broken_total",
		"Values whose head could not be read; anything but 0: somebody else writes them, or reads the wrong ones.",
		"route")
	tagUnordered = counter("tags_unordered_total",
		"Sets not stored because a tag that they name may have changed since their miss.",
		"route")
	tagSecondRound = counter("tags_second_round_total",
		"Values with tags that were not asked for with them.",
		"route")
	tagTooMany = counter("tags_too_many_total",
		"Sets refused because they name more tags than limits.tags_per_value.",
		"route")
	tagKeys = gauge("tags_remembered",
		"Keys of which the tags are remembered that clients have named.",
		"route")
	tagInvalidations = histogram("tags_invalidation_seconds",
		"Time from an invalidation to the last server's answer.")
	tagErrors = counter("tags_invalidation_errors_total",
		"Invalidations that not all servers have answered.")
)

// tagEvents are the counters of a route with tags.
var tagEvents = map[stats.TagEvent]metric{
	stats.TagHit:         tagHits,
	stats.TagInvalid:     tagInvalid,
	stats.TagBroken:      tagBroken,
	stats.TagUnordered:   tagUnordered,
	stats.TagSecondRound: tagSecondRound,
	stats.TagTooMany:     tagTooMany,
}

func (out output) tags(list []*stats.Tags, taken *stats.Histogram, bad uint64) {
	for _, t := range list {
		for e, m := range tagEvents {
			out.count(m, t.Counted(e), t.Route)
		}
		out.set(tagKeys, float64(t.Remembered()), t.Route)
	}
	if len(list) > 0 {
		out.histogram(tagInvalidations, taken, 0)
		out.count(tagErrors, bad)
	}
}

package admin

// The control API: reading the configuration again, and handing over.

import (
	"errors"
	"net/http"
)

// Reloaded is what a reload has done.
type Reloaded struct {
	File       string   `json:"file"`
	Generation uint64   `json:"generation"` // of the table that is in force now
	Changes    []string `json:"changes"`    // that are in force, a sentence each
	NextStart  []string `json:"next_start"` // what the file says and this process doesn't do: it takes another start
}

// ErrStopping is what Options.ReadAgain returns once the process ends.
var ErrStopping = errors.New("this Ringside is stopping")

func (s *Server) postReload(r *http.Request) (int, any, error) {
	if err := onlyQuery(r); err != nil {
		return 0, nil, err
	}
	if err := noBody(r); err != nil {
		return 0, nil, err
	}
	if s.options.ReadAgain == nil {
		return 0, nil, refuse(http.StatusConflict, "this Ringside has no configuration file that could be read again")
	}
	switch done, err := s.options.ReadAgain(); {
	case errors.Is(err, ErrStopping):
		return 0, nil, refuse(http.StatusServiceUnavailable, "%w", err)
	case err != nil:
		return 0, nil, refuse(http.StatusUnprocessableEntity, "%w", err)
	default:
		return http.StatusOK, done, nil
	}
}

// handOverAnswer is what POST /control/hand-over says.
type handOverAnswer struct {
	Socket string `json:"socket"`
}

func (s *Server) postHandOver(r *http.Request) (int, any, error) {
	if err := onlyQuery(r); err != nil {
		return 0, nil, err
	}
	if err := noBody(r); err != nil {
		return 0, nil, err
	}
	if s.options.HandOver == nil {
		return 0, nil, refuse(http.StatusConflict, "this Ringside can't be taken over: it has no configuration file")
	}
	socket, err := s.options.HandOver()
	return http.StatusOK, handOverAnswer{socket}, err
}

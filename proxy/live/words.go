package live

// This file has the words, signs and levels that all views use for states, reasons and events.

import (
	"slices"
	"strings"

	"ringside/proxy/health"
	"ringside/proxy/secure"
)

// Words are the words of all views for what a state, a reason or a letter means. The dashboard gets
// them with the first event of a stream.
type Words struct {
	States  map[string]State  `json:"states"`  // states of a server, by name
	Reasons []Word            `json:"reasons"` // reasons of misses, in the order in which they are shown if they are equally frequent
	Letters map[string]string `json:"letters"` // what the events of traced keys mean, by letter
	Legend  []Word            `json:"legend"`  // the letters again, in groups
}

// Word is a name, or one or more letters, with its meaning.
type Word struct {
	Name  string `json:"name"`
	Means string `json:"means"`
}

// State describes a state of a server.
type State struct {
	Tone  string `json:"tone"`  // Good, Warn, Bad, or Calm: neither
	Sign  string `json:"-"`     // symbol on a terminal, which differs from the others even without colors
	Away  bool   `json:"away"`  // true if the server does not serve its keys
	Moved bool   `json:"moved"` // true if other servers may have its keys; before that, they miss
	Does  string `json:"-"`     // what a rejoining server does; empty: it does not rejoin
	Next  string `json:"-"`     // what happens next to the server
	Back  bool   `json:"back"`  // true if the server rejoins
}

// Calm is the tone of a state that needs no attention although the server is not up.
const Calm = "dim"

// Vocabulary has the words of all views.
var Vocabulary = Words{
	States: map[string]State{
		Up:        {Tone: Good, Sign: "●", Next: "nothing, while it answers"},
		Unknown:   {Tone: Calm, Sign: "○", Next: "it is up or down with its first answer"},
		Joins:     {Tone: Calm, Sign: "+", Next: "it serves its keys when all instances use the new list"},
		Drained:   {Tone: Calm, Sign: "◇", Away: true, Moved: true, Next: "nothing: ringside server restore, or u here, brings it back"},
		Down:      {Tone: Bad, Sign: "✗", Away: true, Next: "it is tried again; its keys miss or fail until it answers"},
		"suspect": {Tone: Bad, Sign: "△", Away: true, Next: "it is up again if it answers, and leaves if not"},
		"leaving": {Tone: Bad, Sign: "△", Away: true, Next: "it is out when all instances know it"},
		"out":     {Tone: Bad, Sign: "✗", Away: true, Moved: true, Next: "it is flushed, and returns, when it answers again"},
		"return": {Tone: Warn, Sign: "←", Back: true, Next: "it serves when all instances know it",
			Does: "It answers again and is being flushed, so that no old value is served."},
		"warm": {Tone: Warn, Sign: "←", Back: true, Next: "the values of its keys are copied to it from their substitute servers",
			Does: "It is empty and gets writes; keys that it does not have yet are read from their substitute servers."},
		"settle": {Tone: Warn, Sign: "←", Back: true, Next: "it is up when no late reply of a substitute server can arrive any more",
			Does: "It serves its keys again; the substitute servers delete them."},
	},
	Reasons: []Word{
		{"evicted", "memcached evicted it: its eviction counter has grown"}, {"expired", "its TTL has ended"}, {"deleted", "a client deleted it"},
		{"flushed", "the server was flushed"}, {"out", "the server was ejected, or is"}, {"moved", "a reload gave it to another server"},
		{"invalidated", "a tag was invalidated"}, {"never", "it was never set here"},
		{"unsure", "no cause is known: not observed long enough, or removed without Ringside"},
	},
	Letters: map[string]string{
		"M": "miss", "L": "lock won by add", "l": "lock refused", "W": "written", "w": "write refused", "U": "unlocked by delete", "H": "hit", "D": "deleted",
		"d": "nothing to delete", "I": "counted", "T": "touched", "S": "stale served", "R": "rebuild granted", "E": "error", "X": "memcached evicted it",
		"F": "its server was flushed or out, or it has another now",
	},
	Legend: []Word{
		{"M", "miss"}, {"L", "lock won by add"}, {"l", "lock refused"}, {"Ww", "written, refused"}, {"U", "unlocked by delete"}, {"H", "hit"}, {"Dd", "deleted, not there"},
		{"IT", "counted, touched"}, {"S", "stale served"}, {"R", "rebuild granted"}, {"E", "error"}, {"XF", "why M: evicted, flushed"},
	},
}

// StateOf describes the state of a server with the given name.
func StateOf(name string) State { return Vocabulary.States[name] }

// Signs are symbols for levels, which differ even without colors.
var Signs = map[string]string{Good: "●", Warn: "△", Bad: "✗"}

// problem is a kind of reason for which a server is down or suspect.
type problem struct {
	signs  []string // the reason contains all of these texts
	does   string   // what the server does, in words; printed after its name
	remedy string   // what an operator can do
}

// greets is the beginning of the reason if the server replies with an error to the first request of
// a connection.
const greets = "its first reply is "

// problems are all kinds of reasons. The first one that fits counts, and the last one always fits.
var problems = []problem{
	{[]string{health.Answered}, "answers again", "Wait until it is back"},
	{[]string{greets, "unauthenticated"}, "answers with an error", "Set auth of its pool and reload, or start memcached there without -Y"},
	{[]string{greets, "Too many open connections"}, "answers with an error", "Raise memcached's limit of connections there (-c), or close some"},
	{[]string{greets}, "answers with an error", "Check that memcached runs at its address"},
	{[]string{"it rejects the login"}, "rejects the login", "Correct auth of its pool and reload, or memcached's file of users there"},
	{[]string{"it does not ask for a login"}, "does not ask for a login", "Start memcached there with -Y, or remove auth from its pool and reload"},
	{[]string{secure.ErrNoTLS.Error()}, "does not speak TLS", "Start memcached there with -Z, or remove tls from its pool and reload"},
	{[]string{"remote error: tls"}, "rejects the TLS handshake", "Check cert and key in tls of its pool and reload, or the CAs that memcached has there"},
	{[]string{"x509: "}, "has no certificate that its pool accepts", "Correct tls of its pool and reload, or the certificate there"},
	{[]string{"tls: "}, "fails the TLS handshake", "Compare tls of its pool with memcached's options there"},
	{[]string{health.PingError}, "answers pings with an error", "Check that memcached runs at its address, and what it logs"},
	{[]string{"no such host"}, "has a name without an address", "Check its address, and DNS"},
	{[]string{"refused"}, "refuses connections", "Start memcached there"},
	{[]string{"reset by peer"}, "breaks connections", "Check that memcached runs there"},
	{[]string{"the other end has closed the connection"}, "breaks connections", "Check that memcached runs there, with -Z if its pool has tls"},
	{[]string{"closed by the server"}, "breaks connections", "Check that memcached runs there"},
	{nil, "does not answer", "Check that its host runs and can be reached from here"},
}

// violation is the problem of a server that replies, but breaks the protocol.
var violation = problem{nil, "does not speak memcached's protocol", "Check that memcached runs at its address"}

// problemOf returns the problem of a server that is down or suspect for the reason why.
func problemOf(why string) problem {
	if health.BreaksProtocol(why) {
		return violation
	}
	return problems[slices.IndexFunc(problems, func(p problem) bool {
		return !slices.ContainsFunc(p.signs, func(sign string) bool { return !strings.Contains(why, sign) })
	})]
}

// Reason returns why the server is not up, or that it lacks replicas. It is empty if neither is the
// case.
func (is *ServerState) Reason() string {
	if is.Why == "" && is.filling() {
		return "is being filled: some keys have one replica less"
	}
	return is.Why
}

// filling reports whether the server lacks replicas and is being filled.
func (is *ServerState) filling() bool { return is.Replicas != nil && is.Replicas.Filling }

// Whole reports whether the server is up and lacks no replicas.
func (is *ServerState) Whole() bool { return is.State == Up && !is.filling() }

// Tone returns the tone in which the server is shown.
func (is *ServerState) Tone() string {
	if is.State == Up && is.filling() {
		return Warn
	}
	return StateOf(is.State).Tone
}

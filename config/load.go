package config

// This file contains Load and Parse, and the order in which a configuration file is read, completed
// and checked.

import (
	"slices"
	"strings"

	"ringside/proxy/table"
)

// Load reads and parses the configuration file at path, with the given variables. If the file cannot be
// read, the error is that of the operating system. If the file is wrong, the error is of type Errors.
func Load(path string, from Variables) (*File, error) {
	data, err := ReadFile(path, maxBytes+1)
	if err != nil {
		return nil, err // the error already contains the path
	}
	return read(path, data, from, true)
}

// Parse parses a configuration file and checks it completely, including the placement of keys. It
// does not read other files, so a listener with an auth_file has no users, and one with TLS no
// certificate. Environment variables are not set. name is the file name in the error, which is of
// type Errors.
func Parse(name string, data []byte) (*File, error) { return ParseWith(name, data, Variables{}) }

// ParseWith parses a configuration file like Parse, with the given variables.
func ParseWith(name string, data []byte, from Variables) (*File, error) {
	return read(name, data, from, false)
}

func read(name string, data []byte, from Variables, others bool) (*File, error) {
	d := newDocument(name, data, from)
	d.others = others
	return d.file()
}

func newDocument(name string, data []byte, from Variables) *document {
	return &document{from: from, name: name, data: data, variables: map[string]variable{}, used: map[string]string{}, secrets: secrets{},
		where: map[any]*node{}, inherited: map[any]*node{}, secured: map[PoolTLS]table.Security{}, logins: map[PoolAuth]table.Login{}}
}

// file reads and checks the text of the document.
func (d *document) file() (*File, error) {
	s := &settings{defaultFile(), defaultPool()}
	d.defaults = &s.Defaults
	if root := d.parse(d.data); root != nil {
		if whose := stranger(root); whose != "" {
			d.failAt(root, "%s", whose) // report only that the file belongs to another program: further errors would not help
		} else {
			fileKeys().read(d, root, "", s)
			d.check(root, s)
			s.File.removeFormer()
		}
	}
	if lines := lineBreak.Split(string(d.data), -1); len(d.errs) > 0 {
		for _, e := range d.errs {
			if e.Line >= 1 && e.Line <= len(lines) {
				hint := invisible(lines[e.Line-1])
				if hint == "" && e.Line > 1 && strings.HasPrefix(e.Message, "not YAML: ") { // a mistake can cause an error one line later
					hint = invisible(lines[e.Line-2])
				}
				e.Message += hint
			}
		}
	}
	for _, e := range append(d.errs, d.warnings...) {
		e.Message = d.secrets.hide(e.Message)
	}
	if err := d.errs.orNil(); err != nil {
		return nil, err
	}
	s.File.Source, s.File.Variables, s.File.secrets = d.data, d.used, d.secrets
	s.File.read = &document{name: d.name, data: d.data, from: d.from, variables: d.variables, used: d.used, secrets: d.secrets} // without the tree, to free its memory
	for _, w := range d.warnings.sorted() {
		s.File.Warnings = append(s.File.Warnings, w.Error())
	}
	return &s.File, nil
}

// check checks a file after it was read. root is the position for errors that have no position of
// their own.
func (d *document) check(root *node, s *settings) {
	f := &s.File
	d.decide(f)
	d.checkTimeouts(&s.Defaults, "defaults")
	d.checkBackoff(&s.Defaults, "defaults")
	for i := range f.Pools {
		d.checkPool(&f.Pools[i])
	}
	d.checkOneSecurity(f)
	d.checkFill(f)
	d.checkFailover(f)
	d.checkFormer(f)
	d.checkListeners(f)
	if f.Routes != nil || len(f.Pools) > 1 && slices.ContainsFunc(f.Listen, func(l Listener) bool { return l.Routes == nil }) {
		d.checkRoutes(f, "routes", root, f.Routes)
	}
	for i := range f.Listen {
		if l := &f.Listen[i]; l.Routes != nil {
			d.checkRoutes(f, "the listener's routes", d.place(l), l.Routes)
		}
	}
	d.checkOneTruth(f)
	d.checkUsers(f)
	d.checkLimits(f)
	if len(d.errs) == 0 { // only without earlier errors, because after an error the mode of a pool may not be the intended one
		f.reindex() // other checks may have changed resize.mode
		d.checkShared(f)
	}
}

// decide sets what the file does not set, and what depends on other settings. Settings of a pool
// override the presets of its routes. The presets override the mapping `defaults`.
func (d *document) decide(f *File) {
	for r := range f.routes() {
		if r.decide(); !r.Guard.On || d.where[&r.Guard] != nil { // skip routes without a guard and routes that set the guard themselves: below, the guard is that of preset: cache
			continue
		}
		if r.counts() {
			d.warn(d.place(&r.Preset, r), "preset: cache has no guard beside autocreate or buffer: a missing counter starts again, no client rebuilds it; say guard: off, or preset: counters")
			r.Guard = Guard{}
		}
	}
	for i := range f.Pools {
		p := &f.Pools[i]
		if d.said(&p.Failover.Mode) != nil {
			p.Failover.WhyMode = "as the file says"
		} else {
			p.Failover.Mode, p.Failover.WhyMode = p.usualMode()
		}
	}
	f.reindex()
	if served := f.served(); len(f.Routes) == 0 && len(served) == 1 {
		f.Routes = []Route{{Pool: served[0]}}
		f.reindex()
	}
	for i := range f.Pools {
		d.decideConsistency(f, &f.Pools[i])
		d.decideFlush(f, &f.Pools[i])
		d.decideResize(f, &f.Pools[i])
	}
	for r := range f.routes() {
		d.decideWait(f, r)
	}
}

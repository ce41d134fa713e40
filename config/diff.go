package config

// This file describes the differences of two configuration files in words, for the log of a reload
// and for the command `ringside reload`.

import (
	"fmt"
	"slices"
	"strings"

	"ringside/proxy/table"
)

// Changes returns the changes from the file old to the file f, one line each, such as "+server c
// (10.0.0.3:11211)" or "server b: weight 1 to 3". The order is that of the documented keys. Changed
// users of an auth_file, and certificates in the same files, follow at the end. Changes that need a
// restart are omitted: see AtNextStart.
func Changes(old, f *File) []string {
	same := *f
	same.Engine = old.Engine
	return changes(old, &same)
}

// AtNextStart returns the changes from the file running to the file f that need a restart. running
// is the file with which the process was started.
func AtNextStart(running, f *File) []string {
	return changes(&File{Engine: running.Engine, secrets: running.secrets}, &File{Engine: f.Engine, secrets: f.secrets})
}

func changes(old, f *File) []string {
	list := []string{}
	fileKeys().compare("", "", settings{File: *old}, settings{File: *f}, func(format string, args ...any) {
		list = append(list, fmt.Sprintf(format, args...))
	})
	list = append(list, fileChanges(old, f)...)
	for i := range list {
		list[i] = f.Hide(old.Hide(list[i]))
	}
	return list
}

// fileChanges describes which listeners and pools have other users, certificates, keys, CAs or passwords in the
// same files. It looks only at listeners and pools that are in both configurations.
func fileChanges(old, f *File) (list []string) {
	before := map[Address]*Listener{}
	for i := range old.Listen {
		before[old.Listen[i].Address] = &old.Listen[i]
	}
	for i := range f.Listen {
		l := &f.Listen[i]
		if was := before[l.Address]; was != nil {
			what := "listener " + l.Address.text()
			list = slices.Concat(list, usersChanges(what, was.Users, l.Users), materialChanges(what, was.TLS.Material, l.TLS.Material))
		}
	}
	list = slices.Concat(list, usersChanges("the admin interface", old.Admin.Users, f.Admin.Users), materialChanges("the admin interface", old.Admin.TLS.Material, f.Admin.TLS.Material))
	for i := range f.Pools {
		if was := old.pool(f.Pools[i].Name); was != nil {
			list = append(list, f.Pools[i].fileChanges(was)...)
		}
	}
	return list
}

// usersChanges describes how the users of a listener have changed, without their names and passwords.
func usersChanges(what string, was, is *table.Users) []string {
	if was == nil || is == nil { // the listener has gained or lost its auth_file; that change is already in the list
		return nil
	}
	var parts []string
	removed, added, changed := is.Changes(was)
	for i, n := range []int{removed, added, changed} {
		if n > 0 {
			parts = append(parts, fmt.Sprint(n, [...]string{" removed", " added", " with another password"}[i]))
		}
	}
	if len(parts) == 0 {
		return nil
	}
	return []string{fmt.Sprintf("users of %s changed: %s", what, strings.Join(parts, ", "))}
}

func (p Pool) called() (kind, name, full string) { return "pool", p.Name, p.Name }

func (l Listener) called() (kind, name, full string) {
	return "listener", l.Address.text(), l.Address.text()
}

func (t Trace) called() (kind, name, full string) { return "trace", t.File, t.File }

func (s Server) called() (kind, name, full string) {
	name = s.label()
	if at := s.Address.text(); at != name {
		return "server", name, name + " (" + at + ")"
	}
	return "server", name, name
}

func (r Route) called() (kind, name, full string) {
	switch {
	case r.Match != "":
		name = "that matches " + quote(r.Match)
	case r.Prefix == "":
		name = "of all other keys"
	default:
		name = quote(r.Prefix)
	}
	return "route", name, name + " to " + strings.Join(r.to(), ", ")
}

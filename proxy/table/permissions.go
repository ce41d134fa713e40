package table

// This file defines what users may do.

import (
	"crypto/sha256"
	"slices"
	"strings"
)

// Permissions says what each user may do, in the order of the configuration.
type Permissions struct{ list []Permission }

// Permission says what one user may do.
type Permission struct {
	Name               string   // the user, or cert: and a pattern of names in certificates, in which * matches any bytes
	Routes             []string // names of the routes whose keys it may use: see RouteName; nil: all
	Read, Write, Admin bool

	id          UserID
	certificate Pattern // nil: the Permission is not of a certificate
}

// certificatePrefix distinguishes patterns of names in certificates from users.
const certificatePrefix = "cert:"

// NewPermissions returns the Permissions of a list.
func NewPermissions(list []Permission) *Permissions {
	p := &Permissions{slices.Clone(list)}
	for i := range p.list {
		one := &p.list[i]
		one.id = sha256.Sum256([]byte(one.Name))
		if text, ok := one.Certificate(); ok {
			one.certificate = (&Route{Match: text}).Pattern()
		}
	}
	return p
}

// Certificate returns the pattern of names in certificates, if the permission is of a certificate.
func (p *Permission) Certificate() (pattern string, ok bool) {
	return strings.CutPrefix(p.Name, certificatePrefix)
}

// unlisted is the permission of users that the configuration does not list: nothing.
var unlisted = &Permission{Name: "(not listed)"}

// OfUser returns what the user with this UserID may do.
func (p *Permissions) OfUser(id UserID) *Permission {
	for i := range p.list {
		if one := &p.list[i]; one.id == id && one.certificate == nil {
			return one
		}
	}
	return unlisted
}

// OfCertificate returns what the owner of a certificate with these names may do: the first entry that
// matches one of the names counts.
func (p *Permissions) OfCertificate(names []string) *Permission {
	for i := range p.list {
		one := &p.list[i]
		if one.certificate != nil && slices.ContainsFunc(names, func(name string) bool { return one.certificate.Takes([]byte(name)) }) {
			return one
		}
	}
	return unlisted
}

// Listed reports whether the configuration lists the user.
func (p *Permission) Listed() bool { return p != unlisted }

// RouteName returns the name of a route in permissions: its match or its prefix, or * for the route of
// all other keys.
func RouteName(prefix, match string) string {
	switch {
	case match != "":
		return match
	case prefix != "":
		return prefix
	}
	return star
}

// AllowsRoute reports whether keys of the route with this name may be used.
func (p *Permission) AllowsRoute(name string) bool {
	return p.Routes == nil || slices.Contains(p.Routes, name)
}

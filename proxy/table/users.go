package table

// This file defines the users that can authenticate on a listener.

import (
	"bytes"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"fmt"
	"maps"
)

// Users holds the users of a listener and their passwords. Both are stored as hashes.
type Users struct{ all []user }

type user struct {
	name     [sha256.Size]byte // SHA-256 hash of the user's name
	password [sha256.Size]byte // SHA-256 hash of the password with the salt after it
	salt     []byte
}

// hashed is the prefix of a hashed password, in the format of LDAP: base64 of the SHA-256 of
// password and salt, followed by the salt.
const hashed = "{SSHA256}"

// ParseUsers parses a file in the format of memcached's -Y: one user:password per line.
func ParseUsers(text []byte) (*Users, error) {
	u := &Users{}
	n := 0
	for line := range bytes.Lines(text) {
		n++
		line = bytes.TrimRight(line, "\r\n")
		if len(line) == 0 {
			continue
		}
		name, password, ok := bytes.Cut(line, []byte{':'})
		if !ok || len(name) == 0 || len(password) == 0 {
			return nil, fmt.Errorf("line %d is not user:password", n)
		}
		next := user{name: sha256.Sum256(name)}
		if encoded, ok := bytes.CutPrefix(password, []byte(hashed)); ok {
			b, err := base64.StdEncoding.DecodeString(string(encoded))
			if err != nil || len(b) < sha256.Size {
				return nil, fmt.Errorf("line %d: behind %s must stand base64 of a SHA-256 and its salt", n, hashed)
			}
			next.salt = b[copy(next.password[:], b):]
		} else {
			next.password = sha256.Sum256(password)
		}
		u.all = append(u.all, next)
	}
	if len(u.all) == 0 {
		return nil, fmt.Errorf("it names no user: no client could use the listener")
	}
	return u, nil
}

// UserID identifies a user. It is the SHA-256 of the name.
type UserID [sha256.Size]byte

// Know reports whether a user has this name and password, and returns its UserID. Its duration
// does not depend on whether the name or the password is wrong.
func (u *Users) Know(name, password []byte) (id UserID, known bool) {
	id = sha256.Sum256(name)
	found := 0
	for i := range u.all {
		one := &u.all[i]
		given := sha256.Sum256(append(bytes.Clone(password), one.salt...))
		found |= subtle.ConstantTimeCompare(id[:], one.name[:]) & subtle.ConstantTimeCompare(given[:], one.password[:])
	}
	return id, found == 1
}

// Has reports whether id is one of the users. A reload can have removed the user.
func (u *Users) Has(id UserID) bool {
	for i := range u.all {
		if u.all[i].name == id {
			return true
		}
	}
	return false
}

// Changes compares the users of u with those of old, the file before a reload. It returns how
// many users only old has, how many only u has, and how many both have with different
// passwords. A password that is hashed with another salt counts as different.
func (u *Users) Changes(old *Users) (removed, added, changed int) {
	was, is := old.passwords(), u.passwords()
	for name, list := range was {
		if now, kept := is[name]; !kept {
			removed++
		} else if !maps.Equal(list, now) {
			changed++
		}
	}
	for name := range is {
		if was[name] == nil {
			added++
		}
	}
	return removed, added, changed
}

// passwords returns the hashed passwords of each user, each followed by its salt.
func (u *Users) passwords() map[UserID]map[string]bool {
	all := map[UserID]map[string]bool{}
	for _, one := range u.all {
		if all[one.name] == nil {
			all[one.name] = map[string]bool{}
		}
		all[one.name][string(one.password[:])+string(one.salt)] = true
	}
	return all
}

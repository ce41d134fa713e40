package config

// What a file changes against another, for people: the log of a reload, and
// ringside reload.

import (
	"fmt"
	"reflect"
	"strings"
)

// Changes says what f changes against old, one sentence each, in the order of
// the table of keys: +server c (10.0.0.3:11211), server b: weight 1 to 3. What
// waits for the next start is left out: see AtNextStart.
func Changes(old, f *File) []string {
	same := *f
	same.Engine = old.Engine
	return changes(old, &same)
}

// AtNextStart says what f asks for that a process which was started with
// running can't do without another start.
func AtNextStart(running, f *File) []string {
	return changes(&File{Engine: running.Engine}, &File{Engine: f.Engine})
}

func changes(old, f *File) []string {
	list := []string{}
	fileKeys().compare("", "", settings{File: *old}, settings{File: *f}, func(format string, args ...any) {
		list = append(list, fmt.Sprintf(format, args...))
	})
	return list
}

// A differ says what is another in f than in old. The setting is called name;
// within stands before everything that is said.
type differ[V any] func(within, name string, old, f V, say func(format string, args ...any))

// compare says what is another in f. A value without a differ of its own is one
// word.
func (v value[V]) compare(within, name string, old, f V, say func(format string, args ...any)) {
	if v.diff != nil {
		v.diff(within, name, old, f, say)
		return
	}
	byWords(v.show)(within, name, old, f, say)
}

// byWords compares what stands in the files.
func byWords[V any](show func(V) any) differ[V] {
	return func(within, name string, old, f V, say func(format string, args ...any)) {
		if a, b := show(old), show(f); !reflect.DeepEqual(a, b) {
			say("%s%s %s to %s", within, name, spell(a), spell(b))
		}
	}
}

func spell(shown any) string {
	list, ok := shown.([]any)
	if !ok {
		list = []any{shown}
	}
	words := make([]string, 0, len(list))
	for _, v := range list {
		words = append(words, fmt.Sprint(v))
	}
	if text := strings.Join(words, ", "); text != "" && shown != nil {
		return text
	}
	return "unset"
}

// An element of a list that people know by a name.
type element interface {
	called() (kind, name string)
}

func (p Pool) called() (kind, name string)     { return "pool", p.Name }
func (l Listener) called() (kind, name string) { return "listener", l.Address.text() }

func (s Server) called() (kind, name string) { return "server", s.label() }

func (r Route) called() (kind, name string) {
	if r.Prefix == "" {
		return "route", "of all other keys"
	}
	return "route", quote(r.Prefix)
}

// text is the address as it stands in a file.
func (a Address) text() string {
	if a.Network == "unix" {
		return "unix:" + a.Address
	}
	return a.Address
}

// byName compares lists whose elements have names: some come, some go, and the
// others are compared. The order counts where keys may go by it.
func byName[V element](inner value[V]) differ[[]V] {
	return func(within, _ string, old, f []V, say func(format string, args ...any)) {
		before, after := map[string]*V{}, map[string]*V{}
		for i := range old {
			_, name := old[i].called()
			before[name] = &old[i]
		}
		for i := range f {
			_, name := f[i].called()
			after[name] = &f[i]
		}
		var stay, stayed []string
		for i := range old {
			switch kind, name := old[i].called(); {
			case after[name] == nil:
				say("%s-%s %s", within, kind, inFull(old[i]))
			default:
				stayed = append(stayed, name)
			}
		}
		for i := range f {
			kind, name := f[i].called()
			is := before[name]
			if is == nil {
				say("%s+%s %s", within, kind, inFull(f[i]))
				continue
			}
			stay = append(stay, name)
			inner.compare(within+kind+" "+name+": ", "", *is, f[i], say)
		}
		if _, ordered := any(f).([]Server); ordered && !reflect.DeepEqual(stay, stayed) {
			say("%sthe servers stand in another order", within)
		}
	}
}

// inFull is the name of e, and where it leads where the name doesn't say that.
func inFull(e element) string {
	_, name := e.called()
	switch is := e.(type) {
	case Server:
		if at := is.Address.text(); at != name {
			return name + " (" + at + ")"
		}
	case Route:
		return name + " to " + strings.Join(is.to(), ", ")
	}
	return name
}

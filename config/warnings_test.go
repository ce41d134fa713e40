package config

// Tests of warnings about settings that are valid but probably not intended.

import (
	"slices"
	"testing"
)

func TestWarnings(t *testing.T) {
	for _, c := range []struct {
		name, text string
		want       []string
	}{
		{"nothing", "listen: :1\nadmin: 127.0.0.1:2\npools: {main: {distribution: ketama, servers: [a]}}", nil},
		{"admin for all", "listen: :1\nadmin: 0.0.0.0:2\npools: {main: {distribution: ketama, servers: [a]}}", []string{
			"f:2:8: admin listens on every address: whoever reaches it can read metrics; name one address, or see that a firewall does"}},
		{"admin for all, open", "listen: :1\nadmin: {address: \":2\", control: on}\npools: {main: {distribution: ketama, servers: [a]}}", []string{
			"f:2:18: admin listens on every address, and lets everybody who reaches it steer, take profiles or see keys"}},
	} {
		f, err := Parse("f", []byte(c.text))
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(f.Warnings, c.want) {
			t.Errorf("%s: %q, want %q", c.name, f.Warnings, c.want)
		}
	}
}

package proxy_test

// Runs the conversations of the engine and of its packages.

import (
	"io/fs"
	"path/filepath"
	"testing"

	"ringside/proxy/conversation"
)

// TestConversations also runs the conversations in the packages of the engine, so that
// make check runs all of them in this one binary.
func TestConversations(t *testing.T) {
	found := 0
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && filepath.Base(filepath.Dir(path)) == "testdata" && d.Name() == "conversations" {
			found++
			t.Run(path, func(t *testing.T) { conversation.Run(t, path) })
		}
		return err
	})
	if err != nil || found < 2 {
		t.Fatalf("%d directories of conversations, %v", found, err)
	}
}

package proxy_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ringside/proxy/conversation"
)

// TestWalks plays the conversations in testdata/walks. Each has a part before the comment
// "# walk", and the walk. The first part runs alone, too, so that `make figures` can count
// the functions that only the walk enters.
func TestWalks(t *testing.T) {
	files, err := filepath.Glob("testdata/walks/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no walks: %v", err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		before, _, ok := strings.Cut(string(text), "# walk\n")
		if !ok {
			t.Fatalf("%s has no line \"# walk\"", file)
		}
		name := strings.TrimSuffix(filepath.Base(file), ".txt")
		t.Run(name+"/before", func(t *testing.T) { conversation.New(t).Play(file, before) })
		t.Run(name+"/whole", func(t *testing.T) { conversation.New(t).Play(file, string(text)) })
	}
}

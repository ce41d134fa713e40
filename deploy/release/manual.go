package main

// This file writes man pages and shell completion from the command line of ringside.

import (
	"compress/gzip"
	"errors"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra/doc"

	"ringside/internal/command"
)

// writeManual writes man pages to the directory man of the stage, and completion to its directory
// completion.
func (r *release) writeManual() error {
	root := command.Root(r.version)
	root.DisableAutoGenTag = true // no date of today at the end of each page
	root.InitDefaultCompletionCmd()
	plain, man, completion := filepath.Join(r.stage, "plain"), filepath.Join(r.stage, "man"), filepath.Join(r.stage, "completion")
	for _, dir := range []string{plain, man, completion} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	if err := doc.GenManTree(root, &doc.GenManHeader{Section: "1", Date: &r.date, Source: "Ringside " + r.version, Manual: "Ringside"}, plain); err != nil {
		return err
	}
	pages, err := os.ReadDir(plain)
	if err != nil {
		return err
	}
	for _, page := range pages {
		err := compress(filepath.Join(man, page.Name()+".gz"), func(to io.Writer) error {
			text, err := os.ReadFile(filepath.Join(plain, page.Name()))
			if err == nil {
				_, err = to.Write(text)
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	if err := root.GenBashCompletionFileV2(filepath.Join(completion, "ringside.bash"), true); err != nil {
		return err
	}
	if err := root.GenZshCompletionFile(filepath.Join(completion, "_ringside")); err != nil {
		return err
	}
	return root.GenFishCompletionFile(filepath.Join(completion, "ringside.fish"), true)
}

// compress writes what write writes, compressed by gzip, to path.
func compress(path string, write func(io.Writer) error) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	z, err := gzip.NewWriterLevel(f, gzip.BestCompression)
	if err != nil {
		return err
	}
	if err := errors.Join(write(z), z.Close()); err != nil {
		return err
	}
	return f.Close()
}

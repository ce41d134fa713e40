package main

// This file builds archives and writes checksums.

import (
	"archive/tar"
	"crypto/sha256"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/goreleaser/nfpm/v2/files"
)

// documents are the files and directories of the source that each archive contains.
var documents = []string{"README.md", "BENCHMARKS.md", "CHANGELOG.md", "SECURITY.md", "LICENSE", "docs", "deploy"}

// writeArchive writes a tar archive with the program, man pages, completion and documents, in one
// directory.
func (r *release) writeArchive(p platform, program string) error {
	contents := files.Contents{{Source: program, Destination: "ringside", FileInfo: &files.ContentFileInfo{Mode: 0o755}}}
	add := func(from, to string) error {
		return filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			if d.IsDir() && path == "deploy/release" {
				return fs.SkipDir
			}
			if name := d.Name(); d.IsDir() || strings.HasSuffix(name, ".go") || name == "go.mod" || name == "go.sum" {
				return nil
			}
			contents = append(contents, &files.Content{Source: path, Destination: to + strings.TrimPrefix(path, from), FileInfo: &files.ContentFileInfo{Mode: 0o644}})
			return nil
		})
	}
	for _, name := range documents {
		if err := add(name, name); err != nil {
			return err
		}
	}
	for _, name := range []string{"man", "completion"} {
		if err := add(filepath.Join(r.stage, name), name); err != nil {
			return err
		}
	}
	pages := filepath.Join(r.stage, "archive-"+p.String())
	if err := os.MkdirAll(pages, 0o755); err != nil {
		return err
	}
	if err := relink(contents, pages); err != nil {
		return err
	}
	top := "ringside_" + r.number + "_" + p.String() + "/"
	var list []entry
	for _, one := range contents {
		text, err := os.ReadFile(one.Source)
		if err != nil {
			return err
		}
		list = append(list, entry{top + filepath.ToSlash(one.Destination), int64(one.FileInfo.Mode), text})
	}
	return r.writeTar(r.file(p.String()+".tar.gz"), list)
}

// writeChart writes the Helm chart, with the version of the release, in the form that helm install
// reads.
func (r *release) writeChart() error {
	var list []entry
	err := filepath.WalkDir("deploy/helm/ringside", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		if err == nil && d.Name() == "Chart.yaml" {
			text = chartVersion.ReplaceAll(text, []byte("${1}\""+r.number+"\""))
		}
		list = append(list, entry{strings.TrimPrefix(path, "deploy/helm/"), 0o644, text})
		return err
	})
	if err != nil {
		return err
	}
	return r.writeTar(filepath.Join(r.to, "ringside-chart-"+r.number+".tgz"), list)
}

var chartVersion = regexp.MustCompile(`(?m)^((?:appVersion|version): ).*$`)

// entry is a file of an archive.
type entry struct {
	name string
	mode int64
	text []byte
}

// writeTar writes a compressed tar archive.
func (r *release) writeTar(path string, list []entry) error {
	return compress(path, func(to io.Writer) error {
		t := tar.NewWriter(to)
		for _, one := range list {
			if err := r.addFile(t, one.name, one.mode, one.text); err != nil {
				return err
			}
		}
		return t.Close()
	})
}

// addFile adds a file to a tar archive.
func (r *release) addFile(t *tar.Writer, name string, mode int64, text []byte) error {
	err := t.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: mode, Size: int64(len(text)), ModTime: r.date, Uname: "root", Gname: "root", Format: tar.FormatPAX})
	if err != nil {
		return err
	}
	_, err = t.Write(text)
	return err
}

// writeChecksums writes the SHA-256 of each result to SHA256SUMS, in the form that sha256sum -c reads.
func (r *release) writeChecksums() error {
	list, err := os.ReadDir(r.to)
	if err != nil {
		return err
	}
	var lines []string
	for _, one := range list {
		f, err := os.Open(filepath.Join(r.to, one.Name()))
		if err != nil {
			return err
		}
		sum := sha256.New()
		_, err = io.Copy(sum, f)
		f.Close()
		if err != nil {
			return err
		}
		lines = append(lines, fmt.Sprintf("%x  %s\n", sum.Sum(nil), one.Name()))
	}
	slices.SortFunc(lines, func(a, b string) int { return strings.Compare(a[66:], b[66:]) })
	return os.WriteFile(filepath.Join(r.to, "SHA256SUMS"), []byte(strings.Join(lines, "")), 0o644)
}

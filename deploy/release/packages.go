package main

// This file builds Debian and RPM packages.

import (
	"os"
	"path/filepath"

	"github.com/goreleaser/nfpm/v2"
	_ "github.com/goreleaser/nfpm/v2/deb"
	"github.com/goreleaser/nfpm/v2/files"
	_ "github.com/goreleaser/nfpm/v2/rpm"
)

// writePackage builds the package of a kind (deb or rpm) with program, from the files that nfpm.yaml
// lists, and returns its path. arch is the name of the machine in Go.
func (r *release) writePackage(kind, arch, program string) (path string, err error) {
	c, err := nfpm.ParseFileWithEnvMapping("deploy/release/nfpm.yaml", func(name string) string {
		return map[string]string{"VERSION": r.number, "ARCH": arch, "PROGRAM": program, "STAGE": r.stage}[name]
	})
	if err != nil {
		return "", err
	}
	info, err := c.Get(kind)
	if err != nil {
		return "", err
	}
	info = nfpm.WithDefaults(info)
	info.MTime, info.RPM.BuildHost = r.date, "localhost"
	if err := nfpm.PrepareForPackager(info, kind); err != nil { // expands directories to their files
		return "", err
	}
	pages := filepath.Join(r.stage, kind+"-"+arch)
	if err := os.MkdirAll(pages, 0o755); err != nil {
		return "", err
	}
	if err := relink(info.Contents, pages); err != nil {
		return "", err
	}
	for _, one := range info.Contents {
		if one.FileInfo == nil {
			one.FileInfo = &files.ContentFileInfo{}
		}
		one.FileInfo.MTime = r.date
	}
	p, err := nfpm.Get(kind)
	if err != nil {
		return "", err
	}
	path = filepath.Join(r.to, p.ConventionalFileName(info))
	f, err := os.Create(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	if err := p.Package(info, f); err != nil {
		return "", err
	}
	return path, f.Close()
}

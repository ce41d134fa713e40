// Command deb builds the Debian package of Ringside. It is a separate module, so that
// a build of Ringside does not need its dependencies.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"github.com/goreleaser/nfpm/v2"
	_ "github.com/goreleaser/nfpm/v2/deb"
)

func main() {
	version := flag.String("version", "", "the version, as `ringside version` prints it")
	arch := flag.String("arch", "amd64", "Debian's name of the machine `architecture`")
	to := flag.String("to", ".", "the `directory` that gets the package")
	flag.Parse()
	path, err := build(*version, *arch, *to)
	if err != nil {
		fmt.Fprintln(os.Stderr, "deb:", err)
		os.Exit(1)
	}
	fmt.Println(path)
}

// build builds the package from the files that nfpm.yaml lists, and returns its path. It must
// run in the top directory of the repository.
func build(version, arch, to string) (path string, err error) {
	c, err := nfpm.ParseFileWithEnvMapping("deploy/deb/nfpm.yaml", func(name string) string {
		return map[string]string{"VERSION": version, "ARCH": arch}[name]
	})
	if err != nil {
		return "", err
	}
	info, err := c.Get("deb")
	if err != nil {
		return "", err
	}
	info = nfpm.WithDefaults(info)
	if err := nfpm.PrepareForPackager(info, "deb"); err != nil { // expands directories to their files
		return "", err
	}
	pages, err := os.MkdirTemp("", "deb")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(pages)
	if err := relink(info.Contents, pages); err != nil {
		return "", err
	}
	p, err := nfpm.Get("deb")
	if err != nil {
		return "", err
	}
	path = filepath.Join(to, p.ConventionalFileName(info))
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

// Command release builds everything that a release of Ringside consists of: archives, Debian and RPM
// packages, a container image, lists of the modules in each binary (SBOM), and checksums. It is a
// separate module, so that a build of Ringside does not need its dependencies.
//
// Two runs with the same source, version and Go release write the same bytes. All times in the files
// are the time of the commit, and all files in archives belong to root.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// platforms are the operating systems and machines of a release. Packages and the image exist for
// Linux only.
var platforms = []platform{{"linux", "amd64"}, {"linux", "arm64"}, {"darwin", "amd64"}, {"darwin", "arm64"}}

type platform struct{ os, arch string }

func (p platform) String() string { return p.os + "_" + p.arch }

// release describes what to build.
type release struct {
	version string    // as `ringside version` prints it
	number  string    // version of the packages and in file names: version without the v
	date    time.Time // time of the commit, for all files
	to      string    // directory for the results
	stage   string    // directory for files that go into archives and packages: man, completion
}

func main() {
	var r release
	var only, arch string
	flag.StringVar(&r.version, "version", "", "the `version`, as ringside version prints it, such as v1.2.3")
	flag.StringVar(&r.number, "number", "", "the version of packages and in file names, if it is not the version without the v")
	flag.StringVar(&r.to, "to", "bin/release", "the `directory` for the results")
	flag.StringVar(&only, "only", "", "build only one kind: deb")
	flag.StringVar(&arch, "arch", "amd64", "the machine `architecture` for -only deb")
	flag.Parse()
	if err := r.run(only, arch); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

// tag matches the versions that a complete release can have.
var tag = regexp.MustCompile(`^v(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[0-9A-Za-z.-]+)?$`)

// run builds a release, or only the Debian package for one architecture. It must run in the top
// directory of the repository.
func (r *release) run(only, arch string) error {
	if only != "" && only != "deb" {
		return fmt.Errorf("-only %s: want deb", only)
	}
	if only == "" && !tag.MatchString(r.version) {
		return fmt.Errorf("version %q: want vMAJOR.MINOR.PATCH, such as v1.2.3", r.version)
	}
	if r.number == "" {
		r.number = strings.TrimPrefix(r.version, "v")
	}
	var err error
	if r.date, err = commitTime(); err != nil {
		return err
	}
	if r.stage, err = os.MkdirTemp("", "release"); err != nil {
		return err
	}
	defer os.RemoveAll(r.stage)
	if err := os.MkdirAll(r.to, 0o755); err != nil {
		return err
	}
	if err := r.writeManual(); err != nil {
		return fmt.Errorf("man pages and completion: %w", err)
	}
	if only == "deb" {
		program, err := r.compile(platform{"linux", arch})
		if err != nil {
			return err
		}
		path, err := r.writePackage("deb", arch, program)
		fmt.Println(path)
		return err
	}
	// A release directory with files of an older run would give checksums of both.
	if old, _ := os.ReadDir(r.to); len(old) > 0 {
		return fmt.Errorf("%s is not empty: remove it first", r.to)
	}
	programs := map[platform]string{}
	for _, p := range platforms {
		program, err := r.compile(p)
		if err != nil {
			return err
		}
		programs[p] = program
		if err := r.writeArchive(p, program); err != nil {
			return fmt.Errorf("archive for %s: %w", p, err)
		}
		if err := r.writeModules(p, program); err != nil {
			return fmt.Errorf("list of modules for %s: %w", p, err)
		}
		if p.os != "linux" {
			continue
		}
		for _, kind := range []string{"deb", "rpm"} {
			if _, err := r.writePackage(kind, p.arch, program); err != nil {
				return fmt.Errorf("%s for %s: %w", kind, p, err)
			}
		}
	}
	if err := r.writeChart(); err != nil {
		return fmt.Errorf("chart: %w", err)
	}
	if err := r.writeImage(programs); err != nil {
		return fmt.Errorf("image: %w", err)
	}
	return r.writeChecksums()
}

// file returns the path of a result with a name of the form ringside_NUMBER_END.
func (r *release) file(end string) string {
	return filepath.Join(r.to, "ringside_"+r.number+"_"+end)
}

// compile builds the program for p and returns its path.
func (r *release) compile(p platform) (string, error) {
	path := filepath.Join(r.stage, p.String(), "ringside")
	build := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w -X main.version="+r.version, "-o", path, "./cmd/ringside")
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=", "GOOS="+p.os, "GOARCH="+p.arch)
	build.Stderr = os.Stderr
	if err := build.Run(); err != nil {
		return "", fmt.Errorf("go build for %s: %w", p, err)
	}
	return path, nil
}

// commitTime returns the time that all files of the release get: that of SOURCE_DATE_EPOCH, or that of
// the commit.
func commitTime() (time.Time, error) {
	text := os.Getenv("SOURCE_DATE_EPOCH")
	if text == "" {
		out, err := exec.Command("git", "log", "-1", "--format=%ct").Output()
		if err != nil {
			return time.Time{}, errors.New("time of the commit: git log failed; outside a git repository, set SOURCE_DATE_EPOCH to a Unix time")
		}
		text = strings.TrimSpace(string(out))
	}
	seconds, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("time of the commit: %q is no Unix time", text)
	}
	return time.Unix(seconds, 0).UTC(), nil
}

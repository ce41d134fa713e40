package main

// This file builds the container image and the lists of modules in each program.

import (
	"archive/tar"
	"bytes"
	"debug/buildinfo"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/CycloneDX/cyclonedx-go"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

const sbomType = "application/vnd.cyclonedx+json"

// writeImage writes an OCI image layout, as a tar archive, with one image for each platform of Linux.
// An image contains only the program, and runs as a user without privileges. The list of its modules
// is an artifact that refers to it.
func (r *release) writeImage(programs map[platform]string) error {
	dir := filepath.Join(r.stage, "image")
	at, err := layout.Write(dir, empty.Index)
	if err != nil {
		return err
	}
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	var lists []v1.Image
	for _, p := range platforms {
		if p.os != "linux" {
			continue
		}
		image, err := r.image(p, programs[p])
		if err != nil {
			return err
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: image, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: p.os, Architecture: p.arch}}})
		of, err := partial.Descriptor(image)
		if err != nil {
			return err
		}
		text, err := r.modules(p, programs[p])
		if err != nil {
			return err
		}
		list, err := mutate.AppendLayers(mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), sbomType), static.NewLayer(text, sbomType))
		if err != nil {
			return err
		}
		lists = append(lists, mutate.Subject(list, *of).(v1.Image))
	}
	if err := at.AppendIndex(index, layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": r.number})); err != nil {
		return err
	}
	for _, list := range lists {
		if err := at.AppendImage(list); err != nil {
			return err
		}
	}
	return r.tarDirectory(dir, r.file("oci.tar"))
}

// image returns the image for p.
func (r *release) image(p platform, program string) (v1.Image, error) {
	text, err := os.ReadFile(program)
	if err != nil {
		return nil, err
	}
	var files bytes.Buffer
	t := tar.NewWriter(&files)
	if err := r.addFile(t, "ringside", 0o755, text); err != nil {
		return nil, err
	}
	if err := t.Close(); err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(files.Bytes())), nil }, tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, err
	}
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	image, err = mutate.Append(image, mutate.Addendum{Layer: layer, History: v1.History{Created: v1.Time{Time: r.date}, CreatedBy: "deploy/release"}})
	if err != nil {
		return nil, err
	}
	c, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	c = c.DeepCopy()
	c.OS, c.Architecture, c.Created = p.os, p.arch, v1.Time{Time: r.date}
	c.Config.User = "65532:65532" // a number, because Kubernetes checks runAsNonRoot without a passwd file
	c.Config.Entrypoint = []string{"/ringside"}
	c.Config.Cmd = []string{"serve", "-c", "/etc/ringside/ringside.yaml"}
	c.Config.ExposedPorts = map[string]struct{}{"11211/tcp": {}, "9151/tcp": {}}
	c.Config.Labels = map[string]string{"org.opencontainers.image.title": "ringside", "org.opencontainers.image.version": r.number, "org.opencontainers.image.licenses": "Apache-2.0"}
	return mutate.ConfigFile(image, c)
}

// tarDirectory writes the files below dir to a tar archive.
func (r *release) tarDirectory(dir, path string) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	t := tar.NewWriter(f)
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return r.addFile(t, strings.TrimPrefix(path, dir+"/"), 0o644, text)
	})
	if err != nil {
		return err
	}
	if err := t.Close(); err != nil {
		return err
	}
	return f.Close()
}

// writeModules writes the list of the modules in a program to a file.
func (r *release) writeModules(p platform, program string) error {
	text, err := r.modules(p, program)
	if err != nil {
		return err
	}
	return os.WriteFile(r.file(p.String()+".cdx.json"), text, 0o644)
}

// modules returns the list of the modules in a program (SBOM), in the JSON format of CycloneDX. It
// comes from the build info that the Go linker stores in the program.
func (r *release) modules(p platform, program string) ([]byte, error) {
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		return nil, err
	}
	b := cyclonedx.NewBOM()
	b.Metadata = &cyclonedx.Metadata{
		Timestamp: r.date.Format("2006-01-02T15:04:05Z"),
		Component: &cyclonedx.Component{BOMRef: "ringside", Type: cyclonedx.ComponentTypeApplication, Name: "ringside", Version: r.number, Properties: &[]cyclonedx.Property{{Name: "platform", Value: p.String()}}},
	}
	list := []cyclonedx.Component{{BOMRef: "go", Type: cyclonedx.ComponentTypeLibrary, Name: "std", Version: strings.TrimPrefix(info.GoVersion, "go"), PackageURL: "pkg:golang/std@" + strings.TrimPrefix(info.GoVersion, "go")}}
	for _, m := range info.Deps {
		at := "pkg:golang/" + m.Path + "@" + m.Version
		list = append(list, cyclonedx.Component{BOMRef: at, Type: cyclonedx.ComponentTypeLibrary, Name: m.Path, Version: m.Version, PackageURL: at})
	}
	b.Components = &list
	var out bytes.Buffer
	e := cyclonedx.NewBOMEncoder(&out, cyclonedx.BOMFileFormatJSON)
	e.SetPretty(true)
	if err := e.Encode(b); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

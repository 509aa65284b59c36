package nodetest

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"seedlet.dev/realworld/provision"
)

// BuildProgram builds a program of this project, such as "sample", as a static binary. The same
// code and Go give the same bytes, so that image digests can be compared between runs.
func BuildProgram(ctx context.Context, program string) ([]byte, error) {
	root, err := provision.Checkout()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "seedlet-"+program+"-")
	if err != nil {
		return nil, fmt.Errorf("building %s: %w", program, err)
	}
	defer func() { _ = os.RemoveAll(dir) }() // a binary left in the temporary directory does no harm
	binary := filepath.Join(dir, program)
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false",
		"-ldflags=-s -w -buildid=", "-o", binary, "./cmd/"+program)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOFLAGS=")
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("building %s: %w\n%s", program, err, out)
	}
	data, err := os.ReadFile(binary)
	if err != nil {
		return nil, fmt.Errorf("building %s: %w", program, err)
	}
	return data, nil
}

// layerOf packs the binary of a program and the directories that programs expect, without
// timestamps.
func layerOf(program string, binary []byte) (v1.Layer, error) {
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	headers := []*tar.Header{
		{Typeflag: tar.TypeDir, Name: "etc/", Mode: 0o755},
		{Typeflag: tar.TypeDir, Name: "tmp/", Mode: 0o1777},
		{Typeflag: tar.TypeDir, Name: "bin/", Mode: 0o755},
		{Typeflag: tar.TypeSymlink, Name: "bin/tar", Linkname: "../" + program, Mode: 0o777},
		{Typeflag: tar.TypeReg, Name: program, Mode: 0o755, Size: int64(len(binary))},
	}
	for _, h := range headers {
		if err := w.WriteHeader(h); err != nil {
			return nil, fmt.Errorf("packing %s: %w", program, err)
		}
	}
	if _, err := w.Write(binary); err != nil {
		return nil, fmt.Errorf("packing %s: %w", program, err)
	}
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("packing %s: %w", program, err)
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(archive.Bytes())), nil
	})
	if err != nil {
		return nil, fmt.Errorf("packing %s: %w", program, err)
	}
	return layer, nil
}

// imageOf returns an image of one layer for this machine's architecture.
func imageOf(layer v1.Layer, entrypoint, command []string) (v1.Image, error) {
	image, err := mutate.AppendLayers(empty.Image, layer)
	if err != nil {
		return nil, err
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture = "linux", runtime.GOARCH
	config.Config.Entrypoint, config.Config.Cmd = entrypoint, command
	return mutate.ConfigFile(image, config)
}

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

// buildSample builds cmd/sample as a static binary and returns a layer that holds it. The same
// code and Go give the same bytes, so that image digests can be compared between runs.
func buildSample(ctx context.Context) (v1.Layer, error) {
	root, err := provision.Checkout()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "seedlet-sample-")
	if err != nil {
		return nil, fmt.Errorf("building the sample: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }() // a binary left in the temporary directory does no harm
	binary := filepath.Join(dir, "sample")
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false",
		"-ldflags=-s -w -buildid=", "-o", binary, "./cmd/sample")
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOFLAGS=")
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("building the sample: %w\n%s", err, out)
	}
	data, err := os.ReadFile(binary)
	if err != nil {
		return nil, fmt.Errorf("building the sample: %w", err)
	}
	return layerOf(data)
}

// layerOf packs the sample binary and the directories that programs expect, without timestamps.
func layerOf(sample []byte) (v1.Layer, error) {
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	headers := []*tar.Header{
		{Typeflag: tar.TypeDir, Name: "etc/", Mode: 0o755},
		{Typeflag: tar.TypeDir, Name: "tmp/", Mode: 0o1777},
		{Typeflag: tar.TypeDir, Name: "bin/", Mode: 0o755},
		{Typeflag: tar.TypeSymlink, Name: "bin/tar", Linkname: "../sample", Mode: 0o777},
		{Typeflag: tar.TypeReg, Name: "sample", Mode: 0o755, Size: int64(len(sample))},
	}
	for _, h := range headers {
		if err := w.WriteHeader(h); err != nil {
			return nil, fmt.Errorf("packing the sample: %w", err)
		}
	}
	if _, err := w.Write(sample); err != nil {
		return nil, fmt.Errorf("packing the sample: %w", err)
	}
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("packing the sample: %w", err)
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(archive.Bytes())), nil
	})
	if err != nil {
		return nil, fmt.Errorf("packing the sample: %w", err)
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

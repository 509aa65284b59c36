package nodetest

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"

	"github.com/google/go-containerregistry/pkg/name"
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
	cmd := exec.CommandContext(ctx, "go", "build", "-tags=grpcnotrace", "-trimpath",
		"-buildvcs=false", "-ldflags=-s -w -buildid=", "-o", binary, "./cmd/"+program)
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

// imageFile is a file of an image beside the program: a link, or one with content.
type imageFile struct{ name, link, content string }

// tarOf is the program as the tar that "kubectl cp" runs: the sample is one.
func tarOf(program string) imageFile { return imageFile{name: "bin/tar", link: "../" + program} }

// layerOf packs the binary of a program, more files, and the directories that programs expect,
// without timestamps.
func layerOf(program string, binary []byte, more ...imageFile) (v1.Layer, error) {
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	headers := []*tar.Header{
		{Typeflag: tar.TypeDir, Name: "etc/", Mode: 0o755},
		{Typeflag: tar.TypeDir, Name: "tmp/", Mode: 0o1777},
		{Typeflag: tar.TypeDir, Name: "bin/", Mode: 0o755},
		{Typeflag: tar.TypeReg, Name: program, Mode: 0o755, Size: int64(len(binary))},
	}
	contents := map[string][]byte{program: binary}
	for _, f := range more {
		h := &tar.Header{Typeflag: tar.TypeReg, Name: f.name, Mode: 0o644, Size: int64(len(f.content))}
		if f.link != "" {
			h = &tar.Header{Typeflag: tar.TypeSymlink, Name: f.name, Linkname: f.link, Mode: 0o777}
		}
		headers, contents[f.name] = append(headers, h), []byte(f.content)
	}
	for _, h := range headers {
		if err := w.WriteHeader(h); err != nil {
			return nil, fmt.Errorf("packing %s: %w", program, err)
		}
		if _, err := w.Write(contents[h.Name]); err != nil {
			return nil, fmt.Errorf("packing %s: %w", program, err)
		}
	}
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("packing %s: %w", program, err)
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(archive.Bytes())), nil
	}, tarball.WithCompressionLevel(gzip.BestSpeed))
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

// WriteAgentImage writes an image of the agent as an archive that container runtimes import, and
// returns its reference. The image has the binary as /seedlet and /bin/kubelet, and the users,
// among which the agent looks for one that pods get IDs from.
func WriteAgentImage(path, version string, binary []byte) (string, error) {
	if err := checkStatic(binary); err != nil {
		return "", err
	}
	layer, err := layerOf("seedlet", binary, imageFile{name: "bin/kubelet", link: "../seedlet"},
		imageFile{name: "etc/passwd", content: "root:x:0:0:root:/:/sbin/nologin\n"})
	if err != nil {
		return "", err
	}
	ref := "seedlet.dev/seedlet:" + version
	image, err := imageOf(layer, []string{"/seedlet"}, nil)
	if err != nil {
		return "", fmt.Errorf("making image %s: %w", ref, err)
	}
	tag, err := name.NewTag(ref)
	if err != nil {
		return "", fmt.Errorf("naming image %s: %w", ref, err)
	}
	if err := tarball.WriteToFile(path, tag, image); err != nil {
		return "", fmt.Errorf("writing image %s: %w", ref, err)
	}
	return ref, nil
}

// checkStatic returns an error for a program that needs an interpreter, and with it libraries,
// which an image of one program does not have.
func checkStatic(binary []byte) error {
	file, err := elf.NewFile(bytes.NewReader(binary))
	if err != nil {
		return fmt.Errorf("reading a program: %w", err)
	}
	for _, part := range file.Progs {
		if part.Type == elf.PT_INTERP {
			return errors.New("the program needs libraries: build it with CGO_ENABLED=0")
		}
	}
	return nil
}

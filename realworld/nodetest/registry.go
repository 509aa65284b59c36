package nodetest

import (
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// Images are the references of the project's images for a runtime.
type Images struct {
	Sample string // cmd/sample; its first argument is the subcommand, pause without one
	Pause  string // the same binary as a sandbox image
}

// Registry serves the project's images over plain HTTP on a free port, from memory.
type Registry struct {
	Address string // "127.0.0.1:PORT"
	Images  Images
	server  *http.Server
}

// StartRegistry builds the images, starts a registry and pushes them to it.
func StartRegistry(ctx context.Context) (*Registry, error) {
	return StartRegistryAt(ctx, "127.0.0.1")
}

// StartRegistryAt is StartRegistry with another address of this machine than loopback's.
func StartRegistryAt(ctx context.Context, host string) (*Registry, error) {
	binary, err := BuildProgram(ctx, "sample")
	if err != nil {
		return nil, err
	}
	sample, err := layerOf("sample", binary, tarOf("sample"))
	if err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		return nil, fmt.Errorf("starting the registry: %w", err)
	}
	r := &Registry{Address: listener.Addr().String()}
	r.server = &http.Server{
		Handler:           registry.New(registry.Logger(log.New(io.Discard, "", 0))),
		ReadHeaderTimeout: 10 * time.Second,
	}
	go func() { _ = r.server.Serve(listener) }() // returns ErrServerClosed after Close
	r.Images = Images{
		Sample: r.Address + "/seedlet/sample:v1",
		Pause:  r.Address + "/seedlet/pause:v1",
	}
	program, pause := []string{"/sample"}, []string{"pause"}
	err = r.push(ctx, r.Images.Sample, sample, program, pause)
	if err == nil {
		err = r.push(ctx, r.Images.Pause, sample, append(program, pause...), nil)
	}
	if err != nil {
		r.Close()
		return nil, err
	}
	return r, nil
}

// URL returns the URL of the registry.
func (r *Registry) URL() string { return "http://" + r.Address }

// Close closes the registry and its connections.
func (r *Registry) Close() {
	_ = r.server.Close() // errors of its connections do not matter
}

// Publish serves an image like the sample by another name, such as "seedlet/late:v1". It is an
// image of its own: what was pulled under one name is not on the node under another.
func (r *Registry) Publish(ctx context.Context, named string) error {
	from, err := name.ParseReference(r.Images.Sample, name.Insecure)
	if err != nil {
		return fmt.Errorf("naming image %s: %w", r.Images.Sample, err)
	}
	to, err := name.ParseReference(r.Address+"/"+named, name.Insecure)
	if err != nil {
		return fmt.Errorf("naming image %s: %w", named, err)
	}
	image, err := remote.Image(from, remote.WithContext(ctx))
	if err != nil {
		return fmt.Errorf("reading image %s: %w", from, err)
	}
	file, err := image.ConfigFile()
	if err == nil {
		config := file.Config
		config.Labels = map[string]string{"name": named}
		image, err = mutate.Config(image, config)
	}
	if err != nil {
		return fmt.Errorf("changing image %s: %w", from, err)
	}
	if err := remote.Write(to, image, remote.WithContext(ctx)); err != nil {
		return fmt.Errorf("pushing image %s: %w", to, err)
	}
	return nil
}

// PublishProgram serves an image whose entry point is a program, and returns its reference.
func (r *Registry) PublishProgram(ctx context.Context, program string, binary []byte) (string,
	error) {
	layer, err := layerOf(program, binary, tarOf(program))
	if err != nil {
		return "", err
	}
	ref := r.Address + "/seedlet/" + program + ":v1"
	return ref, r.push(ctx, ref, layer, []string{"/" + program}, nil)
}

// PublishCommand serves an image by a name such as "kube-scheduler:v1.36.3", with a program that
// containers run by its name: it is on their PATH. Containers without a command run it with the
// arguments.
func (r *Registry) PublishCommand(ctx context.Context, named, program string, binary []byte,
	args ...string) error {
	layer, err := layerOf("bin/"+program, binary)
	if err != nil {
		return err
	}
	return r.push(ctx, r.Address+"/"+named, layer, nil, append([]string{"/bin/" + program}, args...))
}

func (r *Registry) push(ctx context.Context, ref string, layer v1.Layer,
	entrypoint, command []string) error {
	image, err := imageOf(layer, entrypoint, command)
	if err != nil {
		return fmt.Errorf("making image %s: %w", ref, err)
	}
	to, err := name.ParseReference(ref, name.Insecure)
	if err != nil {
		return fmt.Errorf("naming image %s: %w", ref, err)
	}
	if err := remote.Write(to, image, remote.WithContext(ctx)); err != nil {
		return fmt.Errorf("pushing image %s: %w", ref, err)
	}
	return nil
}

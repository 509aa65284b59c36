// Package credentials carries out the effects of the credentials port: it executes the plugins that
// provide credentials for images, and reads the node's Docker configuration.
//
// The contract: Do never blocks; every effect is completed by exactly one event. A plugin that runs
// at its deadline is killed with all processes of its group. Neither output nor environment is ever
// logged or part of an error. Start reading at Port.
package credentials

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"seedlet.dev/realworld/clock"
	"seedlet.dev/realworld/inflight"
	"seedlet.dev/realworld/regularfile"
	"seedlet.dev/realworld/subprocess"
	"seedlet.dev/world"
)

const (
	// stderrBytesMax bounds what an error has of the standard error of a plugin, and stderrReadMax
	// what is kept of it: a token, which is redacted first, may have thousands of bytes.
	stderrBytesMax = 1024
	stderrReadMax  = 16 << 10
)

// Options configure a Port.
type Options struct {
	Clock   clock.Clock
	Deliver func(world.Event) // receives the completions; called from many goroutines
}

// Port is a world.Port for credentials. Close it when done.
type Port struct{ operations *inflight.Operations }

// New returns a port.
func New(opts Options) *Port {
	return &Port{operations: inflight.New(opts.Clock, opts.Deliver)}
}

// Do implements world.Port.
func (p *Port) Do(eff world.Effect) { p.operations.Start(eff, carryOut) }

// Close cancels the operations in flight and waits until they have ended. Do must not be called
// after it.
func (p *Port) Close() { p.operations.Close() }

func carryOut(ctx context.Context, request any) (any, *world.Error) {
	switch m := request.(type) {
	case *world.GetCredentials:
		return execute(ctx, m, world.CredentialRunMax), nil
	case *world.ReadDockerConfig:
		return readDockerConfig(m), nil
	default:
		panic(fmt.Sprintf("credentials: cannot carry out %T", request))
	}
}

// execute executes a plugin, for a while at most. Its environment is the agent's with the variables
// of the request, as the kubelet's plugins expect.
func execute(ctx context.Context, m *world.GetCredentials,
	most time.Duration) *world.CredentialsGot {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	cmd := exec.CommandContext(ctx, m.Program, m.Args...)
	cmd.Env = os.Environ()
	for _, v := range m.Env {
		cmd.Env = append(cmd.Env, v.Name+"="+v.Value)
	}
	output := subprocess.Buffer{Max: world.CredentialBytesMax}
	problems := subprocess.Buffer{Max: stderrReadMax}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(m.Request), &output, &problems
	started := time.Now()
	err := subprocess.Run(cmd)
	got := &world.CredentialsGot{Took: time.Since(started)}
	if cmd.ProcessState != nil {
		_ = cmd.Cancel() // what it has started may not stay, also if it has ended by itself
	}
	call, said := world.CallName(m), ""
	if text := strings.TrimSpace(world.WithoutToken(problems.String(), tokenOf(m))); text != "" {
		said = ": " + text[:min(len(text), stderrBytesMax)]
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		got.Err = world.Errorf(world.KindNotFound, call, "%v", err)
	case err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded):
		got.Err = world.Errorf(world.KindTimeout, call, "killed after %v: %v%s",
			got.Took.Round(time.Millisecond), err, said)
	case err != nil:
		got.Err = world.Errorf(world.KindInternal, call, "%v%s", err, said)
	case output.IsCut:
		got.Err = world.Errorf(world.KindExhausted, call, "its output has more than %d bytes",
			world.CredentialBytesMax)
	default:
		got.Output = output.Bytes()
	}
	return got
}

// tokenOf returns the token of a request; empty if it has none.
func tokenOf(m *world.GetCredentials) string {
	var request struct {
		Token string `json:"serviceAccountToken"`
	}
	_ = json.Unmarshal(m.Request, &request) // it is the agent's own
	return request.Token
}

func readDockerConfig(m *world.ReadDockerConfig) *world.DockerConfigRead {
	read := &world.DockerConfigRead{}
	for _, path := range m.Paths {
		data, err := regularfile.Read(path, world.CredentialBytesMax)
		file := world.DockerConfigFile{Path: path, Data: data}
		switch {
		case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
			continue // as most of them
		case errors.Is(err, regularfile.ErrTooLarge):
			file.Err = world.Errorf(world.KindExhausted, world.CallName(m), "%v", err)
		case err != nil:
			file.Err = world.Errorf(world.KindInternal, world.CallName(m), "%v", err)
		}
		read.Files = append(read.Files, file)
	}
	return read
}

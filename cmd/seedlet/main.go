// Command seedlet is the node agent: a drop-in for the kubelet, with the kubelet's flags and
// configuration file.
//
// It makes no decision about pods. It reads the configuration (config.go, flags.go), determines the
// facts of the machine, creates the production ports, and lets package runner drive the core with
// them (node.go). The behaviour of the agent is in core.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"syscall"

	"github.com/spf13/cobra"
	utilversion "k8s.io/apimachinery/pkg/util/version"
	apiversion "k8s.io/apimachinery/pkg/version"
)

// version is the Kubernetes release whose API and behaviour the agent implements. kubeadm parses it
// from the output of --version and compares it with the control plane's.
const version = "v1.36.3"

// gcPercent is Go's GOGC. The agent needs little CPU, and its memory is not available to pods, so
// it collects garbage more often than by default.
const gcPercent = 40

func main() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	// The first signal shuts the agent down gracefully; further signals have their default effect.
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	context.AfterFunc(ctx, stop)
	if err := newCommand().ExecuteContext(ctx); err != nil {
		fmt.Fprintf(os.Stderr, "Error: %v\n", err)
		os.Exit(1)
	}
}

// description is the head of --help.
const description = "The node agent: runs the pods that this node is to run."

func newCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:           "seedlet",
		Short:         description,
		SilenceUsage:  true,
		SilenceErrors: true,
		// Flags are parsed twice, as they override the files that they name.
		DisableFlagParsing: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			line := newCommandLine(defaultConfig())
			if err := line.set.Parse(args); err != nil {
				return err
			}
			if line.printInformation() {
				return nil
			}
			s, err := readSettings(line, args)
			if err != nil {
				return err
			}
			return run(cmd.Context(), *s)
		},
	}
	cmd.CompletionOptions.DisableDefaultCmd = true
	return cmd
}

// rawVersion is what --version=raw prints, in the form of every component of Kubernetes.
func rawVersion() apiversion.Info {
	own := utilversion.MustParseSemantic(version)
	return apiversion.Info{Major: fmt.Sprint(own.Major()), Minor: fmt.Sprint(own.Minor()),
		GitVersion: version, GoVersion: runtime.Version(), Compiler: runtime.Compiler,
		Platform: runtime.GOOS + "/" + runtime.GOARCH}
}

// Command seedlet is the node agent: a drop-in for the kubelet, with the kubelet's flags and
// configuration file.
//
// It does four things and decides nothing: it reads the configuration (config.go, flags.go),
// finds out about the machine, makes the ports of the production world, and lets package runner
// drive the core with them (node.go). What the agent does is in core.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/spf13/cobra"
)

// version is the Kubernetes release whose API and behaviour this is. kubeadm reads it from the
// output of --version and compares it with the control plane's.
const version = "v1.36.3"

// gcPercent is how much garbage there may be for each hundred bytes in use. The agent needs little
// of the processor, and its memory is missing to the pods.
const gcPercent = 40

func main() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	// The first signal ends the agent in order; after that, signals have their usual effect.
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	context.AfterFunc(ctx, stop)
	if err := newCommand().ExecuteContext(ctx); err != nil {
		fmt.Fprintf(os.Stderr, "Error: %v\n", err)
		os.Exit(1)
	}
}

func newCommand() *cobra.Command {
	var f flags
	cmd := &cobra.Command{
		Use:           "seedlet",
		Short:         "The node agent: runs the pods that this node is to run.",
		Version:       version,
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := f.settings(cmd.Flags())
			if err != nil {
				return err
			}
			return run(cmd.Context(), s)
		},
	}
	cmd.SetVersionTemplate("Kubernetes {{.Version}}\n")
	cmd.CompletionOptions.DisableDefaultCmd = true
	f.register(cmd.Flags())
	return cmd
}

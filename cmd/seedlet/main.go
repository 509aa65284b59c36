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
	"runtime/debug"
	"syscall"

	"github.com/spf13/cobra"
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
	f.addTo(cmd.Flags())
	return cmd
}

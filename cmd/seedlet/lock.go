package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/pflag"
	"k8s.io/klog/v2"

	"seedlet.dev/realworld/lockfile"
)

// lockFlags are the flags of the lock that keeps a second agent from the node.
type lockFlags struct {
	file             string
	exitOnContention bool
}

func (f *lockFlags) addTo(fs *pflag.FlagSet) {
	fs.StringVar(&f.file, "lock-file", "", "file that is locked while the agent runs; the agent "+
		"waits for one that another process has locked")
	fs.BoolVar(&f.exitOnContention, "exit-on-lock-contention", false,
		"end when another process opens --lock-file")
}

func (f *lockFlags) check() error {
	if f.exitOnContention && f.file == "" {
		return errors.New("--exit-on-lock-contention: needs --lock-file")
	}
	return nil
}

// acquire takes the lock, which the process then has until it ends. The context that it returns is
// done if the agent has to end for another process.
func (f *lockFlags) acquire(ctx context.Context) (context.Context, error) {
	if f.file == "" {
		return ctx, nil
	}
	klog.InfoS("waiting for the lock file", "path", f.file)
	if err := lockfile.Acquire(ctx, f.file); err != nil {
		return nil, fmt.Errorf("--lock-file: %w", err)
	}
	if !f.exitOnContention {
		return ctx, nil
	}
	ctx, err := lockfile.UntilOpened(ctx, f.file)
	if err != nil {
		return nil, fmt.Errorf("--exit-on-lock-contention: %w", err)
	}
	return ctx, nil
}

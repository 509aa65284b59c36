// Package iptables keeps the chains of iptables that the kubelet keeps for other programs.
//
// The chain KUBE-IPTABLES-HINT tells components in containers which of the two variants, legacy or
// nft, the machine uses: that in which the chain exists. The chain KUBE-FIREWALL drops packets to
// localhost addresses that come from elsewhere; kube-proxy makes them possible, and has the same
// rule (https://issue.k8s.io/90259). The agent itself needs neither, so a failure is logged and
// tried again. Source: kubelet_network_linux.go.
//
// Start reading at Rules.Sync.
package iptables

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"sync"
	"time"
)

const (
	// syncPeriod is how often the rules are looked for: a restart of a firewall removes them.
	syncPeriod    = time.Minute
	syncTimeout   = 30 * time.Second
	lockWait      = "5" // seconds that iptables waits for its lock
	hintChain     = "KUBE-IPTABLES-HINT"
	firewallChain = "KUBE-FIREWALL"
)

// Options configure Rules.
type Options struct {
	// Prefix precedes every command, as in "ip netns exec NAME"; empty except in tests.
	Prefix []string
	// Report receives the result of the first sync of a program, and each that differs from the one
	// before it.
	Report func(program string, err error)
}

// Rules are the chains with their rules.
type Rules struct {
	opts   Options
	cancel context.CancelFunc
	done   sync.WaitGroup
	last   map[string]string // by program: the text of the last result
}

// Keep makes the chains and rules, and makes them again when they are gone, until Close.
func Keep(opts Options) *Rules {
	ctx, cancel := context.WithCancel(context.Background())
	r := &Rules{opts: opts, cancel: cancel, last: map[string]string{}}
	r.done.Go(func() {
		ticks := time.NewTicker(syncPeriod)
		defer ticks.Stop()
		for {
			r.syncAll(ctx)
			select {
			case <-ctx.Done():
				return
			case <-ticks.C:
			}
		}
	})
	return r
}

// Close stops keeping the chains, and leaves them as they are: pods go on while the agent is down.
func (r *Rules) Close() {
	if r != nil {
		r.cancel()
		r.done.Wait()
	}
}

func (r *Rules) syncAll(ctx context.Context) {
	for _, program := range []string{"iptables", "ip6tables"} {
		err := r.Sync(ctx, program)
		if ctx.Err() != nil {
			return
		}
		text := "ok"
		if err != nil {
			text = err.Error()
		}
		if r.last[program] != text {
			r.last[program] = text
			r.opts.Report(program, err)
		}
	}
}

// rule is a rule that must be in a chain of the table filter. It is the last of the chain unless it
// must precede all others.
type rule struct {
	first bool
	chain string
	match []string
}

var firewallRules = []rule{
	{true, "OUTPUT", []string{"-j", firewallChain}},
	{true, "INPUT", []string{"-j", firewallChain}},
	// kube-proxy has a copy of this rule: a change here must work beside other versions there.
	{false, firewallChain, []string{"-m", "comment", "--comment",
		"block incoming localnet connections", "--dst", "127.0.0.0/8", "!", "--src", "127.0.0.0/8",
		"-m", "conntrack", "!", "--ctstate", "RELATED,ESTABLISHED,DNAT", "-j", "DROP"}},
}

// Sync makes what is missing of the chains and rules of one program, iptables or ip6tables. IPv6
// has one localhost address, which no packet from elsewhere can have, so it needs no firewall.
func (r *Rules) Sync(ctx context.Context, program string) error {
	ctx, cancel := context.WithTimeout(ctx, syncTimeout)
	defer cancel()
	if err := r.ensureChain(ctx, program, "mangle", hintChain); err != nil || program == "ip6tables" {
		return err
	}
	if err := r.ensureChain(ctx, program, "filter", firewallChain); err != nil {
		return err
	}
	for _, rule := range firewallRules {
		if err := r.ensureRule(ctx, program, rule); err != nil {
			return err
		}
	}
	return nil
}

// ensureChain makes a chain. That it exists already is exit code 1, as is any other refusal, so the
// chain is listed then.
func (r *Rules) ensureChain(ctx context.Context, program, table, chain string) error {
	refused, err := r.run(ctx, program, "-t", table, "-N", chain)
	if !refused {
		return err
	}
	if _, missing := r.run(ctx, program, "-t", table, "-S", chain); missing != nil {
		return err
	}
	return nil
}

func (r *Rules) ensureRule(ctx context.Context, program string, rule rule) error {
	missing, err := r.run(ctx, program,
		append([]string{"-t", "filter", "-C", rule.chain}, rule.match...)...)
	if !missing {
		return err
	}
	add := "-A"
	if rule.first {
		add = "-I"
	}
	_, err = r.run(ctx, program, append([]string{"-t", "filter", add, rule.chain}, rule.match...)...)
	return err
}

// run runs a program, and reports whether it has exited with code 1: a refusal, and not a wrong
// argument or a program that is missing.
func (r *Rules) run(ctx context.Context, program string, args ...string) (bool, error) {
	command := append(append([]string{}, r.opts.Prefix...), program, "-w", lockWait)
	command = append(command, args...)
	out, err := exec.CommandContext(ctx, command[0], command[1:]...).CombinedOutput()
	if err == nil {
		return false, nil
	}
	var exit *exec.ExitError
	refused := errors.As(err, &exit) && exit.ExitCode() == 1
	return refused, fmt.Errorf("%s %s: %w: %s", program, strings.Join(args, " "), err,
		strings.TrimSpace(string(out)))
}

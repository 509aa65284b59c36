package scsi

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// The kernel scans a host by a write to its attribute, one at a time, and a host whose target does
// not answer may take for ever. No more than one thread is lost to it: a scan whose effect has
// timed out keeps its host until it ends. The other hosts are scanned meanwhile.

// scans are the hosts that are being scanned.
type scans struct {
	mu   sync.Mutex
	busy map[string]chan struct{} // by host; closed at the end of its scan
}

// begin waits until a host is not being scanned, and has it so until end is called.
func (s *scans) begin(ctx context.Context, host string) error {
	for {
		s.mu.Lock()
		busy := s.busy[host]
		if busy == nil {
			if s.busy == nil {
				s.busy = map[string]chan struct{}{}
			}
			s.busy[host] = make(chan struct{})
		}
		s.mu.Unlock()
		if busy == nil {
			return nil
		}
		select {
		case <-busy:
		case <-ctx.Done():
			return fmt.Errorf("%s is still being scanned: %w", host, ctx.Err())
		}
	}
}

func (s *scans) end(host string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.busy[host])
	delete(s.busy, host)
}

// scanHosts carries out the scans of hosts, those of different hosts side by side.
func (k kernel) scanHosts(ctx context.Context, of map[string][]string) error {
	results := make(chan error, len(of))
	for host, scans := range of { //ordered: side by side
		go func() { results <- k.scanHost(ctx, host, scans) }()
	}
	var err error
	for range of { //ordered: as many as there are
		err = errors.Join(err, <-results)
	}
	return err
}

// scanHost carries out the scans of a host, and waits for them no longer than the effect.
func (k kernel) scanHost(ctx context.Context, host string, scans []string) error {
	if err := k.scans.begin(ctx, host); err != nil {
		return err
	}
	done := make(chan error, 1)
	go func() {
		defer k.scans.end(host)
		var err error
		for _, scan := range scans {
			err = errors.Join(err, writeAttribute(scan, k.sys, "class/scsi_host", host, "scan"))
		}
		done <- err
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("the scan of %s does not end: %w", host, ctx.Err())
	}
}

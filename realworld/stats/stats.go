// Package stats measures what the node, its pods and its containers use, and serves it as a
// kubelet does: /stats/summary, /metrics/resource and /metrics/cadvisor.
//
// Numbers of pods and containers are the container runtime's; what it does not give, or all of them
// when it is away or slow, are read from the files of their cgroups. The machine, the root cgroup
// and those of the system are always read from there, by package cgroup, in the types of cAdvisor.
// /metrics/cadvisor is of cgroups throughout, by the names of cAdvisor, which does not run.
//
// The contract:
//
//  1. Nothing is measured that nobody asks for. What is asked for is measured at most once in
//     sampleAge, by one goroutine for all who ask meanwhile, and is bounded in time: a runtime that
//     hangs costs runtimeMax, and a client that goes away waits no longer.
//  2. How much the trees of volumes and logs hold is found out in the background, one tree at a
//     time, and shown with the time at which it was so; see disks.go.
//  3. What could not be had is left out, and resource_scrape_error is 1. There are no guesses: a
//     rate, for one, needs two samples.
//
// Start reading at Source and Register, then measure.go, pod.go and summary.go; the pages of
// metrics are resource.go, and cadvisor.go with dashboards.go and families.go.
package stats

import (
	"context"
	"net/http"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/google/cadvisor/lib/model"

	"seedlet.dev/realworld/stats/cgroup"
)

const (
	// sampleAge is for how long a sample is good enough: as old as the kubelet's, whose cAdvisor
	// looks every ten seconds.
	sampleAge = 10 * time.Second
	// runtimeMax leaves a scraper that waits for ten seconds its answer without the runtime.
	runtimeMax = 5 * time.Second
	podsMax    = 2 * time.Second // for the core's answer
	machineAge = 5 * time.Minute // the machine itself changes by hot-plugging only
)

// Options are what a source is made of.
type Options struct {
	NodeName string
	Runtime  runtimeapi.RuntimeServiceClient
	Images   runtimeapi.ImageServiceClient
	// Pods are those of the node with their live statuses, as /pods has them.
	Pods      func(context.Context) ([]*v1.Pod, error)
	RootDir   string // of the agent, with "pods/UID/volumes" in it
	LogsDir   string // podLogsDir
	Cgroups   Cgroups
	VolumeAge time.Duration // volumeStatsAggPeriod; zero for a minute, negative for never

	// What follows is for tests; left empty it is the machine's own.
	Roots      cgroup.Roots
	Now        func() time.Time
	RuntimeMax time.Duration
	SampleAge  time.Duration
}

// Cgroups are where the cgroups of the system are, as /proc/PID/cgroup names them.
type Cgroups struct {
	Root    string // cgroupRoot; "kubepods" is below it, whichever driver makes it
	Kubelet string // kubeletCgroups; empty: where the agent finds itself
	Runtime string // --runtime-cgroups; empty: where the one is that serves RuntimeEndpoint
	System  string // systemCgroups; empty for none

	RuntimeEndpoint string // as "unix:///run/containerd/containerd.sock"
}

// Source measures, on demand. Close it when done.
type Source struct {
	opts   Options
	ctx    context.Context // done when the source is closed
	cancel context.CancelFunc
	work   sync.WaitGroup

	usage    shared[*usage]
	storage  shared[*storage]
	machine  shared[*model.MachineInfo]
	cadvisor shared[*containers]
	disks    disks
	// rates belongs to the goroutine that measures usage, of which there is one at a time.
	rates rates
}

// New makes a source. Nothing is looked at before someone asks.
func New(opts Options) *Source {
	if opts.Roots == (cgroup.Roots{}) {
		opts.Roots = cgroup.Roots{Cgroup: "/sys/fs/cgroup", Proc: "/proc", Sys: "/sys"}
	}
	if opts.Now == nil {
		opts.Now = time.Now
	}
	if opts.RuntimeMax == 0 {
		opts.RuntimeMax = runtimeMax
	}
	if opts.SampleAge == 0 {
		opts.SampleAge = sampleAge
	}
	if opts.VolumeAge == 0 {
		opts.VolumeAge = time.Minute
	}
	s := &Source{opts: opts}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.usage = shared[*usage]{source: s, age: opts.SampleAge, measure: s.measure,
		failed: func(u *usage) bool { return u != nil && u.podsErr != nil }}
	s.storage = shared[*storage]{source: s, age: opts.SampleAge, measure: s.measureStorage}
	s.machine = shared[*model.MachineInfo]{source: s, age: machineAge, measure: s.measureMachine}
	s.cadvisor = shared[*containers]{source: s, age: opts.SampleAge, measure: s.measureContainers,
		failed: func(c *containers) bool { return c != nil && c.err != nil }}
	s.disks.source = s
	return s
}

// Close gives up what is being measured and waits until it has ended. Nothing must be asked any
// more. A tree on a file system that hangs is not waited for.
func (s *Source) Close() {
	s.cancel()
	s.work.Wait()
	s.disks.close()
}

// Register adds the handlers to a mux.
func (s *Source) Register(mux *http.ServeMux) {
	mux.HandleFunc("GET /stats/summary", s.serveSummary)
	mux.HandleFunc("GET /stats/summary/{$}", s.serveSummary)
	mux.HandleFunc("GET /metrics/resource", s.serveResource)
	mux.HandleFunc("GET /metrics/cadvisor", s.serveCadvisor)
}

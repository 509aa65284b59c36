// Package stats measures the usage of the node, its pods and its containers, and serves it as the
// kubelet does: /stats/summary, /metrics/resource and /metrics/cadvisor.
//
// The usage of pods and containers is the container runtime's. What the runtime does not report, or
// all of it while the runtime is down or slow, is read from the files of their cgroups. The
// machine, the root cgroup and cgroups of the system are always read from files, by package cgroup,
// into the types of cAdvisor. /metrics/cadvisor is read from cgroups throughout, under cAdvisor's
// names; cAdvisor itself does not run.
//
// The contract:
//
//  1. Measurements run on request only, at most once in sampleAgeMax, on one goroutine for all
//     clients that wait, and are bounded in time: a hanging runtime costs runtimeTimeout, and a
//     client that disconnects waits no longer.
//  2. The trees of volumes and logs are measured in the background, one pod after the other and
//     each within a bound, and reported with the time of their measurement; see disks.go.
//  3. A value that could not be measured is left out, and resource_scrape_error is 1. Nothing is
//     guessed: a rate, for example, needs two samples.
//
// Start reading at Source and Register, then measure.go, pod.go and summary.go. /metrics/resource
// is resource.go; /metrics/cadvisor is cadvisor.go, cadvisorpage.go and families.go.
package stats

import (
	"context"
	"net/http"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/google/cadvisor/lib/model"
	"golang.org/x/sys/unix"

	"seedlet.dev/realworld/disk"
	"seedlet.dev/realworld/stats/cgroup"
	"seedlet.dev/world"
)

const (
	// sampleAgeMax is the age up to which a sample is served again. The kubelet's samples are as old:
	// its cAdvisor measures every ten seconds.
	sampleAgeMax = 10 * time.Second
	// runtimeTimeout lets a scraper with a timeout of ten seconds get a response without the runtime.
	runtimeTimeout = 5 * time.Second
	podsTimeout    = 2 * time.Second // of the request to the core
	machineAgeMax  = 5 * time.Minute // a machine changes by hot-plugging only
)

// Options configure a Source.
type Options struct {
	NodeName string
	Runtime  runtimeapi.RuntimeServiceClient
	Images   runtimeapi.ImageServiceClient
	// Pods returns the pods of the node with their current statuses, as /pods serves them.
	Pods func(context.Context) ([]*v1.Pod, error)
	// Volumes returns the usage of the volumes that storage backs. Nil: none is known.
	Volumes   func(context.Context) ([]world.VolumeUsage, error)
	RootDir   string // of the agent, with "pods/UID/volumes" in it
	LogsDir   string // podLogsDir
	Cgroups   Cgroups
	VolumeAge time.Duration // volumeStatsAggPeriod; zero for a minute, negative for never

	// The following are for tests. Zero values mean the machine's own.
	Roots          cgroup.Roots
	Now            func() time.Time
	RuntimeTimeout time.Duration
	SampleAge      time.Duration
}

// Cgroups are the paths of the system's cgroups, as in /proc/PID/cgroup.
type Cgroups struct {
	Root    string // cgroupRoot; "kubepods" is below it, whichever driver makes it
	Kubelet string // kubeletCgroups; empty for the cgroup of this process
	Runtime string // --runtime-cgroups; empty for that of the server of RuntimeEndpoint
	System  string // systemCgroups; empty for none

	RuntimeEndpoint string // as "unix:///run/containerd/containerd.sock"
}

// Source measures on request. Close it when done.
type Source struct {
	opts   Options
	ctx    context.Context // done when the source is closed
	cancel context.CancelFunc
	work   sync.WaitGroup

	usage    sharedMeasurement[*usageSample]
	storage  sharedMeasurement[*storageSample]
	machine  sharedMeasurement[*model.MachineInfo]
	cadvisor sharedMeasurement[*cgroupSample]
	disks    diskUsage
	statfs   statfsCalls
	// measureTree measures one tree; tests replace it.
	measureTree func(context.Context, string) (*world.TreeMeasured, error)
	// rates is used only by the goroutine that measures usage, of which there is one at a time.
	rates         rates
	sandboxImages sandboxImages
}

// New returns a source. It measures nothing before the first request.
func New(opts Options) *Source {
	if opts.Roots == (cgroup.Roots{}) {
		opts.Roots = cgroup.Roots{Cgroup: "/sys/fs/cgroup", Proc: "/proc", Sys: "/sys"}
	}
	if opts.Now == nil {
		opts.Now = time.Now
	}
	if opts.RuntimeTimeout == 0 {
		opts.RuntimeTimeout = runtimeTimeout
	}
	if opts.SampleAge == 0 {
		opts.SampleAge = sampleAgeMax
	}
	if opts.VolumeAge == 0 {
		opts.VolumeAge = time.Minute
	}
	s := &Source{opts: opts, statfs: statfsCalls{statfs: unix.Statfs}, measureTree: disk.Measure}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.usage = sharedMeasurement[*usageSample]{source: s, maxAge: opts.SampleAge, measure: s.measure,
		failed: func(u *usageSample) bool { return u != nil && u.podsErr != nil }}
	s.storage = sharedMeasurement[*storageSample]{source: s, maxAge: opts.SampleAge,
		measure: s.measureStorage}
	s.machine = sharedMeasurement[*model.MachineInfo]{source: s, maxAge: machineAgeMax,
		measure: s.measureMachine}
	s.cadvisor = sharedMeasurement[*cgroupSample]{source: s, maxAge: opts.SampleAge,
		measure: s.measureContainers,
		failed:  func(c *cgroupSample) bool { return c != nil && c.err != nil }}
	s.disks.source = s
	return s
}

// Close cancels running measurements and waits for their end. The source must not be used after
// that. Close does not wait for a tree on a hanging file system.
func (s *Source) Close() {
	s.cancel()
	s.work.Wait()
	s.disks.close()
}

// Register registers the handlers.
func (s *Source) Register(mux *http.ServeMux) {
	mux.HandleFunc("GET /stats/summary", s.serveSummary)
	mux.HandleFunc("GET /stats/summary/{$}", s.serveSummary)
	mux.HandleFunc("GET /metrics/resource", s.serveResource)
	mux.HandleFunc("GET /metrics/cadvisor", s.serveCadvisor)
}

package whatif

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"seedlet.dev/core/document"
	"seedlet.dev/sim/plan"
	"seedlet.dev/sim/truth"
	"seedlet.dev/sim/wire"
)

// Without an entry for it, a program that has to end by itself does so after these times, with code
// 0: one of an init container, and one of a pod whose restart policy is not Always.
const (
	initRuns = time.Second
	taskRuns = 10 * time.Minute
)

// behaviourEntry is how the program of a container behaves. A zero field says nothing. A length of
// time is a range, of which each pod of each run has one value.
type behaviourEntry struct {
	Workload  string `json:"workload,omitempty"`  // its name; absent: any
	Container string `json:"container,omitempty"` // its name; absent: any but init containers

	StartsIn *plan.Span `json:"startsIn,omitempty"` // until probes get a response
	ReadyIn  *plan.Span `json:"readyIn,omitempty"`  // until the readiness probe succeeds

	StopTakes   plan.Span `json:"stopTakes,omitempty"`   // from SIGTERM to the exit
	IgnoresTerm bool      `json:"ignoresTerm,omitempty"` // only SIGKILL ends it
	HandlesTerm bool      `json:"handlesTerm,omitempty"` // it exits with 0 after SIGTERM, not 143

	PreStopTakes   *plan.Span `json:"preStopTakes,omitempty"`   // of an exec or HTTP hook
	PostStartTakes *plan.Span `json:"postStartTakes,omitempty"` // the same

	Runs     *plan.Span `json:"runs,omitempty"`     // until it exits by itself; absent: for ever
	ExitCode int32      `json:"exitCode,omitempty"` // then

	MemoryMiB *plan.Count `json:"memoryMiB,omitempty"` // that it uses; absent: what it requests
	DiskMiB   *plan.Count `json:"diskMiB,omitempty"`   // that it writes to its own file system
}

// ReadBehaviour reads a behaviour file.
func (in *Input) ReadBehaviour(f File) error {
	doc, err := document.Parse(f.Data)
	if err != nil {
		return fmt.Errorf("%s: %w", f.Name, err)
	}
	var file struct {
		APIVersion string           `json:"apiVersion"`
		Kind       string           `json:"kind"`
		Containers []behaviourEntry `json:"containers"`
	}
	if doc != nil {
		var unknown []string
		unknown, err = document.Decode(doc, &file)
		if err == nil && len(unknown) > 0 {
			err = fmt.Errorf("unknown field %s", strings.Join(unknown, ", "))
		}
	}
	switch {
	case err != nil:
		return fmt.Errorf("%s: %w", f.Name, err)
	case file.APIVersion != plan.APIVersion || file.Kind != "Behaviour":
		return fmt.Errorf("%s: want apiVersion %s, kind Behaviour; have %q, %q", f.Name,
			plan.APIVersion, file.APIVersion, file.Kind)
	}
	for i := range file.Containers {
		if err := in.checkEntry(&file.Containers[i]); err != nil {
			return fmt.Errorf("%s: containers[%d].%w", f.Name, i, err)
		}
	}
	in.entries = file.Containers
	return nil
}

// checkEntry checks that an entry is about a container, and that it can be as it says.
func (in *Input) checkEntry(e *behaviourEntry) error {
	hasWorkload, hasContainer := false, false
	for _, w := range in.Workloads {
		if e.Workload != "" && e.Workload != w.Name {
			continue
		}
		hasWorkload = true
		for i := range w.Pods {
			for _, c := range containersOf(w.Pods[i].spec) {
				hasContainer = hasContainer || e.matches(w, &c)
			}
		}
	}
	switch {
	case !hasWorkload:
		return fmt.Errorf("workload: no workload is called %q", e.Workload)
	case !hasContainer && e.Container != "":
		return fmt.Errorf("container: no container is called %q", e.Container)
	case e.IgnoresTerm && (e.HandlesTerm || e.StopTakes.Most > 0):
		return fmt.Errorf("ignoresTerm: want neither handlesTerm nor stopTakes beside it")
	case e.ExitCode < 0 || e.ExitCode > 255:
		return fmt.Errorf("exitCode: want 0 to 255, have %d", e.ExitCode)
	case e.ExitCode != 0 && e.Runs == nil:
		return fmt.Errorf("exitCode: want runs beside it; after SIGTERM a program exits with 143, " +
			"or with 0 if it handlesTerm")
	}
	return nil
}

// podContainer is a container of a pod.
type podContainer struct {
	*v1.Container
	runsOnce bool // an init container, not a sidecar
}

func containersOf(spec *v1.PodSpec) []podContainer {
	var all []podContainer
	for i := range spec.InitContainers {
		c := &spec.InitContainers[i]
		isSidecar := c.RestartPolicy != nil && *c.RestartPolicy == v1.ContainerRestartPolicyAlways
		all = append(all, podContainer{c, !isSidecar})
	}
	for i := range spec.Containers {
		all = append(all, podContainer{&spec.Containers[i], false})
	}
	return all
}

func (e *behaviourEntry) matches(w *Workload, c *podContainer) bool {
	return (e.Workload == "" || e.Workload == w.Name) &&
		(e.Container == c.Name || e.Container == "" && !c.runsOnce)
}

// entryOf returns the first entry that is about a container; an empty one if there is none.
func (in *Input) entryOf(w *Workload, c *podContainer) *behaviourEntry {
	i := slices.IndexFunc(in.entries, func(e behaviourEntry) bool { return e.matches(w, c) })
	if i < 0 {
		return &behaviourEntry{}
	}
	return &in.entries[i]
}

// behaviours draws how the programs of a pod behave in a run. What they use of the node matters to
// events of pressure only.
func (in *Input) behaviours(w *Workload, pod *Pod, event Event, seed uint64) []plan.Behaviour {
	var all []plan.Behaviour
	for _, c := range containersOf(pod.spec) {
		r := wire.Stream(seed, "whatif "+pod.Name+" "+c.Name)
		b := in.entryOf(w, &c).draw(&c, pod.spec, r)
		if event.isPressure() {
			r := wire.Stream(seed, "whatif usage "+pod.Name+" "+c.Name)
			in.entryOf(w, &c).drawUsage(&b, &c, r)
		}
		all = append(all, b)
	}
	return all
}

func (e *behaviourEntry) draw(c *podContainer, pod *v1.PodSpec, r *rand.Rand) plan.Behaviour {
	b := plan.Behaviour{Container: c.Name, StopTakes: plan.Duration(draw(e.StopTakes, r)),
		IgnoresTerm: e.IgnoresTerm, HandlesTerm: e.HandlesTerm}
	if runs := e.runs(c, pod, r); runs > 0 {
		b.Processes = []plan.ProcessRun{{Runs: plan.Duration(runs), ExitCode: e.ExitCode}}
	}
	if c.Lifecycle != nil {
		b.Responses = append(hookResponse(c, c.Lifecycle.PreStop, e.PreStopTakes, r),
			hookResponse(c, c.Lifecycle.PostStart, e.PostStartTakes, r)...)
	}
	b.Responses = append(b.Responses, refusals(c, e.StartsIn, r, c.StartupProbe, c.LivenessProbe,
		c.ReadinessProbe)...)
	b.Responses = append(b.Responses, refusals(c, e.ReadyIn, r, c.ReadinessProbe)...)
	return b
}

// runs returns how long each process runs until it exits by itself; zero: for ever.
func (e *behaviourEntry) runs(c *podContainer, pod *v1.PodSpec, r *rand.Rand) time.Duration {
	switch {
	case e.Runs != nil:
		return max(draw(*e.Runs, r), time.Millisecond)
	case c.runsOnce:
		return initRuns
	case pod.RestartPolicy != v1.RestartPolicyAlways && slices.ContainsFunc(pod.Containers,
		func(main v1.Container) bool { return main.Name == c.Name }):
		return taskRuns
	}
	return 0
}

// refusals are the responses of a program to probes until it has started, or is ready.
func refusals(c *podContainer, until *plan.Span, r *rand.Rand,
	probes ...*v1.Probe) []plan.HandlerResponse {
	if until == nil {
		return nil
	}
	lasts := plan.Duration(draw(*until, r))
	var all []plan.HandlerResponse
	for _, p := range probes {
		if p == nil || lasts == 0 {
			continue
		}
		all = append(all, plan.HandlerResponse{Match: requestOf(c, p.Exec, p.HTTPGet, p.TCPSocket,
			p.GRPC), For: lasts, Reply: truth.ReplyFailure})
	}
	return all
}

// hookResponse returns how long a hook takes. Without an entry it takes what its sleeps add up to.
func hookResponse(c *podContainer, h *v1.LifecycleHandler, takes *plan.Span,
	r *rand.Rand) []plan.HandlerResponse {
	if h == nil || h.Exec == nil && h.HTTPGet == nil {
		return nil
	}
	var lasts time.Duration
	switch {
	case takes != nil:
		lasts = draw(*takes, r)
	case h.Exec != nil:
		lasts = sleepsIn(h.Exec.Command)
	}
	if lasts == 0 {
		return nil
	}
	return []plan.HandlerResponse{{Match: requestOf(c, h.Exec, h.HTTPGet, nil, nil),
		Reply: truth.ReplySuccess, Takes: plan.Duration(lasts)}}
}

// sleeps finds the arguments of sleep in the text of a command.
var sleeps = regexp.MustCompile(`(?:^|[\s;&|(/])sleep\s+(\d+(?:\.\d+)?)(?:s)?(?:$|[\s;&|)])`)

// sleepsIn returns how long a command sleeps, as far as its text tells.
func sleepsIn(command []string) time.Duration {
	var all time.Duration
	for _, found := range sleeps.FindAllStringSubmatch(strings.Join(command, " "), -1) {
		if seconds, err := strconv.ParseFloat(found[1], 64); err == nil && seconds < 86400 {
			all += time.Duration(seconds * float64(time.Second))
		}
	}
	return all
}

// requestOf returns the text of a probe or hook in the facts of a run.
func requestOf(c *podContainer, exec *v1.ExecAction, get *v1.HTTPGetAction,
	tcp *v1.TCPSocketAction, grpc *v1.GRPCAction) string {
	switch {
	case exec != nil:
		return "exec " + strings.Join(exec.Command, " ")
	case get != nil: // http or https
		return " :" + portOf(c, get.Port) + "/" + strings.TrimPrefix(get.Path, "/")
	case tcp != nil:
		return "tcp :" + portOf(c, tcp.Port)
	case grpc != nil:
		return fmt.Sprintf("grpc :%d", grpc.Port)
	}
	return "none"
}

func portOf(c *podContainer, port intstr.IntOrString) string {
	for i := range c.Ports {
		if port.Type == intstr.String && c.Ports[i].Name == port.StrVal {
			return fmt.Sprint(c.Ports[i].ContainerPort)
		}
	}
	return port.String()
}

// slowestStart returns how long the slowest container may take from its start until it is ready.
func (in *Input) slowestStart() time.Duration {
	var most time.Duration
	for _, w := range in.Workloads {
		if len(w.Pods) == 0 {
			continue
		}
		for _, c := range containersOf(w.Pods[0].spec) {
			var one time.Duration
			e := in.entryOf(w, &c)
			for _, s := range []*plan.Span{e.StartsIn, e.ReadyIn, e.PostStartTakes} {
				if s != nil {
					one += s.Most
				}
			}
			for _, p := range []*v1.Probe{c.StartupProbe, c.ReadinessProbe} {
				if p != nil {
					one += time.Duration(p.InitialDelaySeconds+p.PeriodSeconds*
						(1+p.SuccessThreshold)) * time.Second
				}
			}
			most = max(most, one)
		}
	}
	return min(most, settleMax/2)
}

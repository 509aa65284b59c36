package sim

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
	"sigs.k8s.io/yaml"

	"seedlet.dev/core/config"
	"seedlet.dev/core/manifest"
	"seedlet.dev/core/pod"
	"seedlet.dev/core/sysctl"
)

// Plan says exactly what happens in a run. Times are counted from its start. It is a file: what
// is edited in it changes that and, as far as possible, nothing else.
type Plan struct {
	APIVersion string   `json:"apiVersion"`
	Kind       string   `json:"kind"` // Plan
	Metadata   Metadata `json:"metadata"`
	Spec       PlanSpec `json:"spec"`

	// read are the manifests, by their texts, that were read when the plan was drawn: those that
	// are still in it need not be read again.
	read map[string]*v1.Pod
}

// PlanSpec is what a plan is made of.
type PlanSpec struct {
	Scenario string   `json:"scenario"` // that it was drawn from
	Seed     uint64   `json:"seed"`     // of what is drawn during the run
	Order    Order    `json:"order"`    // of what happens at about the same time
	Duration Duration `json:"duration"` // of the faults; then the world heals
	Settle   Duration `json:"settle"`   // the longest that pods may take then
	Node     Node     `json:"node,omitempty"`

	Pods      []PlanPod   `json:"pods"`
	Manifests []Change    `json:"manifests"`
	Images    []PlanImage `json:"images,omitempty"`
	// ImageUsers are whom images run as, as "1000", "1000:2000" or "www". All others: root.
	ImageUsers map[string]string `json:"imageUsers,omitempty"`

	Faults      []Window      `json:"faults,omitempty"`
	AgentKills  []AgentKill   `json:"agentKills,omitempty"`
	RuntimeEnds []RuntimeEnd  `json:"runtimeRestarts,omitempty"`
	Reboots     []Reboot      `json:"reboots,omitempty"`
	Kills       []Kill        `json:"kills,omitempty"`
	Sandboxes   []SandboxKill `json:"sandboxKills,omitempty"`
	Clock       []ClockStep   `json:"runtimeClock,omitempty"`
	Lost        []Lost        `json:"lost,omitempty"`
	Removals    []Removal     `json:"sandboxRemovals,omitempty"`
	Expect      []Expect      `json:"expect,omitempty"`

	// What there is at the API server, if the node has one, and what is done there.
	Objects []PlanObject `json:"objects,omitempty"`
	Acts    []Act        `json:"acts,omitempty"`

	Requests []Request `json:"requests,omitempty"` // of clients of the agent's HTTP API
}

// Order is the strategy by which latencies, and with them the order of events, are drawn.
type Order string

// The strategies. Uniform draws the latency of each call by itself. Priority gives each kind of
// call a priority, and new ones at a few drawn moments, and the latency follows from it: calls of
// a low priority are overtaken by all others for a while, as in probabilistic concurrency testing.
const (
	OrderUniform  Order = "uniform"
	OrderPriority Order = "priority"
)

// PlanPod is one manifest and what its containers do.
type PlanPod struct {
	Name       string         `json:"name"`          // by which changes and acts refer to it
	API        bool           `json:"api,omitempty"` // a pod of the API server, not of the node
	Manifest   map[string]any `json:"manifest"`
	Behaviours []Behaviour    `json:"behaviours,omitempty"`
}

// Behaviour is what the processes of one container do, one after the other; the last entry holds
// for all later ones.
type Behaviour struct {
	Container   string       `json:"container"`
	StopTakes   Duration     `json:"stopTakes,omitempty"`
	IgnoresTerm bool         `json:"ignoresTerm,omitempty"`
	HandlesTerm bool         `json:"handlesTerm,omitempty"`
	LogKiB      int          `json:"logKiB,omitempty"`    // that each writes into its log a second
	Processes   []ProcessRun `json:"processes,omitempty"` // none: each runs until stopped
	Answers     []Answer     `json:"answers,omitempty"`   // to probes and hooks
	Writes      []FileWrite  `json:"writes,omitempty"`    // by each process
}

// ProcessRun is what one process does. The zero ProcessRun runs until it is stopped.
type ProcessRun struct {
	Runs     Duration `json:"runs,omitempty"`
	ExitCode int32    `json:"exitCode,omitempty"`
	OOM      bool     `json:"oom,omitempty"`
	// MessageBytes is how long the message is that it leaves when it exits by itself.
	MessageBytes int `json:"messageBytes,omitempty"`
}

// Change is one change of the manifest directory, or of the page at the manifest URL.
type Change struct {
	At   Duration `json:"at"`
	URL  bool     `json:"url,omitempty"`  // an entry of the page, not a file
	File string   `json:"file"`           // its name in the directory
	Pod  string   `json:"pod,omitempty"`  // what is written: the name of an entry of pods
	Text string   `json:"text,omitempty"` // instead: what is written, as it is
	Torn Duration `json:"torn,omitempty"` // half of it at first, the rest so much later
	Note string   `json:"note,omitempty"` // a comment written on top, which changes nothing
	// With neither pod nor text the file is removed.
}

// PlanImage is an image that is not there until it has been pulled.
type PlanImage struct {
	Ref       string   `json:"ref"`
	PullTakes Duration `json:"pullTakes"`
	Failures  int      `json:"failures,omitempty"` // pulls that fail before the first that does not
	Stuck     bool     `json:"stuck,omitempty"`    // the first pull never ends
}

// AgentKill ends a life of the agent, at a time or right after it has begun a number of effects
// counted over all lives, whichever of the two is given.
type AgentKill struct {
	At           Duration `json:"at,omitempty"`
	AfterEffects int      `json:"afterEffects,omitempty"`
	Down         Duration `json:"down"`
}

// RuntimeEnd restarts the runtime's process.
type RuntimeEnd struct {
	At   Duration `json:"at"`
	Down Duration `json:"down"`
}

// Reboot ends the machine, with all that runs on it, and begins it again after a while.
type Reboot struct {
	At   Duration `json:"at"`
	Down Duration `json:"down"`
}

// Kill ends the process of a container, if it runs then.
type Kill struct {
	At        Duration `json:"at"`
	Pod       string   `json:"pod"` // the name of an entry of pods
	Container string   `json:"container"`
	ExitCode  int32    `json:"exitCode"`
}

// SandboxKill ends what holds the sandbox of a pod, if there is one then.
type SandboxKill struct {
	At  Duration `json:"at"`
	Pod string   `json:"pod"`
}

// ParsePlan reads a plan file. An error is one line that names the file and the field.
func ParsePlan(file string, data []byte) (*Plan, error) {
	p := &Plan{}
	if err := decode(file, data, "Plan", p); err != nil {
		return nil, err
	}
	if err := p.Validate(); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return p, nil
}

// YAML writes the plan as the file that ParsePlan reads.
func (p *Plan) YAML() []byte {
	data, err := yaml.Marshal(p)
	if err != nil {
		panic("sim: a plan cannot be written: " + err.Error())
	}
	return data
}

// Validate says what is wrong with a plan, by its field.
func (p *Plan) Validate() error {
	s := &p.Spec
	switch {
	case p.Metadata.Name == "":
		return errors.New("metadata.name: want a name, have none")
	case s.Order != OrderUniform && s.Order != OrderPriority:
		return fmt.Errorf("spec.order: want uniform or priority, have %q", s.Order)
	case time.Duration(s.Duration) < time.Second:
		return fmt.Errorf("spec.duration: want at least 1s, have %s", s.Duration)
	case time.Duration(s.Settle) < time.Second:
		return fmt.Errorf("spec.settle: want at least 1s, have %s", s.Settle)
	}
	kubelet, err := kubeletConfig(s.Node.Config)
	if err != nil {
		return err
	}
	if _, err := s.Node.limits(); err != nil {
		return err
	}
	if err := s.validatePods(kubelet, p.read); err != nil {
		return err
	}
	ids := map[string]bool{}
	for i := range s.Faults {
		if id := s.Faults[i].ID; ids[id] {
			return fmt.Errorf("spec.faults[%d].id: %q is that of another fault", i, id)
		}
		ids[s.Faults[i].ID] = true
		if err := s.Faults[i].validate(); err != nil {
			return fmt.Errorf("spec.faults[%d].%w", i, err)
		}
	}
	if err := s.validateActs(); err != nil {
		return err
	}
	if err := s.validateRequests(); err != nil {
		return err
	}
	return s.validateStrikes()
}

func (s *PlanSpec) validatePods(node *kubeletconfig.KubeletConfiguration,
	read map[string]*v1.Pod) error {
	names := map[string]bool{}
	for i := range s.Pods {
		p := &s.Pods[i]
		if p.Name == "" || names[p.Name] {
			return fmt.Errorf("spec.pods[%d].name: want a name of its own, have %q", i, p.Name)
		}
		names[p.Name] = true
		if err := p.validate(node, read); err != nil {
			return fmt.Errorf("spec.pods[%d].%w", i, err)
		}
	}
	for i, c := range s.Manifests {
		switch {
		case c.File == "" || strings.ContainsAny(c.File, "/\x00") || c.File == "." || c.File == "..":
			return fmt.Errorf("spec.manifests[%d].file: want a file name, have %q", i, c.File)
		case c.Pod != "" && c.Text != "":
			return fmt.Errorf("spec.manifests[%d]: want either pod or text", i)
		case c.Pod != "" && !names[c.Pod]:
			return fmt.Errorf("spec.manifests[%d].pod: no pod is called %q", i, c.Pod)
		case c.Pod != "" && s.pod(c.Pod).API:
			return fmt.Errorf("spec.manifests[%d].pod: %q is a pod of the API server", i, c.Pod)
		case c.URL && (node.StaticPodURL == "" || c.Torn > 0):
			return fmt.Errorf("spec.manifests[%d].url: want a spec.node.config.staticPodURL, and "+
				"no torn", i)
		case strings.Contains(c.Note, "\n"):
			return fmt.Errorf("spec.manifests[%d].note: want one line", i)
		case c.At > s.Duration:
			return fmt.Errorf("spec.manifests[%d].at: %s is after spec.duration, %s", i, c.At,
				s.Duration)
		}
	}
	return nil
}

// validateStrikes checks what is ended from outside, and what is expected in the end.
func (s *PlanSpec) validateStrikes() error {
	for i, k := range s.AgentKills {
		if (k.At == 0) == (k.AfterEffects <= 0) {
			return fmt.Errorf("spec.agentKills[%d]: want either at or afterEffects above 0", i)
		}
	}
	for i, k := range s.Kills {
		victim := s.pod(k.Pod)
		switch {
		case victim == nil:
			return fmt.Errorf("spec.kills[%d].pod: no pod is called %q", i, k.Pod)
		case !slices.Contains(containersOf(victim.Manifest), k.Container):
			return fmt.Errorf("spec.kills[%d].container: pod %s has no container %q", i, k.Pod,
				k.Container)
		case k.ExitCode < 0 || k.ExitCode > 255:
			return fmt.Errorf("spec.kills[%d].exitCode: want 0 to 255, have %d", i, k.ExitCode)
		}
	}
	for i, k := range s.Sandboxes {
		if s.pod(k.Pod) == nil {
			return fmt.Errorf("spec.sandboxKills[%d].pod: no pod is called %q", i, k.Pod)
		}
	}
	if err := s.validateOdd(); err != nil {
		return err
	}
	for i, e := range s.Expect {
		switch {
		case !knownPhase(e.Phase):
			return fmt.Errorf("spec.expect[%d].phase: want Pending, Running, Succeeded or Failed, "+
				"have %q", i, e.Phase)
		case e.RestartsAtLeast < 0:
			return fmt.Errorf("spec.expect[%d].restartsAtLeast: want 0 or more, have %d", i,
				e.RestartsAtLeast)
		}
	}
	return nil
}

// pod is an entry of pods; nil if there is none of this name.
func (s *PlanSpec) pod(name string) *PlanPod {
	i := slices.IndexFunc(s.Pods, func(p PlanPod) bool { return p.Name == name })
	if i < 0 {
		return nil
	}
	return &s.Pods[i]
}

// validate checks that a pod is one that the agent runs: what it refuses cannot come right.
func (p *PlanPod) validate(node *kubeletconfig.KubeletConfiguration,
	read map[string]*v1.Pod) error {
	for i := range p.Behaviours {
		for k := range p.Behaviours[i].Writes {
			if err := p.Behaviours[i].Writes[k].validate(); err != nil {
				return fmt.Errorf("behaviours[%d].writes[%d]: %w", i, k, err)
			}
		}
		for k := range p.Behaviours[i].Answers {
			if err := p.Behaviours[i].Answers[k].validate(); err != nil {
				return fmt.Errorf("behaviours[%d].answers[%d].%w", i, k, err)
			}
		}
	}
	if p.API {
		return p.validateBound(node)
	}
	text := p.text()
	is := read[string(text)]
	if is == nil {
		var err error
		if is, err = readManifest(text); err != nil {
			return err
		}
	}
	if missing := pod.Unsupported(is, config.RestartsAll(node)); len(missing) > 0 {
		return fmt.Errorf("manifest: the agent does not support %s yet",
			strings.Join(missing, ", "))
	}
	if why := sysctl.Forbidden(&is.Spec, node.AllowedUnsafeSysctls); why != "" {
		return fmt.Errorf("manifest: the agent refuses it: %s", why)
	}
	return nil
}

// readManifest is the pod of a manifest, which has to be one about which there is nothing to say.
func readManifest(text []byte) (*v1.Pod, error) {
	is, warnings, err := manifest.Decode("manifest", text, nodeName)
	switch {
	case err != nil:
		return nil, err
	case is == nil:
		return nil, errors.New("manifest: it is empty")
	case len(warnings) > 0:
		return nil, errors.New(warnings[0])
	}
	return is, nil
}

// text is the content of the file that holds the pod.
func (p *PlanPod) text() []byte {
	data, err := json.MarshalIndent(p.Manifest, "", "  ")
	if err != nil {
		panic("sim: a manifest cannot be written: " + err.Error())
	}
	return append(data, '\n')
}

// behaviour is what the processes of a container do.
func (p *PlanPod) behaviour(container string) *Behaviour {
	i := slices.IndexFunc(p.Behaviours, func(b Behaviour) bool { return b.Container == container })
	if i < 0 {
		return nil
	}
	return &p.Behaviours[i]
}

// kubeletConfig is the agent's configuration, from the fields that a scenario or plan sets.
func kubeletConfig(fields map[string]any) (*kubeletconfig.KubeletConfiguration, error) {
	doc := map[string]any{
		"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
		"staticPodPath": manifestDir,
		// Few containers log much; looking less often at those that do not saves half of the time.
		"containerLogMonitorInterval": "1m",
	}
	for name, value := range fields { //ordered: into a map again
		doc[name] = value
	}
	data, err := json.Marshal(doc)
	if err != nil {
		return nil, fmt.Errorf("spec.node.config: %w", err)
	}
	loaded, err := config.Load(&config.File{Name: "spec.node.config", Data: data}, nil)
	if err == nil {
		err = loaded.Finish()
	}
	if err != nil {
		return nil, err
	}
	return loaded.Config, nil
}

// The node, as in every run.
const (
	nodeName    = "sim"
	nodeIP      = "192.0.2.10"
	rootDir     = "/var/lib/kubelet"
	manifestDir = "/etc/kubernetes/manifests"
)

package sim

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	"seedlet.dev/core/document"
	"seedlet.dev/world/loop"
)

// APIVersion is that of scenario and plan files.
const APIVersion = "sim.seedlet.dev/v1alpha1"

// Scenario says, in ranges, what may happen in a run.
type Scenario struct {
	APIVersion string       `json:"apiVersion"`
	Kind       string       `json:"kind"` // Scenario
	Metadata   Metadata     `json:"metadata"`
	Spec       ScenarioSpec `json:"spec"`
}

// Metadata names a scenario or a plan.
type Metadata struct {
	Name string `json:"name"`
}

// ScenarioSpec is what a scenario is made of.
type ScenarioSpec struct {
	Description string `json:"description"`
	Node        Node   `json:"node,omitempty"`
	// Variants are fields of the node's configuration. Each seed has those of one of them.
	Variants []map[string]any `json:"variants,omitempty"`
	Pods     []PodGroup       `json:"pods"`
	Faults   []FaultRange     `json:"faults,omitempty"`
	Images   ImageRange       `json:"images,omitempty"`
	Churn    ChurnRange       `json:"churn,omitempty"`
	Strikes  StrikeRange      `json:"strikes,omitempty"`
	Odd      OddRange         `json:"odd,omitempty"`
	Actors   ActorRange       `json:"actors,omitempty"`
	Objects  []PlanObject     `json:"objects,omitempty"` // of the API server
	// Requests is how often a client of the agent's HTTP API asks for something.
	Requests Count `json:"requests,omitempty"`
	// Duration is how long things go wrong; after it the world heals.
	Duration Span `json:"duration"`
	// Settle is how long after healing every pod may take to be what its spec demands.
	Settle Duration `json:"settle"`
	Expect []Expect `json:"expect,omitempty"`
}

// Node is the machine and how its agent is configured.
type Node struct {
	Config map[string]any `json:"config,omitempty"` // fields of a KubeletConfiguration
	// SystemdCgroups is the driver of the runtime, else it is cgroupfs.
	SystemdCgroups   bool `json:"systemdCgroups,omitempty"`
	NoUserNamespaces bool `json:"noUserNamespaces,omitempty"` // the runtime cannot make them
	// OldRuntime makes the runtime a containerd 1.6: it tells no events, and does not find what is
	// to be stopped where a newer one has nothing to do.
	OldRuntime bool `json:"oldRuntime,omitempty"`
	// Places bound how many operations of a lane are in flight at once; absent: as in production.
	Places map[string]int `json:"places,omitempty"`
	API    bool           `json:"api,omitempty"` // it is a node of a cluster, with an API server
	// EvictAfter is how long after the node's lease has become too old its pods are evicted.
	// Absent: nobody looks at its lease.
	EvictAfter Duration `json:"evictAfter,omitempty"`

	CPUs   int                `json:"cpus,omitempty"`   // absent: 16
	Memory *resource.Quantity `json:"memory,omitempty"` // absent: 16Gi
}

// limits are the bounds of the agent's loop.
func (n *Node) limits() (loop.Limits, error) {
	var limits loop.Limits
	for name, places := range n.Places { //ordered: each lane by itself, and one error is enough
		lane, known := loop.LaneNamed(name)
		if !known || places < 1 {
			return limits, fmt.Errorf("spec.node.places: want the name of a lane and 1 or more, "+
				"have %q: %d", name, places)
		}
		limits.Flying[lane] = places
	}
	return limits, nil
}

// PodGroup is a number of pods from one manifest. Copy n has "-n" added to its name, and its UID,
// if it has one, ends in n.
type PodGroup struct {
	Count     Count            `json:"count,omitempty"` // absent: one
	API       bool             `json:"api,omitempty"`   // of the API server, not of the node
	URL       bool             `json:"url,omitempty"`   // of the manifest URL, not of a file
	Rash      bool             `json:"rash,omitempty"`  // their scheduler looks at no taint
	Manifest  map[string]any   `json:"manifest,omitempty"`
	File      string           `json:"file,omitempty"` // instead, relative to the scenario
	Behaviour []BehaviourRange `json:"behaviour,omitempty"`
	// Comes is when their manifests come. Absent: most are there at the start.
	Comes *Span `json:"comes,omitempty"`
}

// BehaviourRange is what the processes of one container may do. A container without one runs
// until it is stopped and reacts to TERM within a second.
type BehaviourRange struct {
	Container string `json:"container"`
	// Runs is for how long a process runs until it exits by itself; absent: until stopped.
	Runs      *Span   `json:"runs,omitempty"`
	ExitCodes []int32 `json:"exitCodes,omitempty"` // drawn from for each run; absent: 0
	// Times is how many processes exit by themselves, the later ones run until stopped. Absent:
	// all of them.
	Times       *Count `json:"times,omitempty"`
	StopTakes   Span   `json:"stopTakes,omitempty"`
	IgnoresTerm Share  `json:"ignoresTerm,omitempty"` // of containers
	HandlesTerm Share  `json:"handlesTerm,omitempty"` // of containers: exit with 0 after TERM
	OOM         Share  `json:"oom,omitempty"`         // of runs that exit by themselves
	LogKiB      *Count `json:"logKiB,omitempty"`      // that is logged each second
	// MessageBytes is how long the message is that a run leaves that exits by itself.
	MessageBytes *Count `json:"messageBytes,omitempty"`
	// Answers are how its processes may answer probes and hooks; absent: well, at once.
	Answers []AnswerRange `json:"answers,omitempty"`
	// Writes are what each of its processes may write.
	Writes []WriteRange `json:"writes,omitempty"`
}

// FaultRange is one class of faults on the way to the ports.
type FaultRange struct {
	Class       Class    `json:"class"`
	Calls       []string `json:"calls,omitempty"` // absent: all that the class can strike
	Windows     Count    `json:"windows"`         // how many times it comes
	For         Span     `json:"for"`             // how long each time
	Probability Share    `json:"probability,omitempty"`
	Takes       Span     `json:"takes,omitempty"` // of latency, slow and lost: how much longer
	Always      bool     `json:"always,omitempty"`
	Path        string   `json:"path,omitempty"` // of path-hangs
	At          *Span    `json:"at,omitempty"`   // when it begins; absent: at any time
}

// ImageRange is what may be the matter with images. Absent is the share of images that have to be
// pulled; pulls fail a number of times before the first that succeeds.
type ImageRange struct {
	Absent    Share `json:"absent,omitempty"`
	PullTakes Span  `json:"pullTakes,omitempty"`
	Failures  Count `json:"failures,omitempty"`
	Stuck     Share `json:"stuck,omitempty"` // of those that have to be pulled: see PlanImage
	// Present are images that never have to be pulled.
	Present []string `json:"present,omitempty"`
	// Users are whom images run as, by reference, as their configurations say it; see PlanSpec.
	Users map[string]string `json:"users,omitempty"`
}

// ChurnRange is how often somebody changes the manifests.
type ChurnRange struct {
	Removals     Count `json:"removals,omitempty"`     // a pod goes for good
	Recreations  Count `json:"recreations,omitempty"`  // a pod goes and comes back as it was
	Replacements Count `json:"replacements,omitempty"` // another image in the same file
	Rewrites     Count `json:"rewrites,omitempty"`     // the same content again, or a comment
	Updates      Count `json:"updates,omitempty"`      // several new images, one soon after the other
	Renames      Count `json:"renames,omitempty"`      // another file gives its UID to another name
	Torn         Share `json:"torn,omitempty"`         // of writes: in two halves
	Away         Span  `json:"away,omitempty"`         // between going and coming, or updates
	Twins        Count `json:"twins,omitempty"`        // a second file with a pod of the same name
	Broken       Count `json:"broken,omitempty"`       // a file that is no pod
	BrokenPages  Count `json:"brokenPages,omitempty"`  // for a while the manifest URL says no pods
	Always       bool  `json:"always,omitempty"`
}

// StrikeRange is how often something is ended from outside.
type StrikeRange struct {
	Agent       Count `json:"agent,omitempty"`       // the agent is killed
	AgentDown   Span  `json:"agentDown,omitempty"`   // and comes back after
	Runtime     Count `json:"runtime,omitempty"`     // the runtime's process restarts
	RuntimeDown Span  `json:"runtimeDown,omitempty"` // and is back after
	Reboots     Count `json:"reboots,omitempty"`     // the machine goes down
	RebootTakes Span  `json:"rebootTakes,omitempty"` // and is back after
	Containers  Count `json:"containers,omitempty"`  // a process is killed
	Sandboxes   Count `json:"sandboxes,omitempty"`   // what holds a sandbox is killed
	Always      bool  `json:"always,omitempty"`
}

// Expect is what pods must have come to in the end, besides what the oracles demand.
type Expect struct {
	Pods            string `json:"pods"`            // pods whose manifest name begins so
	Phase           string `json:"phase,omitempty"` // as the API shows it
	RestartsAtLeast int    `json:"restartsAtLeast,omitempty"`
	// StartsWithin is how long after its manifest came a first container must run, in a scenario
	// where nothing that it needs goes wrong.
	StartsWithin Duration `json:"startsWithin,omitempty"`
}

// ParseScenario reads a scenario file. Files that it refers to are read from dir, relative to the
// scenario. An error is one line that names the file and the field.
func ParseScenario(file string, data []byte, dir fs.FS) (*Scenario, error) {
	s := &Scenario{}
	if err := decode(file, data, "Scenario", s); err != nil {
		return nil, err
	}
	for i := range s.Spec.Pods {
		if err := s.Spec.Pods[i].load(path.Dir(file), dir); err != nil {
			return nil, fmt.Errorf("%s: spec.pods[%d]%w", file, i, err)
		}
	}
	if err := s.validate(); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return s, nil
}

func (g *PodGroup) load(base string, dir fs.FS) error {
	if g.Count == (Count{}) {
		g.Count = Count{1, 1}
	}
	if (g.File == "") == (g.Manifest == nil) {
		return errors.New(": want either manifest or file")
	}
	if g.File == "" {
		return nil
	}
	data, err := fs.ReadFile(dir, path.Join(base, g.File))
	if err != nil {
		return fmt.Errorf(".file: %w", err)
	}
	return decode(g.File, data, "Pod", &g.Manifest)
}

func (s *Scenario) validate() error {
	switch {
	case s.Metadata.Name == "" || strings.ContainsAny(s.Metadata.Name, " /\t\n"):
		return fmt.Errorf("metadata.name: want one word, have %q", s.Metadata.Name)
	case s.Spec.Description == "":
		return errors.New("spec.description: want a sentence, have none")
	case len(s.Spec.Pods) == 0:
		return errors.New("spec.pods: want at least one")
	case s.Spec.Duration.Least < time.Second:
		return errors.New("spec.duration: want at least 1s")
	case time.Duration(s.Spec.Settle) < time.Second:
		return errors.New("spec.settle: want at least 1s")
	}
	for i := range s.Spec.Faults {
		f := &s.Spec.Faults[i]
		if err := checkClass(f.Class, f.Calls); err != nil {
			return fmt.Errorf("spec.faults[%d].%w", i, err)
		}
		if err := checkPath(f.Class, f.Path); err != nil {
			return fmt.Errorf("spec.faults[%d].%w", i, err)
		}
	}
	if _, err := s.Spec.Node.limits(); err != nil {
		return err
	}
	if err := s.validateAnswers(); err != nil {
		return err
	}
	for i, e := range s.Spec.Expect {
		if !knownPhase(e.Phase) {
			return fmt.Errorf("spec.expect[%d].phase: want Pending, Running, Succeeded or Failed, "+
				"have %q", i, e.Phase)
		}
	}
	if _, err := kubeletConfig(s.Spec.Node.Config); err != nil {
		return err
	}
	return nil
}

func (s *Scenario) validateAnswers() error {
	for i := range s.Spec.Pods {
		for k := range s.Spec.Pods[i].Behaviour {
			b := &s.Spec.Pods[i].Behaviour[k]
			for n := range b.Answers {
				if err := b.Answers[n].validate(); err != nil {
					return fmt.Errorf("spec.pods[%d].behaviour[%d].answers[%d].%w", i, k, n, err)
				}
			}
		}
	}
	return nil
}

func knownPhase(phase string) bool {
	switch phase {
	case "", "Pending", "Running", "Succeeded", "Failed":
		return true
	}
	return false
}

// decode reads one YAML document strictly.
func decode(file string, data []byte, kind string, into any) error {
	doc, err := document.Parse(data)
	if err == nil && doc == nil {
		err = fmt.Errorf("the file is empty, want kind %s", kind)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	var is struct{ APIVersion, Kind string }
	if json.Unmarshal(doc, &is) == nil && (is.APIVersion != APIVersion || is.Kind != kind) &&
		kind != "Pod" {
		return fmt.Errorf("%s: want apiVersion %s, kind %s; have %q, %q", file, APIVersion, kind,
			is.APIVersion, is.Kind)
	}
	unknown, err := document.Decode(doc, into)
	if err == nil && len(unknown) > 0 {
		err = fmt.Errorf("unknown field %s", strings.Join(unknown, ", "))
	}
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	return nil
}

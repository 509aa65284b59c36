package plan

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"
	"time"

	"seedlet.dev/core/document"
)

// APIVersion is the version of the formats of scenario and plan files.
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

// ScenarioSpec is the content of a scenario. A zero range generates nothing.
type ScenarioSpec struct {
	Description string `json:"description"`
	Node        Node   `json:"node,omitempty"`
	// Variants are sets of fields of the node's configuration. Each seed has one of them.
	Variants  []map[string]any `json:"variants,omitempty"`
	Pods      []PodGroup       `json:"pods,omitempty"`
	Pool      *Pool            `json:"pool,omitempty"` // of which more pods are drawn
	Faults    []FaultRange     `json:"faults,omitempty"`
	Images    ImageRange       `json:"images,omitempty"`
	Churn     ChurnRange       `json:"churn,omitempty"`
	Strikes   StrikeRange      `json:"strikes,omitempty"`
	Shutdowns ShutdownRange    `json:"shutdowns,omitempty"`
	Anomalies AnomalyRange     `json:"odd,omitempty"`
	Actors    ActorRange       `json:"actors,omitempty"`
	// Pressures are changes of what the machine uses besides its pods.
	Pressures PressureRange `json:"pressures,omitempty"`
	// TakeOver is how a kubelet has run the node before the agent. Nil: the node is new.
	TakeOver *TakeOverRange `json:"takeOver,omitempty"`
	Plugins  PluginRange    `json:"plugins,omitempty"`
	CSI      CSIRange       `json:"csi,omitempty"`
	ISCSI    ISCSIRange     `json:"iscsi,omitempty"`
	FC       FCRange        `json:"fc,omitempty"`
	Objects  []Object       `json:"objects,omitempty"` // of the API server
	// Growths is how often users make a claim of a CSI volume larger.
	Growths Count `json:"growths,omitempty"`
	// AttachedMost is how many volumes can be attached to the node at a time; zero: any number.
	AttachedMost Count `json:"attachedMost,omitempty"`
	// BindsWithin is how long the cluster may take to provision the volume of a claim.
	BindsWithin Span `json:"bindsWithin,omitempty"`
	// Signers answer requests for certificates of pods.
	Signers []Signer `json:"signers,omitempty"`
	// Requests is how many requests clients send to the agent's HTTP API.
	Requests Count `json:"requests,omitempty"`
	// Duration is how long there are faults; then they heal.
	Duration Span `json:"duration"`
	// Settle bounds the time from healing until every pod has reached the state that its spec
	// demands.
	Settle       Duration      `json:"settle"`
	Expectations []Expectation `json:"expect,omitempty"`
}

// Expectation is what pods must have reached at the end of the run, beyond what the oracles check.
type Expectation struct {
	PodPrefix       string `json:"pods"`            // of the names in the manifests of the pods
	Phase           string `json:"phase,omitempty"` // as the agent's HTTP API serves it
	RestartsAtLeast int    `json:"restartsAtLeast,omitempty"`
	// StartsWithin bounds the time from the appearance of a pod's manifest to the start of its
	// first container. It is for scenarios without faults in anything that the pod needs.
	StartsWithin Duration `json:"startsWithin,omitempty"`
}

// ReadScenario reads a scenario file, and the files that it refers to, from dir.
func ReadScenario(dir fs.FS, file string) (*Scenario, error) {
	data, err := fs.ReadFile(dir, file)
	if err != nil {
		return nil, err
	}
	return ParseScenario(file, data, dir)
}

// ParseScenario reads the content of a scenario file. The files that it refers to are read from
// dir, by paths relative to the scenario. An error is one line that names the file and the field.
func ParseScenario(file string, data []byte, dir fs.FS) (*Scenario, error) {
	s := &Scenario{}
	if err := decode(file, data, "Scenario", s); err != nil {
		return nil, err
	}
	for i := range s.Spec.Pods {
		if err := s.Spec.Pods[i].loadManifest(path.Dir(file), dir); err != nil {
			return nil, fmt.Errorf("%s: spec.pods[%d]%w", file, i, err)
		}
	}
	if s.Spec.Pool != nil {
		if err := s.Spec.Pool.load(path.Dir(file), dir); err != nil {
			return nil, fmt.Errorf("%s: spec.pool%w", file, err)
		}
	}
	if err := s.validate(); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return s, nil
}

func (s *Scenario) validate() error {
	switch {
	case s.Metadata.Name == "" || strings.ContainsAny(s.Metadata.Name, " /\t\n"):
		return fmt.Errorf("metadata.name: want one word, have %q", s.Metadata.Name)
	case s.Spec.Description == "":
		return errors.New("spec.description: want a sentence, have none")
	case len(s.Spec.Pods) == 0 && s.Spec.Pool == nil:
		return errors.New("spec.pods: want at least one, or spec.pool")
	case s.Spec.Duration.Least < time.Second:
		return errors.New("spec.duration: want at least 1s")
	case time.Duration(s.Spec.Settle) < time.Second:
		return errors.New("spec.settle: want at least 1s")
	}
	for i := range s.Spec.Faults {
		f := &s.Spec.Faults[i]
		if err := validateClass(f.Class, f.Calls); err != nil {
			return fmt.Errorf("spec.faults[%d].%w", i, err)
		}
		if err := validatePath(f.Class, f.Path); err != nil {
			return fmt.Errorf("spec.faults[%d].%w", i, err)
		}
	}
	if _, err := s.Spec.Node.Limits(); err != nil {
		return err
	}
	if err := validateSigners(s.Spec.Signers); err != nil {
		return err
	}
	if err := s.validateResponses(); err != nil {
		return err
	}
	for i, e := range s.Spec.Expectations {
		if !isPhase(e.Phase) {
			return fmt.Errorf("spec.expect[%d].phase: want Pending, Running, Succeeded or Failed, "+
				"have %q", i, e.Phase)
		}
	}
	if _, err := KubeletConfig(s.Spec.Node.Config); err != nil {
		return err
	}
	return nil
}

func (s *Scenario) validateResponses() error {
	for i := range s.Spec.Pods {
		for k := range s.Spec.Pods[i].Behaviour {
			b := &s.Spec.Pods[i].Behaviour[k]
			for n := range b.Responses {
				if err := b.Responses[n].validate(); err != nil {
					return fmt.Errorf("spec.pods[%d].behaviour[%d].answers[%d].%w", i, k, n, err)
				}
			}
		}
	}
	return nil
}

func (s *Spec) validateExpectations() error {
	for i, e := range s.Expectations {
		switch {
		case !isPhase(e.Phase):
			return fmt.Errorf("spec.expect[%d].phase: want Pending, Running, Succeeded or Failed, "+
				"have %q", i, e.Phase)
		case e.RestartsAtLeast < 0:
			return fmt.Errorf("spec.expect[%d].restartsAtLeast: want 0 or more, have %d", i,
				e.RestartsAtLeast)
		}
	}
	return nil
}

// isPhase reports whether a text is empty or the phase of a pod.
func isPhase(phase string) bool {
	switch phase {
	case "", "Pending", "Running", "Succeeded", "Failed":
		return true
	}
	return false
}

// decode reads one YAML document of a kind. Unknown fields are errors.
func decode(file string, data []byte, kind string, into any) error {
	doc, err := document.Parse(data)
	if err == nil && doc == nil {
		err = fmt.Errorf("the file is empty, want kind %s", kind)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	var header struct{ APIVersion, Kind string }
	if json.Unmarshal(doc, &header) == nil && kind != "Pod" &&
		(header.APIVersion != APIVersion || header.Kind != kind) {
		return fmt.Errorf("%s: want apiVersion %s, kind %s; have %q, %q", file, APIVersion, kind,
			header.APIVersion, header.Kind)
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

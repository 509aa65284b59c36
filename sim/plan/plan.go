package plan

import (
	"errors"
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// Start is the virtual time at which every run begins.
var Start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// Plan says exactly what happens in a run. Times are counted from Start. A plan is a file: an edit
// changes what it edits and, as far as possible, nothing else of the run.
type Plan struct {
	APIVersion string   `json:"apiVersion"`
	Kind       string   `json:"kind"` // Plan
	Metadata   Metadata `json:"metadata"`
	Spec       Spec     `json:"spec"`

	// decoded are the manifests that Generate has decoded, by their texts, so that Validate need
	// not decode them again.
	decoded map[string]*v1.Pod
}

// Spec is the content of a plan.
type Spec struct {
	Scenario string   `json:"scenario"` // of which the plan was generated
	Seed     uint64   `json:"seed"`     // of the random decisions during the run
	Order    Order    `json:"order"`    // of events that are close in time
	Duration Duration `json:"duration"` // of the faults; they heal then
	Settle   Duration `json:"settle"`   // bound for the pods to settle after that
	// Quiet is how long all pods must stay settled before the run ends: QuietDefault if zero.
	Quiet Duration `json:"quiet,omitempty"`
	Node  Node     `json:"node,omitempty"`
	// TakeOver says how a kubelet has run the node before the agent. Nil: the node is new.
	TakeOver *TakeOver `json:"takeOver,omitempty"`

	Pods   []Pod   `json:"pods"`
	Images []Image `json:"images,omitempty"`
	// ImageUsers are the users of images, as "1000", "1000:2000" or "www". All others: root.
	ImageUsers map[string]string `json:"imageUsers,omitempty"`
	// PrivateImages are the users of the registry that may pull an image, by its reference. Everybody
	// may pull the others.
	PrivateImages map[string][]string `json:"privateImages,omitempty"`

	// Objects exist at the API server, if the node has one, once an act has created them.
	Objects []Object `json:"objects,omitempty"`

	// ISCSI is the network of disks of the node. Nil: there is none.
	ISCSI *ISCSI `json:"iscsi,omitempty"`
	// FC is the fibre channel network of the node. Nil: there is none.
	FC *FC `json:"fc,omitempty"`
	// Growths is how often users make a claim of a CSI volume larger.
	Growths int `json:"growths,omitempty"`
	// AttachedMost is how many volumes can be attached to the node at a time; zero: any number.
	AttachedMost int `json:"attachedMost,omitempty"`
	// BindsWithin is how long the cluster may take to provision the volume of a claim.
	BindsWithin Duration `json:"bindsWithin,omitempty"`
	// Signers answer requests for certificates of pods.
	Signers []Signer `json:"signers,omitempty"`

	Happenings   []Happening   `json:"happenings,omitempty"`
	Expectations []Expectation `json:"expect,omitempty"`
}

// QuietDefault is long enough for a late effect of what happened before to be noticed.
const QuietDefault = 15 * time.Second

// quietLong is longer than any reaction of the agent may take, so that all that it still does is
// periodic (oracle economy).
const quietLong = 3 * time.Minute

// quietLongest is longer than two of the longest periods, which are five minutes: reports of the
// Node, and back-offs of containers and images.
const quietLongest = 11 * time.Minute

// Order is the strategy by which latencies, and with them the order of events, are drawn.
type Order string

// The strategies. OrderUniform draws the latency of each call independently. OrderPriority gives
// each kind of call a priority, which changes at a few random times, and derives the latency from
// it: all other calls overtake those of a low priority for a while, as in probabilistic concurrency
// testing (PCT). OrderPCT draws latencies as OrderUniform does, but of what is due within PCTWindow
// the actor with the highest priority comes first: PCT itself. No seed draws it.
const (
	OrderUniform  Order = "uniform"
	OrderPriority Order = "priority"
	OrderPCT      Order = "pct"
)

// Orders are all strategies.
var Orders = []Order{OrderUniform, OrderPriority, OrderPCT}

// The parameters of OrderPCT. The window is about the latency of a call, and well below what the
// oracles allow for calls on their way. The depth is one more than the number of changes of
// priorities in a run: most races need two.
const (
	PCTWindow = 5 * time.Millisecond
	PCTDepth  = 3
)

// Parse reads a plan file. An error is one line that names the file and the field.
func Parse(file string, data []byte) (*Plan, error) {
	p := &Plan{}
	if err := decode(file, data, "Plan", p); err != nil {
		return nil, err
	}
	if err := p.Validate(); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return p, nil
}

// YAML returns the plan as the file that Parse reads.
func (p *Plan) YAML() []byte {
	data, err := yaml.Marshal(p)
	if err != nil {
		panic("plan: cannot encode a plan: " + err.Error())
	}
	return data
}

// Validate returns an error for the first field that is not valid.
func (p *Plan) Validate() error {
	s := &p.Spec
	switch {
	case p.Metadata.Name == "":
		return errors.New("metadata.name: want a name, have none")
	case !slices.Contains(Orders, s.Order):
		return fmt.Errorf("spec.order: want one of %v, have %q", Orders, s.Order)
	case time.Duration(s.Duration) < time.Second:
		return fmt.Errorf("spec.duration: want at least 1s, have %s", s.Duration)
	case s.Quiet < 0:
		return fmt.Errorf("spec.quiet: want no negative duration, have %s", s.Quiet)
	case time.Duration(s.Settle) < time.Second:
		return fmt.Errorf("spec.settle: want at least 1s, have %s", s.Settle)
	}
	kubelet, err := KubeletConfig(s.Node.Config)
	if err != nil {
		return err
	}
	if _, err := s.Node.Limits(); err != nil {
		return err
	}
	if _, err := s.Node.Providers(); err != nil {
		return err
	}
	if err := s.validatePods(kubelet, p.decoded); err != nil {
		return err
	}
	for _, validate := range []func() error{
		s.validateObjects, s.validateHappenings, s.validateExpectations, s.validateTakeOver,
		func() error { return validateSigners(s.Signers) },
		s.ISCSI.validate, s.FC.validate,
	} {
		if err := validate(); err != nil {
			return err
		}
	}
	return nil
}

// PodNamed returns an entry of pods; nil if there is none of this name.
func (s *Spec) PodNamed(name string) *Pod {
	i := slices.IndexFunc(s.Pods, func(p Pod) bool { return p.Name == name })
	if i < 0 {
		return nil
	}
	return &s.Pods[i]
}

// Clone returns a copy whose lists can be replaced. Their entries are shared.
func (p *Plan) Clone() *Plan {
	c := *p
	return &c
}

// Calm returns the plan without everything that goes wrong. What users and controllers do stays.
func (p *Plan) Calm() *Plan {
	calm := p.Clone()
	s := &calm.Spec
	s.Happenings = slices.DeleteFunc(slices.Clone(s.Happenings), func(h Happening) bool {
		return h.Manifest == nil && h.Act == nil && h.Request == nil
	})
	s.Pods = slices.Clone(s.Pods)
	for i := range s.Pods {
		s.Pods[i].Panics = 0
	}
	return calm
}

// EntryCount returns the number of entries in all lists of the plan.
func (p *Plan) EntryCount() int {
	s := &p.Spec
	return len(s.Pods) + len(s.Images) + len(s.Objects) + len(s.Happenings)
}

package eviction

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"seedlet.dev/core/config"
	"seedlet.dev/core/document"
)

// Signal is what a threshold is about, by the name that the configuration has.
type Signal string

// The signals that are observed.
const (
	MemoryAvailable            Signal = "memory.available"
	AllocatableMemoryAvailable Signal = "allocatableMemory.available"
	PIDAvailable               Signal = "pid.available"
	NodefsAvailable            Signal = "nodefs.available"
	NodefsInodesFree           Signal = "nodefs.inodesFree"
	ImagefsAvailable           Signal = "imagefs.available"
	ImagefsInodesFree          Signal = "imagefs.inodesFree"
	ContainerfsAvailable       Signal = "containerfs.available"
	ContainerfsInodesFree      Signal = "containerfs.inodesFree"
)

// sourceOf returns which request observes a signal, and false if none does. Manager.sourceOf is the
// one that also knows on which file system the writable layers are.
func sourceOf(s Signal) (source int, isObserved bool) {
	switch s {
	case MemoryAvailable, AllocatableMemoryAvailable, PIDAvailable:
		return sourceNode, true
	case NodefsAvailable, NodefsInodesFree:
		return sourceNodefs, true
	case ImagefsAvailable, ImagefsInodesFree:
		return sourceImagefs, true
	case ContainerfsAvailable, ContainerfsInodesFree:
		return sourceContainerfs, true
	}
	return 0, false
}

// pressureConditions are the conditions of the Node, in the order in which messages have them.
var pressureConditions = []v1.NodeConditionType{
	v1.NodeMemoryPressure, v1.NodeDiskPressure, v1.NodePIDPressure,
}

func isPressure(t v1.NodeConditionType) bool { return slices.Contains(pressureConditions, t) }

// condition returns the condition of the Node that a signal decides.
func (s Signal) condition() v1.NodeConditionType {
	switch s {
	case MemoryAvailable, AllocatableMemoryAvailable:
		return v1.NodeMemoryPressure
	case PIDAvailable:
		return v1.NodePIDPressure
	}
	return v1.NodeDiskPressure
}

// isForDisk reports whether a signal is about a file system.
func (s Signal) isForDisk() bool { return s.condition() == v1.NodeDiskPressure }

// resource returns the resource that a signal is about, as messages name it.
func (s Signal) resource() v1.ResourceName {
	switch s {
	case PIDAvailable:
		return "pids"
	case NodefsAvailable, ImagefsAvailable, ContainerfsAvailable:
		return v1.ResourceEphemeralStorage
	case NodefsInodesFree, ImagefsInodesFree, ContainerfsInodesFree:
		return "inodes"
	}
	return v1.ResourceMemory
}

// Threshold is an amount below which pods are evicted.
type Threshold struct {
	Signal     Signal        `json:"signal"`
	Amount     Amount        `json:"amount"`
	Grace      time.Duration `json:"grace,omitempty"` // zero: a hard threshold
	MinReclaim Amount        `json:"minReclaim"`      // evictionMinimumReclaim

	MetSince time.Time `json:"metSince"` // zero: it is not met
	// MetForGrace is set once the threshold has been met for its grace period, until the amount and
	// its minimum reclaim are available.
	MetForGrace bool `json:"metForGrace,omitempty"`
}

// Amount is a quantity or a share of the capacity. The zero Amount is nothing.
type Amount struct {
	Quantity string  `json:"quantity,omitempty"`
	Share    float32 `json:"share,omitempty"` // with 32 bits, as in the kubelet
}

// Of returns the amount for a capacity.
func (a Amount) Of(capacity int64) resource.Quantity {
	if a.Quantity != "" {
		q, err := document.ParseQuantity(a.Quantity)
		if err == nil {
			return q
		}
	}
	return *resource.NewQuantity(int64(float64(capacity)*float64(a.Share)), resource.BinarySI)
}

// ParseThreshold parses the amount of a threshold of the configuration, which was validated. As in
// the kubelet, 0% and 100% mean none.
func ParseThreshold(text string) Amount {
	a := parseAmount(text)
	if a.Quantity == "" && (a.Share <= 0 || a.Share >= 1) {
		return Amount{}
	}
	return a
}

func parseAmount(text string) Amount {
	percent, isPercent := strings.CutSuffix(text, "%")
	if !isPercent {
		return Amount{Quantity: text}
	}
	p, err := strconv.ParseFloat(percent, 32)
	if err != nil {
		return Amount{}
	}
	return Amount{Share: float32(p) / 100}
}

// New returns the manager of a configuration. Thresholds for the file system of the writable layers
// are not those of the configuration: see copyThresholds. With ignoreAllocatable the memory that
// pods may have together has no threshold. Upstream: ParseThresholdConfig in
// pkg/kubelet/eviction/helpers.go.
func New(c *kubeletconfig.KubeletConfiguration, rootDir string, ignoreAllocatable bool) Manager {
	m := Manager{Settings: Settings{RootDir: rootDir,
		Transition: c.EvictionPressureTransitionPeriod.Duration,
		GraceMax:   time.Duration(c.EvictionMaxPodGracePeriod) * time.Second,
		Alerts:     c.KernelMemcgNotification}}
	add := func(signal Signal, text string, grace time.Duration) {
		t := Threshold{Signal: signal, Amount: ParseThreshold(text), Grace: grace}
		if least := c.EvictionMinimumReclaim[string(signal)]; least != "" {
			t.MinReclaim = parseAmount(least)
		}
		if source, isObserved := sourceOf(signal); t.Amount != (Amount{}) && isObserved &&
			source != sourceContainerfs {
			m.Thresholds = append(m.Thresholds, t)
		}
	}
	for _, signal := range slices.Sorted(maps.Keys(c.EvictionHard)) {
		add(Signal(signal), c.EvictionHard[signal], 0)
	}
	for _, signal := range slices.Sorted(maps.Keys(c.EvictionSoft)) {
		grace, err := time.ParseDuration(c.EvictionSoftGracePeriod[signal])
		if err == nil {
			add(Signal(signal), c.EvictionSoft[signal], grace)
		}
	}
	if ignoreAllocatable || !config.Enforces(c, config.EnforcePods) {
		return m
	}
	for _, t := range m.Thresholds { // addAllocatableThresholds
		if t.Signal == MemoryAvailable && t.Grace == 0 {
			t.Signal = AllocatableMemoryAvailable
			m.Thresholds = append(m.Thresholds, t)
		}
	}
	return m
}

// isMet reports whether less is available than the threshold; of one that is met for its grace
// period, less than the threshold and its minimum reclaim together.
func (t *Threshold) isMet(o *Observation) bool {
	amount := t.Amount.Of(o.Capacity)
	if t.MetForGrace {
		amount.Add(t.MinReclaim.Of(o.Capacity))
	}
	return amount.CmpInt64(o.Available) > 0
}

// isBefore reports whether a threshold is acted on before another one.
func (t *Threshold) isBefore(other *Threshold) bool {
	if mine, its := t.Signal.resource(), other.Signal.resource(); mine != its {
		return mine == v1.ResourceMemory
	}
	return t.Grace == 0 && other.Grace > 0
}

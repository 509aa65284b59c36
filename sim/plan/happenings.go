package plan

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// Happening is one thing that happens in a run besides what the pods of the plan do by themselves:
// a Deed at a moment. The moment is At, counted from Start, or what When tells. Exactly one deed is
// set. The order of the fields is that of the happenings in a generated plan.
type Happening struct {
	At   Duration `json:"at,omitempty"`   // zero: before the agent boots, if that makes a difference
	When *Anchor  `json:"when,omitempty"` // instead of At

	Manifest        *ManifestChange `json:"manifest,omitempty"`
	Act             *Act            `json:"act,omitempty"`
	KillAgent       *AgentKill      `json:"killAgent,omitempty"`
	RestartRuntime  *RuntimeRestart `json:"restartRuntime,omitempty"`
	Reboot          *Reboot         `json:"reboot,omitempty"`
	KillContainer   *ContainerKill  `json:"killContainer,omitempty"`
	KillSandbox     *SandboxKill    `json:"killSandbox,omitempty"`
	SetRuntimeClock *ClockStep      `json:"setRuntimeClock,omitempty"`
	LoseContainer   *LostContainer  `json:"loseContainer,omitempty"`
	RemoveSandbox   *SandboxRemoval `json:"removeSandbox,omitempty"`
	RemoveImage     *ImageRemoval   `json:"removeImage,omitempty"`
	Fault           *FaultWindow    `json:"fault,omitempty"`
	Request         *Request        `json:"request,omitempty"`
	ShutDown        *Shutdown       `json:"shutDown,omitempty"`
	LoseBus         *BusLoss        `json:"loseBus,omitempty"`
	Pressure        *Pressure       `json:"pressure,omitempty"`
	Plugin          *PluginChange   `json:"plugin,omitempty"`
}

// Deed is what happens. To add a kind of deed, add its type with these methods, its field in
// Happening, and what it does to package sim (carryOut).
type Deed interface {
	// validate returns an error that begins with the name of a field of the deed.
	validate(*Spec) error
	// Length is the time from the beginning to the end; zero for a deed of one moment.
	Length() Duration
	// PodEntry is the entry of pods without which the deed is not valid; empty for none.
	PodEntry() string
}

// deedFields are the indexes and names of the fields of Happening that are deeds.
var deedFields = func() (fields []deedField) {
	happening := reflect.TypeFor[Happening]()
	for i := range happening.NumField() {
		f := happening.Field(i)
		if f.Type.Implements(reflect.TypeFor[Deed]()) {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			fields = append(fields, deedField{i, name, f.Type})
		}
	}
	return fields
}()

type deedField struct {
	index int
	name  string // in the file
	is    reflect.Type
}

// Deed returns what happens, and its name in the file; nil if no deed is set.
func (h *Happening) Deed() (deed Deed, name string) {
	fields := reflect.ValueOf(h).Elem()
	for _, f := range deedFields {
		if d := fields.Field(f.index); !d.IsNil() {
			return d.Interface().(Deed), f.name
		}
	}
	return nil, ""
}

// setDeed sets what happens.
func (h *Happening) setDeed(deed Deed) {
	for _, f := range deedFields {
		if f.is == reflect.TypeOf(deed) {
			reflect.ValueOf(h).Elem().Field(f.index).Set(reflect.ValueOf(deed))
			return
		}
	}
	panic(fmt.Sprintf("plan: Happening has no field for a %T", deed))
}

// rank is the place of the kind of deed in a generated plan.
func (h *Happening) rank() int {
	deed, _ := h.Deed()
	return slices.IndexFunc(deedFields, func(f deedField) bool { return f.is == reflect.TypeOf(deed) })
}

// add adds a happening at a time.
func (g *generator) add(at Duration, deed Deed) {
	h := Happening{At: at}
	h.setDeed(deed)
	g.plan.Spec.Happenings = append(g.plan.Spec.Happenings, h)
}

// addOn adds a happening at an anchor.
func (g *generator) addOn(anchor Anchor, deed Deed) {
	h := Happening{When: &anchor}
	h.setDeed(deed)
	g.plan.Spec.Happenings = append(g.plan.Spec.Happenings, h)
}

// sortHappenings brings the happenings in the order of their times. Those of one time are in the
// order of the kinds of deeds.
func (g *generator) sortHappenings() {
	slices.SortStableFunc(g.plan.Spec.Happenings, func(x, y Happening) int {
		return cmp.Or(cmp.Compare(x.At, y.At), cmp.Compare(x.rank(), y.rank()))
	})
}

func (s *Spec) validateHappenings() error {
	ids := map[string]bool{}
	for i := range s.Happenings {
		h := &s.Happenings[i]
		if err := h.validate(s); err != nil {
			return fmt.Errorf("spec.happenings[%d]%w", i, err)
		}
		if h.Fault == nil {
			continue
		}
		if ids[h.Fault.ID] {
			return fmt.Errorf("spec.happenings[%d].fault.id: %q is that of another fault", i, h.Fault.ID)
		}
		ids[h.Fault.ID] = true
	}
	return nil
}

// validate returns an error that begins with a field of the happening and the dot or colon.
func (h *Happening) validate(s *Spec) error {
	var set []string
	fields := reflect.ValueOf(h).Elem()
	for _, f := range deedFields {
		if !fields.Field(f.index).IsNil() {
			set = append(set, f.name)
		}
	}
	if len(set) != 1 {
		return fmt.Errorf(": want one of %s, have %s", deedNames(),
			cmp.Or(strings.Join(set, ", "), "none"))
	}
	switch {
	case h.When != nil && h.At != 0:
		return errors.New(": want either at or when")
	case h.At > s.Duration:
		return fmt.Errorf(".at: %s is after spec.duration, %s", h.At, s.Duration)
	case h.When != nil:
		if err := h.When.validate(s); err != nil {
			return fmt.Errorf(".when.%w", err)
		}
	case h.At == 0 && h.KillAgent != nil:
		return errors.New(".at: want a time after the start of the agent, or when")
	}
	deed, name := h.Deed()
	if err := deed.validate(s); err != nil {
		return fmt.Errorf(".%s.%w", name, err)
	}
	return nil
}

func deedNames() string {
	var names []string
	for _, f := range deedFields {
		names = append(names, f.name)
	}
	return strings.Join(names, ", ")
}

// End returns when a happening of a known time ends.
func (h *Happening) End() Duration {
	deed, _ := h.Deed()
	return h.At + deed.Length()
}

// Times returns when the happenings of the plan end. One that has an anchor may also be at any
// time, until the faults heal: only a run tells when.
func (p *Plan) Times() []Duration {
	var all []Duration
	for i := range p.Spec.Happenings {
		h := &p.Spec.Happenings[i]
		all = append(all, h.End())
		if h.When != nil {
			all = append(all, p.Spec.Duration)
		}
	}
	return all
}

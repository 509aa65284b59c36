package plan

import (
	"errors"
	"time"
)

// Shutdown shuts the machine down in order: it announces that, waits for all locks that delay it,
// and powers off. The machine boots again after Down.
type Shutdown struct {
	Down Duration `json:"down"`
	// OthersFor is how long another program delays the shutdown as well. So a new agent may start in
	// the middle.
	OthersFor   Duration `json:"othersFor,omitempty"`
	RepeatAfter Duration `json:"repeatAfter,omitempty"` // until it is announced once more; absent: not
	// CancelAfter is until it is cancelled, unless the machine has gone down. Absent: it is not.
	CancelAfter Duration `json:"cancelAfter,omitempty"`
}

// BusLoss ends the connection to the system bus, by which the agent hears of shutdowns.
type BusLoss struct {
	Down Duration `json:"down"` // until there is a system bus again
}

// ShutdownRange is how many shutdowns of the machine there may be.
type ShutdownRange struct {
	Count Count `json:"count,omitempty"`
	Down  Span  `json:"down,omitempty"`
	// Calls are those of which one has just been requested at half of the shutdowns. Absent: all
	// shutdowns come at a random time.
	Calls     []string `json:"calls,omitempty"`
	Others    Share    `json:"others,omitempty"`    // of shutdowns that another program delays as well
	OthersFor Span     `json:"othersFor,omitempty"` // for how long
	Repeats   Share    `json:"repeats,omitempty"`   // of shutdowns that are announced twice
	Cancels   Share    `json:"cancels,omitempty"`   // of shutdowns that are cancelled
	// CancelAfter is until they are cancelled, RepeatAfter until they are announced again.
	CancelAfter Span `json:"cancelAfter,omitempty"`
	RepeatAfter Span `json:"repeatAfter,omitempty"`

	// AgentKills is the share of shutdowns in which the agent is killed, AgentKilledAfter when, and
	// AgentDown until it starts again.
	AgentKills       Share `json:"agentKills,omitempty"`
	AgentKilledAfter Span  `json:"agentKilledAfter,omitempty"`
	AgentDown        Span  `json:"agentDown,omitempty"`
	// AgentDownBefore is the share of shutdowns that begin while the agent is down. It is killed
	// before, for twice as long as AgentDown at most.
	AgentDownBefore Share `json:"agentDownBefore,omitempty"`
	// PowerLosses is the share of shutdowns in which the power fails at some effect of the agent.
	PowerLosses Share `json:"powerLosses,omitempty"`

	BusLosses Count `json:"busLosses,omitempty"`
	BusDown   Span  `json:"busDown,omitempty"`
	Always    bool  `json:"always,omitempty"` // in every seed
}

func (g *generator) addShutdowns() {
	s := &g.scenario.Spec.Shutdowns
	r := g.stream("shutdowns")
	var times []Duration
	for range g.occurrences("shutdowns", s.Count, s.Always) {
		at, d := g.randomTime(r), &Shutdown{Down: Duration(s.Down.draw(r))}
		others, repeat := Duration(s.OthersFor.draw(r)), Duration(s.RepeatAfter.draw(r))
		cancel := Duration(s.CancelAfter.draw(r))
		killAt, down := at+Duration(s.AgentKilledAfter.draw(r)), Duration(s.AgentDown.draw(r))
		effects := 1 + r.IntN(effectsPerPod*len(g.plan.Spec.Pods)+20)
		if s.Others.drawBool(r) {
			d.OthersFor = others
		}
		if s.Repeats.drawBool(r) {
			d.RepeatAfter = repeat
		}
		if s.Cancels.drawBool(r) {
			d.CancelAfter = cancel
		}
		if n := len(s.Calls); n > 0 && r.IntN(2) == 0 {
			g.addOn(Anchor{Effect: s.Calls[r.IntN(n)], Nth: 1 + r.IntN(len(g.plan.Spec.Pods))}, d)
		} else {
			g.add(at, d)
			times = append(times, at)
		}
		if s.AgentKills.drawBool(r) {
			g.add(min(killAt, g.plan.Spec.Duration), &AgentKill{Down: down})
		}
		if s.PowerLosses.drawBool(r) {
			g.addOn(Anchor{Effect: AnyEffect, Nth: effectsPerPod*len(g.plan.Spec.Pods) + effects},
				&Reboot{Down: d.Down})
		}
	}
	r = g.stream("agents down before shutdowns")
	for _, at := range times {
		before, after := Duration(s.AgentDown.draw(r)), Duration(s.AgentDown.draw(r))
		if s.AgentDownBefore.drawBool(r) && at > before {
			g.add(at-before, &AgentKill{Down: before + after})
		}
	}
	r = g.stream("losses of the bus")
	for range g.occurrences("losses of the bus", s.BusLosses, s.Always) {
		g.add(g.randomTime(r), &BusLoss{Down: Duration(s.BusDown.draw(r))})
	}
}

func (d *Shutdown) validate(*Spec) error {
	if d.Down < Duration(time.Second) {
		return errors.New("down: want at least 1s")
	}
	return nil
}

// Length implements Deed.
func (d *Shutdown) Length() Duration {
	return max(d.OthersFor, d.RepeatAfter, d.CancelAfter) + d.Down
}

// PodEntry implements Deed.
func (d *Shutdown) PodEntry() string { return "" }

func (d *BusLoss) validate(*Spec) error { return nil }

// Length implements Deed.
func (d *BusLoss) Length() Duration { return d.Down }

// PodEntry implements Deed.
func (d *BusLoss) PodEntry() string { return "" }

// Package plugins is the simulated plugins port: sockets in the plugins' registration directory,
// and the plugins that listen on them, as the plan says.
//
// Contract: as the real port does, it reports all sockets some time after a change, and at a rescan
// if the notification of the change was lost. A request is served by the plugin whose file it
// names. Plugins are other processes: they outlive the agent, and a reboot ends them. Every plugin
// that comes or goes, and everything that it is asked and notified of, is recorded in the truth.
//
// Start reading at serve.
package plugins

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"seedlet.dev/sim/agenda"
	"seedlet.dev/sim/plan"
	"seedlet.dev/sim/truth"
	"seedlet.dev/sim/wire"
	"seedlet.dev/world"
)

// CallObserved is the name of the notifications that sockets have changed, to which faults apply.
const CallObserved = "PluginSocketsObserved"

const (
	batchDelay   = 250 * time.Millisecond // of the real port
	rescanPeriod = 10 * time.Second       // likewise
	returnDelay  = 3 * time.Second        // from a boot until plugins are there again
)

// Options configure the plugins.
type Options struct {
	Agenda  *agenda.Agenda
	Truth   *truth.Log
	Seed    uint64
	Faults  wire.FaultSource  // nil: no faults
	Deliver func(world.Event) // receives the events of the first incarnation
	Dir     string            // of the sockets
	// Serve is called for each plugin that starts to serve, or has ended, with its socket. Nil: the
	// plugins have no services.
	Serve func(socket string, plugin *plan.PluginChange, hasEnded bool)
}

// Plugins are the simulated plugins of the node. They are for use by one goroutine.
type Plugins struct {
	opts      Options
	wire      *wire.Wire
	sockets   map[string]*socket // by path
	files     int                // made so far
	boots     int
	connected int                  // incarnations of the agent
	reported  []world.PluginSocket // to the current one
}

// socket is a socket with its plugin.
type socket struct {
	file   string
	plugin *plan.PluginChange
	asked  int // requests that it has handled wrongly
	// returns is the plugin that is there again after the boot; nil: none was ended by a reboot.
	returns *plan.PluginChange
}

// New returns a node without plugins.
func New(opts Options) *Plugins {
	return &Plugins{opts: opts, sockets: map[string]*socket{}, wire: wire.New(wire.Options{
		Agenda: opts.Agenda, Faults: opts.Faults, Deliver: opts.Deliver, Seed: opts.Seed,
	})}
}

// InFlight returns the calls that the agent waits for, as wire.InFlight does.
func (p *Plugins) InFlight() []*wire.Call { return p.wire.InFlight() }

// Reseed makes every later call draw from another seed.
func (p *Plugins) Reseed(seed uint64) { p.wire.Reseed(seed) }

// Do implements world.Port.
func (p *Plugins) Do(eff world.Effect) { p.wire.Send(eff, p.serve) }

// Connect starts an incarnation of the agent, which receives all events from now on.
func (p *Plugins) Connect(deliver func(world.Event)) {
	p.wire.Connect(deliver)
	p.connected++
	p.reported = nil
	if len(p.sockets) > 0 {
		p.scanAfter(time.Millisecond)
	}
}

// Disconnect ends an incarnation of the agent. The callers of all calls in flight are gone.
func (p *Plugins) Disconnect() { p.wire.Disconnect() }

// Change carries out a change of the plan.
func (p *Plugins) Change(change *plan.PluginChange) {
	path := p.opts.Dir + "/" + change.Socket
	if _, exists := p.sockets[path]; !exists && change.Gone {
		return
	}
	p.set(path, change)
	outcome := p.wire.NextOutcome(CallObserved)
	if outcome.ResponseLost {
		p.scanAfter(rescanPeriod)
		return
	}
	p.scanAfter(batchDelay + outcome.RequestLatency)
}

// set replaces the plugin of a socket.
func (p *Plugins) set(path string, change *plan.PluginChange) {
	if s, exists := p.sockets[path]; exists {
		delete(p.sockets, path)
		p.record(truth.PluginEnded, path, nil)
		p.serveBy(path, s.plugin, true)
	}
	if change.Gone {
		return
	}
	p.files++
	s := &socket{file: fmt.Sprintf("file-%d", p.files), plugin: change}
	p.sockets[path] = s
	started := &truth.Plugin{File: s.file, Type: change.Type, Name: change.Name,
		Versions: change.Versions, StaysWrong: change.Wrong != "" && change.WrongFor == 0}
	if change.Driver != nil {
		started.NodeID, started.Topology = change.Driver.NodeID, change.Driver.Topology
	}
	p.record(truth.PluginStarted, path, started)
	p.serveBy(path, change, false)
}

// serveBy starts or ends the services of a plugin, unless its process has ended for good.
func (p *Plugins) serveBy(path string, plugin *plan.PluginChange, hasEnded bool) {
	isDown := plugin.Wrong == plan.PluginDown && plugin.WrongFor == 0
	if p.opts.Serve != nil && !isDown {
		p.opts.Serve(path, plugin, hasEnded)
	}
}

// Reboot ends all plugins, whose sockets stay on the disk. They come again after the boot.
func (p *Plugins) Reboot(bootAt time.Time) {
	p.boots++
	boot := p.boots
	for _, path := range p.paths() {
		change := cmp.Or(p.sockets[path].returns, p.sockets[path].plugin)
		p.set(path, &plan.PluginChange{Wrong: plan.PluginDown})
		p.sockets[path].returns = change
		p.opts.Agenda.At(bootAt.Add(returnDelay), func() {
			if s := p.sockets[path]; p.boots == boot && s != nil && s.plugin.Wrong == plan.PluginDown {
				p.set(path, change)
				p.scanAfter(batchDelay)
			}
		})
	}
}

func (p *Plugins) paths() []string { return slices.Sorted(maps.Keys(p.sockets)) }

// scanAfter reports the sockets to this incarnation of the agent after a while, if they have
// changed.
func (p *Plugins) scanAfter(delay time.Duration) {
	incarnation := p.connected
	p.opts.Agenda.After(delay, func() {
		if p.connected == incarnation {
			p.scan()
		}
	})
}

func (p *Plugins) scan() {
	var now []world.PluginSocket
	for _, path := range p.paths() {
		now = append(now, world.PluginSocket{Path: path, File: p.sockets[path].file})
	}
	if slices.Equal(now, p.reported) {
		return
	}
	p.reported = now
	p.wire.DeliverAt(p.opts.Agenda.Now(), &world.PluginSocketsObserved{Sockets: now})
}

// serve handles a call that has arrived.
func (p *Plugins) serve(call *wire.Call) {
	if call.Outcome.ErrorBefore != nil {
		call.Fail(call.Outcome.ErrorBefore)
		return
	}
	call.Execute(func() {
		switch m := call.Effect.Body.(type) {
		case *world.GetPluginInfo:
			if s := p.reach(call, m.Socket); s != nil {
				p.answer(call, m.Socket.Path, s)
			}
		case *world.NotifyPluginRegistration:
			if s := p.reach(call, m.Socket); s != nil {
				p.notify(call, m, s)
			}
		default:
			panic("plugins: unknown call: " + call.Name)
		}
	})
}

// reach returns the socket that a request is for; nil: the call has failed.
func (p *Plugins) reach(call *wire.Call, at world.PluginSocket) *socket {
	s := p.sockets[at.Path]
	switch {
	case s == nil || s.file != at.File:
		call.Fail(world.Errorf(world.KindNotFound, call.Name, "the socket is gone, or another file"))
	case s.plugin.Wrong == plan.PluginDown && s.isWrong():
		p.recordWrong(truth.PluginAsked, at.Path)
		call.Fail(world.Errorf(world.KindUnavailable, call.Name, "connection refused"))
	default:
		return s
	}
	return nil
}

// isWrong reports whether the plugin handles the next request wrongly, and counts it.
func (s *socket) isWrong() bool {
	s.asked++
	return s.plugin.WrongFor == 0 || s.asked <= s.plugin.WrongFor
}

// answer has the plugin answer what it is.
func (p *Plugins) answer(call *wire.Call, path string, s *socket) {
	c := s.plugin
	switch c.Wrong {
	case plan.PluginHangs, plan.PluginFails, plan.PluginTooLong:
		if s.isWrong() {
			p.recordWrong(truth.PluginAsked, path)
			answerWrongly(call, c.Wrong)
			return
		}
	}
	p.record(truth.PluginAsked, path, nil)
	call.Reply(&world.PluginInfo{Type: c.Type, Name: c.Name, Endpoint: c.Endpoint,
		Versions: c.Versions})
}

// answerWrongly answers as the fault says; a plugin that hangs does not.
func answerWrongly(call *wire.Call, fault plan.PluginFault) {
	switch fault {
	case plan.PluginFails, plan.PluginStatusFails:
		call.Fail(world.Errorf(world.KindInternal, call.Name, "the plugin is not ready"))
	case plan.PluginTooLong:
		call.Fail(world.Errorf(world.KindExhausted, call.Name, "the answer is too long"))
	}
}

// notify notifies the plugin whether it is registered.
func (p *Plugins) notify(call *wire.Call, m *world.NotifyPluginRegistration, s *socket) {
	isWrong := false
	switch fault := s.plugin.Wrong; fault {
	case plan.PluginStatusFails, plan.PluginStatusLapses:
		isWrong = s.isWrong()
	}
	cause := ""
	if isWrong {
		cause = truth.CausePlugin
	}
	p.opts.Truth.Add(truth.Fact{Time: p.opts.Agenda.Now(), Kind: truth.PluginNotified,
		Path: m.Socket.Path, IsRegistered: m.Registered, Message: m.Error, Cause: cause})
	if isWrong {
		answerWrongly(call, s.plugin.Wrong)
		return
	}
	call.Reply(&world.Done{})
}

func (p *Plugins) record(kind truth.Kind, path string, plugin *truth.Plugin) {
	p.opts.Truth.Add(truth.Fact{Time: p.opts.Agenda.Now(), Kind: kind, Path: path, Plugin: plugin})
}

// recordWrong records a request that the plugin handles wrongly.
func (p *Plugins) recordWrong(kind truth.Kind, path string) {
	p.opts.Truth.Add(truth.Fact{Time: p.opts.Agenda.Now(), Kind: kind, Path: path,
		Cause: truth.CausePlugin})
}

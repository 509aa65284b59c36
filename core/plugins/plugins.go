// Package plugins registers the plugins of the node, such as CSI drivers, which make sockets in the
// directory plugins_registry.
//
// Facts: the sockets as they were observed last, and of each what its plugin has answered, whether
// it is registered, and how often it has failed in a row. Plan: asks each socket what it is, and
// reports to it that it is registered, or why it is not. Whatever fails is asked again after a
// back-off. Events: the observed sockets, and the completions of its operations.
//
// A socket that is another file is another plugin: it is registered again. Nothing is on the disk,
// so a new agent registers all plugins again. Each socket has requests of its own, so a plugin that
// hangs delays no other. Upstream: pkg/kubelet/pluginmanager, with a loop of a second instead of
// the events. Start reading at Registry.Plan.
package plugins

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"seedlet.dev/core/budget"
	"seedlet.dev/core/op"
	"seedlet.dev/core/timer"
	"seedlet.dev/world"
)

// Owner is the key of the operations and the timer.
var Owner = timer.Key{Component: "plugins"}

const (
	// requestTimeout is as long as a kubelet waits for a connection (dialTimeoutDuration in
	// pkg/kubelet/pluginmanager/operationexecutor); for the answers it waits less.
	requestTimeout = 10 * time.Second
	backoffInitial = 500 * time.Millisecond // of pkg/util/goroutinemap/exponentialbackoff
	backoffMax     = 2*time.Minute + 2*time.Second
)

// Registry is the state of the plugins.
type Registry struct {
	Sockets map[string]*Socket `json:"sockets,omitempty"` // by path, as they were observed last
	Omitted int                `json:"omitted,omitempty"` // sockets beyond the bound of the port
	// Plugins are those that are registered, sorted by type and name, each once.
	Plugins []Plugin `json:"plugins,omitempty"`
}

// Plugin is a plugin that the rest of the agent may use.
type Plugin struct {
	Type     string `json:"type"`
	Name     string `json:"name"`
	Endpoint string `json:"endpoint"` // the socket of its services
	Version  string `json:"version"`  // the highest supported one of the API of its services
}

// Socket is a socket by which a plugin registers.
type Socket struct {
	File       string     `json:"file"`                 // identifies the file at the path
	Op         world.OpID `json:"op,omitempty"`         // the request in flight
	AskedAt    time.Time  `json:"askedAt"`              // when the plugin was last asked what it is
	Answer     *Answer    `json:"answer,omitempty"`     // nil: the plugin is to be asked what it is
	Registered bool       `json:"registered,omitempty"` // and the plugin knows it
	Failures   int        `json:"failures,omitempty"`   // in a row, of this file
	NotBefore  time.Time  `json:"notBefore"`            // of the next request
	LastError  string     `json:"lastError,omitempty"`
	// HeldBack is the plugin of the last answer if it was refused as another one had its name.
	HeldBack *Plugin `json:"heldBack,omitempty"`
}

// Answer is what a plugin has answered, checked.
type Answer struct {
	Plugin  Plugin `json:"plugin,omitzero"`
	Refusal string `json:"refusal,omitempty"` // why the plugin is not registered; empty: it may be
}

// HandleObserved handles that the sockets are others.
func (r *Registry) HandleObserved(ev *world.PluginSocketsObserved, effects *op.Effects) {
	if ev.Omitted > 0 && r.Omitted == 0 {
		effects.Log(world.LevelWarning, "there are more sockets of plugins than are observed",
			"observed", len(ev.Sockets), "omitted", ev.Omitted)
	}
	r.Omitted = ev.Omitted
	gone := maps.Clone(r.Sockets)
	for _, observed := range ev.Sockets {
		delete(gone, observed.Path)
		r.observe(observed)
	}
	for path := range gone { //ordered: a set
		delete(r.Sockets, path)
	}
	if len(r.Sockets) == 0 {
		r.Sockets = nil // as a snapshot has it
	}
	r.update(effects)
}

// observe notes a socket. One that is another file than before starts over; it is asked at once,
// but no more often than after a failure, as a plugin that keeps failing makes a socket each time.
func (r *Registry) observe(observed world.PluginSocket) {
	s := &Socket{File: observed.File}
	if before := r.Sockets[observed.Path]; before != nil {
		if before.File == observed.File {
			return
		}
		s.NotBefore = before.AskedAt.Add(backoffInitial)
	}
	if r.Sockets == nil {
		r.Sockets = map[string]*Socket{}
	}
	r.Sockets[observed.Path] = s
}

// Prepare reports whether everything is ready for a plugin to be registered, or why it cannot be.
// Neither: it is being prepared, and the registry is planned again after that.
type Prepare func(Candidate) (ready bool, problem string)

// Candidate is a plugin that has answered, and is registered or could be.
type Candidate struct {
	Plugin
	Socket       string // identifies the socket's file
	Registration string // identifies the attempt to register the plugin
	Registered   bool
}

// SocketIDs returns what identifies the files of all sockets, whatever their plugins have answered.
func (r *Registry) SocketIDs() map[string]bool {
	ids := make(map[string]bool, len(r.Sockets))
	for path, s := range r.Sockets { //ordered: a set
		ids[s.id(path)] = true
	}
	return ids
}

func (s *Socket) id(path string) string { return path + " " + s.File }

// Candidates returns the plugins that are registered or could be, by the paths of their sockets.
func (r *Registry) Candidates() []Candidate {
	var all []Candidate
	for _, path := range r.paths() {
		if s := r.Sockets[path]; s.holdsName() {
			all = append(all, s.candidate(path))
		}
	}
	return all
}

func (s *Socket) candidate(path string) Candidate {
	return Candidate{Plugin: s.Answer.Plugin, Socket: s.id(path), Registered: s.Registered,
		Registration: s.id(path) + " " + s.AskedAt.UTC().Format(time.RFC3339Nano)}
}

// Plan asks the plugins that are not registered, and returns when to plan again. It registers those
// that are prepared; nil: all of them.
func (r *Registry) Plan(prepare Prepare, effects *op.Effects) time.Time {
	var wake time.Time
	for _, path := range r.paths() {
		s := r.Sockets[path]
		switch {
		case s.Registered, s.Op != 0:
		case effects.Now().Before(s.NotBefore) && !r.hasFreedName(s):
			wake = timer.Soonest(wake, s.NotBefore)
		case !r.isPrepared(path, prepare):
		default:
			r.request(path, s, effects)
		}
	}
	return wake
}

// isPrepared reports whether the next request to a plugin can be issued. A plugin that cannot be
// prepared is refused.
func (r *Registry) isPrepared(path string, prepare Prepare) bool {
	s := r.Sockets[path]
	if prepare == nil || !s.holdsName() {
		return true
	}
	ready, problem := prepare(s.candidate(path))
	if problem != "" {
		plugin := s.Answer.Plugin
		s.Answer = refuse("RegisterPlugin error -- plugin registration failed with err: %s", problem)
		if r.holderOf(&plugin) != "" {
			s.HeldBack = &plugin
		}
	}
	return ready || problem != ""
}

// request issues the next request to a plugin.
func (r *Registry) request(path string, s *Socket, effects *op.Effects) {
	socket := world.PluginSocket{Path: path, File: s.File}
	var body any = &world.GetPluginInfo{Socket: socket}
	if s.Answer == nil {
		s.AskedAt, s.NotBefore, s.HeldBack = effects.Now(), time.Time{}, nil
	} else {
		refusal := s.Answer.Refusal
		body = &world.NotifyPluginRegistration{Socket: socket, Registered: refusal == "",
			Error: refusal}
	}
	s.Op = effects.IssueFor(path, Owner, path, requestTimeout, body)
}

// hasFreedName reports whether a plugin was refused for another one of its name, and none of its
// version or a higher one holds the name any more.
func (r *Registry) hasFreedName(s *Socket) bool {
	return s.HeldBack != nil && s.Answer == nil && r.holderOf(s.HeldBack) == ""
}

// holdsName reports whether the plugin of a socket is registered, or is just being registered.
func (s *Socket) holdsName() bool {
	return s != nil && s.Answer != nil && s.Answer.Refusal == ""
}

// HandleCompletion handles the completion of a request. Its subject is the path of the socket. What
// the plugin of an earlier file answers is ignored.
func (r *Registry) HandleCompletion(id world.OpID, record op.Record, ev world.Event,
	effects *op.Effects) {
	path := record.Subject
	s := r.Sockets[path]
	if s == nil || s.Op != id {
		return
	}
	s.Op = 0
	info, isInfo := ev.Body.(*world.PluginInfo)
	switch {
	case ev.Err != nil:
		s.fail(path, ev.Err.Error(), effects)
	case s.Answer == nil && isInfo:
		s.Answer, s.HeldBack = r.check(path, info)
	case s.Answer == nil:
		s.fail(path, "answered with another message", effects)
	case s.Answer.Refusal != "":
		s.fail(path, s.Answer.Refusal, effects)
	default:
		s.Registered, s.Failures, s.LastError = true, 0, ""
	}
	r.update(effects)
}

// fail notes that a plugin is not registered: it is asked again after a back-off. An error is
// logged once in a row.
func (s *Socket) fail(path, message string, effects *op.Effects) {
	s.Answer = nil
	s.Failures++
	s.NotBefore = effects.Now().Add(timer.Backoff(s.Failures, backoffInitial, backoffMax))
	if message = budget.CutMessage(message); message != s.LastError {
		s.LastError = message
		effects.Log(world.LevelError, "Failed to register a plugin", "socket", path, "err", message)
	}
}

// update computes which plugins are registered. Of several with one name it is the one of the
// highest version, which is the last that was registered.
func (r *Registry) update(effects *op.Effects) {
	before := r.Plugins
	var now []Plugin
	for _, path := range r.paths() {
		s := r.Sockets[path]
		if !s.Registered {
			continue
		}
		p := s.Answer.Plugin
		i, found := slices.BinarySearchFunc(now, p, compareNames)
		switch {
		case !found:
			now = slices.Insert(now, i, p)
		case isLower(now[i].Version, p.Version):
			now[i] = p
		}
	}
	if slices.Equal(before, now) {
		return
	}
	r.Plugins = now
	logChanges(before, now, effects)
}

func compareNames(x, y Plugin) int {
	return cmp.Or(cmp.Compare(x.Type, y.Type), cmp.Compare(x.Name, y.Name))
}

// logChanges logs which plugins have been registered, or are not any more.
func logChanges(before, now []Plugin, effects *op.Effects) {
	for _, p := range before {
		if _, stays := slices.BinarySearchFunc(now, p, compareNames); !stays {
			effects.Log(world.LevelInfo, "Deregistered a plugin", "type", p.Type, "name", p.Name)
		}
	}
	for _, p := range now {
		if !slices.Contains(before, p) {
			effects.Log(world.LevelInfo, "Registered a plugin", "type", p.Type, "name", p.Name,
				"endpoint", p.Endpoint, "version", p.Version)
		}
	}
}

// paths returns the paths of the sockets, sorted.
func (r *Registry) paths() []string { return slices.Sorted(maps.Keys(r.Sockets)) }

// Registered returns the paths of the sockets that have been observed, sorted, and which of them
// have a registered plugin.
func (r *Registry) Registered() (observed, registered []string) {
	observed = r.paths()
	for _, path := range observed {
		if r.Sockets[path].Registered {
			registered = append(registered, path)
		}
	}
	return observed, registered
}

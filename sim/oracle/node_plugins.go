package oracle

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/sim/truth"
	"seedlet.dev/world"
)

// nodePlugins fires when a plugin is not notified in time whether it is registered, when it is
// notified wrongly, when it is asked or notified again without a cause, and when a socket is asked
// that has been gone for long.
type nodePlugins struct{}

func (*nodePlugins) describe() Entry {
	return Entry{"plugins", "A plugin is notified that it is registered if it is a CSI driver with " +
		"a valid name and a supported version, and no other one of that name and the same version " +
		"or a higher one is registered; otherwise, why not. That happens within seconds after it has " +
		"made its socket, after the agent has started, or after the name has become free, and once. " +
		"Nothing is asked of a socket that is gone."}
}

const (
	// pluginBound is how long the agent may take to register a plugin that responds rightly.
	pluginBound = 15 * time.Second
	// pluginRetryBound is the same after a failure: the longest back-off, and requests that lapse.
	pluginRetryBound = 150 * time.Second
	// pluginHoldBound is how long after the end of a plugin another one may be refused for its name.
	pluginHoldBound = 15 * time.Second
	// pluginGoneBound is how long the agent may not know that a socket is gone.
	pluginGoneBound = time.Second
	// pluginAskedBound is the least time between two requests to one plugin: the first back-off.
	pluginAskedBound = 400 * time.Millisecond
)

// The calls by which a plugin becomes registered.
var (
	// pluginCalls are those of every plugin, which the agent learns of and notifies by them.
	pluginCalls = []string{"PluginSocketsObserved", "GetPluginInfo", "NotifyPluginRegistration"}
	// driverCalls are those of a CSI driver before its notification: the cluster has to know of it.
	driverCalls = []string{"GetCSINodeInfo", "GetObject", "CreateObject", "UpdateObject",
		"PatchObject"}
	// refusalCalls are those whose failure may be the reason of a refusal, or may have it come late.
	refusalCalls = []string{"PluginSocketsObserved", "NotifyPluginRegistration", "GetCSINodeInfo",
		"UpdateObject"}
)

// callsOf returns the calls by which a plugin is notified.
func callsOf(s *pluginSocket) []string {
	if s.acceptable {
		return slices.Concat(pluginCalls, driverCalls)
	}
	return pluginCalls
}

// pluginModel is the sockets of plugins.
type pluginModel struct {
	sockets map[string]*pluginSocket // by path
	endedAt map[string]time.Time     // by name: when a plugin last ended
	goneAt  map[string]time.Time     // by file: when it was removed
	places  pluginPlaces
}

// pluginSocket is a plugin with its socket.
type pluginSocket struct {
	is         *truth.Plugin
	startedAt  time.Time
	acceptable bool
	version    [3]int    // the highest supported one
	wrongAt    time.Time // when it last handled a request wrongly
	// What this agent has asked and notified it of, and when; zero: it has not.
	askedAt, notifiedAt, registeredAt time.Time
	// holdsName is set once this agent has registered the plugin. A refusal that is delivered late,
	// after the agent had given up waiting for it, ends neither that nor the registration.
	holdsName bool
	// isMisplaced is set if the API server refuses what its driver answers of the node, isPlaced if
	// the Node and the CSINode have had that since the plugin started.
	isMisplaced, isPlaced bool
}

var (
	driverName    = regexp.MustCompile(`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`)
	pluginVersion = regexp.MustCompile(`^v?1\.(\d+)(?:\.(\d+))?$`)
)

// newPluginSocket returns a plugin that has just made its socket.
func newPluginSocket(f *truth.Fact) *pluginSocket {
	s := &pluginSocket{is: f.Plugin, startedAt: f.Time, isMisplaced: isMisplaced(f.Plugin)}
	if s.is.Type != "CSIPlugin" || len(s.is.Name) > 63 || !driverName.MatchString(s.is.Name) ||
		len(s.is.Versions) > 64 {
		return s
	}
	for _, text := range s.is.Versions {
		if parts := pluginVersion.FindStringSubmatch(text); parts != nil {
			minor, _ := strconv.Atoi(parts[1])
			patch, _ := strconv.Atoi(cmp.Or(parts[2], "0"))
			version := [3]int{1, minor, patch}
			if slices.Compare(version[:], s.version[:]) > 0 {
				s.acceptable, s.version = true, version
			}
		}
	}
	return s
}

// apply updates the model with a fact.
func (p *pluginModel) apply(f *truth.Fact) {
	s := p.sockets[f.Path]
	switch {
	case f.Kind == truth.PluginStarted:
		if p.sockets == nil {
			*p = pluginModel{sockets: map[string]*pluginSocket{}, endedAt: map[string]time.Time{},
				goneAt: map[string]time.Time{}, places: p.places}
		}
		p.sockets[f.Path] = newPluginSocket(f)
	case s == nil:
	case f.Kind == truth.PluginEnded:
		delete(p.sockets, f.Path)
		p.endedAt[s.is.Name], p.goneAt[s.is.File] = f.Time, f.Time
	case f.Kind == truth.PluginAsked:
		s.askedAt = f.Time
		s.noteWrong(f)
	case f.Kind == truth.PluginNotified:
		s.notifiedAt = f.Time
		switch s.noteWrong(f); {
		case f.IsRegistered && f.Cause == "":
			s.registeredAt, s.holdsName = f.Time, true
		case f.IsRegistered, !s.holdsName:
			s.registeredAt = time.Time{}
		}
	}
}

func (s *pluginSocket) noteWrong(f *truth.Fact) {
	if f.Cause != "" {
		s.wrongAt = f.Time
	}
}

// agentStarted notes that a new agent has notified no plugin.
func (p *pluginModel) agentStarted() {
	for _, s := range p.sockets { //ordered: each for itself
		s.askedAt, s.notifiedAt, s.registeredAt = time.Time{}, time.Time{}, time.Time{}
		s.holdsName = false
	}
}

// mayHold reports whether another plugin may keep one from being registered, as it has its name and
// the same version or a higher one.
func (s *pluginSocket) mayHold(other *pluginSocket) bool {
	return s != other && s.acceptable && s.is.Name == other.is.Name &&
		slices.Compare(s.version[:], other.version[:]) >= 0
}

// mustBeRegistered reports whether a plugin has to be registered: nothing is wrong with it, and no
// plugin of its name is registered, or may be, as it has not responded rightly.
func (p *pluginModel) mustBeRegistered(s *pluginSocket) bool {
	if !s.acceptable || s.isMisplaced || p.mayCollide(s) {
		return false
	}
	for _, other := range p.sockets { //ordered: whether there is one
		if other.mayHold(s) && (other.holdsName || !other.wrongAt.IsZero() ||
			other.isMisplaced || p.mayCollide(other)) {
			return false
		}
	}
	return true
}

// isOfRegistration reports whether a call makes a CSI driver known to the cluster, which has just
// been asked what it is. The agent asks a driver again that could not be registered.
func (m *model) isOfRegistration(request any, now time.Time) bool {
	update, isUpdate := request.(*world.UpdateObject)
	patch, isPatch := request.(*world.PatchObject)
	if !(isUpdate && update.Object.CSINode != nil) &&
		!(isPatch && patch.Resource == world.ResourceNodes) {
		return false
	}
	for _, s := range m.plugins.sockets { //ordered: whether there is one
		if s.acceptable && s.registeredAt.IsZero() && now.Sub(s.askedAt) <= pluginBound {
			return true
		}
	}
	return false
}

// problem returns what a plugin was not notified of; empty if it was, or never responds rightly.
func (p *pluginModel) problem(path string, s *pluginSocket) string {
	switch {
	case s.is.StaysWrong || !s.registeredAt.IsZero():
	case p.mustBeRegistered(s):
		return fmt.Sprintf("plugin %.70q at %s is not registered", s.is.Name, path)
	case s.notifiedAt.IsZero():
		return fmt.Sprintf("plugin %.70q at %s is not notified that it is refused", s.is.Name, path)
	}
	return ""
}

// lacksNode reports whether the agent has no Node object, without which no CSI driver can be made
// known to the cluster. The agent makes one only when it starts.
func (m *model) lacksNode() bool { return m.opts.HasAPIServer && m.objects.node == nil }

// isRegistered reports whether a plugin of a name is registered.
func (p *pluginModel) isRegistered(name string) bool {
	for _, s := range p.sockets { //ordered: whether there is one
		if s.is.Name == name && !s.registeredAt.IsZero() {
			return true
		}
	}
	return false
}

// registeredSince returns since when a plugin of a name is registered; zero: none is.
func (p *pluginModel) registeredSince(name string) (since time.Time) {
	for _, s := range p.sockets { //ordered: the latest
		if s.is.Name == name {
			since = later(since, s.registeredAt)
		}
	}
	return since
}

// unsettledPlugins returns which plugins have to be notified.
func (m *model) unsettledPlugins() []string {
	var lines []string
	for _, path := range slices.Sorted(maps.Keys(m.plugins.sockets)) {
		s := m.plugins.sockets[path]
		if m.lacksNode() && m.plugins.mustBeRegistered(s) {
			continue
		}
		if problem := m.plugins.problem(path, s); problem != "" {
			lines = append(lines, problem)
		}
	}
	return lines
}

// checkServed finds a plugin that should have been notified by now.
func (*nodePlugins) checkServed(m *model, now time.Time, _ []*v1.Pod) *finding {
	if m.agentDown || m.lacksNode() {
		return nil
	}
	for _, path := range slices.Sorted(maps.Keys(m.plugins.sockets)) {
		s := m.plugins.sockets[path]
		problem := m.plugins.problem(path, s)
		since := later(later(later(s.startedAt, m.agentStartedAt), m.objects.nodeCreatedAt),
			later(s.wrongAt, m.plugins.endedAt[s.is.Name]))
		if problem == "" || now.Sub(since) <= pluginBound {
			continue
		}
		quiet, bound, calls := since, pluginBound, callsOf(s)
		if !s.wrongAt.IsZero() || m.anyFaultPossible(since, now, calls...) {
			quiet, bound = now.Add(-pluginRetryBound), pluginRetryBound
		}
		if now.Sub(since) > bound && !m.anyFaultPossible(quiet, now, calls...) {
			return findingf("%s, for %v", problem, now.Sub(since).Round(time.Second))
		}
	}
	return nil
}

func (*nodePlugins) checkFact(m *model, f *truth.Fact) *finding {
	s := m.plugins.sockets[f.Path]
	switch {
	case s == nil:
	case f.Kind == truth.PluginAsked:
		return m.findNeedlessQuestion(f, s)
	case f.Kind == truth.PluginNotified && !f.IsRegistered:
		return m.findWrongRefusal(f, s)
	case f.Kind == truth.PluginNotified:
		return m.findWrongRegistration(f, s)
	}
	return nil
}

// findNeedlessQuestion returns that a plugin is asked what it is although it is registered, or too
// soon after the last time. If the answer to its notification was lost, it is asked again within
// pluginRetryBound, and once more if that fails.
func (m *model) findNeedlessQuestion(f *truth.Fact, s *pluginSocket) *finding {
	freedAt, lastAt := m.plugins.endedAt[s.is.Name], later(s.registeredAt, s.askedAt)
	switch {
	case !s.registeredAt.IsZero() && (f.Time.Sub(lastAt) > pluginRetryBound ||
		!m.anyFaultPossible(lastAt.Add(-reconnectBound), f.Time, pluginCalls...)):
		return findingf("the plugin at %s is asked what it is, although it is registered", f.Path)
	case !s.askedAt.IsZero() && f.Time.Sub(s.askedAt) < pluginAskedBound &&
		f.Time.Sub(freedAt) > pluginHoldBound && !m.mayNameBeFreed(s, s.askedAt) &&
		!m.anyFaultPossible(s.askedAt.Add(-reconnectBound), f.Time, pluginCalls...):
		return findingf("the plugin at %s is asked again after %v", f.Path, f.Time.Sub(s.askedAt))
	}
	return nil
}

// mayNameBeFreed reports whether a plugin that handles requests wrongly has had the name of another
// one since a time, until its notification failed, or one that the API server refuses.
func (m *model) mayNameBeFreed(s *pluginSocket, since time.Time) bool {
	for _, other := range m.plugins.sockets { //ordered: whether there is one
		if other.mayHold(s) && (other.isMisplaced || m.plugins.mayCollide(other) ||
			!other.wrongAt.Before(since.Add(-pluginHoldBound))) {
			return true
		}
	}
	return false
}

// findWrongRefusal returns that a plugin is refused without a reason.
func (m *model) findWrongRefusal(f *truth.Fact, s *pluginSocket) *finding {
	switch {
	case f.Message == "":
		return findingf("the plugin at %s is refused, and not why", f.Path)
	case !s.acceptable, s.isMisplaced, m.plugins.mayCollide(s),
		f.Time.Sub(m.plugins.endedAt[s.is.Name]) <= pluginHoldBound,
		m.anyFaultPossible(f.Time.Add(-reconnectBound), f.Time, refusalCalls...):
		return nil
	}
	for _, other := range m.plugins.sockets { //ordered: whether there is one
		if other.mayHold(s) {
			return nil
		}
	}
	return findingf("the plugin at %s is refused (%q), and no other one has its name", f.Path,
		f.Message)
}

// findWrongRegistration returns that a plugin is notified that it is registered, although it is
// already, or must not be. Of two versions of one name both may be registered: the higher one may
// have answered while the lower one was being notified.
func (m *model) findWrongRegistration(f *truth.Fact, s *pluginSocket) *finding {
	if !s.acceptable {
		return findingf("the plugin at %s is registered: %s %.70q, versions %.100q", f.Path, s.is.Type,
			s.is.Name, s.is.Versions)
	}
	if problem := m.findUnplacedRegistration(f, s); problem != nil {
		return problem
	}
	for _, path := range slices.Sorted(maps.Keys(m.plugins.sockets)) {
		other := m.plugins.sockets[path]
		mustHold := other == s || other.mayHold(s) &&
			(other.version == s.version || !other.registeredAt.After(s.askedAt))
		if mustHold && !other.registeredAt.IsZero() &&
			!m.anyFaultPossible(later(other.registeredAt, s.askedAt).Add(-reconnectBound), f.Time,
				pluginCalls...) {
			return findingf("the plugin at %s is registered, although %.70q is already, at %s", f.Path,
				s.is.Name, path)
		}
	}
	return nil
}

// checkPluginRequest judges a request to a plugin, and reports whether it is one. A plugin that is
// refused or fails is asked again for ever.
func (s *Set) checkPluginRequest(now time.Time, request any) bool {
	var socket world.PluginSocket
	switch r := request.(type) {
	case *world.GetPluginInfo:
		socket = r.Socket
	case *world.NotifyPluginRegistration:
		socket = r.Socket
	default:
		return false
	}
	goneAt := s.model.plugins.goneAt[socket.File]
	if !goneAt.IsZero() && now.Sub(goneAt) > pluginGoneBound &&
		!s.model.faultPossible("PluginSocketsObserved", later(goneAt, now.Add(-reconnectBound)), now) {
		s.report(&nodePlugins{}, findingf("%s is called for %s, whose socket has been gone for %v",
			world.CallName(request), socket.Path, now.Sub(goneAt).Round(time.Millisecond)), now)
	}
	return true
}

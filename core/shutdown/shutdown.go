// Package shutdown ends the pods of a node whose machine shuts down, group by group, while it
// delays the shutdown (KEP-2000, KEP-2712).
//
// Facts: whether the lock that delays shutdowns (a delay inhibitor lock of systemd-logind) is held,
// the shutdown under way with its group, and the state file. Plan: takes the lock; in a shutdown,
// ends the pods of one group after the other, those of the lowest priority first, each with the
// shorter of its own grace period and the group's; goes on when all of the group have ended, or its
// deadline has passed, for which it waits in any case while not all pods are known; releases the
// lock when all pods are known and have ended and the final statuses are written, or the time of
// all groups has passed. Events: the announcement of a shutdown and its cancellation, the loss of
// the connection on which they come, or a restart of logind, ends of pods, and the completions of
// its operations.
//
// An agent that is started in the middle goes on with the shutdown: the state file says that one
// has started, and logind, that it is still under way. Until that is known no pod is admitted.
// Start reading at Manager.Plan.
package shutdown

import (
	"maps"
	"slices"
	"time"

	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"seedlet.dev/core/config"
	"seedlet.dev/core/op"
	"seedlet.dev/core/timer"
	"seedlet.dev/world"
)

// Owner is the key of the operations and the timer.
var Owner = timer.Key{Component: "shutdown"}

// The status of a pod that a shutdown has ended, the reason for which none is admitted meanwhile,
// and what the Node's Ready condition says (pkg/kubelet/nodeshutdown).
const (
	Reason           = "Terminated"
	Message          = "Pod was terminated in response to imminent node shutdown."
	RejectionReason  = "NodeShutdown"
	RejectionMessage = "Pod was rejected as the node is shutting down."
	NodeProblem      = "node is shutting down"
)

const (
	// recheckDelay is how long after the lock was released the agent asks whether the machine still
	// shuts down.
	recheckDelay = time.Minute
	// listBound is for how long at least an agent that is started in a shutdown, and does not know all
	// pods yet, ends none of a later group.
	listBound      = 10 * time.Second
	lockTimeout    = 30 * time.Second
	backoffInitial = time.Second // dbusReconnectPeriod of the kubelet
	backoffMax     = time.Minute
	criticalLowest = 2_000_000_000 // the priority of system-cluster-critical
)

// Group is the pods from one priority up to the next, and how long they may take to end.
type Group struct {
	Priority int32         `json:"priority"`
	Period   time.Duration `json:"period"`
}

// Manager is the state of the shutdowns.
type Manager struct {
	Groups []Group   `json:"groups,omitempty"` // the lowest first; empty: shutdowns are not delayed
	Lock   Lock      `json:"lock"`
	File   File      `json:"file"`
	Now    *Shutdown `json:"now,omitempty"` // the shutdown under way; nil: none
}

// Lock is the lock that delays a shutdown, and the connection on which shutdowns are announced.
type Lock struct {
	Held     bool    `json:"held,omitempty"`
	Watched  bool    `json:"watched,omitempty"`  // the agent hears of shutdowns and cancellations
	Answered bool    `json:"answered,omitempty"` // it is known whether a shutdown is under way
	Delay    Request `json:"delay,omitzero"`     // for the lock and the connection
	Permit   Request `json:"permit,omitzero"`    // to release the lock
	// LostAt is when the connection was last lost, CancelledAt when a shutdown was last cancelled,
	// PermittedAt when the release of the lock was last requested, or waited for a retry. The answer
	// to a request that was issued before one of them says nothing about the time after it.
	LostAt      time.Time `json:"lostAt"`
	CancelledAt time.Time `json:"cancelledAt"`
	PermittedAt time.Time `json:"permittedAt"`
}

// Request is a request to logind, with the back-off after its failures.
type Request struct {
	Op        world.OpID `json:"op,omitempty"`
	Failures  int        `json:"failures,omitempty"`
	NotBefore time.Time  `json:"notBefore"`
}

// Shutdown is one under way.
type Shutdown struct {
	StartedAt time.Time `json:"startedAt"`
	KnownAt   time.Time `json:"knownAt"` // when this agent learned of it
	Group     int       `json:"group"`   // the one that ends; the number of groups if all have ended
	// Deadline is when the next group starts to end, whatever is left of this one; zero: this one has
	// not started to end. Remaining are its pods that have not ended, by UID; Late are those of
	// earlier groups, which have taken longer.
	Deadline time.Time `json:"deadline"`
	// Incomplete is set if the group started to end before all pods were known, until they are.
	Incomplete bool            `json:"incomplete,omitempty"`
	Remaining  map[string]bool `json:"remaining,omitempty"`
	Late       map[string]bool `json:"late,omitempty"`
	// Unreported are the pods that have ended and whose final status the API server does not have.
	Unreported map[string]bool `json:"unreported,omitempty"`
	Released   bool            `json:"released,omitempty"` // the machine may go down
}

// New returns the manager for a configuration and the path of the state file. Upstream:
// newPodManager and migrateConfig in pkg/kubelet/nodeshutdown/nodeshutdown_manager.go.
func New(c *kubeletconfig.KubeletConfiguration, path string) Manager {
	m := Manager{File: File{Path: path}}
	if !config.GracefulShutdownEnabled(c) {
		return m
	}
	for _, g := range c.ShutdownGracePeriodByPodPriority {
		m.Groups = append(m.Groups,
			Group{g.Priority, time.Duration(g.ShutdownGracePeriodSeconds) * time.Second})
	}
	slices.SortStableFunc(m.Groups, func(x, y Group) int { return int(x.Priority) - int(y.Priority) })
	total, critical := c.ShutdownGracePeriod.Duration, c.ShutdownGracePeriodCriticalPods.Duration
	if len(m.Groups) == 0 && total > 0 {
		m.Groups = []Group{{0, (total - critical).Truncate(time.Second)},
			{criticalLowest, critical.Truncate(time.Second)}}
	}
	return m
}

// Enabled reports whether shutdowns are delayed.
func (m *Manager) Enabled() bool { return len(m.Groups) > 0 }

// Total returns how long all groups may take.
func (m *Manager) Total() time.Duration {
	total := time.Duration(0)
	for _, g := range m.Groups {
		total += g.Period
	}
	return total
}

// Times returns the dates at which the last shutdown started and ended, as the state file says;
// zero if it does not.
func (m *Manager) Times() (start, end time.Time) {
	return m.File.Content.StartTime, m.File.Content.EndTime
}

// UnderWay reports whether the machine shuts down.
func (m *Manager) UnderWay() bool { return m.Now != nil }

// Undecided reports whether it is not known yet if the machine shuts down: an earlier agent may
// have started to end the pods. The state file alone does not say that: it may not have been
// written in time.
func (m *Manager) Undecided() bool { return m.Enabled() && m.Now == nil && !m.Lock.Answered }

// GroupOf returns the group of a pod with a priority: the last one whose priority is not above it,
// or the first one.
func (m *Manager) GroupOf(priority int32) int {
	group := 0
	for i, g := range m.Groups {
		if g.Priority <= priority {
			group = i
		}
	}
	return group
}

// Env is what a plan sees and does outside the package.
type Env struct {
	Effects *op.Effects
	Listed  bool // all pods are known
	// EndGroup ends the pods of a group. It returns the UIDs of those that have not ended yet, and of
	// those that have.
	EndGroup func(group int, period time.Duration) (running, ended []string)
	// IsReported reports whether the API server needs no status of a pod that has ended.
	IsReported func(uid string) bool
}

// Plan takes the next steps, and returns when to plan again.
func (m *Manager) Plan(env *Env) time.Time {
	if !m.Enabled() {
		return time.Time{}
	}
	if m.Now == nil && m.Lock.Held && m.File.isUnfinished() {
		m.File.Abandoned = true // as the kubelet, whose metrics show that the end is missing
	}
	m.File.plan(env.Effects)
	if m.Now != nil {
		return m.planShutdown(env)
	}
	if !m.Lock.Held || !m.Lock.Watched {
		return m.askForLock(env.Effects)
	}
	return time.Time{}
}

// askForLock asks for the lock and a connection when that is due, and returns when it will be.
func (m *Manager) askForLock(effects *op.Effects) time.Time {
	r := &m.Lock.Delay
	return r.plan(effects, &world.DelayShutdown{AtLeast: m.Total()})
}

// plan issues the request when it is due, and returns when it will be.
func (r *Request) plan(effects *op.Effects, body any) time.Time {
	switch {
	case r.Op != 0:
	case effects.Now().Before(r.NotBefore):
		return r.NotBefore
	default:
		r.Op = effects.Issue(Owner, "", lockTimeout, body)
	}
	return time.Time{}
}

// planShutdown goes on with the shutdown. A cancellation may be missed while shutdowns are not
// watched, so logind is asked again then, and a minute after the lock was released.
func (m *Manager) planShutdown(env *Env) time.Time {
	wake := m.planGroups(env)
	if m.Now.Released || !m.Lock.Watched {
		wake = timer.Soonest(wake, m.askForLock(env.Effects))
	}
	return wake
}

// planGroups ends the groups in their order, waits for late pods and final statuses, and then
// releases the lock.
func (m *Manager) planGroups(env *Env) time.Time {
	s, now := m.Now, env.Effects.Now()
	for s.Group < len(m.Groups) {
		if s.Deadline.IsZero() || s.Incomplete && env.Listed {
			running, ended := env.EndGroup(s.Group, m.Groups[s.Group].Period)
			add(&s.Remaining, running)
			add(&s.Unreported, ended)
			s.Deadline, s.Incomplete = m.groupDeadline(env), !env.Listed
		}
		if (s.Incomplete || len(s.Remaining) > 0) && now.Before(s.Deadline) {
			return s.Deadline
		}
		s.Group++
		add(&s.Late, slices.Sorted(maps.Keys(s.Remaining)))
		s.Deadline, s.Remaining, s.Incomplete = time.Time{}, nil, false
	}
	maps.DeleteFunc(s.Unreported, func(uid string, _ bool) bool { return env.IsReported(uid) })
	deadline := s.StartedAt.Add(m.Total())
	if !s.Released && now.Before(deadline) &&
		(len(s.Late) > 0 || len(s.Unreported) > 0 || !env.Listed || !m.File.finish(env.Effects)) {
		return deadline
	}
	m.File.finish(env.Effects)
	if s.Released {
		return time.Time{}
	}
	l := &m.Lock
	if l.Permit.Op == 0 {
		l.PermittedAt = env.Effects.Now()
	}
	return l.Permit.plan(env.Effects, &world.PermitShutdown{})
}

// groupDeadline returns the deadline of the group whose pods are ended now: a period from now. If
// not all pods are known, or were not when the group started to end, it is when the group would end
// if it and all before it took their periods, so that the later groups have theirs.
func (m *Manager) groupDeadline(env *Env) time.Time {
	s := m.Now
	deadline := env.Effects.Now().Add(m.Groups[s.Group].Period)
	if env.Listed && !s.Incomplete {
		return deadline
	}
	latest := s.StartedAt
	for _, g := range m.Groups[:s.Group+1] {
		latest = latest.Add(g.Period)
	}
	latest = timer.Later(latest, s.KnownAt.Add(listBound))
	if !env.Listed {
		return latest
	}
	return timer.Soonest(deadline, latest)
}

func add(set *map[string]bool, uids []string) {
	for _, uid := range uids {
		if *set == nil {
			*set = map[string]bool{}
		}
		(*set)[uid] = true
	}
}

// HasReached reports whether the pods of a group are ending, or have ended.
func (s *Shutdown) HasReached(group int) bool {
	return group < s.Group || group == s.Group && !s.Deadline.IsZero()
}

// Await makes the shutdown wait for a pod of a group that has been reached.
func (s *Shutdown) Await(uid string, group int) {
	if group == s.Group {
		add(&s.Remaining, []string{uid})
	} else {
		add(&s.Late, []string{uid})
	}
}

// PodEnded is called when nothing of a pod runs any more, and its volumes are unmounted. It reports
// whether a shutdown has waited for that.
func (m *Manager) PodEnded(uid string) bool {
	s := m.Now
	if s == nil || !s.Remaining[uid] && !s.Late[uid] {
		return false
	}
	delete(s.Remaining, uid)
	delete(s.Late, uid)
	add(&s.Unreported, []string{uid})
	return true
}

// HandleAnnouncement handles the announcement that the machine shuts down, or that it does not any
// more. It reports whether that is news.
func (m *Manager) HandleAnnouncement(ev *world.MachineShutdown, effects *op.Effects) bool {
	switch {
	case !m.Enabled():
		return false
	case ev.Cancelled:
		m.Lock.CancelledAt = effects.Now()
		if m.Now == nil {
			return false
		}
		m.cancel(effects)
	case m.Now != nil: // a second signal
		return false
	default:
		m.start(effects)
	}
	return true
}

func (m *Manager) cancel(effects *op.Effects) {
	m.Now, m.Lock.Delay.NotBefore = nil, time.Time{}
	m.File.finish(effects)
}

func (m *Manager) start(effects *op.Effects) {
	m.Now = &Shutdown{StartedAt: effects.Now(), KnownAt: effects.Now()}
	l := &m.Lock
	l.Answered, l.Delay.Failures, l.Delay.NotBefore = true, 0, time.Time{}
	l.Permit.Failures, l.Permit.NotBefore = 0, time.Time{}
	if m.mayGoOn(effects) {
		m.Now.StartedAt = m.Now.StartedAt.Add(-m.past(effects))
	}
	if !m.File.isUnfinished() {
		m.File.begin(effects)
	}
}

// mayGoOn reports whether the state file says that an earlier agent has started to end the pods,
// and the time of all groups has not passed since.
func (m *Manager) mayGoOn(effects *op.Effects) bool {
	past := m.past(effects)
	return m.File.isUnfinished() && past > 0 && past < m.Total()
}

// past returns for how long the pods have been ending, as the state file says.
func (m *Manager) past(effects *op.Effects) time.Duration {
	return effects.Date().Sub(m.File.Content.StartTime)
}

// HandleUnwatched handles that shutdowns and cancellations are not announced for now: the
// connection was lost, or logind was restarted.
func (m *Manager) HandleUnwatched(ev *world.ShutdownUnwatched, effects *op.Effects) {
	l, now := &m.Lock, effects.Now()
	l.Watched, l.LostAt, l.Delay.NotBefore = false, now, now.Add(backoffInitial)
	effects.Log(world.LevelWarning,
		"shutdowns of the machine are not announced any more: trying again", "err", ev.Reason)
}

// HandleCompletion handles the completion of an operation. It reports whether it turns out that the
// machine shuts down, or that it does not any more.
func (m *Manager) HandleCompletion(r op.Record, ev world.Event, effects *op.Effects) bool {
	l := &m.Lock
	switch r.Call {
	case "DelayShutdown":
		l.Delay.Op = 0
		return m.handleDelay(r, ev, effects)
	case "PermitShutdown":
		l.Permit.Op, l.Held = 0, false // if the outcome is unknown, the lock is taken again
		switch {
		case ev.Err != nil:
			l.Permit.fail(ev, effects, "Unable to release the lock that delays the shutdown")
		case m.Now != nil: // it was not cancelled meanwhile
			m.Now.Released = true
			if l.Watched { // otherwise the connection is made again
				l.Delay.NotBefore = ev.Time.Add(recheckDelay)
			}
		}
	default:
		m.File.handleCompletion(r, ev, effects)
	}
	return false
}

// handleDelay handles the answer about the lock. It reports whether a shutdown has started or was
// cancelled without an announcement.
func (m *Manager) handleDelay(r op.Record, ev world.Event, effects *op.Effects) bool {
	l := &m.Lock
	answer, ok := ev.Body.(*world.ShutdownDelayed)
	isUnderWay := ev.Err.Has(world.KindConflict) // logind gives no lock away then
	if !isUnderWay && (ev.Err != nil || !ok) {
		l.Delay.fail(ev, effects, "Unable to watch the node for shutdown events")
		if l.Delay.Failures >= answersMax && !m.mayGoOn(effects) {
			l.Answered = true // pods do not wait for a logind that never answers
		}
		return false
	}
	l.Answered, l.Watched, l.Delay.Failures = true, l.LostAt.Before(r.IssuedAt), 0
	if isUnderWay {
		switch {
		case m.Now != nil && l.Watched:
			l.Delay.NotBefore = ev.Time.Add(recheckDelay)
		case m.Now != nil: // the connection was lost meanwhile: logind is asked again
		case !l.CancelledAt.Before(r.IssuedAt): // the answer was overtaken
		default:
			m.start(effects)
			return true
		}
		return false
	}
	l.Held = l.PermittedAt.Before(r.IssuedAt)
	if answer.Max < m.Total() {
		effects.Log(world.LevelError, "the machine waits shorter for a shutdown than the pods may take",
			"inhibitDelayMax", answer.Max.String(), "gracePeriod", m.Total().String(),
			"problem", answer.Problem)
	}
	if m.Now != nil && r.IssuedAt.After(m.Now.KnownAt) { // a cancellation was not heard
		m.cancel(effects)
		return true
	}
	return false
}

// fail records a failure. The first one in a row is logged.
func (r *Request) fail(ev world.Event, effects *op.Effects, message string) {
	r.Failures++
	r.NotBefore = ev.Time.Add(timer.Backoff(r.Failures, backoffInitial, backoffMax))
	if r.Failures == 1 {
		effects.Log(world.LevelError, message, "err", ev.Err.Error())
	}
}

// answersMax is the number of failures in a row after which pods are admitted although it is not
// known whether the machine shuts down, unless the state file says that it may.
const answersMax = 3

// Package node maintains the Node object: it registers the node, reconciles the labels and
// annotations of an existing object, and writes the status.
//
// Facts: the object as last observed, which object was reconciled, the readiness that was written
// last, which answer of the API server pods wait for, and the images of the runtime. Plan: one
// request at a time: reads the object if it is not known, creates it, patches its labels and
// annotations, patches its status, reads it for pods that wait. Events: the completions of these
// requests, and observations of the object by a watch.
//
// A Node that another client deletes is not created again before the agent restarts, as with the
// kubelet: an administrator who removes a node from a cluster deletes its Node while the agent
// runs. If another client creates it again, its status is written.
//
// Start reading at Node.Plan; status.go has the content of the status.
package node

import (
	"math/rand/v2"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"seedlet.dev/core/op"
	"seedlet.dev/core/runtime"
	"seedlet.dev/core/timer"
	"seedlet.dev/world"
)

const (
	retryFirst     = 200 * time.Millisecond
	retryMax       = 7 * time.Second
	requestTimeout = 10 * time.Second
	// conflictRetry is when the labels and annotations of drivers are compared again after another
	// client has changed the object before a patch of theirs.
	conflictRetry = time.Second
	// watchLagMax is how late a watch may be behind the responses to writes.
	watchLagMax = time.Second
	// readinessGrace is how long a restarted agent waits for the observations that decide whether the
	// node is ready, before it writes a status without them. A restart alone does not change the Ready
	// condition.
	readinessGrace = 10 * time.Second
	// urgentIntervalMin is the least interval between two statuses, however urgent.
	urgentIntervalMin = time.Second
	// lesserPeriod is for how long a status is written without the volumes with which it was too
	// large.
	lesserPeriod = time.Minute
)

// The subject of a patch.
const (
	metadataPart = "metadata"
	statusPart   = "status"
	driverPart   = "metadata/" // of a driver, whose name follows
)

// awaitedRead is the subject of a read that is issued only because it is awaited.
const awaitedRead = "awaited"

// Owner is the owner of the operations.
var Owner = timer.Key{Component: "node"}

// Node is the state of the Node object.
type Node struct {
	Settings Settings `json:"settings"`

	// ObjectKnown reports whether Object is the object at the API server; nil: it does not exist.
	ObjectKnown bool `json:"objectKnown"`
	// OlderSince is since when the watch has reported only versions that are older than Object; zero:
	// it has not.
	OlderSince time.Time `json:"olderSince"`
	Object     *v1.Node  `json:"object,omitempty"`
	// Registered reports whether the object has existed with an up-to-date status since the agent
	// started.
	Registered bool `json:"registered,omitempty"`
	// MetadataReconciled and StatusReconciled are the objects whose labels and annotations, or whose
	// status, have been cleared of values from before the agent started.
	MetadataReconciled types.UID `json:"metadataReconciled,omitempty"`
	StatusReconciled   types.UID `json:"statusReconciled,omitempty"`

	// Answered is the newest request to which the API server answered with the object, or that there
	// is none. Awaited is the first one that pods wait for the answer to; see Await.
	Answered world.OpID `json:"answered,omitempty"`
	Awaited  world.OpID `json:"awaited,omitempty"`
	// ReadFailures are the consecutive failures of reads that were issued only because they are
	// awaited, ReadAt is when the next one may be. They do not depend on those of other requests.
	ReadFailures int       `json:"readFailures,omitempty"`
	ReadAt       time.Time `json:"readAt"`
	// ObservedBefore is the first operation that was issued after the newest observation of the watch.
	ObservedBefore world.OpID `json:"observedBefore,omitempty"`

	Op            world.OpID         `json:"op,omitempty"`
	Failures      int                `json:"failures"` // consecutive
	NextAt        time.Time          `json:"nextAt"`   // no request is issued before
	ReadyInFlight v1.ConditionStatus `json:"readyInFlight,omitempty"`
	// ChangeInFlight reports whether the status in flight has a change.
	ChangeInFlight bool `json:"changeInFlight,omitempty"`
	// InUse and DriverWrite are what the object may get: the volumes in use of a status, and what
	// drivers of volumes need.
	InUse       *InUse       `json:"inUse,omitempty"`
	DriverWrite *DriverWrite `json:"driverWrite,omitempty"`
	// LesserUntil is until when the volumes in use stay as they are in the object: with others the API
	// server has refused the status as too large, and the conditions must not wait for that.
	LesserUntil time.Time `json:"lesserUntil,omitzero"`

	// ReadyWritten is the status of the Ready condition written last, since the agent started.
	ReadyWritten  v1.ConditionStatus `json:"readyWritten,omitempty"`
	WrittenAt     time.Time          `json:"writtenAt"`
	StatusCheckAt time.Time          `json:"statusCheckAt"` // when to compare the status
	// StatusReportAt is when to write the status even without a change.
	StatusReportAt time.Time `json:"statusReportAt"`
	// CheckDemanded and ReportDemanded are set by CheckStatusNow and ReportNow until the next
	// comparison: a write in flight may have an older status.
	CheckDemanded  bool   `json:"checkDemanded,omitempty"`
	ReportDemanded bool   `json:"reportDemanded,omitempty"`
	ReportInFlight bool   `json:"reportInFlight,omitempty"` // the status in flight was demanded
	Reports        uint64 `json:"reports"`                  // statuses written
	// EventsInFlight are the Events to record when the status in flight is written.
	EventsInFlight []Event `json:"eventsInFlight,omitempty"`
	// Unschedulable is whether the object was cordoned when the last Event about that was recorded.
	Unschedulable bool `json:"unschedulable,omitempty"`
	// MetadataCheckAt is when to compare labels and annotations.
	MetadataCheckAt time.Time `json:"metadataCheckAt"`
	// DriversCheckAt is when to compare those of drivers of volumes; if that is due, DriverDone is the
	// last driver, by their names, for which this is done.
	DriversCheckAt time.Time `json:"driversCheckAt"`
	DriverDone     string    `json:"driverDone,omitempty"`
	// DriverConflict reports whether another client has changed the object before a patch of a driver,
	// since DriversCheckAt.
	DriverConflict bool `json:"driverConflict,omitempty"`

	Images  Images  `json:"images"`
	Startup Startup `json:"startup"`
}

// Startup is when the object was created by this run of the agent, for metrics. All times are zero
// if the object existed before.
type Startup struct {
	AttemptedAt  time.Time `json:"attemptedAt"` // the first attempt to create it
	RegisteredAt time.Time `json:"registeredAt"`
	ReadyAt      time.Time `json:"readyAt"` // the first status with a true Ready condition was written
}

// Env is the state of the rest of the agent that the Node object depends on.
type Env struct {
	Boot        *world.Boot
	Booted      time.Time
	Runtime     *runtime.Runtime
	PLEGProblem string // why the PLEG is not healthy; empty if it is
	Shutdown    string // what the Ready condition says while the machine shuts down; else empty

	Pressure        []v1.NodeConditionType // the pressure conditions that are true
	PressureUnknown bool                   // the node was not observed yet

	Relisted bool // a relist has succeeded since the agent started
	Effects  *op.Effects

	// VolumesInUse returns the names of the volumes that are not to be detached, sorted, and false
	// before they are known. Metadata returns the next driver of volumes after another one, by their
	// names, that needs labels and annotations which the object does not have, and these; nil removes
	// an annotation. Nil for a node without such volumes.
	VolumesInUse func(*v1.Node) (names []v1.UniqueVolumeName, known bool)
	Metadata     func(object *v1.Node, after string, now time.Time) (driver string, labels,
		annotations map[string]any)
}

// isReadinessKnown reports whether the observations that decide readiness have been made, or are
// overdue.
func (e *Env) isReadinessKnown() bool {
	return e.Relisted && !e.Runtime.AsOf.IsZero() ||
		!e.Effects.Now().Before(e.Booted.Add(readinessGrace))
}

// UID returns the UID of the object; empty without an object.
func (n *Node) UID() types.UID {
	if !n.ObjectKnown || n.Object == nil {
		return ""
	}
	return n.Object.UID
}

// WatchTarget returns what to watch at the API server.
func (n *Node) WatchTarget() world.WatchTarget {
	return world.WatchTarget{Resource: world.ResourceNodes, Name: n.Settings.Name}
}

// Plan issues the next requests, and returns when to plan again.
func (n *Node) Plan(env *Env) time.Time {
	if at := n.verifyAt(); !at.IsZero() && !env.Effects.Now().Before(at) {
		n.ObjectKnown, n.OlderSince = false, time.Time{}
	}
	wake := timer.Soonest(n.Images.plan(env.Effects), n.plan(env))
	return timer.Soonest(wake, n.verifyAt())
}

// verifyAt returns when the object is read again because the watch reports an older one; zero:
// never.
func (n *Node) verifyAt() time.Time {
	if n.OlderSince.IsZero() {
		return time.Time{}
	}
	return n.OlderSince.Add(watchLagMax)
}

func (n *Node) plan(env *Env) time.Time {
	switch {
	case n.Op != 0:
		return time.Time{}
	case n.Answered < n.Awaited && n.Failures > 0 && !env.Effects.Now().Before(n.ReadAt):
		n.read(env, awaitedRead) // also if a write is refused again and again
		return time.Time{}
	case env.Effects.Now().Before(n.NextAt) && n.Answered < n.Awaited:
		return timer.Soonest(n.NextAt, n.ReadAt)
	case env.Effects.Now().Before(n.NextAt):
		return n.NextAt
	case !n.ObjectKnown:
		n.read(env, "")
		return time.Time{}
	}
	var next time.Time // without an object: the watch reports a new one
	if n.Object != nil {
		next = n.planObject(env)
	} else if n.Settings.Register && !n.Registered {
		node := n.newObject(env)
		n.ReadyInFlight, n.ChangeInFlight = readyStatus(&node.Status), true
		n.EventsInFlight = n.statusEvents(&v1.NodeStatus{}, &node.Status)
		if n.Startup.AttemptedAt.IsZero() {
			n.Startup.AttemptedAt = env.Effects.Now()
		}
		n.issue(env, "", &world.CreateObject{Object: world.Object{Node: node}})
	}
	if n.Op == 0 && n.Answered < n.Awaited { // a write would have been answered with the object, too
		if env.Effects.Now().Before(n.ReadAt) {
			return timer.Soonest(next, n.ReadAt)
		}
		n.read(env, awaitedRead)
		return time.Time{}
	}
	return next
}

// read reads the object.
func (n *Node) read(env *Env, subject string) {
	n.issue(env, subject, &world.GetObject{Resource: world.ResourceNodes, Name: n.Settings.Name})
}

// Await has the object read, unless a request that is issued as a given operation or later is
// answered with it anyway. The caller plans the Node, and waits until HasAnswered.
func (n *Node) Await(id world.OpID) { n.Awaited = max(n.Awaited, id) }

// HasAnswered reports whether a request that was issued as a given operation or later has been
// answered with the object, or that there is none.
func (n *Node) HasAnswered(id world.OpID) bool { return n.Answered >= id }

// planObject reconciles the metadata of the object, then its status. A failure of one does not
// delay the other.
func (n *Node) planObject(env *Env) time.Time {
	n.recordScheduling(env.Effects)
	now := env.Effects.Now()
	if !now.Before(n.MetadataCheckAt) {
		n.MetadataCheckAt = now.Add(n.Settings.CheckPeriod)
		patch := n.metadataPatch(env, n.Settings.Register && n.MetadataReconciled != n.Object.UID)
		if patch != nil {
			n.issue(env, metadataPart, n.newPatch(patch, nil))
			return time.Time{}
		}
		n.MetadataReconciled = n.Object.UID
	}
	if env.Metadata != nil && !now.Before(n.DriversCheckAt) && n.patchOfDriver(env) {
		return time.Time{}
	}
	next := timer.Soonest(n.MetadataCheckAt, n.DriversCheckAt)
	return timer.Soonest(next, n.planStatus(env))
}

// patchOfDriver issues the patch of the labels and annotations of the next driver, and reports
// whether there is one. They are apart from those of the node and of other drivers: the API server
// may refuse them.
func (n *Node) patchOfDriver(env *Env) (issued bool) {
	now := env.Effects.Now()
	driver, labels, annotations := env.Metadata(n.Object, n.DriverDone, now)
	if n.DriverDone = driver; driver == "" {
		wait := n.Settings.CheckPeriod
		if n.DriverConflict {
			wait = min(conflictRetry, wait)
		}
		n.DriversCheckAt, n.DriverConflict = now.Add(wait), false
		return false
	}
	fields := metadataFields(labels, annotations)
	fields["resourceVersion"] = n.Object.ResourceVersion
	n.noteDriver(driver)
	n.issue(env, driverPart+driver, n.newPatch(fields, nil))
	return true
}

// DriverOf returns the driver whose labels and annotations an operation writes; empty: it writes
// none.
func DriverOf(r op.Record) string {
	if driver, is := strings.CutPrefix(r.Subject, driverPart); is {
		return driver
	}
	return ""
}

// RefusedDriver returns whose labels and annotations the API server has refused by a completion;
// empty: it is none. The patch of another object of the name is not invalid: it conflicts, as that
// has another version.
func RefusedDriver(r op.Record, ev world.Event) string {
	if ev.Err.Has(world.KindRefused) || ev.Err.Has(world.KindTooLarge) ||
		ev.Err.Has(world.KindInvalid) {
		return DriverOf(r)
	}
	return ""
}

func (n *Node) planStatus(env *Env) time.Time {
	now, reconcile := env.Effects.Now(), n.Settings.Register && n.StatusReconciled != n.Object.UID
	reported, ready := readyStatus(&n.Object.Status), env.readyCondition(&n.Settings)
	if reported != "" && !env.isReadinessKnown() {
		return env.Booted.Add(readinessGrace)
	}
	if now.Before(n.StatusCheckAt) && !n.CheckDemanded && !n.hasPending() {
		urgentAt := n.WrittenAt.Add(urgentIntervalMin)
		switch urgent := n.ReadyWritten != ready.Status || reported == v1.ConditionUnknown; {
		case !urgent && !reconcile:
			return timer.Soonest(n.StatusCheckAt, n.readyUntil(env))
		case now.Before(urgentAt):
			return urgentAt
		}
	}
	desired := n.desiredStatus(env, reconcile)
	changes := statusPatch(&n.Object.Status, desired)
	isDue := n.ReportDemanded || n.hasPending() || !now.Before(n.StatusReportAt)
	n.ChangeInFlight = changes != nil || n.ReportDemanded || n.StatusReportAt.IsZero()
	n.ReportInFlight, n.CheckDemanded, n.ReportDemanded = n.ReportDemanded, false, false
	if changes == nil && (!isDue || hasSameConditions(&n.Object.Status, desired)) {
		n.recordUpToDate(now, ready.Status)
		return timer.Soonest(n.StatusCheckAt, n.readyUntil(env))
	}
	n.ReadyInFlight, n.EventsInFlight = ready.Status, n.statusEvents(&n.Object.Status, desired)
	var metadata patchFields
	if _, changesInUse := changes["volumesInUse"]; changesInUse {
		n.noteInUse(desired.VolumesInUse)
		metadata = patchFields{"resourceVersion": n.Object.ResourceVersion}
	}
	n.issue(env, statusPart, n.newPatch(metadata, withConditions(changes, desired)))
	return time.Time{}
}

// CheckStatusNow has the status compared at the next plan: facts that it is made from have changed.
func (n *Node) CheckStatusNow() { n.CheckDemanded = true }

// CheckDriversNow has the labels and annotations of drivers compared at the next plan.
func (n *Node) CheckDriversNow() { n.DriversCheckAt, n.DriverDone = time.Time{}, "" }

// ReportNow has the status written at the next plan, even without a change.
func (n *Node) ReportNow() { n.CheckDemanded, n.ReportDemanded = true, true }

// hasSameConditions reports whether the conditions are the same with their times, as after the date
// was set back to that of the last report.
func hasSameConditions(stored, desired *v1.NodeStatus) bool {
	return equality.Semantic.DeepEqual(stored.Conditions, desired.Conditions)
}

// readyUntil returns when the node becomes unready if no further observation is made.
func (n *Node) readyUntil(env *Env) time.Time {
	if n.ReadyWritten != v1.ConditionTrue {
		return time.Time{}
	}
	return env.Runtime.DownAt()
}

// recordUpToDate records that the written status is up to date.
func (n *Node) recordUpToDate(now time.Time, ready v1.ConditionStatus) {
	n.ReadyWritten, n.StatusCheckAt = ready, now.Add(n.Settings.CheckPeriod)
	n.StatusReconciled, n.Registered, n.Failures = n.Object.UID, true, 0
}

func (n *Node) issue(env *Env, subject string, body any) {
	n.Op = env.Effects.Issue(Owner, subject, requestTimeout, body)
}

// Observe applies an observation of the watch: the object, or nil for its deletion. Next is the
// operation that will be issued next. A deletion is verified by a read, since the object may have
// been created again. So is a version older than the known one, unless the watch catches up soon:
// the API server may have been restored from a backup.
func (n *Node) Observe(o *v1.Node, next world.OpID, now time.Time) {
	n.ObservedBefore = next
	defer n.settlePending()
	switch {
	case o == nil:
		n.ObjectKnown, n.OlderSince = n.ObjectKnown && n.Object == nil, time.Time{}
	case n.Object == nil || !isOlder(o, n.Object):
		n.Object, n.OlderSince = o, time.Time{}
	case n.OlderSince.IsZero():
		n.OlderSince = now
	}
}

// isOlder compares resource versions, which increase. A version that cannot be compared counts as
// newer.
func isOlder(x, y *v1.Node) bool {
	order, err := resourceversion.CompareResourceVersion(x.ResourceVersion, y.ResourceVersion)
	return err == nil && order < 0
}

// HandleCompletion applies the completion of an operation.
func (n *Node) HandleCompletion(id world.OpID, r op.Record, ev world.Event, boot *world.Boot,
	effects *op.Effects) {
	if id == n.Images.Op {
		n.Images.handleCompletion(ev, n.Settings.ImagesMax)
		return
	}
	n.Op = 0
	defer n.settlePending()
	body, ok := ev.Body.(*world.ObjectRead)
	reads := r.Call == "GetObject"
	switch {
	case ev.Err.Has(world.KindNotFound):
		n.Answered, n.ReadFailures, n.ReadAt = id, 0, time.Time{}
		n.recordAbsence(effects)
		if reads {
			return
		}
	case ev.Err == nil && ok && body.Object.Node != nil:
		n.ObjectKnown = n.ObjectKnown || reads || id >= n.ObservedBefore
		if id >= n.ObservedBefore {
			n.OlderSince = time.Time{}
		}
		n.Answered, n.ReadFailures, n.ReadAt = id, 0, time.Time{}
		// If the watch has reported after the request was issued, it may be ahead.
		if n.Object == nil || id >= n.ObservedBefore || !isOlder(body.Object.Node, n.Object) {
			n.Object = body.Object.Node
		}
		if !reads {
			n.recordWrite(r, ev.Time, boot.Seed, effects)
		}
		return
	}
	if r.Subject == awaitedRead {
		n.ReadFailures++
		n.ReadAt = ev.Time.Add(timer.RetryDelay(ev.Err, n.ReadFailures, retryFirst, retryMax))
		return
	}
	switch {
	case RefusedDriver(r, ev) != "":
		n.failPending(r, ev.Err)
		n.Failures = 0
		return
	case DriverOf(r) != "" && ev.Err.Has(world.KindConflict): // it has its turn again soon
		n.failPending(r, ev.Err)
		n.ObjectKnown, n.DriverConflict = false, true
		return
	}
	n.recordFailure(r, ev, effects)
}

// recordAbsence records that there is no Node object.
func (n *Node) recordAbsence(effects *op.Effects) {
	if n.Object != nil && n.StatusReconciled != "" {
		effects.Log(world.LevelWarning,
			"the Node object was deleted; it is not created again before the agent restarts")
	}
	n.ObjectKnown, n.Object = true, nil
	n.MetadataReconciled, n.StatusReconciled, n.ReadyWritten = "", "", ""
	n.StatusReportAt, n.StatusCheckAt, n.MetadataCheckAt = time.Time{}, time.Time{}, time.Time{}
	n.CheckDriversNow()
}

// recordWrite applies a successful write.
func (n *Node) recordWrite(r op.Record, now time.Time, seed uint64, effects *op.Effects) {
	n.Failures, n.NextAt = 0, time.Time{}
	switch {
	case DriverOf(r) != "":
	case r.Subject == metadataPart:
		n.MetadataReconciled = n.Object.UID
	case r.Subject == statusPart:
		n.recordStatusWrite(r, now, seed)
		n.recordEvents(effects)
	default:
		effects.Log(world.LevelInfo, "node registered", "nodeUID", string(n.Object.UID))
		if n.Startup.RegisteredAt.IsZero() {
			n.Startup.RegisteredAt = now
		}
		n.MetadataReconciled = n.Object.UID
		n.recordStatusWrite(r, now, seed)
		n.recordEvents(effects)
		n.StatusCheckAt = now // check whether the server stored the object unchanged
	}
}

// recordStatusWrite records that the object has the status in flight. After a change the next
// report is due at a random time, so that nodes that changed together do not report together from
// then on.
func (n *Node) recordStatusWrite(r op.Record, now time.Time, seed uint64) {
	every := n.Settings.ReportPeriod
	n.StatusReportAt = r.IssuedAt.Add(every)
	if n.ChangeInFlight {
		draw := rand.New(rand.NewPCG(seed, n.Reports)).Float64()
		n.StatusReportAt = n.StatusReportAt.Add(time.Duration((draw - 0.5) * float64(every)))
	}
	n.Reports++
	n.WrittenAt = now
	if !n.Startup.RegisteredAt.IsZero() && n.Startup.ReadyAt.IsZero() &&
		n.ReadyInFlight == v1.ConditionTrue {
		n.Startup.ReadyAt = now
	}
	n.recordUpToDate(now, n.ReadyInFlight)
}

// recordFailure records a failure and sets the back-off. The object is read before the next write
// after a conflict, after an unknown outcome, after a failed creation, since the object may exist,
// and after a patch that was invalid, which is a server's response to a patch with another UID.
func (n *Node) recordFailure(r op.Record, ev world.Event, effects *op.Effects) {
	err := ev.Err
	if err == nil {
		err = world.Errorf(world.KindInternal, r.Call, "answered without a Node")
	}
	switch err.Kind {
	case world.KindNotFound, world.KindThrottled, world.KindCanceled, world.KindExhausted,
		world.KindTooLarge:
	case world.KindRefused:
		n.ObjectKnown = n.ObjectKnown && r.Call != "CreateObject"
	default:
		n.ObjectKnown = false
	}
	if n.Failures == 0 && !err.Has(world.KindExists) {
		level := world.LevelWarning
		if err.Has(world.KindConflict) {
			level = world.LevelInfo // another client has changed the object meanwhile
		}
		effects.Log(level, "reading or writing the Node object failed", "part", r.Subject,
			"err", err.Error())
	}
	n.Failures++
	if DriverOf(r) != "" && n.Failures == 1 {
		n.CheckDriversNow() // after more failures in a row it waits for its turn, as the status does
	}
	if r.Subject == statusPart {
		n.CheckDemanded, n.ReportDemanded = true, n.ReportDemanded || n.ReportInFlight
		if err.Has(world.KindTooLarge) && n.InUse != nil {
			n.LesserUntil = ev.Time.Add(lesserPeriod)
		}
	}
	n.failPending(r, err)
	wait := timer.RetryDelay(err, n.Failures, retryFirst, retryMax)
	n.NextAt = ev.Time.Add(min(wait, max(n.Settings.CheckPeriod, retryMax)))
}

// Package lease renews the node's lease, by which the cluster knows that the node is alive.
//
// Facts: the Lease object as last observed, and when it was renewed. Plan: reads the object if it
// is not known, creates it if it does not exist and the Node does, else renews it every quarter of
// its duration.
// Events: the completions of these requests. After a conflict or an unknown outcome the object is
// read again; the attempts never end. The package is separate from package node, so that a hanging
// status update does not delay a renewal. Start reading at Lease.Plan.
package lease

import (
	"math/rand/v2"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"seedlet.dev/core/op"
	"seedlet.dev/core/timer"
	"seedlet.dev/world"
)

// The kubelet's values.
const (
	retryFirst     = 200 * time.Millisecond
	retryMax       = 7 * time.Second
	jitterMax      = 0.04 // as a fraction of the renew interval
	requestTimeout = 10 * time.Second
)

// Owner is the owner of the operations.
var Owner = timer.Key{Component: "lease"}

// Lease is the state of the node's lease.
type Lease struct {
	Node     string        `json:"node"`
	Duration time.Duration `json:"duration"` // without a renewal for this long the node counts as dead

	// ObjectKnown reports whether Object is the object at the API server; nil: it does not exist.
	ObjectKnown bool                  `json:"objectKnown"`
	Object      *coordinationv1.Lease `json:"object,omitempty"`

	// NodeOp, if the lease does not exist, is the first operation whose answer tells of the Node that
	// will own it: one from before the lease was missing may tell of the Node with which it was
	// garbage-collected. Zero: not planned yet.
	NodeOp world.OpID `json:"nodeOp,omitempty"`

	Op        world.OpID `json:"op,omitempty"`
	NextAt    time.Time  `json:"nextAt"`
	Failures  int        `json:"failures"`  // consecutive
	RenewedAt time.Time  `json:"renewedAt"` // when the newest successful renewal was issued
	Renewals  uint64     `json:"renewals"`
}

// Node is the node's Node object at the API server.
type Node interface {
	UID() types.UID // empty: it does not exist
	// Await has the object read, unless a request that is issued as a given operation or later is
	// answered with it anyway. HasAnswered reports whether one has been.
	Await(world.OpID)
	HasAnswered(world.OpID) bool
}

// Plan issues the next request if due, and returns when to plan again.
func (l *Lease) Plan(node Node, effects *op.Effects) time.Time {
	now := effects.Now()
	switch {
	case l.Op != 0:
		return time.Time{}
	case now.Before(l.NextAt):
		return l.NextAt
	case !l.ObjectKnown:
		l.issue(effects, &world.GetObject{Resource: world.ResourceLeases,
			Namespace: v1.NamespaceNodeLease, Name: l.Node})
	case l.Object != nil:
		renewed := l.renewedLease(node.UID(), effects.Date())
		l.issue(effects, &world.UpdateObject{Object: world.Object{Lease: renewed}})
	default:
		return l.planCreation(node, effects)
	}
	return time.Time{}
}

// planCreation creates the lease once the Node was read that owns it. Its watch may be late.
// Upstream reads the Node for each creation, too: SetNodeOwnerFunc in
// pkg/kubelet/util/nodelease.go.
func (l *Lease) planCreation(node Node, effects *op.Effects) time.Time {
	if l.NodeOp == 0 {
		l.NodeOp = effects.NextID()
	}
	if !node.HasAnswered(l.NodeOp) {
		node.Await(l.NodeOp)
		return time.Time{}
	}
	if node.UID() == "" {
		l.NodeOp, l.NextAt = 0, effects.Now().Add(retryMax)
		return l.NextAt
	}
	created := l.renewedLease(node.UID(), effects.Date())
	l.issue(effects, &world.CreateObject{Object: world.Object{Lease: created}})
	return time.Time{}
}

// AwaitsNode reports whether the lease cannot be created before the Node has been read.
func (l *Lease) AwaitsNode() bool { return l.NodeOp != 0 && l.Op == 0 }

// NodeObserved makes the next plan create the lease, if that waits for the Node to exist.
func (l *Lease) NodeObserved() {
	if l.ObjectKnown && l.Object == nil && l.Failures == 0 {
		l.NextAt = time.Time{}
	}
}

// RenewNow makes the next plan renew the lease, because the date was changed. After a failure the
// lease keeps its back-off.
func (l *Lease) RenewNow() {
	if l.Failures == 0 {
		l.NextAt = time.Time{}
	}
}

func (l *Lease) issue(effects *op.Effects, body any) {
	l.Op = effects.Issue(Owner, "", min(requestTimeout, l.Duration/4), body)
}

// renewedLease returns the object with the fields that the node sets.
func (l *Lease) renewedLease(node types.UID, date time.Time) *coordinationv1.Lease {
	lease := l.Object.DeepCopy()
	if lease == nil {
		lease = &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
			Namespace: v1.NamespaceNodeLease, Name: l.Node}}
	}
	name, seconds := l.Node, int32(l.Duration/time.Second)
	if lease.Spec.HolderIdentity == nil {
		lease.Spec.HolderIdentity = &name
	}
	renewal := metav1.NewMicroTime(date.Truncate(time.Microsecond)) // the precision of the API
	lease.Spec.LeaseDurationSeconds, lease.Spec.RenewTime = &seconds, &renewal
	if node != "" {
		lease.OwnerReferences = ownerReferences(lease.OwnerReferences, l.Node, node)
	}
	return lease
}

// ownerReferences returns the owners of the lease: with this Node instead of an earlier Node of the
// same name, with which the lease would be garbage-collected.
func ownerReferences(current []metav1.OwnerReference, name string,
	node types.UID) []metav1.OwnerReference {
	owners := []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: name, UID: node}}
	for _, other := range current {
		if other.Kind != "Node" {
			owners = append(owners, other)
		} else if other.UID == node {
			owners[0] = other
		}
	}
	return owners
}

// HandleCompletion applies the completion of a request, and reports whether the lease was renewed.
func (l *Lease) HandleCompletion(seed uint64, r op.Record, ev world.Event,
	effects *op.Effects) bool {
	l.Op = 0
	body, ok := ev.Body.(*world.ObjectRead)
	reads := r.Call == world.CallName(&world.GetObject{})
	switch {
	case ev.Err.Has(world.KindNotFound):
		l.ObjectKnown, l.Object, l.NodeOp = true, nil, 0
		if reads {
			return false // no failure: the lease is created next
		}
	case ev.Err == nil && ok && body.Object.Lease != nil:
		if l.Failures > 0 && !reads {
			effects.Log(world.LevelInfo, "lease renewed after failures", "failures", l.Failures)
		}
		l.ObjectKnown, l.Object, l.NodeOp = true, body.Object.Lease, 0
		if reads {
			return false
		}
		l.Failures, l.RenewedAt = 0, r.IssuedAt
		l.NextAt = r.IssuedAt.Add(l.renewInterval(seed))
		l.Renewals++
		return true
	}
	l.recordFailure(r, ev, effects)
	return false
}

// recordFailure records a failure and sets the back-off. The object is read again after an unknown
// outcome, and after an error which means that the known object is outdated: a conflict, a name
// that is taken, an invalid request.
func (l *Lease) recordFailure(r op.Record, ev world.Event, effects *op.Effects) {
	err := ev.Err
	if err == nil {
		err = world.Errorf(world.KindInternal, r.Call, "answered without a lease")
	}
	switch err.Kind {
	case world.KindNotFound, world.KindThrottled, world.KindRefused, world.KindCanceled,
		world.KindExhausted:
	default:
		l.ObjectKnown = false
	}
	if l.Failures == 0 {
		effects.Log(world.LevelWarning, "renewing the lease failed", "err", err.Error())
	}
	l.Failures++
	wait := timer.RetryDelay(err, l.Failures, retryFirst, retryMax)
	l.NextAt = ev.Time.Add(min(wait, retryMax))
}

// renewInterval returns the time until the next renewal, with jitter, so that nodes that started
// together do not renew together.
func (l *Lease) renewInterval(seed uint64) time.Duration {
	quarter := l.Duration / 4
	jitter := rand.New(rand.NewPCG(seed, l.Renewals)).Float64()
	return quarter + time.Duration(jitter*jitterMax*float64(quarter))
}

// Package lease renews the lease by which the cluster knows that the node is alive.
//
// It keeps: the lease as the server had it last, and when it was renewed. It plans: a reading of
// it if it is not known, its making if there is none, and else a renewal every quarter of its
// duration. It takes: the answers. After a conflict, or an outcome that is not known, it is read
// again; nothing ever ends the trying. It is apart from package node, so that a status that
// hangs does not delay a renewal. Start reading at Lease.Plan.
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

// The kubelet's numbers.
const (
	retryFirst     = 200 * time.Millisecond
	retryMost      = 7 * time.Second
	jitterMost     = 0.04 // of the time between two renewals
	requestTimeout = 10 * time.Second
)

// Owner is who the operations belong to.
var Owner = timer.Key{Component: "lease"}

// Lease is what is known about the node's lease.
type Lease struct {
	Node     string        `json:"node"`
	Duration time.Duration `json:"duration"` // without a renewal the node counts as dead after it

	// Known says that Object is what there is, nil if there is none.
	Known  bool                  `json:"known"`
	Object *coordinationv1.Lease `json:"object,omitempty"`

	Op        world.OpID `json:"op,omitempty"`
	NextAt    time.Time  `json:"nextAt"`
	Failures  int        `json:"failures"`  // in a row
	RenewedAt time.Time  `json:"renewedAt"` // when the newest renewal that succeeded was asked for
	Renewals  uint64     `json:"renewals"`
}

// Plan asks for the next thing if it is time, and says when to be called again. A lease belongs
// to its Node, so without the UID of that none is made.
func (l *Lease) Plan(node types.UID, out *op.Out) time.Time {
	now := out.Now()
	switch {
	case l.Op != 0:
		return time.Time{}
	case now.Before(l.NextAt):
		return l.NextAt
	case !l.Known:
		l.ask(out, &world.GetObject{Resource: world.ResourceLeases,
			Namespace: v1.NamespaceNodeLease, Name: l.Node})
	case l.Object != nil:
		l.ask(out, &world.UpdateObject{Object: world.Object{Lease: l.renewed(node, now)}})
	case node != "":
		l.ask(out, &world.CreateObject{Object: world.Object{Lease: l.renewed(node, now)}})
	}
	return time.Time{}
}

func (l *Lease) ask(out *op.Out, body any) {
	l.Op = out.Ask(Owner, "", min(requestTimeout, l.Duration/4), body)
}

// renewed is the lease with what is the node's to say.
func (l *Lease) renewed(node types.UID, now time.Time) *coordinationv1.Lease {
	lease := l.Object.DeepCopy()
	if lease == nil {
		lease = &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
			Namespace: v1.NamespaceNodeLease, Name: l.Node}}
	}
	name, seconds := l.Node, int32(l.Duration/time.Second)
	if lease.Spec.HolderIdentity == nil {
		lease.Spec.HolderIdentity = &name
	}
	renewal := metav1.NewMicroTime(now.Truncate(time.Microsecond)) // JSON has no more
	lease.Spec.LeaseDurationSeconds, lease.Spec.RenewTime = &seconds, &renewal
	if node != "" {
		lease.OwnerReferences = owners(lease.OwnerReferences, l.Node, node)
	}
	return lease
}

// owners are the owners of the lease: this Node, and not one that had its name before it, with
// which the lease would be removed.
func owners(are []metav1.OwnerReference, name string, node types.UID) []metav1.OwnerReference {
	owners := []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: name, UID: node}}
	for _, other := range are {
		if other.Kind != "Node" {
			owners = append(owners, other)
		} else if other.UID == node {
			owners[0] = other
		}
	}
	return owners
}

// Answered takes an answer. It reports whether the lease was renewed.
func (l *Lease) Answered(seed uint64, r op.Record, ev world.Event, out *op.Out) bool {
	l.Op = 0
	body, ok := ev.Body.(*world.ObjectRead)
	reads := r.Call == world.Call(&world.GetObject{})
	switch {
	case ev.Err.Has(world.KindNotFound):
		l.Known, l.Object = true, nil
		if reads {
			return false // no failure: it is made next
		}
	case ev.Err == nil && ok && body.Object.Lease != nil:
		if l.Failures > 0 && !reads {
			out.Log(world.LevelInfo, "the lease is renewed again", "failures", l.Failures)
		}
		l.Known, l.Object = true, body.Object.Lease
		if reads {
			return false
		}
		l.Failures, l.RenewedAt = 0, r.Began
		l.NextAt = r.Began.Add(l.period(seed))
		l.Renewals++
		return true
	}
	l.failed(r, ev, out)
	return false
}

// failed puts the next try off. What is known is still true only if the server says that nothing
// was done, and that not for another lease than expected.
func (l *Lease) failed(r op.Record, ev world.Event, out *op.Out) {
	err := ev.Err
	if err == nil {
		err = world.Errorf(world.KindInternal, r.Call, "answered without a lease")
	}
	switch err.Kind {
	case world.KindNotFound, world.KindThrottled, world.KindRefused, world.KindCanceled,
		world.KindExhausted:
	default:
		l.Known = false
	}
	if l.Failures == 0 {
		out.Log(world.LevelWarning, "the lease is not renewed", "error", err.Error())
	}
	l.Failures++
	wait := timer.Retry(err, l.Failures, retryFirst, retryMost)
	l.NextAt = ev.Time.Add(min(wait, retryMost))
}

// period is the time until the next renewal, a bit different each time, so that nodes that began
// together drift apart.
func (l *Lease) period(seed uint64) time.Duration {
	quarter := l.Duration / 4
	draw := rand.New(rand.NewPCG(seed, l.Renewals)).Float64()
	return quarter + time.Duration(draw*jitterMost*float64(quarter))
}

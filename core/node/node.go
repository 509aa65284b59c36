// Package node keeps the Node object true: it makes it, puts right what is the node's own in one
// that exists, and writes its status.
//
// It keeps: the object as it was seen last, which one was put right, what was said last of the
// node being ready, and the images of the runtime. It plans, one operation at a time: a reading of
// the object if it is not known, its making, its labels and annotations, its status. It takes: the
// answers, and what a watch of the object tells. A Node that somebody deletes is not made again
// before the agent is started anew, as with the kubelet: whoever takes a node out of a cluster
// deletes it while it runs. If somebody else makes it again, its status is written.
//
// Start reading at Node.Plan; status.go has what the object shall say.
package node

import (
	"math/rand/v2"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"seedlet.dev/core/op"
	"seedlet.dev/core/runtime"
	"seedlet.dev/core/timer"
	"seedlet.dev/world"
)

const (
	retryFirst     = 200 * time.Millisecond
	retryMost      = 7 * time.Second
	requestTimeout = 10 * time.Second
	// sureWithin is how long a restarted agent has to find out whether the node is ready, before
	// it says what it knows. A restart alone flips no readiness.
	sureWithin = 10 * time.Second
	// urgentAfter is the least time from one status to the next, however urgent.
	urgentAfter = time.Second
)

// What a patch is about.
const (
	describing = "metadata"
	reporting  = "status"
)

// Owner is who the operations belong to.
var Owner = timer.Key{Component: "node"}

// Node is what is known about the Node object.
type Node struct {
	Settings Settings `json:"settings"`

	// Known says that Object is what there is, nil if there is none.
	Known  bool     `json:"known"`
	Object *v1.Node `json:"object,omitempty"`
	// Registered says that the object was there once in this life, as it should be.
	Registered bool `json:"registered,omitempty"`
	// Described and Fixed are the objects in which what was left from before was put right: in
	// labels and annotations, and in the status.
	Described types.UID `json:"described,omitempty"`
	Fixed     types.UID `json:"fixed,omitempty"`

	Op       world.OpID         `json:"op,omitempty"`
	Failures int                `json:"failures"` // in a row
	NextAt   time.Time          `json:"nextAt"`   // nothing is asked before
	Saying   v1.ConditionStatus `json:"saying,omitempty"`
	Changes  bool               `json:"changes,omitempty"` // the status in flight says something new

	Said     v1.ConditionStatus `json:"said,omitempty"` // of being ready, in this life
	WroteAt  time.Time          `json:"wroteAt"`
	CheckAt  time.Time          `json:"checkAt"`        // when the status is to be compared
	ReportAt time.Time          `json:"reportAt"`       // when it is to be written in any case
	Reports  uint64             `json:"reports"`        // written so far
	News     []News             `json:"news,omitempty"` // in the status in flight
	// DescribeAt is when labels and annotations are to be compared.
	DescribeAt time.Time `json:"describeAt"`

	Images Images `json:"images"`
}

// Env is what the node is like.
type Env struct {
	Boot    *world.Boot
	Booted  time.Time
	Runtime *runtime.Runtime
	PLEG    string // why the listing of the runtime is not healthy, empty if it is
	Listed  bool   // it has succeeded in this life
	Out     *op.Out
}

// sure says whether it has been found out if the node is ready, or should have been by now.
func (e *Env) sure() bool {
	return e.Listed && !e.Runtime.AsOf.IsZero() || !e.Out.Now().Before(e.Booted.Add(sureWithin))
}

// UID is that of the object; empty if there is none.
func (n *Node) UID() types.UID {
	if !n.Known || n.Object == nil {
		return ""
	}
	return n.Object.UID
}

// Watched is what has to be watched of the API.
func (n *Node) Watched() world.Watched {
	return world.Watched{Resource: world.ResourceNodes, Name: n.Settings.Name}
}

// Plan asks for what is next, and says when to be called again.
func (n *Node) Plan(env *Env) time.Time {
	return timer.Soonest(n.Images.plan(env.Out), n.plan(env))
}

func (n *Node) plan(env *Env) time.Time {
	switch {
	case n.Op != 0:
		return time.Time{}
	case env.Out.Now().Before(n.NextAt):
		return n.NextAt
	case !n.Known:
		n.ask(env, "", &world.GetObject{Resource: world.ResourceNodes, Name: n.Settings.Name})
		return time.Time{}
	case n.Object != nil:
		return n.planObject(env)
	case n.Settings.Register && !n.Registered:
		node := n.fresh(env)
		n.Saying, n.Changes = readiness(&node.Status), true
		n.News = n.news(&v1.NodeStatus{}, &node.Status)
		n.ask(env, "", &world.CreateObject{Object: world.Object{Node: node}})
	}
	return time.Time{} // a watch tells when there is one
}

// planObject puts right what is wrong in the object: first what describes it, then the status.
// Neither waits for the other if it fails.
func (n *Node) planObject(env *Env) time.Time {
	now := env.Out.Now()
	if !now.Before(n.DescribeAt) {
		n.DescribeAt = now.Add(n.Settings.CheckEvery)
		patch := n.metadataPatch(env.Boot, n.Settings.Register && n.Described != n.Object.UID)
		if patch != nil {
			n.ask(env, describing, n.patch(patch, nil))
			return time.Time{}
		}
		n.Described = n.Object.UID
	}
	return timer.Soonest(n.DescribeAt, n.planStatus(env))
}

func (n *Node) planStatus(env *Env) time.Time {
	now, fix := env.Out.Now(), n.Settings.Register && n.Fixed != n.Object.UID
	was, ready := readiness(&n.Object.Status), env.ready(&n.Settings)
	if was != "" && !env.sure() {
		return env.Booted.Add(sureWithin)
	}
	if now.Before(n.CheckAt) {
		soon := n.WroteAt.Add(urgentAfter)
		switch urgent := n.Said != ready.Status || was == v1.ConditionUnknown; {
		case !urgent && !fix:
			return timer.Soonest(n.CheckAt, n.readyUntil(env))
		case now.Before(soon):
			return soon
		}
	}
	want := n.status(env, fix)
	changes := statusPatch(&n.Object.Status, want)
	n.Changes = changes != nil || n.ReportAt.IsZero()
	if changes == nil && now.Before(n.ReportAt) {
		n.rest(now, ready.Status)
		return timer.Soonest(n.CheckAt, n.readyUntil(env))
	}
	n.Saying, n.News = ready.Status, n.news(&n.Object.Status, want)
	n.ask(env, reporting, n.patch(nil, withConditions(changes, want)))
	return time.Time{}
}

// readyUntil is when the node may become unready although nothing happens.
func (n *Node) readyUntil(env *Env) time.Time {
	if n.Said != v1.ConditionTrue {
		return time.Time{}
	}
	return env.Runtime.DownAt()
}

// rest notes that the status is as it should be.
func (n *Node) rest(now time.Time, said v1.ConditionStatus) {
	n.Said, n.CheckAt = said, now.Add(n.Settings.CheckEvery)
	n.Fixed, n.Registered, n.Failures = n.Object.UID, true, 0
}

func (n *Node) ask(env *Env, subject string, body any) {
	n.Op = env.Out.Ask(Owner, subject, requestTimeout, body)
}

// Observed takes the object that a watch tells of, nil if it says that there is none. What is
// older than what is known is no news; that it has gone has to be looked at, since it may have
// been made again since.
func (n *Node) Observed(o *v1.Node) {
	switch {
	case o == nil:
		n.Known = n.Known && n.Object == nil
	case n.Object == nil || !older(o, n.Object):
		n.Object = o
	}
}

// older compares versions, which count up. What cannot be compared is taken for newer.
func older(x, y *v1.Node) bool {
	order, err := resourceversion.CompareResourceVersion(x.ResourceVersion, y.ResourceVersion)
	return err == nil && order < 0
}

// Answered takes an answer.
func (n *Node) Answered(id world.OpID, r op.Record, ev world.Event, boot *world.Boot, out *op.Out) {
	if id == n.Images.Op {
		n.Images.answered(ev, n.Settings.ImagesMax)
		return
	}
	n.Op = 0
	body, ok := ev.Body.(*world.ObjectRead)
	reads := r.Call == "GetObject"
	switch {
	case ev.Err.Has(world.KindNotFound):
		n.absent(out)
		if reads {
			return
		}
	case ev.Err == nil && ok && body.Object.Node != nil:
		n.Known, n.Object = true, body.Object.Node
		if !reads {
			n.written(r, ev.Time, boot.Seed, out)
		}
		return
	}
	n.failed(r, ev, out)
}

// absent takes that there is no Node.
func (n *Node) absent(out *op.Out) {
	if n.Object != nil && n.Fixed != "" {
		out.Log(world.LevelWarning,
			"the Node was deleted; it is not made again before the agent is started anew")
	}
	n.Known, n.Object = true, nil
	n.Described, n.Fixed, n.Said = "", "", ""
	n.ReportAt, n.CheckAt, n.DescribeAt = time.Time{}, time.Time{}, time.Time{}
}

// written takes that a write succeeded.
func (n *Node) written(r op.Record, now time.Time, seed uint64, out *op.Out) {
	n.Failures, n.NextAt = 0, time.Time{}
	switch r.Subject {
	case describing:
		n.Described = n.Object.UID
	case reporting:
		n.reported(r, now, seed)
		n.tell(out)
	default:
		out.Log(world.LevelInfo, "the node is registered", "uid", string(n.Object.UID))
		n.Described = n.Object.UID
		n.reported(r, now, seed)
		n.tell(out)
		n.CheckAt = now // whether it was taken as it was given
	}
}

// reported notes that the object has our status. After a change, the next report is due at a time
// that is drawn, so that nodes that changed together do not report together ever after.
func (n *Node) reported(r op.Record, now time.Time, seed uint64) {
	every := n.Settings.ReportEvery
	n.ReportAt = r.Began.Add(every)
	if n.Changes {
		draw := rand.New(rand.NewPCG(seed, n.Reports)).Float64()
		n.ReportAt = n.ReportAt.Add(time.Duration((draw - 0.5) * float64(every)))
	}
	n.Reports++
	n.WroteAt = now
	n.rest(now, n.Saying)
}

// failed puts the next try off. After a conflict, or if it is not known what was done, the object
// is looked at first; the same if it could not be made, as it may exist, or if the patch was
// invalid: that is what a server says to one that is for another uid.
func (n *Node) failed(r op.Record, ev world.Event, out *op.Out) {
	err := ev.Err
	if err == nil {
		err = world.Errorf(world.KindInternal, r.Call, "answered without a Node")
	}
	switch err.Kind {
	case world.KindNotFound, world.KindThrottled, world.KindCanceled, world.KindExhausted:
	case world.KindRefused:
		n.Known = n.Known && r.Call != "CreateObject"
	default:
		n.Known = false
	}
	if n.Failures == 0 && !err.Has(world.KindExists) {
		out.Log(world.LevelWarning, "the Node cannot be written or read", "part", r.Subject,
			"error", err.Error())
	}
	n.Failures++
	wait := timer.Retry(err, n.Failures, retryFirst, retryMost)
	n.NextAt = ev.Time.Add(min(wait, max(n.Settings.CheckEvery, retryMost)))
}

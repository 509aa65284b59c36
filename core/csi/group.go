package csi

import (
	"fmt"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/core/op"
	"seedlet.dev/world"
)

// ReasonSlowGroup is the reason of the event of a pod whose volume takes long to be given to its
// group (VolumePermissionChangeInProgress in pkg/kubelet/events).
const ReasonSlowGroup = "VolumePermissionChangeInProgress"

// The periods of those events (pkg/volume/volume_linux.go).
const (
	groupReportFirst = 30 * time.Second
	groupReportAgain = time.Minute
)

// GroupWatch is what was done about the operation that gives the files of a volume to the group of
// a pod, while it is in flight.
type GroupWatch struct {
	Op      world.OpID `json:"op,omitempty"`
	Reports int        `json:"reports,omitempty"` // events of the pod that it takes long
	Ends    bool       `json:"ends,omitempty"`    // it is to end early
}

// Plan has the operation end early once the pod does not need the volume, or else has the pod
// report that it takes long, and returns when to plan it again.
func (g *GroupWatch) Plan(id world.OpID, r op.Record, isNeeded bool, report func(reports int),
	effects *op.Effects) time.Time {
	if g.Op != id {
		*g = GroupWatch{Op: id}
	}
	switch at := groupReportAt(r.IssuedAt, g.Reports); {
	case g.Ends:
		return time.Time{}
	case !isNeeded:
		g.Ends = true
		effects.EndEarly(id)
		return time.Time{}
	case effects.Now().Before(at):
		return at
	}
	report(g.Reports)
	g.Reports++
	return groupReportAt(r.IssuedAt, g.Reports)
}

// groupReportAt returns when a pod reports that a volume takes long to be given to its group, after
// a number of reports.
func groupReportAt(since time.Time, reports int) time.Time {
	return since.Add(groupReportFirst + time.Duration(reports)*groupReportAgain)
}

// GroupMessage returns the message of a report. A kubelet's later ones have the number of files
// that are done, which is not known here.
func GroupMessage(path, uid string, reports int) string {
	if i := strings.Index(path, uid); i >= 0 {
		path = path[i:]
	}
	if reports > 0 {
		return fmt.Sprintf("Setting volume ownership for %s is still in progress.", path)
	}
	return fmt.Sprintf("Setting volume ownership for %s is taking longer than expected, consider "+
		"using OnRootMismatch - "+
		"https://kubernetes.io/docs/tasks/configure-pod-container/security-context/"+
		"#configure-volume-permission-and-ownership-change-policy-for-pods", path)
}

// watchGroup has a pod report that a volume takes long to be given to its group, and returns when
// it does again. Once the pod does not need the volume any more, that ends early: a walk through
// millions of files would keep the volume, its other pods and the removal of this one waiting. (A
// kubelet lets it go on.)
func (n *Node) watchGroup(v *Volume, env *Env) time.Time {
	r, isInFlight := env.Effects.Find(v.Op)
	if !isInFlight || r.Call != "ShareWithGroup" {
		return time.Time{}
	}
	_, target := splitSubject(r.Subject)
	u, p := v.Uses[target], v.Publications[target]
	if p == nil {
		return time.Time{}
	}
	return p.Group.Plan(v.Op, r, u != nil, func(reports int) {
		env.Effects.RecordEvent(u.pod(), v1.EventTypeWarning, ReasonSlowGroup, "%s",
			GroupMessage(n.publishedPath(p), u.UID, reports))
	}, env.Effects)
}

// shareWithGroup issues that the files of a published volume are given to the group of its pod, and
// returns when to look at that again.
func (n *Node) shareWithGroup(v *Volume, u *Use, p *Publication, env *Env) time.Time {
	path := n.publishedPath(p)
	v.issueAt(path, subjectUse+u.target(), groupTimeout,
		&world.ShareWithGroup{Path: path, GID: *u.FSGroup, OnRootMismatch: u.OnRootMismatch}, env)
	return groupReportAt(env.Effects.Now(), 0)
}

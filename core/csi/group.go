package csi

import (
	"fmt"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

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

// GroupReportAt returns when a pod reports that a volume takes long to be given to its group, after
// a number of reports.
func GroupReportAt(since time.Time, reports int) time.Time {
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
	switch {
	case p == nil || p.GroupEnds:
		return time.Time{}
	case u == nil:
		p.GroupEnds = true
		env.Effects.EndEarly(v.Op)
		return time.Time{}
	}
	at := GroupReportAt(r.IssuedAt, p.GroupReports)
	if env.Effects.Now().Before(at) {
		return at
	}
	env.Effects.RecordEvent(u.pod(), v1.EventTypeWarning, ReasonSlowGroup, "%s",
		GroupMessage(n.publishedPath(p), u.UID, p.GroupReports))
	p.GroupReports++
	return GroupReportAt(r.IssuedAt, p.GroupReports)
}

// shareWithGroup issues that the files of a published volume are given to the group of its pod, and
// returns when to look at that again.
func (n *Node) shareWithGroup(v *Volume, u *Use, p *Publication, env *Env) time.Time {
	path := n.publishedPath(p)
	p.GroupReports, p.GroupEnds = 0, false
	v.issueAt(path, subjectUse+u.target(), groupTimeout,
		&world.ShareWithGroup{Path: path, GID: *u.FSGroup, OnRootMismatch: u.OnRootMismatch}, env)
	return GroupReportAt(env.Effects.Now(), 0)
}

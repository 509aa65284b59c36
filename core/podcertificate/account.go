package podcertificate

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"seedlet.dev/core/budget"
	"seedlet.dev/core/op"
	"seedlet.dev/core/timer"
	"seedlet.dev/world"
)

// Account is what is known of the pod's service account. A request has its UID, and the server
// refuses that of an account which was deleted and made again. A kubelet reads the account for each
// request.
type Account struct {
	UID       types.UID  `json:"uid,omitempty"` // empty: unknown
	AsOf      time.Time  `json:"asOf"`          // when the read was issued that had the UID
	Op        world.OpID `json:"op,omitempty"`  // the read in flight
	Failures  int        `json:"failures,omitempty"`
	NotBefore time.Time  `json:"notBefore"`
	Problem   string     `json:"problem,omitempty"` // why the newest read failed
}

// accountAgeMax is for how long a read counts: for the requests of a pod's first certificates, and
// not for renewals.
const accountAgeMax = time.Minute

func (a *Account) isKnown(now time.Time) bool {
	return a.UID != "" && now.Sub(a.AsOf) < accountAgeMax
}

// plan reads the account if that is due, and returns when it is.
func (a *Account) plan(env *Env) time.Time {
	switch now := env.Effects.Now(); {
	case a.Op != 0:
	case now.Before(a.NotBefore):
		return a.NotBefore
	default:
		a.Op = env.Effects.Issue(env.Owner, env.Subject, operationTimeout,
			&world.GetObject{Resource: world.ResourceServiceAccounts, Namespace: env.Pod.Namespace,
				Name: env.Pod.Spec.ServiceAccountName})
	}
	return time.Time{}
}

// recordResult applies the completion of a read.
func (a *Account) recordResult(record op.Record, ev world.Event) {
	a.Op = 0
	var uid types.UID
	if read, ok := ev.Body.(*world.ObjectRead); ok && read.Object.ServiceAccount != nil {
		uid = read.Object.ServiceAccount.UID
	}
	if ev.Err == nil && uid != "" {
		*a = Account{UID: uid, AsOf: record.IssuedAt}
		return
	}
	a.UID = ""
	a.Failures++
	problem, wait := incomplete, timer.Backoff(a.Failures, backoffFirst, backoffMax)
	if ev.Err != nil {
		problem, wait = ev.Err.Message, timer.RetryDelay(ev.Err, a.Failures, backoffFirst, backoffMax)
	}
	a.Problem = budget.CutMessage(record.Call + ": " + problem)
	a.NotBefore = ev.Time.Add(wait)
}

// forget has the account read again after a creation that was issued at a time has failed, unless
// it was read since.
func (a *Account) forget(issuedAt time.Time) {
	if !a.AsOf.After(issuedAt) {
		a.UID = ""
	}
}

package image

import (
	"time"

	"seedlet.dev/core/credentials"
	"seedlet.dev/core/op"
	"seedlet.dev/core/pullrecord"
	"seedlet.dev/core/timer"
	"seedlet.dev/world"
)

// Service accounts of pods (KEP-4412): a plugin may get a token of the service account of the pods
// that an image is pulled for. Pods of another one do not share their pull. What the pull has
// brought is recorded with the service account, whose pods may use it without another pull.

// readTimeout is that of the read of a service account.
const readTimeout = time.Minute

// Account is the service account of a pod, as it is named in the request for an image.
type Account struct {
	Namespace string
	Name      string
	Pod       string // the name of the pod, to which tokens may be bound
	// OnlyFor is the UID of the pod if the credentials may be good for that pod only.
	OnlyFor string
}

// key returns what pods need to have in common to share a pull.
func (a *Account) key() string {
	switch {
	case a.Name == "":
		return ""
	case a.OnlyFor != "":
		return a.Namespace + "/" + a.Name + "/" + a.OnlyFor
	}
	return a.Namespace + "/" + a.Name
}

// fact returns what is known of the service account: its name.
func (a *Account) fact() *credentials.Account {
	if a.Name == "" {
		return nil
	}
	return &credentials.Account{Namespace: a.Namespace, Name: a.Name}
}

// access returns whether the waiters of an image may use what is present. For pods of a service
// account with whose token such an image was pulled, the service account is read: another one may
// have the same name by now. The plugin is not asked again.
func (s *Store) access(i *Image, since time.Time) pullrecord.Access {
	access := s.Records.Access(i.Ref, i.ID, i.Names, i.Sources)
	if access != pullrecord.Denied || i.Account == nil {
		return access
	}
	account := pullrecord.Account{Namespace: i.Account.Namespace, Name: i.Account.Name}
	if !s.Records.HasAccount(i.Ref, i.ID, account) {
		return access
	}
	if i.isAccountOutdated(since) {
		i.AccountNeededSince = timer.Later(i.AccountNeededSince, since)
		return pullrecord.Unknown
	}
	account.UID = i.Account.UID
	if account.UID != "" && s.Node.Admits(i.Account, i.Ref) &&
		s.Records.HasAccount(i.Ref, i.ID, account) {
		return pullrecord.Recorded
	}
	return access
}

// isAccountOutdated reports whether the service account has to be read for what is needed since a
// time.
func (i *Image) isAccountOutdated(since time.Time) bool {
	return i.Account != nil && !since.IsZero() && i.Account.AsOf.Before(since)
}

// knowsRoundAccount reports whether the service account is known for the round that finds the
// credentials of an attempt. It is read for each attempt, as by the kubelet, and again for pods
// that join it: another one may have its name by now, and no pod of that may use what the token of
// the one before has brought. The attempt then starts again.
func (s *Store) knowsRoundAccount(i *Image, effects *op.Effects) bool {
	if i.Account == nil {
		return true
	}
	isNew, since := i.Round.Step == 0 && i.Credential == 0,
		timer.Later(i.PullNeededSince, i.StatusNeededSince)
	if isNew {
		since = timer.Later(since, i.PullNotBefore)
	}
	if i.isAccountOutdated(since) {
		s.readAccount(i, effects)
		return false
	}
	if !isNew && i.RoundAccount != i.Account.UID {
		i.Round, i.Credential, i.PullErrors = credentials.Round{}, 0, nil
	}
	i.RoundAccount = i.Account.UID
	return true
}

// readAccount reads the service account, but not while plugins are asked with the known one.
func (s *Store) readAccount(i *Image, effects *op.Effects) {
	if i.AccountOp != 0 || i.Round.Op != 0 {
		return
	}
	i.AccountOp = effects.IssueFor(s.tenant(i), Key(i.Name), "", readTimeout, &world.GetObject{
		Resource: world.ResourceServiceAccounts, Namespace: i.Account.Namespace, Name: i.Account.Name})
}

// subject returns what the search for credentials is for. Tokens are bound to one of the waiters:
// if its pod is deleted meanwhile, the next attempt binds them to another one.
func (i *Image) subject() credentials.Subject {
	return credentials.Subject{Image: i.Ref, Account: i.Account, Pod: i.Waiters[0].Pod,
		PodUID: i.Waiters[0].UID}
}

// foundCredentials returns whose the credential of the newest pull is, which was found by a round.
func (i *Image) foundCredentials() pullrecord.Credentials {
	at := i.Credential - len(i.Credentials)
	if at >= len(i.Round.List) || i.Round.List[at].AccountUID == "" {
		return pullrecord.OfSecret(nil)
	}
	return pullrecord.OfAccount(pullrecord.Account{UID: i.Round.List[at].AccountUID,
		Namespace: i.Account.Namespace, Name: i.Account.Name})
}

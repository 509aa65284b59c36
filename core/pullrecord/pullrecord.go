// Package pullrecord records with which credentials images were pulled, so that a pod cannot use an
// image that only the credentials of another pod can pull (KEP-2535).
//
// Facts: for each image that an agent has pulled, the credentials that were good for it; the pulls
// whose result is not recorded; how much of both is on the disk, in the format and at the paths of
// the kubelet (pkg/kubelet/images/pullmanager). Plan: what has changed is written. A pull begins
// when its intent is on the disk: if the agent ends within the pull, the next one knows that the
// image was pulled, and not with which credentials. Events: the completions of reads and writes,
// and each list of the runtime's images. Start reading at Store.Access.
package pullrecord

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"seedlet.dev/core/imagename"
	"seedlet.dev/core/keyring"
	"seedlet.dev/core/timer"
	"seedlet.dev/world"
)

// Owner is the key of the operations and the timer.
var Owner = timer.Key{Component: "pullrecord"}

const (
	// credentialsMax bounds the repositories of a record, and the secrets of each.
	credentialsMax = 100
	// recordBytesMax bounds a record on the disk, so that the records of a thousand images are read
	// back by the next agent.
	recordBytesMax = 64 << 10
	// outcomeAwaited is how long an image may still come after the pull of an agent that has ended, or
	// a pull that has run into its timeout: longer than the timeout of any pull.
	outcomeAwaited = 3 * time.Hour
	// listAwaited is how long the first pulls wait for the first list of the runtime's images, which
	// says what was on the node before.
	listAwaited = 30 * time.Second
	// absenceAwaited is for how long the runtime does not list an image before its record is removed.
	// A runtime that is just starting may list none.
	absenceAwaited = time.Hour
	// intentsMax bounds the intents of this agent's pulls with an unknown outcome. The oldest is
	// dropped.
	intentsMax = 4096
)

// Store has the records.
type Store struct {
	Settings Settings `json:"settings,omitzero"`
	Dir      string   `json:"dir,omitempty"` // of the kubelet's image manager
	// Records are by the name of their file, which is made of the runtime's ID of the image, and
	// Intents by that which is made of the reference.
	Records map[string]*Record `json:"records,omitempty"`
	Intents map[string]*Intent `json:"intents,omitempty"`
	// IntentsOf are the intents by the full name of their images, sorted, but for those whose file is
	// damaged: Damaged is how many these are. Earlier is how many are of an earlier agent.
	IntentsOf  map[string][]string `json:"intentsOf,omitempty"`
	Damaged    int                 `json:"damaged,omitempty"`
	Earlier    int                 `json:"earlier,omitempty"`
	RecordsDir Dir                 `json:"recordsDir,omitzero"`
	IntentsDir Dir                 `json:"intentsDir,omitzero"`
	// Seen are the images that lists of the runtime have had, by ID.
	Seen map[string]Seen `json:"seen,omitempty"`
	// IsListed is set once there was such a list. ListAwaited is since when a pull waits for it.
	IsListed    bool      `json:"isListed,omitempty"`
	ListAwaited time.Time `json:"listAwaited,omitzero"`
	// Confirmed are secrets that are as good as recorded ones, until the next plan.
	Confirmed []Confirmation `json:"confirmed,omitempty"`
	// Changed is set if there is something to plan.
	Changed bool `json:"changed,omitempty"`
	// Retries are when files are looked at again, by directory and name.
	Retries timer.Queue[timer.Key] `json:"retries"`
	// Pending are the intents that may not be on the disk yet, of pulls that wait for that.
	Pending []string `json:"pending,omitempty"`
	// Leftovers are the paths, below Dir, of files that an earlier agent was writing when it ended.
	// They are removed one after the other.
	Leftovers  []string   `json:"leftovers,omitempty"`
	LeftoverOp world.OpID `json:"leftoverOp,omitempty"`
}

// Seen is when lists of the runtime have had an image.
type Seen struct {
	First time.Time `json:"first"`
	Last  time.Time `json:"last"`
}

// Record has the credentials that were good for an image.
type Record struct {
	File
	kubeletconfig.ImagePulledRecord
	// PulledAt is when this agent pulled the image last, by its own clock.
	PulledAt time.Time `json:"pulledAt,omitzero"`
	// GrantedAt is when this agent granted the image last, by the repository.
	GrantedAt map[string]time.Time `json:"grantedAt,omitempty"`
	// AbsentSince is since when the runtime does not list the image; zero: it does.
	AbsentSince time.Time `json:"absentSince,omitzero"`
	// Damaged is set if the file could not be read as a record: that the image was pulled is
	// known, and no more.
	Damaged bool `json:"damaged,omitempty"`
	// Awaiting are the intents that are removed once the record is on the disk.
	Awaiting []string `json:"awaiting,omitempty"`
}

// Intent is a pull whose result is not recorded.
type Intent struct {
	File
	Image    string `json:"image"`    // as the pods write it; empty: the file is damaged
	FullName string `json:"fullName"` // of Image
	// BeganAt is when this agent first intended the pull; zero: an earlier one did.
	BeganAt time.Time `json:"beganAt,omitzero"`
	// Pullers are the images, by name, that are being pulled, or are pulled when the intent is on the
	// disk, sorted.
	Pullers []string `json:"pullers,omitempty"`
	// Tenant is the pod that the newest of them is pulled for.
	Tenant string `json:"tenant,omitempty"`
	// UnknownSince is set if the image may come from a pull that is not in flight any more.
	UnknownSince time.Time `json:"unknownSince,omitzero"`
	// FailedAt is when the runtime last answered that the pull has failed; zero: a later list of its
	// images has shown that nothing came of it. An error does not say that.
	FailedAt time.Time `json:"failedAt,omitzero"`
	// Records are the files that have to be on the disk before that of the intent is removed.
	Records []string `json:"records,omitempty"`
}

// Confirmation is a secret that is as good for an image as a recorded one.
type Confirmation struct {
	Ref    string         `json:"ref"`
	ID     string         `json:"id"`
	Source keyring.Source `json:"source"`
}

// Access is whether a pod may use an image that is on the node: the label result of the kubelet's
// metric imagemanager_image_mustpull_checks_total.
type Access string

// The kinds of access.
const (
	Unknown  Access = ""                        // the records have not been read
	Allowed  Access = "credentialPolicyAllowed" // every pod
	Recorded Access = "credentialRecordFound"   // with credentials that were good for the image
	Denied   Access = "mustAuthenticate"        // by a pull with its own credentials only
)

// IsGranted reports whether the image can be used as it is.
func (a Access) IsGranted() bool { return a == Allowed || a == Recorded }

// fileName returns the name of the file of an image or a reference.
func fileName(of string) string { return fmt.Sprintf("sha256-%x", sha256.Sum256([]byte(of))) }

// Access returns whether a pod may use an image that the runtime has under some names. The sources
// are those of the pod's credentials for it. A secret that was good for the image is so after a
// change of its content, and so is the same content in another secret; the next plan records both.
func (s *Store) Access(ref, id string, names []string, sources []keyring.Source) Access {
	policy := s.Settings.Policy
	switch {
	case policy == "" || policy == kubeletconfig.NeverVerify:
		return Allowed
	case policy == kubeletconfig.NeverVerifyAllowlistedImages && s.Settings.isAllowed(ref):
		return Allowed
	case !s.IsLoaded():
		return Unknown
	}
	r := s.Records[fileName(id)]
	wasPulled := r != nil && !r.IsGone || s.mayBePulled(ref, id, names) || s.isUnreadable()
	switch {
	case policy == kubeletconfig.NeverVerifyPreloadedImages && !wasPulled:
		return Allowed
	case r == nil || r.IsGone || r.Damaged || r.ImageRef != id:
		return Denied
	}
	good, isKnown := r.CredentialMapping[repositoryOf(ref)]
	if !isKnown {
		return Denied
	}
	if good.NodePodsAccessible {
		return Recorded
	}
	return s.accessOf(ref, id, good.KubernetesSecrets, sources)
}

// accessOf returns the access of a pod with some secrets to an image that others were good for. A
// secret with several entries for the image, of which another one was good, confirms none: which
// one would be good now is not known.
func (s *Store) accessOf(ref, id string, good, sources []keyring.Source) Access {
	granted := Denied
	var confirmed []keyring.Source
	for _, source := range sources {
		for _, secret := range good {
			sameSecret := compareSecrets(secret, source) == 0
			sameContent := secret.CredentialHash != "" &&
				secret.CredentialHash == source.CredentialHash
			switch {
			case sameSecret && sameContent:
				return Recorded
			case sameContent, sameSecret && countOf(sources, source) == 1:
				granted, confirmed = Recorded, append(confirmed, source)
			case sameSecret:
				granted = Recorded
			}
		}
	}
	if len(confirmed) > 0 && len(good) < credentialsMax {
		if c := (Confirmation{ref, id, confirmed[0]}); !slices.Contains(s.Confirmed, c) {
			s.Confirmed, s.Changed = append(s.Confirmed, c), true
		}
	}
	return granted
}

// countOf returns how many entries for an image a secret has.
func countOf(sources []keyring.Source, secret keyring.Source) (count int) {
	for _, source := range sources {
		if compareSecrets(source, secret) == 0 {
			count++
		}
	}
	return count
}

// HasAccount reports whether an image was pulled with a token of a service account. An empty UID
// stands for any: only a service account with a recorded name has to be read for that.
func (s *Store) HasAccount(ref, id string, account Account) bool {
	r := s.Records[fileName(id)]
	if !s.isKept() || r == nil || r.IsGone || r.Damaged || r.ImageRef != id {
		return false
	}
	return slices.ContainsFunc(r.CredentialMapping[repositoryOf(ref)].KubernetesServiceAccounts,
		func(good Account) bool {
			return good.Namespace == account.Namespace && good.Name == account.Name &&
				(account.UID == "" || good.UID == account.UID)
		})
}

// isUnreadable reports whether there may be files whose content this agent does not know.
func (s *Store) isUnreadable() bool { return s.RecordsDir.Failed || s.IntentsDir.Failed }

// Begin records that an image is about to be pulled, for the image store's image of a name. It
// reports whether the pull can begin; if not, the image is planned after the next attempt to write
// the intent. End has to be called when the image is not pulled any more, or is not to be. Begin is
// for the first pulls of the queue alone: as many pods may wait for pulls as there are, and a
// registry may keep all of them waiting.
//
// Before the first list of images no pull begins, and while there is no room for its intent none
// does, until a time that Begin returns then.
func (s *Store) Begin(ref, name, tenant string, now time.Time) (ready bool, until time.Time) {
	switch {
	case !s.isKept():
		return true, time.Time{}
	case !s.IsLoaded():
		return false, time.Time{}
	case !s.IsListed && s.ListAwaited.IsZero():
		s.ListAwaited = now
	}
	if until = s.ListAwaited.Add(listAwaited); !s.IsListed && now.Before(until) {
		return false, until
	}
	file := fileName(ref)
	i := s.Intents[file]
	switch {
	case i != nil && i.IsGone && i.Op == 0 && i.Failures == 0 && i.Saved == i.Changes-1:
		i.IsGone, i.Saved = false, i.Changes // the removal has not started: the file is there
	case i != nil && i.Image != "" && !(i.IsGone && i.Op == 0):
	case !s.hasRoom():
		return false, now.Add(roomAwaited)
	default:
		if i == nil || i.IsGone && i.Op == 0 {
			i = &Intent{BeganAt: now}
		}
		s.putIntent(file, ref, i)
		s.change(intentsDir, file, &i.File)
		s.Pending = append(s.Pending, file)
	}
	i.Tenant = tenant
	if at, found := slices.BinarySearch(i.Pullers, name); !found {
		i.Pullers = slices.Insert(i.Pullers, at, name)
	}
	return !i.IsGone && i.isSaved(), time.Time{}
}

// Problem returns why the intent to pull an image could not be written; empty if it could.
func (s *Store) Problem(ref string) string {
	if i := s.Intents[fileName(ref)]; i != nil && !i.IsGone {
		return i.Problem
	}
	return ""
}

// MayCome records that an image may still come from a pull which has ended, or runs into its
// timeout: what it has done is not known.
func (s *Store) MayCome(ref string, now time.Time) {
	if i := s.Intents[fileName(ref)]; i != nil {
		i.UnknownSince = now
	}
}

// Failed records that the runtime has answered that a pull has failed.
func (s *Store) Failed(ref string, now time.Time) {
	if i := s.Intents[fileName(ref)]; i != nil {
		i.FailedAt = now
	}
}

// Removed records that the image of an ID was removed: it may come back by a pull.
func (s *Store) Removed(id string) { delete(s.Seen, id) }

// Rename records that the runtime knows what a pull has brought by another ID than it has answered.
func (s *Store) Rename(from, to string, now, date time.Time) {
	r := s.Records[fileName(from)]
	if !s.isKept() || r == nil || r.IsGone || r.Damaged {
		return
	}
	renamed := s.recordOf(to, date)
	renamed.PulledAt = now
	for _, repository := range slices.Sorted(maps.Keys(r.CredentialMapping)) {
		s.grant(renamed, repository, r.CredentialMapping[repository], now, date)
	}
}

// End records that an image is not pulled any more, or is not to be.
func (s *Store) End(ref, name string) {
	i := s.Intents[fileName(ref)]
	if i == nil {
		return
	}
	if at, found := slices.BinarySearch(i.Pullers, name); found {
		i.Pullers = slices.Delete(i.Pullers, at, at+1)
	}
	s.settle(fileName(ref), i)
}

// Credentials are whose credentials were good for an image, as the kubelet records it.
type Credentials = kubeletconfig.ImagePullCredentials

// Account is a service account, as the kubelet records it.
type Account = kubeletconfig.ImagePullServiceAccount

// OfSecret returns the credentials of a secret; nil for those that every pod on the node has, or
// none.
func OfSecret(secret *keyring.Source) Credentials {
	if secret == nil {
		return Credentials{NodePodsAccessible: true}
	}
	return Credentials{KubernetesSecrets: []keyring.Source{*secret}}
}

// OfAccount returns the credentials that a plugin has got with a token of a service account.
func OfAccount(account Account) Credentials {
	return Credentials{KubernetesServiceAccounts: []Account{account}}
}

// Pulled records what a pull has brought: the image, and whose credentials were good for it.
func (s *Store) Pulled(ref, id string, pulledWith Credentials, now, date time.Time) {
	i := s.Intents[fileName(ref)]
	if i == nil {
		return
	}
	r := s.recordOf(id, date)
	s.grant(r, repositoryOf(ref), pulledWith, now, date)
	r.PulledAt, r.AbsentSince = now, time.Time{}
	i.UnknownSince, i.FailedAt = time.Time{}, time.Time{}
	i.addRecord(fileName(id))
}

// addRecord has a record be on the disk before the intent is removed.
func (i *Intent) addRecord(file string) {
	if !slices.Contains(i.Records, file) {
		i.Records = append(i.Records, file)
	}
}

// isAwaited reports whether the outcome of a pull is not known, and none is in flight.
func (i *Intent) isAwaited() bool {
	return len(i.Pullers) == 0 && (!i.UnknownSince.IsZero() || !i.FailedAt.IsZero())
}

// settle removes an intent that no pull needs.
func (s *Store) settle(file string, i *Intent) {
	switch {
	case len(i.Pullers) > 0, i.isAwaited(), i.IsGone:
	case i.Changes == 1 && i.Saved == 0 && i.Op == 0 && i.Failures == 0:
		s.dropIntent(file) // there is no file
		waiting := &s.IntentsDir.Writes.Waiting
		*waiting = slices.DeleteFunc(*waiting, func(name string) bool { return name == file })
	default:
		i.IsGone = true
		s.change(intentsDir, file, &i.File)
	}
}

// recordOf returns the record of an image. A new one has no credentials.
func (s *Store) recordOf(id string, date time.Time) *Record {
	file := fileName(id)
	r := s.Records[file]
	if r == nil || r.IsGone || r.Damaged || r.ImageRef != id {
		fresh := &Record{}
		if r != nil {
			fresh.File, fresh.Awaiting = r.File, r.Awaiting
			fresh.IsGone = false
		}
		fresh.ImageRef, fresh.LastUpdatedTime.Time = id, date
		r = fresh
		put(&s.Records, file, r)
		s.change(recordsDir, file, &r.File)
	}
	return r
}

// grant adds credentials to a record. What exceeds the bounds of a record gives way to what is new:
// the secret or service account of the namespace that has most of them, the repository that was
// granted longest ago.
func (s *Store) grant(r *Record, repository string, added Credentials, now, date time.Time) {
	put(&r.GrantedAt, repository, now)
	good := r.CredentialMapping[repository]
	switch {
	case good.NodePodsAccessible:
		return
	case added.NodePodsAccessible:
		good = Credentials{NodePodsAccessible: true}
	default:
		changed := false
		for _, secret := range added.KubernetesSecrets {
			changed = grantOne(&good.KubernetesSecrets, secret, compareSecrets,
				func(s keyring.Source) string { return s.Namespace }) || changed
		}
		for _, account := range added.KubernetesServiceAccounts {
			changed = grantOne(&good.KubernetesServiceAccounts, account, compareAccounts,
				func(a Account) string { return a.Namespace }) || changed
		}
		if !changed {
			return
		}
	}
	put(&r.CredentialMapping, repository, good)
	r.trim(repository)
	r.LastUpdatedTime.Time = date
	s.change(recordsDir, fileName(r.ImageRef), &r.File)
}

// grantOne adds a secret or a service account to the sorted ones of a repository, in place of the
// one that it is equal to, and reports whether that is a change. If there are too many then, one of
// the namespace that has most is dropped, but not the new one.
func grantOne[G comparable](granted *[]G, added G, compare func(x, y G) int,
	namespaceOf func(G) string) bool {
	all := slices.Clone(*granted)
	at, found := slices.BinarySearchFunc(all, added, compare)
	switch {
	case found && all[at] == added:
		return false
	case found:
		all[at] = added
	default:
		all = slices.Insert(all, at, added)
	}
	for len(all) > credentialsMax {
		counts, most := map[string]int{}, 0
		for _, one := range all {
			counts[namespaceOf(one)]++
			most = max(most, counts[namespaceOf(one)])
		}
		at := slices.IndexFunc(all, func(one G) bool {
			return counts[namespaceOf(one)] == most && one != added
		})
		all = slices.Delete(all, at, at+1)
	}
	*granted = all
	return true
}

// trim drops the repositories that were granted longest ago, but not a given one, until a record is
// within its bounds.
func (r *Record) trim(kept string) {
	bytes := len(encode(&r.ImagePulledRecord))
	if len(r.CredentialMapping) <= credentialsMax && bytes <= recordBytesMax {
		return
	}
	oldest := slices.SortedStableFunc(maps.Keys(r.CredentialMapping), func(x, y string) int {
		return cmp.Or(r.GrantedAt[x].Compare(r.GrantedAt[y]), strings.Compare(x, y))
	})
	for _, repository := range oldest {
		if len(r.CredentialMapping) <= credentialsMax && bytes <= recordBytesMax {
			return
		}
		if repository != kept {
			bytes -= len(encode(map[string]Credentials{repository: r.CredentialMapping[repository]})) -
				len("{}\n") + len(",")
			delete(r.CredentialMapping, repository)
			delete(r.GrantedAt, repository)
		}
	}
}

// compareSecrets orders secrets as the kubelet does; the content does not count.
func compareSecrets(x, y keyring.Source) int {
	return cmp.Or(strings.Compare(x.Namespace, y.Namespace), strings.Compare(x.Name, y.Name),
		strings.Compare(x.UID, y.UID))
}

// compareAccounts orders service accounts as the kubelet does.
func compareAccounts(x, y Account) int {
	return cmp.Or(strings.Compare(x.Namespace, y.Namespace), strings.Compare(x.Name, y.Name),
		strings.Compare(x.UID, y.UID))
}

// Reconcile applies a list of the runtime's images: their names, by ID. An image that has
// come from a pull with an unknown outcome gets a record without credentials; records of images
// that have gone are removed. It reports whether it was the first list, after which pulls begin.
func (s *Store) Reconcile(images map[string][]string, listedAt, now, date time.Time) (first bool) {
	if !s.isKept() {
		return false
	}
	first, s.IsListed = !s.IsListed, true
	s.noteSeen(images, now)
	if !s.IsLoaded() {
		return first
	}
	s.recoverListed(images)
	unknown := map[string][]string{} // the intents, by the full name of the image
	for _, file := range slices.Sorted(maps.Keys(s.Intents)) {
		if i := s.Intents[file]; i.isAwaited() && i.Image != "" {
			unknown[i.FullName] = append(unknown[i.FullName], file)
		}
	}
	present := map[string]bool{} // by the name of the file: a damaged one does not say its image
	for _, id := range slices.Sorted(maps.Keys(images)) {
		present[fileName(id)] = true
		if len(unknown) == 0 {
			continue
		}
		for _, name := range imagename.WithFullNames(images[id]) {
			for _, file := range unknown[name] {
				if i := s.Intents[file]; s.mayBring(i, id) {
					s.recordOf(id, date).PulledAt = now
					i.UnknownSince, i.FailedAt = time.Time{}, time.Time{}
					i.addRecord(fileName(id))
					s.settle(file, i)
				}
			}
		}
	}
	s.noteAbsent(present, listedAt, now)
	s.forgetFailed(listedAt)
	s.forgetUnknown(now)
	return first
}

// forgetFailed removes the intents of pulls that have failed before a list, which would have what
// came of them.
func (s *Store) forgetFailed(listedAt time.Time) {
	for _, file := range slices.Sorted(maps.Keys(s.Intents)) {
		if i := s.Intents[file]; i.isAwaited() && i.FailedAt.Before(listedAt) {
			i.FailedAt = time.Time{}
			s.settle(file, i)
		}
	}
}

// noteSeen records which images the runtime has, and since when. One that is not listed is
// forgotten after an hour.
func (s *Store) noteSeen(images map[string][]string, now time.Time) {
	for id := range images { //ordered: all get the same time
		seen := Seen{First: now, Last: now}
		if before, isKnown := s.Seen[id]; isKnown {
			seen.First = before.First
		}
		put(&s.Seen, id, seen)
	}
	maps.DeleteFunc(s.Seen, func(_ string, seen Seen) bool {
		return now.Sub(seen.Last) >= absenceAwaited
	})
}

// noteAbsent removes the records of images that the runtime has not listed for long.
func (s *Store) noteAbsent(present map[string]bool, listedAt, now time.Time) {
	for _, file := range slices.Sorted(maps.Keys(s.Records)) {
		r := s.Records[file]
		switch {
		case present[file] || !r.PulledAt.Before(listedAt):
			r.AbsentSince = time.Time{}
		case r.AbsentSince.IsZero():
			r.AbsentSince = now
		case !r.IsGone && now.Sub(r.AbsentSince) >= absenceAwaited:
			r.IsGone = true
			s.change(recordsDir, file, &r.File)
		}
	}
}

// forgetUnknown removes the intents of pulls whose image does not come any more.
func (s *Store) forgetUnknown(now time.Time) {
	var unknown []string
	for _, file := range slices.Sorted(maps.Keys(s.Intents)) {
		if i := s.Intents[file]; !i.UnknownSince.IsZero() && len(i.Pullers) == 0 {
			unknown = append(unknown, file)
		}
	}
	slices.SortStableFunc(unknown, func(x, y string) int {
		return s.Intents[x].UnknownSince.Compare(s.Intents[y].UnknownSince)
	})
	own := 0
	for _, file := range slices.Backward(unknown) {
		i := s.Intents[file]
		if !i.BeganAt.IsZero() {
			own++
		}
		if now.Sub(i.UnknownSince) >= outcomeAwaited || own > intentsMax && !i.BeganAt.IsZero() {
			i.UnknownSince = time.Time{}
			s.settle(file, i)
		}
	}
}

// isKept reports whether records are kept.
func (s *Store) isKept() bool { return s.Settings.Policy != "" }

func put[V any](into *map[string]V, key string, value V) {
	if *into == nil {
		*into = map[string]V{}
	}
	(*into)[key] = value
}

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
)

// Owner is the key of the operations and the timer.
var Owner = timer.Key{Component: "pullrecord"}

const (
	// credentialsMax bounds the secrets and repositories of a record. Pods with others pull the image.
	credentialsMax = 100
	// outcomeAwaited is how long an image may still come after the pull of an agent that has ended, or
	// a pull that has run into its timeout: longer than the timeout of any pull.
	outcomeAwaited = 3 * time.Hour
	// intentsMax bounds the intents of pulls with an unknown outcome. The oldest is dropped.
	intentsMax = 4096
)

// Store has the records.
type Store struct {
	Settings Settings `json:"settings,omitzero"`
	Dir      string   `json:"dir,omitempty"` // of the kubelet's image manager
	// Records are by the name of their file, which is made of the runtime's ID of the image, and
	// Intents by that which is made of the reference.
	Records    map[string]*Record `json:"records,omitempty"`
	Intents    map[string]*Intent `json:"intents,omitempty"`
	RecordsDir Dir                `json:"recordsDir,omitzero"`
	IntentsDir Dir                `json:"intentsDir,omitzero"`
	// Confirmed are secrets that are as good as recorded ones, until the next plan.
	Confirmed []Confirmation `json:"confirmed,omitempty"`
	// Changed is set if there is something to plan.
	Changed bool `json:"changed,omitempty"`
	// Unsaved are the paths, below Dir, of the files that the disk does not have as they are to be,
	// sorted.
	Unsaved []string `json:"unsaved,omitempty"`
}

// Record has the credentials that were good for an image.
type Record struct {
	File
	kubeletconfig.ImagePulledRecord
	// ChangedAt is when this agent changed it last, by its own clock.
	ChangedAt time.Time `json:"changedAt,omitzero"`
	// Damaged is set if the file could not be read as a record: that the image was pulled is
	// known, and no more.
	Damaged bool `json:"damaged,omitempty"`
}

// Intent is a pull whose result is not recorded.
type Intent struct {
	File
	Image string `json:"image"`           // as the pods write it
	Pulls int    `json:"pulls,omitempty"` // in flight, of this agent
	// UnknownSince is set if the image may come from a pull that is not in flight any more.
	UnknownSince time.Time `json:"unknownSince,omitzero"`
	// Record is the file that has to be on the disk before that of the intent is removed.
	Record string `json:"record,omitempty"`
	// Waiting are the images, by name, whose pulls begin when the intent is on the disk, sorted.
	Waiting []string `json:"waiting,omitempty"`
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

// Access returns whether a pod may use an image that the runtime has. The sources are those of the
// pod's credentials for it. A secret that was good for the image is so after a change of its
// content, and so is the same content in another secret; the next plan records both.
func (s *Store) Access(ref, id string, sources []keyring.Source) Access {
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
	wasPulled := r != nil && !r.IsGone || s.Intents[fileName(ref)] != nil || s.isUnreadable()
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
	for _, source := range sources {
		for _, secret := range good.KubernetesSecrets {
			sameSecret := secret.UID == source.UID && secret.Namespace == source.Namespace &&
				secret.Name == source.Name
			sameContent := secret.CredentialHash != "" && secret.CredentialHash == source.Hash
			if c := (Confirmation{ref, id, source}); sameSecret || sameContent {
				if !(sameSecret && sameContent) && !slices.Contains(s.Confirmed, c) {
					s.Confirmed, s.Changed = append(s.Confirmed, c), true
				}
				return Recorded
			}
		}
	}
	return Denied
}

// isUnreadable reports whether there may be files whose content this agent does not know.
func (s *Store) isUnreadable() bool { return s.RecordsDir.Failed || s.IntentsDir.Failed }

// Begin records that an image is about to be pulled, for the image store's image of a name. It
// reports whether the pull can begin; if not, the image is planned after the next attempt to write
// the intent.
func (s *Store) Begin(ref, name string) bool {
	if !s.isKept() {
		return true
	}
	if !s.IsLoaded() {
		return false
	}
	file := fileName(ref)
	i := s.Intents[file]
	switch {
	case i != nil && i.IsGone && i.Op == 0 && i.Failures == 0 && i.Saved == i.Changes-1:
		i.IsGone, i.Saved = false, i.Changes // the removal has not started: the file is there
	case i == nil || i.IsGone && i.Op == 0:
		i = &Intent{Image: ref}
		s.change(intentsDir, file, &i.File)
		put(&s.Intents, file, i)
	}
	switch {
	case i.IsGone: // its removal is in flight
	case i.isSaved():
		i.Pulls++
		return true
	}
	if at, found := slices.BinarySearch(i.Waiting, name); !found {
		i.Waiting = slices.Insert(i.Waiting, at, name)
	}
	return false
}

// Problem returns why the intent to pull an image could not be written; empty if it could.
func (s *Store) Problem(ref string) string {
	if i := s.Intents[fileName(ref)]; i != nil {
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

// End records the end of a pull that Begin has allowed.
func (s *Store) End(ref string) {
	if i := s.Intents[fileName(ref)]; i != nil {
		i.Pulls = max(0, i.Pulls-1)
		s.settle(i)
	}
}

// Pulled records what a pull has brought: the image, and the secret whose credentials were good for
// it; nil if every pod on the node has them, or none are needed.
func (s *Store) Pulled(ref, id string, source *keyring.Source, now, date time.Time) {
	i := s.Intents[fileName(ref)]
	if i == nil {
		return
	}
	s.grant(s.recordOf(id, now, date), repositoryOf(ref), source, now, date)
	i.UnknownSince, i.Record = time.Time{}, fileName(id)
}

// settle removes an intent that no pull needs.
func (s *Store) settle(i *Intent) {
	if i.Pulls == 0 && i.UnknownSince.IsZero() && !i.IsGone && len(i.Waiting) == 0 {
		i.IsGone = true
		s.change(intentsDir, fileName(i.Image), &i.File)
	}
}

// recordOf returns the record of an image. A new one has no credentials.
func (s *Store) recordOf(id string, now, date time.Time) *Record {
	file := fileName(id)
	r := s.Records[file]
	if r == nil || r.IsGone || r.Damaged || r.ImageRef != id {
		fresh := &Record{ChangedAt: now}
		if r != nil {
			fresh.File = r.File
			fresh.IsGone = false
		}
		fresh.ImageRef, fresh.LastUpdatedTime.Time = id, date
		r = fresh
		put(&s.Records, file, r)
		s.change(recordsDir, file, &r.File)
	}
	return r
}

// grant adds a secret to a record, or all pods of the node if there is none.
func (s *Store) grant(r *Record, repository string, source *keyring.Source, now, date time.Time) {
	good, isKnown := r.CredentialMapping[repository]
	switch {
	case good.NodePodsAccessible, !isKnown && len(r.CredentialMapping) >= credentialsMax:
		return
	case source == nil:
		good = kubeletconfig.ImagePullCredentials{NodePodsAccessible: true}
	default:
		secret := kubeletconfig.ImagePullSecret{UID: source.UID, Namespace: source.Namespace,
			Name: source.Name, CredentialHash: source.Hash}
		secrets := slices.Clone(good.KubernetesSecrets)
		at, found := slices.BinarySearchFunc(secrets, secret, compareSecrets)
		switch {
		case found && secrets[at] == secret, !found && len(secrets) >= credentialsMax:
			return
		case found:
			secrets[at] = secret
		default:
			secrets = slices.Insert(secrets, at, secret)
		}
		good.KubernetesSecrets = secrets
	}
	if r.CredentialMapping == nil {
		r.CredentialMapping = map[string]kubeletconfig.ImagePullCredentials{}
	}
	r.CredentialMapping[repository] = good
	r.ChangedAt, r.LastUpdatedTime.Time = now, date
	s.change(recordsDir, fileName(r.ImageRef), &r.File)
}

// compareSecrets orders secrets as the kubelet does; the content does not count.
func compareSecrets(x, y kubeletconfig.ImagePullSecret) int {
	if c := strings.Compare(x.Namespace, y.Namespace); c != 0 {
		return c
	}
	if c := strings.Compare(x.Name, y.Name); c != 0 {
		return c
	}
	return strings.Compare(x.UID, y.UID)
}

// Reconcile applies a list of the runtime's images, of a time: their names by ID. An image that has
// come from a pull with an unknown outcome gets a record without credentials; records of images
// that have gone are removed.
func (s *Store) Reconcile(images map[string][]string, listedAt, now, date time.Time) {
	if !s.isKept() || !s.IsLoaded() {
		return
	}
	unknown := map[string]*Intent{}
	for _, i := range s.Intents { //ordered: into a map
		if !i.UnknownSince.IsZero() && i.Pulls == 0 {
			unknown[imagename.Split(i.Image).Full()] = i
		}
	}
	present := map[string]bool{} // by the name of the file: a damaged one does not say its image
	for _, id := range slices.Sorted(maps.Keys(images)) {
		present[fileName(id)] = true
		for _, name := range images[id] {
			if i := unknown[name]; i != nil {
				s.recordOf(id, now, date)
				i.UnknownSince, i.Record = time.Time{}, fileName(id)
				s.settle(i)
			}
		}
	}
	for _, file := range slices.Sorted(maps.Keys(s.Records)) {
		r := s.Records[file]
		if !present[file] && !r.IsGone && r.ChangedAt.Before(listedAt) {
			r.IsGone = true
			s.change(recordsDir, file, &r.File)
		}
	}
	s.forgetUnknown(now)
}

// forgetUnknown removes the intents of pulls whose image does not come any more.
func (s *Store) forgetUnknown(now time.Time) {
	var unknown []*Intent
	for _, file := range slices.Sorted(maps.Keys(s.Intents)) {
		if i := s.Intents[file]; !i.UnknownSince.IsZero() && i.Pulls == 0 {
			unknown = append(unknown, i)
		}
	}
	slices.SortStableFunc(unknown, func(x, y *Intent) int {
		return x.UnknownSince.Compare(y.UnknownSince)
	})
	for n, i := range unknown {
		if now.Sub(i.UnknownSince) >= outcomeAwaited || len(unknown)-n > intentsMax {
			i.UnknownSince = time.Time{}
			s.settle(i)
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

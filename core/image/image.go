// Package image pulls the images that pods need, as the kubelet's image manager does.
//
// Facts: for every image that a pod waits for, whether the runtime has the image and as of when,
// the operations in flight, and the back-off after failures. Plan: ImageStatus if a pod needs to
// know whether the image exists, PullImage if a pod needs a pull. Events: the completions of both.
// One pull serves all pods that wait for it with the same credentials, and a pod that needs no pull
// never waits for one. Before a pull the sources of the node's own credentials are asked
// (core/credentials), and before them the service account of the pods is read, if a plugin needs it
// (account.go). Start reading at Store.Require.
package image

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/core/budget"
	"seedlet.dev/core/credentials"
	"seedlet.dev/core/imagename"
	"seedlet.dev/core/keyring"
	"seedlet.dev/core/op"
	"seedlet.dev/core/pullrecord"
	"seedlet.dev/core/timer"
	"seedlet.dev/world"
)

// The kubelet's values, where it has one.
const (
	backoffFirst = 10 * time.Second
	backoffMax   = 300 * time.Second
	// The timeout of a pull is pullTimeout. After a pull that exceeded its timeout the next one gets
	// twice as long, up to pullTimeoutMax. The runtime keeps the layers that it has downloaded, so
	// that a repeated pull repeats no download.
	pullTimeout    = 10 * time.Minute
	pullTimeoutMax = 2 * time.Hour
	// pullCheckPeriod is the period of ImageStatus while the image is being pulled: the completion of
	// the pull may be lost, and the image may be loaded by other means.
	pullCheckPeriod = time.Minute
	statusTimeout   = 2 * time.Minute
	statusRetry     = time.Second
	namesMax        = 1024 // of an image
	Component       = "image"
)

// Precision is the precision of durations in messages for users.
const Precision = time.Millisecond

// Store holds the images that pods wait for.
type Store struct {
	Images    map[string]*Image `json:"images"` // by Image.Name
	Limits    Limits            `json:"limits"`
	PullQueue PullQueue         `json:"pullQueue"`
	// Node has the credentials of the node, which are tried after those of the pods.
	Node credentials.Node `json:"node,omitzero"`
	// Records say which credentials were good for the images on the node.
	Records pullrecord.Store `json:"records,omitzero"`
	// Waits has the number of images that each pod waits for, by UID.
	Waits map[string]int `json:"waits,omitempty"`
}

// Request is an image as a pod needs it: the reference as the pod writes it, and the credentials to
// pull it with.
type Request struct {
	Ref         string
	Credentials Credentials
	Account     Account // zero if no plugin for the image gets tokens
}

// Credentials are the credentials that a pull is tried with, in order.
type Credentials struct {
	Name string // identifies the credentials without revealing them; empty: there are none
	List []keyring.Credential
	// Sources are the secrets that have them: first one of each, in the same order.
	Sources []keyring.Source
	// Problem is why a secret cannot be decoded. There are no credentials then, and nothing is pulled.
	Problem string
}

// Name returns the key of the image in Store.Images. Pods with different credentials do not share
// pulls. No valid reference contains a zero byte.
func (r *Request) Name() string {
	account := r.Account.key()
	if r.Credentials.Name == "" && account == "" {
		return r.Ref
	}
	name := r.Ref + "\x00" + r.Credentials.Name
	if account != "" {
		name += "\x00" + account
	}
	return name
}

// Image is one image reference that pods wait for, with one set of credentials.
type Image struct {
	Name    string   `json:"name"`
	Ref     string   `json:"ref"`
	Waiters []Waiter `json:"waiters"` // sorted by UID

	Credentials []keyring.Credential `json:"credentials,omitempty"` // to pull with, in order
	Sources     []keyring.Source     `json:"sources,omitempty"`     // of Credentials, and others
	// Account is the service account of the waiters; nil if no plugin for the image gets tokens.
	Account   *credentials.Account `json:"account,omitempty"`
	AccountOp world.OpID           `json:"accountOp,omitempty"` // the read in flight
	// AccountNeededSince is the newest need of a waiter to know whether its service account may use
	// the image that is present.
	AccountNeededSince time.Time `json:"accountNeededSince,omitzero"`
	// Round is the search for the node's credentials, which precedes a pull with the first of all
	// credentials.
	Round credentials.Round `json:"round,omitzero"`
	// RoundAccount is the UID of the service account that Round is for.
	RoundAccount string `json:"roundAccount,omitempty"`
	// Credential is the index of the credential of the pull in flight, or of the next pull.
	Credential int `json:"credential,omitempty"`
	// PullErrors are the errors of the pulls with the credentials before Credential.
	PullErrors []string `json:"pullErrors,omitempty"`

	PullOp         world.OpID `json:"pullOp,omitempty"`
	PullIssued     time.Time  `json:"pullIssued"` // when the newest pull was issued
	StatusOp       world.OpID `json:"statusOp,omitempty"`
	StatusOutdated bool       `json:"statusOutdated"` // a pull has completed since StatusOp was issued
	StatusIssued   time.Time  `json:"statusIssued"`   // when the newest ImageStatus was issued
	// CheckedAt is when the newest successful ImageStatus was issued.
	CheckedAt time.Time `json:"checkedAt"`
	PulledAt  time.Time `json:"pulledAt"` // when the newest successful pull was issued
	PulledID  string    `json:"pulledID"` // what it has brought
	// ID is the runtime's image ID; empty if the runtime does not have the image.
	ID          string   `json:"id"`
	Names       []string `json:"names,omitempty"` // of the image InspectedID, in full
	User        User     `json:"user"`            // of the image InspectedID
	InspectedID string   `json:"inspectedID"`

	Pull  Pull  `json:"pull"`  // the newest pull
	Bytes int64 `json:"bytes"` // the size of the image InspectedID

	// Problem is the error of the newest pull or ImageStatus; nil if the newest one succeeded.
	Problem       *Problem  `json:"problem,omitempty"`
	Failures      int       `json:"failures"`      // consecutive failures of pulls
	Timeouts      int       `json:"timeouts"`      // failures that were timeouts
	PullNotBefore time.Time `json:"pullNotBefore"` // back-off of PullImage
	// FailedAt is when the newest pull failed with all credentials.
	FailedAt        time.Time `json:"failedAt,omitzero"`
	StatusNotBefore time.Time `json:"statusNotBefore"` // back-off of ImageStatus
	// RecheckAt is when to repeat ImageStatus for pods with pull policy Never.
	RecheckAt time.Time `json:"recheckAt"`
	// StatusNeededSince is the newest need of a waiter for an ImageStatus, and PullNeededSince for a
	// pull: only one that was issued then or later satisfies the need.
	StatusNeededSince time.Time `json:"statusNeededSince"`
	PullNeededSince   time.Time `json:"pullNeededSince"`
	// UserNeededOf is the ID of the image whose user a pod needs.
	UserNeededOf string `json:"userNeededOf"`
}

// Waiter is a pod that waits for an image. Only operations issued at Since or later count for it.
type Waiter struct {
	UID   string    `json:"uid"`
	Since time.Time `json:"since"`
	Pod   string    `json:"pod,omitempty"` // its name, if tokens may be bound to the pod
}

// User is the user of an image's configuration, by number or else by name. An image with neither
// runs as root.
type User struct {
	UID  *int64 `json:"uid,omitempty"`
	Name string `json:"name,omitempty"`
}

// Pull is when a pull with the first credentials was issued, and when the pull succeeded; Finished
// is zero if it has not.
type Pull struct {
	Started  time.Time `json:"started"`
	Finished time.Time `json:"finished"`
}

// Duration returns how long a successful pull took.
func (p Pull) Duration() time.Duration { return p.Finished.Sub(p.Started).Truncate(Precision) }

// Key returns the owner of an image's operations.
func Key(name string) timer.Key { return timer.Key{Component: Component, Name: name} }

// Result is what Store.Require knows about an image.
type Result struct {
	ID      string   // the image to run; empty if the pod has to wait
	User    User     // of the image; only from RequireWithUser
	Problem *Problem // why there is no ID; nil if nothing has failed
	// Decision is what the request led to; empty while ImageStatus is awaited.
	Decision Decision
	// Access is whether the pod may use the image that is present; empty if that was not asked.
	Access pullrecord.Access
	Pull   Pull  // the newest pull of the image
	Bytes  int64 // the size; zero if it is not known
}

// Decision is whether an image was present when a pod needed it, and whether it has to be pulled:
// the kubelet's labels present_locally and pull_required.
type Decision string

// The decisions. A pull with the policy Always does not ask whether the image is present. A request
// that fails at once, for its reference or for a failed inspection, decides nothing else.
const (
	Present Decision = "true false"
	Missing Decision = "false true"
	// NotAccessible is an image for which the pod has none of the credentials that were good for it.
	NotAccessible Decision = "true true"
	NeverPulled   Decision = "false unknown"
	AlwaysPulled  Decision = "unknown true"
	Undecidable   Decision = "unknown unknown"
)

// Require returns the image that a pod can run under a pull policy, or why it has to wait. Only
// operations issued at since or later count. While Result.ID is empty, the image (by its Key) has
// to be planned. The pod is a waiter until Release, and is planned when a fact about the image
// changes.
func (s *Store) Require(uid string, request Request, policy v1.PullPolicy, since time.Time) Result {
	ref, name := request.Ref, request.Name()
	img := s.Images[name]
	if img == nil || img.Ref != ref {
		if problem := checkReference(ref); problem != nil {
			// The reference is invalid for every runtime, so no runtime is asked.
			return Result{Decision: Undecidable, Problem: problem}
		}
	}
	if img == nil {
		if s.Images == nil {
			s.Images = map[string]*Image{}
		}
		img = &Image{Name: name, Ref: ref, Credentials: request.Credentials.List,
			Sources: request.Credentials.Sources, Account: request.Account.fact()}
		s.Images[name] = img
	}
	s.addWaiter(img, uid, request.Account.Pod, since)
	pulled := !img.PulledAt.IsZero() && !img.PulledAt.Before(since)
	checked := !img.CheckedAt.IsZero() && !img.CheckedAt.Before(since)
	isPresent := img.ID != "" && checked && policy != v1.PullAlways
	decision, whenPresent := decide(policy, isPresent)
	if pulled && img.ID != "" && img.ID == img.PulledID {
		result := img.result()
		result.Decision = whenPresent
		return result
	}
	var access pullrecord.Access
	isAsked := isPresent || pulled && img.ID != "" // after a pull, the name may have another image
	if isAsked {
		needed := since
		if policy == v1.PullNever { // no pull reads the service account again
			needed = timer.Later(since, img.CheckedAt)
		}
		access = s.access(img, needed)
	}
	if access == pullrecord.Denied && pulled {
		img.PulledAt = time.Time{}
		img.PullNotBefore = timer.Later(img.PullNotBefore, img.Pull.Finished.Add(backoffFirst))
	}
	switch {
	case access.IsGranted():
		result := img.result()
		result.Decision, result.Access = whenPresent, access
		return result
	case isAsked && access == pullrecord.Unknown:
		// It is planned when the records, or the service account, were read.
		return Result{Problem: img.Problem, Pull: img.Pull}
	case checked && policy == v1.PullNever:
		img.RecheckAt = img.CheckedAt.Add(backoffFirst) // the image may be loaded by other means
		return Result{Decision: decision, Access: access, Problem: &Problem{Reason: ErrImageNeverPull,
			Message: fmt.Sprintf("Container image %q is not present with pull policy of Never", ref)}}
	case request.Credentials.Problem != "" && (policy == v1.PullAlways || checked):
		if checked {
			img.RecheckAt = img.CheckedAt.Add(backoffFirst)
		}
		return Result{Decision: decision, Access: access,
			Problem: secretProblem(request.Credentials.Problem)}
	case policy == v1.PullAlways, checked:
		img.PullNeededSince = timer.Later(img.PullNeededSince, since)
	default:
		img.StatusNeededSince = timer.Later(img.StatusNeededSince, since)
		if decision = ""; img.Problem != nil && img.Problem.Reason == ErrImageInspect {
			decision = Undecidable
		}
	}
	return Result{Decision: decision, Access: access, Problem: img.Problem, Pull: img.Pull}
}

// decide returns the decisions about an image that has to be pulled, and about one that has not.
func decide(policy v1.PullPolicy, isPresent bool) (missing, present Decision) {
	switch {
	case policy == v1.PullAlways:
		return AlwaysPulled, AlwaysPulled
	case isPresent:
		return NotAccessible, Present
	case policy == v1.PullNever:
		return NeverPulled, Present
	}
	return Missing, Present
}

// RequireWithUser is Require for a pod that also has to know the user of the image. Only
// ImageStatus reports the user: after a pull of another image RequireWithUser needs one more
// ImageStatus.
func (s *Store) RequireWithUser(uid string, request Request, policy v1.PullPolicy,
	since time.Time) Result {
	result := s.Require(uid, request, policy, since)
	img := s.Images[request.Name()]
	switch result.ID {
	case "":
		return result
	case img.InspectedID:
		result.User = img.User
		return result
	}
	img.UserNeededOf = result.ID
	return Result{Decision: result.Decision, Problem: img.Problem, Pull: img.Pull}
}

// Release removes a pod from the waiters of an image. An image without waiters is removed.
func (s *Store) Release(uid, name string) {
	img := s.Images[name]
	if img == nil {
		return
	}
	if i, ok := img.findWaiter(uid); ok {
		img.Waiters = slices.Delete(img.Waiters, i, i+1)
		if s.Waits[uid]--; s.Waits[uid] == 0 {
			delete(s.Waits, uid)
		}
	}
	s.removeUnused(img)
}

// removeUnused removes an image without waiters from the store and from the pull queue.
func (s *Store) removeUnused(img *Image) {
	if len(img.Waiters) > 0 {
		return
	}
	s.PullQueue.remove(img.Name)
	if !img.hasOperation() {
		s.Records.End(img.Ref, img.Name)
		delete(s.Images, img.Name)
	}
}

// result returns the Result for a pod that can run the image.
func (i *Image) result() Result {
	result := Result{ID: i.ID, Pull: i.Pull}
	if i.InspectedID == i.ID {
		result.Bytes = i.Bytes
	}
	return result
}

func (s *Store) addWaiter(i *Image, uid, pod string, since time.Time) {
	at, ok := i.findWaiter(uid)
	if !ok {
		i.Waiters = slices.Insert(i.Waiters, at, Waiter{UID: uid, Pod: pod})
		if s.Waits == nil {
			s.Waits = map[string]int{}
		}
		s.Waits[uid]++
		i.bringPullForward()
	}
	i.Waiters[at].Since = timer.Later(i.Waiters[at].Since, since)
}

// bringPullForward has the back-off begin again for a pod that begins to wait: a kubelet backs off
// for each pod, and how often the pulls for others have failed delays none.
func (i *Image) bringPullForward() {
	first := i.FailedAt.Add(backoffFirst)
	if !i.FailedAt.IsZero() && first.Before(i.PullNotBefore) {
		i.PullNotBefore, i.Failures = first, 0
	}
}

// tenant returns the waiter whose share of the lanes the operations of an image take: the one that
// waits for the fewest images. So a pod of many images does not delay another one that needs one of
// them.
func (s *Store) tenant(i *Image) string {
	least := i.Waiters[0].UID
	for _, w := range i.Waiters {
		if s.Waits[w.UID] < s.Waits[least] {
			least = w.UID
		}
	}
	return least
}

// LatestWaiter returns the pod that has needed an image last; empty if no pod waits.
func (s *Store) LatestWaiter(name string) string {
	img := s.Images[name]
	if img == nil || len(img.Waiters) == 0 {
		return ""
	}
	return slices.MaxFunc(img.Waiters, func(x, y Waiter) int { return x.Since.Compare(y.Since) }).UID
}

func (i *Image) findWaiter(uid string) (at int, found bool) {
	return slices.BinarySearchFunc(i.Waiters, uid, func(w Waiter, uid string) int {
		return strings.Compare(w.UID, uid)
	})
}

// waitersSince returns the waiters that need an operation issued after a time.
func (i *Image) waitersSince(after time.Time) []string {
	var uids []string
	for _, w := range i.Waiters {
		if w.Since.After(after) {
			uids = append(uids, w.UID)
		}
	}
	return uids
}

func (i *Image) hasOperation() bool {
	return i.PullOp != 0 || i.StatusOp != 0 || i.AccountOp != 0 || i.Round.Op != 0
}

// Env is what the plan of an image depends on besides the facts.
type Env struct {
	Effects   *op.Effects
	Enqueue   func(timer.Key) // has another image planned
	PullsHeld bool            // no pull starts
	// IsRemoving reports whether the removal of an image is in flight; nil: none is.
	IsRemoving func(ref string) bool
	// Sandbox returns the configuration of the sandbox of a pod; nil if the pod has none.
	Sandbox func(uid string) *runtimeapi.PodSandboxConfig
}

// Plan issues the operations that an image's waiters need, and returns when to plan again. If
// other images have come to the head of the pull queue, they are enqueued.
func (s *Store) Plan(name string, env *Env) time.Time {
	before := s.Head()
	wake := s.plan(name, env)
	for _, next := range s.Advanced(before) {
		if next != name {
			env.Enqueue(Key(next))
		}
	}
	return wake
}

func (s *Store) plan(name string, env *Env) time.Time {
	img := s.Images[name]
	switch {
	case img == nil:
		return time.Time{}
	case len(img.Waiters) == 0:
		s.removeUnused(img)
		return time.Time{}
	case env.IsRemoving != nil && env.IsRemoving(img.Ref):
		// An answer from before the end of the removal would be wrong after it. The image is planned
		// when the removal completes.
		s.leaveQueue(img)
		return time.Time{}
	}
	wake := s.planStatus(img, env.Effects)
	if img.isAccountOutdated(img.AccountNeededSince) {
		s.readAccount(img, env.Effects)
	}
	if env.PullsHeld {
		return wake
	}
	return timer.Soonest(wake, s.planPull(img, env))
}

// planStatus issues an ImageStatus if a waiter needs one, or periodically while the image is being
// pulled.
func (s *Store) planStatus(i *Image, effects *op.Effects) time.Time {
	var due time.Time
	switch {
	case i.StatusOp != 0:
		return time.Time{}
	case !i.StatusNeededSince.IsZero() && i.CheckedAt.Before(i.StatusNeededSince):
		due = timer.Later(i.StatusNotBefore, i.StatusNeededSince)
	case i.ID != "" && i.UserNeededOf == i.ID && i.InspectedID != i.ID:
		due = i.StatusNotBefore
	case i.PullOp != 0:
		due = timer.Later(i.StatusNotBefore,
			timer.Later(i.PullIssued, i.StatusIssued).Add(pullCheckPeriod))
	case !i.RecheckAt.IsZero():
		due = timer.Later(i.StatusNotBefore, i.RecheckAt)
	default:
		return time.Time{}
	}
	if effects.Now().Before(due) {
		return due
	}
	i.StatusIssued = effects.Now()
	i.StatusOp = effects.IssueFor(s.tenant(i), Key(i.Name), "", statusTimeout,
		&runtimeapi.ImageStatusRequest{Image: &runtimeapi.ImageSpec{Image: i.Ref}})
	return time.Time{}
}

// planPull issues a pull if a waiter needs one. An image that cannot be pulled yet for a reason of
// its own waits in no queue: those behind it would wait for the same.
func (s *Store) planPull(i *Image, env *Env) time.Time {
	effects := env.Effects
	if ready, until := s.isReadyToPull(i, effects); !ready {
		s.leaveQueue(i)
		return until
	}
	at, until := s.prepare(i, effects.Now())
	if at < 0 {
		return until
	}
	if started, until := s.PullQueue.tryStart(at, s.Limits, effects.Now()); !started {
		return until
	}
	i.PullIssued = effects.Now()
	if i.Credential == 0 {
		i.Pull = Pull{Started: i.PullIssued}
	}
	sandbox := i.sandbox(env)
	i.PullOp = effects.IssueFor(s.tenant(i), Key(i.Name), "", i.timeout(),
		&runtimeapi.PullImageRequest{
			Image: &runtimeapi.ImageSpec{Image: i.Ref, Annotations: sandbox.GetAnnotations()},
			Auth:  i.authConfig(), SandboxConfig: sandbox})
	return i.PullIssued.Add(pullCheckPeriod)
}

// leaveQueue takes an image out of the queue. Its intent is not needed, unless it is being pulled.
func (s *Store) leaveQueue(i *Image) {
	s.PullQueue.remove(i.Name)
	if i.PullOp == 0 {
		s.Records.End(i.Ref, i.Name)
	}
}

// prepare has an image wait in the queue, and records the intent to pull it if it is at the head.
// It returns the index of the image if its pull may start but for other pulls, or else -1 and when
// to look again. An image whose intent cannot be written waits in no queue: it is planned when that
// is on the disk.
func (s *Store) prepare(i *Image, now time.Time) (at int, until time.Time) {
	q, tenant := &s.PullQueue, s.tenant(i)
	if s.Records.Problem(i.Ref) != "" {
		q.remove(i.Name)
		_, until = s.Records.Begin(i.Ref, i.Name, tenant, now)
		return -1, until
	}
	at = q.add(i.Name, tenant)
	s.endFar(max(at, intentsKept))
	if at >= q.prepared(s.Limits) {
		return -1, time.Time{}
	}
	ready, until := s.Records.Begin(i.Ref, i.Name, tenant, now)
	if q.Waiting[at].Ready = ready; !ready {
		return -1, until
	}
	return at, time.Time{}
}

// endFar ends the intent of the image at an index, which is too far from the head of the queue to
// keep it. All images behind intentsKept have none: one at most comes to be there with each image
// that is added.
func (s *Store) endFar(at int) {
	if at >= len(s.PullQueue.Waiting) {
		return
	}
	queued := &s.PullQueue.Waiting[at]
	queued.Ready = false
	if i := s.Images[queued.Name]; i != nil {
		s.Records.End(i.Ref, i.Name)
	}
}

// isReadyToPull reports whether a waiter needs a pull that could start but for other pulls, or when
// to look again.
func (s *Store) isReadyToPull(i *Image, effects *op.Effects) (bool, time.Time) {
	switch {
	case i.PullOp != 0:
		return false, time.Time{}
	case i.PullNeededSince.IsZero() || !i.PulledAt.Before(i.PullNeededSince):
		return false, time.Time{}
	case effects.Now().Before(i.PullNotBefore):
		return false, i.PullNotBefore
	}
	return s.askForNodeCredentials(i, effects), time.Time{}
}

// timeout returns that of the pull in flight, or of the next one.
func (i *Image) timeout() time.Duration {
	return min(pullTimeout<<min(i.Timeouts, 8), pullTimeoutMax)
}

// askForNodeCredentials asks the next source of the node's credentials for an image, and reports
// whether all of them have been asked.
func (s *Store) askForNodeCredentials(i *Image, effects *op.Effects) bool {
	if i.Round.Op != 0 {
		return false
	}
	if !s.knowsRoundAccount(i, effects) {
		return false
	}
	if i.Credential > 0 {
		return true
	}
	for {
		request, failure := s.Node.Next(&i.Round, i.subject(), effects.Now())
		if failure != nil {
			i.logNoCredentials(failure, effects)
			continue
		}
		if request == nil {
			return true
		}
		i.Round.Op = effects.IssueFor(s.tenant(i), Key(i.Name), "", credentials.TimeoutOf(request),
			request)
		return false
	}
}

func (i *Image) logNoCredentials(failure error, effects *op.Effects) {
	effects.Log(world.LevelWarning, "no credentials of the node", "image", i.Ref, "err",
		failure.Error())
}

// sandbox returns the configuration of a sandbox that the image is pulled for, that of the first
// waiter which has one. A runtime chooses by it where the image is unpacked; RuntimeHandler of the
// ImageSpec is not set, as by the kubelet without the gate RuntimeClassInImageCriAPI, which is off
// by default.
func (i *Image) sandbox(env *Env) *runtimeapi.PodSandboxConfig {
	for _, waiter := range i.Waiters {
		if env.Sandbox == nil {
			break
		}
		if config := env.Sandbox(waiter.UID); config != nil {
			return config
		}
	}
	return nil
}

// Head returns the head of the pull queue.
func (s *Store) Head() Head { return s.PullQueue.head(s.Limits) }

// Advanced returns the images that have to be planned since they were not at the head of the queue
// before, or were not the first that may start. When a pull completes, all of the head are planned.
func (s *Store) Advanced(before Head) []string {
	now := s.Head()
	advanced := slices.DeleteFunc(now.Names, func(name string) bool {
		return slices.Contains(before.Names, name)
	})
	if now.Ready != before.Ready && now.Ready != "" && !slices.Contains(advanced, now.Ready) {
		advanced = append(advanced, now.Ready)
	}
	return advanced
}

// PullInFlight returns since when an image is being pulled, and its waiters; zero if it is not
// being pulled.
func (s *Store) PullInFlight(name string) (since time.Time, waiters []Waiter) {
	if img := s.Images[name]; img != nil && img.PullOp != 0 {
		return img.Pull.Started, img.Waiters
	}
	return time.Time{}, nil
}

// Names returns the keys of all images, sorted.
func (s *Store) Names() []string { return slices.Sorted(maps.Keys(s.Images)) }

// HandleCompletion applies the completion of an operation on an image, and returns the pods to
// plan.
func (s *Store) HandleCompletion(name string, r op.Record, ev world.Event,
	effects *op.Effects) []string {
	img := s.Images[name]
	if img == nil {
		return nil
	}
	switch r.Call {
	case "GetObject":
		img.AccountOp = 0
		s.Node.HandleAccount(img.Account, img.waitersSince(time.Time{}), r.IssuedAt, ev)
		return img.waitersSince(time.Time{})
	case "GetCredentials", "ReadDockerConfig", "CreateToken":
		if err := s.Node.Handle(&img.Round, img.Ref, r, ev); err != nil {
			img.logNoCredentials(err, effects)
		}
		return nil // the image is planned, and its waiters wait for the pull
	}
	// The status was issued before a pull changed the image.
	outdated := r.Call == "ImageStatus" && img.StatusOutdated
	if r.Call == "ImageStatus" {
		img.StatusOp, img.StatusOutdated = 0, false
	} else {
		img.PullOp, img.StatusOutdated = 0, img.StatusOp != 0
		s.PullQueue.InFlight--
	}
	if pulled, ok := ev.Body.(*runtimeapi.PullImageResponse); ok && pulled.ImageRef == "" {
		ev.Err = world.Errorf(world.KindInternal, r.Call, "the runtime did not say what it pulled")
		s.Records.MayCome(img.Ref, ev.Time)
	}
	if ev.Err != nil {
		s.recordFailure(img, r.Call, ev, effects)
		return img.waitersSince(time.Time{})
	}
	switch body := ev.Body.(type) {
	case *runtimeapi.ImageStatusResponse:
		if !outdated {
			s.noteID(img, body.GetImage(), effects)
			return img.recordStatus(body.GetImage(), r.IssuedAt, ev.Time)
		}
	case *runtimeapi.PullImageResponse:
		img.PulledAt, img.CheckedAt, img.ID = r.IssuedAt, r.IssuedAt, body.ImageRef
		img.PulledID = body.ImageRef
		img.Pull.Finished = ev.Time
		img.Problem, img.Failures, img.Timeouts, img.PullNotBefore = nil, 0, 0, time.Time{}
		s.recordPull(img, effects)
		img.Credential, img.PullErrors, img.Round = 0, nil, credentials.Round{}
	}
	return img.waitersSince(time.Time{})
}

// recordStatus applies an ImageStatus, and returns the pods to plan: all waiters if a fact has
// changed, else only those for which the previous ImageStatus was too old. An image that was pulled
// and no longer exists is pulled again, else its waiters would wait forever; a back-off precedes
// that pull, since the image may be removed again.
func (i *Image) recordStatus(found *runtimeapi.Image, issued, now time.Time) []string {
	affectedAfter := i.CheckedAt
	if found.GetId() != i.ID || i.InspectedID != i.ID || i.Problem != nil || !i.RecheckAt.IsZero() {
		affectedAfter = time.Time{}
	}
	if i.Problem != nil && i.Problem.Reason == ErrImageInspect {
		i.Problem = nil
	}
	i.RecheckAt = time.Time{} // Require sets it again for pull policy Never
	i.CheckedAt, i.ID, i.InspectedID = issued, found.GetId(), found.GetId()
	i.User, i.Bytes = User{Name: found.GetUsername()}, int64(found.GetSize())
	names := slices.Concat(found.GetRepoTags(), found.GetRepoDigests())
	i.Names = imagename.WithFullNames(names[:min(len(names), namesMax)])
	if uid := found.GetUid(); uid != nil {
		i.User.UID = &uid.Value
	}
	if i.ID == "" && !i.PulledAt.IsZero() {
		i.PulledAt, i.PullNotBefore = time.Time{}, now.Add(backoffFirst)
		i.Problem = inspectProblem(i.Ref, "the image was pulled and has gone")
		affectedAfter = time.Time{}
	}
	return i.waitersSince(affectedAfter)
}

// noteID notes the ID by which the runtime knows what a pull has brought, if that is not what it
// has answered: some runtimes answer with a digest.
func (s *Store) noteID(i *Image, found *runtimeapi.Image, effects *op.Effects) {
	if i.PulledID == "" || found.GetId() == "" || found.Id == i.PulledID ||
		!slices.Contains(found.RepoDigests, i.PulledID) && !slices.Contains(found.RepoTags, i.PulledID) {
		return
	}
	s.Records.Rename(i.PulledID, found.Id, effects.Now(), effects.Date())
	i.PulledID = found.Id
}

// recordPull records with which credentials an image was pulled.
func (s *Store) recordPull(i *Image, effects *op.Effects) {
	switch {
	case i.Credential >= len(i.Credentials): // those of the node or of a service account, or none
		s.Records.Pulled(i.Ref, i.ID, i.foundCredentials(), effects.Now(), effects.Date())
	case i.Credential < len(i.Sources):
		s.Records.Pulled(i.Ref, i.ID, pullrecord.OfSecret(&i.Sources[i.Credential]), effects.Now(),
			effects.Date())
	default:
		s.Records.MayCome(i.Ref, effects.Now())
	}
	s.Records.End(i.Ref, i.Name)
}

// recordFailure applies a failure. The back-off of pulls starts at 10 s and doubles up to 300 s.
func (s *Store) recordFailure(i *Image, call string, ev world.Event, effects *op.Effects) {
	if call == "ImageStatus" {
		i.StatusNotBefore = ev.Time.Add(statusRetry)
		if i.PullOp == 0 && i.Failures == 0 {
			i.Problem = inspectProblem(i.Ref, budget.CutMessage(ev.Err.Message))
		}
		return
	}
	if i.mayCome(ev) {
		s.Records.MayCome(i.Ref, ev.Time)
	} else {
		s.Records.Failed(i.Ref, ev.Time)
	}
	message := i.recordPullError(budget.CutMessage(ev.Err.Message))
	if i.Credential > 0 {
		effects.Log(world.LevelDebug, "pull failed, trying the next credentials", "image", i.Ref,
			"err", ev.Err.Error())
		return
	}
	i.Failures++
	if ev.Err.Has(world.KindTimeout) {
		i.Timeouts++
	}
	i.FailedAt = ev.Time
	i.PullNotBefore = ev.Time.Add(timer.Backoff(i.Failures, backoffFirst, backoffMax))
	i.Problem = pullProblem(i.Ref, message, i.Failures)
	s.Records.End(i.Ref, i.Name)
}

// mayCome reports whether the image may still come after a failed pull: the runtime did not answer.
// An error of the kind timeout before the pull's own is that of the registry.
func (i *Image) mayCome(ev world.Event) bool {
	return ev.Err.Has(world.KindUnavailable) ||
		ev.Err.Has(world.KindTimeout) && ev.Time.Sub(i.PullIssued) >= i.timeout()-time.Second
}

// HandleRecordCompletion applies the completion of an operation on the records. It returns the pods
// and the images to plan.
func (s *Store) HandleRecordCompletion(r op.Record, ev world.Event, effects *op.Effects) (uids,
	names []string) {
	waiting, loaded := s.Records.HandleCompletion(r, ev, effects)
	if loaded {
		for _, name := range s.Names() {
			uids = append(uids, s.Images[name].waitersSince(time.Time{})...)
		}
		return uids, s.Names()
	}
	names = s.Head().Names // there may be room for their intents now
	for _, name := range waiting {
		img := s.Images[name]
		if img == nil {
			continue
		}
		names = append(names, name)
		if problem := s.Records.Problem(img.Ref); problem != "" {
			img.Problem = intentProblem(img.Ref, problem)
			uids = append(uids, img.waitersSince(time.Time{})...)
		}
	}
	return uids, names
}

// authConfig returns the credentials of the next pull; nil for an anonymous pull.
func (i *Image) authConfig() *runtimeapi.AuthConfig {
	all := i.allCredentials()
	if len(all) == 0 {
		return nil
	}
	credential := all[i.Credential]
	return &runtimeapi.AuthConfig{Username: credential.Username, Password: credential.Password}
}

// allCredentials returns the credentials to try, those of the pods first.
func (i *Image) allCredentials() []keyring.Credential {
	all := slices.Clip(i.Credentials)
	for _, found := range i.Round.List {
		all = append(all, found.Credential)
	}
	return all
}

// recordPullError applies the error of a pull. The next pull uses the next credentials, without
// back-off. After the last credentials recordPullError returns the errors of all of them, and the
// next pull starts with the first.
func (i *Image) recordPullError(message string) string {
	i.PullErrors = append(i.PullErrors, message)
	if i.Credential+1 < len(i.allCredentials()) {
		i.Credential++
		return ""
	}
	all := slices.Compact(i.PullErrors)
	i.Credential, i.PullErrors, i.Round = 0, nil, credentials.Round{}
	if len(all) == 1 {
		return all[0]
	}
	return "[" + strings.Join(all, ", ") + "]"
}

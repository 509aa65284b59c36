// Package image knows which images the runtime has, and pulls those that pods need.
//
// It keeps: for every image that a pod waits for, whether it is there as of when, the pull in
// flight and the back-off after a failed one. Its plan asks the runtime for what some pod needs
// to know. It takes: the answers to ImageStatus and PullImage. One pull serves all pods that
// wait for it, and no pull holds up a pod that does not need it. Start reading at Store.Need.
package image

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/distribution/reference"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/core/keyring"
	"seedlet.dev/core/op"
	"seedlet.dev/core/timer"
	"seedlet.dev/world"
)

// The kubelet's numbers.
const (
	backoffFirst = 10 * time.Second
	backoffMax   = 300 * time.Second
	// A pull may take pullTimeout; after one that took longer the next may take twice as long,
	// up to pullTimeoutMax. The runtime keeps the parts that have come, so that nothing is lost
	// but the wait for an answer that may never have come.
	pullTimeout    = 10 * time.Minute
	pullTimeoutMax = 2 * time.Hour
	// lookPeriod is how often an image is looked for while it is being pulled: the answer to the
	// pull may be lost, and whoever pulls the image by other means is not waited for either.
	lookPeriod    = time.Minute
	statusTimeout = 2 * time.Minute
	statusRetry   = time.Second
	component     = "image"
)

// The reasons why an image cannot be had, as container statuses have them.
const (
	ErrName      = "InvalidImageName"
	ErrNeverPull = "ErrImageNeverPull"
	ErrInspect   = "ImageInspectError"
	ErrPull      = "ErrImagePull"
	BackOff      = "ImagePullBackOff"
)

// Precision is that of the times that users are told.
const Precision = time.Millisecond

// Store is what is known about images that some pod waits for.
type Store struct {
	Images map[string]*Image `json:"images"` // by name
	Limits Limits            `json:"limits"`
	Turns  Turns             `json:"turns"`
}

// Wanted is an image as a pod wants it: its reference, as the pod writes it, and who may pull it.
type Wanted struct {
	Ref  string
	With Credentials
}

// Credentials are those that a pull can be tried with, in order.
type Credentials struct {
	Name  string // tells them from others, and nothing of them; empty: there are none
	Tries []keyring.Credential
}

// Name is what an image is kept by. The pull of one pod has nothing to do with that of another that
// has other credentials. No valid reference has a zero byte in it.
func (w *Wanted) Name() string {
	if w.With.Name == "" {
		return w.Ref
	}
	return w.Ref + "\x00" + w.With.Name
}

// Image is one reference that pods wait for, with one set of credentials.
type Image struct {
	Name    string   `json:"name"`
	Ref     string   `json:"ref"`
	Waiters []Waiter `json:"waiters"` // sorted by UID

	Tries  []keyring.Credential `json:"tries,omitempty"`  // credentials to pull with
	Try    int                  `json:"try,omitempty"`    // the one of the pull in flight, or next
	Denied []string             `json:"denied,omitempty"` // what the ones before it were told

	PullOp    world.OpID `json:"pullOp,omitempty"`
	PullAsked time.Time  `json:"pullAsked"` // when the newest pull began
	LookOp    world.OpID `json:"lookOp,omitempty"`
	LookVoid  bool       `json:"lookVoid"`  // a pull has ended since LookOp was asked for
	LookAsked time.Time  `json:"lookAsked"` // when the newest ImageStatus was asked for
	CheckedAt time.Time  `json:"checkedAt"` // when the newest answered ImageStatus was asked for
	PulledAt  time.Time  `json:"pulledAt"`  // when the newest successful pull began
	ID        string     `json:"id"`        // the runtime's id, empty if it is not there
	User      User       `json:"user"`      // whom the image with the id UserOf runs as
	UserOf    string     `json:"userOf"`

	Pull  Pull  `json:"pull"`  // the newest one
	Bytes int64 `json:"bytes"` // the size of the image with the id UserOf

	Problem   *Problem  `json:"problem,omitempty"` // of the newest pull or look, nil if it succeeded
	Failures  int       `json:"failures"`          // of pulls, in a row
	Timeouts  int       `json:"timeouts"`          // how many of them were not answered in time
	NotBefore time.Time `json:"notBefore"`         // back-off of pulls
	LookRetry time.Time `json:"lookRetry"`         // back-off of looks
	LookAgain time.Time `json:"lookAgain"`         // when to look once more for who never pulls
	WantCheck time.Time `json:"wantCheck"`         // someone needs a look no older than this
	WantPull  time.Time `json:"wantPull"`          // someone needs a pull no older than this
	WantUser  string    `json:"wantUser"`          // someone needs to know the user of this id
}

// Waiter is a pod that waits for an image, and judges only by what was asked for since then.
type Waiter struct {
	UID   string    `json:"uid"`
	Since time.Time `json:"since"`
}

// User is whom an image runs as: by number or else by name. An image that says neither runs as
// root.
type User struct {
	UID  *int64 `json:"uid,omitempty"`
	Name string `json:"name,omitempty"`
}

// Pull is when a pull began, with its first credentials, and when it ended well; zero if it has
// not.
type Pull struct {
	Began time.Time `json:"began"`
	Ended time.Time `json:"ended"`
}

// Took is how long a pull took that has ended.
func (p Pull) Took() time.Duration { return p.Ended.Sub(p.Began).Truncate(Precision) }

// Problem is why an image cannot be had, in the words of container statuses.
type Problem struct {
	Reason  string `json:"reason"`
	Message string `json:"message"`
	// Of pulls: what went wrong with the newest, and how many have failed in a row.
	Cause    string `json:"cause,omitempty"`
	Failures int    `json:"failures,omitempty"`
}

// Key is the owner of an image's operations.
func Key(name string) timer.Key { return timer.Key{Component: component, Name: name} }

// Answer is what Need says.
type Answer struct {
	ID      string   // the image to run, when it is there
	User    User     // whom it runs as, for who asked with NeedUser
	Problem *Problem // why it is not there, if something is wrong
	Pull    Pull     // the newest pull of it
	Bytes   int64    // its size; zero if that is not known
}

// Need says whether a pod can run an image under a pull policy, judging only by what was asked
// for since the given time. While it cannot, the image (by its Key) must be planned. The pod is a
// waiter until it is released, and is told when something about the image changes.
func (s *Store) Need(uid string, w Wanted, policy v1.PullPolicy, since time.Time) Answer {
	ref, name := w.Ref, w.Name()
	img := s.Images[name]
	if img == nil || img.Ref != ref {
		if _, err := reference.ParseNormalizedNamed(ref); err != nil {
			// No runtime can have it, so none is asked.
			return Answer{Problem: &Problem{Reason: ErrName, Message: fmt.Sprintf(
				"Failed to apply default image tag %q: couldn't parse image name %[1]q: %v", ref,
				err)}}
		}
	}
	if img == nil {
		if s.Images == nil {
			s.Images = map[string]*Image{}
		}
		img = &Image{Name: name, Ref: ref, Tries: w.With.Tries}
		s.Images[name] = img
	}
	img.wait(uid, since)
	pulled := !img.PulledAt.IsZero() && !img.PulledAt.Before(since)
	checked := !img.CheckedAt.IsZero() && !img.CheckedAt.Before(since)
	switch {
	case img.ID != "" && (pulled || checked && policy != v1.PullAlways):
		return img.there()
	case checked && policy == v1.PullNever:
		img.LookAgain = img.CheckedAt.Add(backoffFirst) // someone may bring it by other means
		return Answer{Problem: &Problem{Reason: ErrNeverPull, Message: fmt.Sprintf(
			"Container image %q is not present with pull policy of Never", ref)}}
	case policy == v1.PullAlways, checked:
		img.WantPull = timer.Later(img.WantPull, since)
	default:
		img.WantCheck = timer.Later(img.WantCheck, since)
	}
	return Answer{Problem: img.Problem, Pull: img.Pull}
}

// NeedUser is Need for who has to know whom the image runs as besides. A look says so and a pull
// does not: after one that has brought another image there is one more look, if somebody asks.
func (s *Store) NeedUser(uid string, w Wanted, policy v1.PullPolicy, since time.Time) Answer {
	answer := s.Need(uid, w, policy, since)
	img := s.Images[w.Name()]
	switch answer.ID {
	case "":
		return answer
	case img.UserOf:
		answer.User = img.User
		return answer
	}
	img.WantUser = answer.ID
	return Answer{Problem: img.Problem, Pull: img.Pull}
}

// Release forgets that a pod waits for an image; an image that nobody waits for is forgotten.
func (s *Store) Release(uid, name string) {
	img := s.Images[name]
	if img == nil {
		return
	}
	if i, ok := img.waiter(uid); ok {
		img.Waiters = slices.Delete(img.Waiters, i, i+1)
	}
	s.drop(img)
}

// drop forgets an image that nobody waits for, and gives up its turn.
func (s *Store) drop(img *Image) {
	if len(img.Waiters) > 0 {
		return
	}
	s.Turns.leave(img.Name)
	if !img.busy() {
		delete(s.Images, img.Name)
	}
}

// there is the answer to who can run the image.
func (i *Image) there() Answer {
	answer := Answer{ID: i.ID, Pull: i.Pull}
	if i.UserOf == i.ID {
		answer.Bytes = i.Bytes
	}
	return answer
}

func (i *Image) wait(uid string, since time.Time) {
	at, ok := i.waiter(uid)
	if !ok {
		i.Waiters = slices.Insert(i.Waiters, at, Waiter{UID: uid})
	}
	i.Waiters[at].Since = timer.Later(i.Waiters[at].Since, since)
}

func (i *Image) waiter(uid string) (at int, found bool) {
	return slices.BinarySearchFunc(i.Waiters, uid, func(w Waiter, uid string) int {
		return strings.Compare(w.UID, uid)
	})
}

// told are the pods that have to be told of something, since they wait for what was asked for after
// a time.
func (i *Image) told(after time.Time) []string {
	var uids []string
	for _, w := range i.Waiters {
		if w.Since.After(after) {
			uids = append(uids, w.UID)
		}
	}
	return uids
}

func (i *Image) busy() bool { return i.PullOp != 0 || i.LookOp != 0 }

// Plan asks the runtime for what some pod needs to know about an image, and says when to be
// called again. It touches the image whose turn to be pulled comes next. Nothing is pulled while
// that is held back.
func (s *Store) Plan(name string, held bool, out *op.Out, touch func(timer.Key)) time.Time {
	next := s.Turns.next()
	wake := s.plan(name, held, out)
	if now := s.Turns.next(); now != "" && now != next {
		touch(Key(now))
	}
	return wake
}

func (s *Store) plan(name string, held bool, out *op.Out) time.Time {
	img := s.Images[name]
	switch {
	case img == nil:
		return time.Time{}
	case len(img.Waiters) == 0:
		s.drop(img)
		return time.Time{}
	}
	look := img.planLook(out)
	if held {
		return look
	}
	return timer.Soonest(look, s.planPull(img, out))
}

// planLook asks whether the image is there, if someone has to know, or if it has been pulled for
// long.
func (i *Image) planLook(out *op.Out) time.Time {
	var due time.Time
	switch {
	case i.LookOp != 0:
		return time.Time{}
	case !i.WantCheck.IsZero() && i.CheckedAt.Before(i.WantCheck):
		due = timer.Later(i.LookRetry, i.WantCheck)
	case i.ID != "" && i.WantUser == i.ID && i.UserOf != i.ID:
		due = i.LookRetry
	case i.PullOp != 0:
		due = timer.Later(i.LookRetry, timer.Later(i.PullAsked, i.LookAsked).Add(lookPeriod))
	case !i.LookAgain.IsZero():
		due = timer.Later(i.LookRetry, i.LookAgain)
	default:
		return time.Time{}
	}
	if out.Now().Before(due) {
		return due
	}
	i.LookAsked = out.Now()
	i.LookOp = out.Ask(Key(i.Name), "", statusTimeout,
		&runtimeapi.ImageStatusRequest{Image: &runtimeapi.ImageSpec{Image: i.Ref}})
	return time.Time{}
}

// planPull pulls the image if someone needs it pulled.
func (s *Store) planPull(i *Image, out *op.Out) time.Time {
	switch {
	case i.PullOp != 0 || i.WantPull.IsZero() || !i.PulledAt.Before(i.WantPull):
		s.Turns.leave(i.Name)
		return time.Time{}
	case out.Now().Before(i.NotBefore):
		return i.NotBefore
	}
	if its, at := s.Turns.take(i.Name, s.Limits, out.Now()); !its {
		return at
	}
	i.PullAsked = out.Now()
	if i.Try == 0 {
		i.Pull = Pull{Began: i.PullAsked}
	}
	timeout := min(pullTimeout<<min(i.Timeouts, 8), pullTimeoutMax)
	i.PullOp = out.Ask(Key(i.Name), "", timeout, &runtimeapi.PullImageRequest{
		Image: &runtimeapi.ImageSpec{Image: i.Ref}, Auth: i.auth()})
	return i.PullAsked.Add(lookPeriod)
}

// Next is the image whose turn to be pulled comes next, by its key; false if none waits. It has to
// be planned when a pull has ended, and when it has become the next.
func (s *Store) Next() (timer.Key, bool) {
	name := s.Turns.next()
	return Key(name), name != ""
}

// Pulling says since when an image is being pulled, and who waits for it; zero if it is not.
func (s *Store) Pulling(name string) (since time.Time, waiters []Waiter) {
	if img := s.Images[name]; img != nil && img.PullOp != 0 {
		return img.Pull.Began, img.Waiters
	}
	return time.Time{}, nil
}

// Names are those of the images that pods wait for, in order.
func (s *Store) Names() []string { return slices.Sorted(maps.Keys(s.Images)) }

// Answered takes the answer to an operation on an image, and returns the pods for which that makes
// a difference.
func (s *Store) Answered(name string, r op.Record, ev world.Event, out *op.Out) []string {
	img := s.Images[name]
	if img == nil {
		return nil
	}
	void := r.Call == "ImageStatus" && img.LookVoid // older than what a pull has changed
	if r.Call == "ImageStatus" {
		img.LookOp, img.LookVoid = 0, false
	} else {
		img.PullOp, img.LookVoid = 0, img.LookOp != 0
		s.Turns.Flying--
	}
	if pulled, ok := ev.Body.(*runtimeapi.PullImageResponse); ok && pulled.ImageRef == "" {
		ev.Err = world.Errorf(world.KindInternal, r.Call, "the runtime did not say what it pulled")
	}
	if ev.Err != nil {
		img.failed(r.Call, ev, out)
		return img.told(time.Time{})
	}
	switch body := ev.Body.(type) {
	case *runtimeapi.ImageStatusResponse:
		if !void {
			return img.looked(body.GetImage(), r.Began, ev.Time)
		}
	case *runtimeapi.PullImageResponse:
		img.PulledAt, img.CheckedAt, img.ID = r.Began, r.Began, body.ImageRef
		img.Pull.Ended = ev.Time
		img.Problem, img.Failures, img.Timeouts, img.NotBefore = nil, 0, 0, time.Time{}
		img.Try, img.Denied = 0, nil
	}
	return img.told(time.Time{})
}

// looked records what a look has found, and returns the pods for which that makes a difference: if
// it is what was known before, those that could not judge by what was known before. What was pulled
// and is not there is to be pulled once more, or whoever waits for it would wait for ever, but not
// at once: it may go the same way.
func (i *Image) looked(found *runtimeapi.Image, asked, now time.Time) []string {
	known := i.CheckedAt
	if found.GetId() != i.ID || i.UserOf != i.ID || i.Problem != nil || !i.LookAgain.IsZero() {
		known = time.Time{}
	}
	if i.Problem != nil && i.Problem.Reason == ErrInspect {
		i.Problem = nil
	}
	i.LookAgain = time.Time{} // who never pulls says so again
	i.CheckedAt, i.ID, i.UserOf = asked, found.GetId(), found.GetId()
	i.User, i.Bytes = User{Name: found.GetUsername()}, int64(found.GetSize())
	if uid := found.GetUid(); uid != nil {
		i.User.UID = &uid.Value
	}
	if i.ID == "" && !i.PulledAt.IsZero() {
		i.PulledAt, i.NotBefore = time.Time{}, now.Add(backoffFirst)
		i.Problem = &Problem{Reason: ErrInspect, Message: "the image was pulled and has gone"}
		known = time.Time{}
	}
	return i.told(known)
}

// failed counts a failure and sets the back-off: 10 s, doubling to 300 s, for pulls.
func (i *Image) failed(call string, ev world.Event, out *op.Out) {
	if call == "ImageStatus" {
		i.LookRetry = ev.Time.Add(statusRetry)
		if i.PullOp == 0 && i.Failures == 0 {
			i.Problem = &Problem{Reason: ErrInspect, Message: ev.Err.Message}
		}
		return
	}
	why := i.denied(ev.Err.Message)
	if i.Try > 0 {
		out.Log(world.LevelDebug, "pulling image with other credentials", "image", i.Ref,
			"error", ev.Err.Error())
		return
	}
	i.Failures++
	if ev.Err.Has(world.KindTimeout) {
		i.Timeouts++
	}
	i.NotBefore = ev.Time.Add(timer.Backoff(i.Failures, backoffFirst, backoffMax))
	i.Problem = &Problem{Reason: ErrPull, Message: why, Cause: why, Failures: i.Failures}
	if i.Failures > 1 {
		i.Problem.Reason = BackOff
		i.Problem.Message = fmt.Sprintf("Back-off pulling image %q: %s", i.Ref, why)
	}
}

// auth is who the registry is told that pulls; nil if nobody is named.
func (i *Image) auth() *runtimeapi.AuthConfig {
	if len(i.Tries) == 0 {
		return nil
	}
	try := i.Tries[i.Try]
	return &runtimeapi.AuthConfig{Username: try.Username, Password: try.Password}
}

// denied takes that a pull has failed. The next one is tried with the next credentials, at once;
// after the last it is from the first again, and all that went wrong is why there is no image.
func (i *Image) denied(why string) string {
	i.Denied = append(i.Denied, why)
	if i.Try+1 < len(i.Tries) {
		i.Try++
		return ""
	}
	all := slices.Compact(i.Denied)
	i.Try, i.Denied = 0, nil
	if len(all) == 1 {
		return all[0]
	}
	return "[" + strings.Join(all, ", ") + "]"
}

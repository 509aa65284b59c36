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
	"time"

	"github.com/distribution/reference"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

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

// Store is what is known about images that some pod waits for.
type Store struct {
	Images map[string]*Image `json:"images"` // by reference, as the pod writes it
	Limits Limits            `json:"limits"`
	Turns  Turns             `json:"turns"`
}

// Image is one reference that pods wait for.
type Image struct {
	Ref     string   `json:"ref"`
	Waiters []string `json:"waiters"` // UIDs of pods, sorted

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

// User is whom an image runs as: by number or else by name. An image that says neither runs as
// root.
type User struct {
	UID  *int64 `json:"uid,omitempty"`
	Name string `json:"name,omitempty"`
}

// Problem is why an image cannot be had, in the words of container statuses.
type Problem struct {
	Reason  string `json:"reason"`
	Message string `json:"message"`
}

// Key is the owner of an image's operations.
func Key(ref string) timer.Key { return timer.Key{Component: component, Name: ref} }

// Answer is what Need says.
type Answer struct {
	ID      string   // the image to run, when it is there
	User    User     // whom it runs as, for who asked with NeedUser
	Problem *Problem // why it is not there, if something is wrong
}

// Need says whether a pod can run an image under a pull policy, judging only by what was asked
// for since the given time. While it cannot, the image (by its Key) must be planned. The pod is a
// waiter until it is released, and is told when something about the image changes.
func (s *Store) Need(uid, ref string, policy v1.PullPolicy, since time.Time) Answer {
	img := s.Images[ref]
	if img == nil {
		if _, err := reference.ParseNormalizedNamed(ref); err != nil {
			// No runtime can have it, so none is asked.
			return Answer{Problem: &Problem{Reason: "InvalidImageName", Message: fmt.Sprintf(
				"Failed to apply default image tag %q: couldn't parse image name %[1]q: %v", ref,
				err)}}
		}
		if s.Images == nil {
			s.Images = map[string]*Image{}
		}
		img = &Image{Ref: ref}
		s.Images[ref] = img
	}
	img.wait(uid)
	pulled := !img.PulledAt.IsZero() && !img.PulledAt.Before(since)
	checked := !img.CheckedAt.IsZero() && !img.CheckedAt.Before(since)
	switch {
	case img.ID != "" && (pulled || checked && policy != v1.PullAlways):
		return Answer{ID: img.ID}
	case checked && policy == v1.PullNever:
		img.LookAgain = img.CheckedAt.Add(backoffFirst) // someone may bring it by other means
		return Answer{Problem: &Problem{Reason: "ErrImageNeverPull", Message: fmt.Sprintf(
			"Container image %q is not present with pull policy of Never", ref)}}
	case policy == v1.PullAlways, checked:
		img.WantPull = timer.Later(img.WantPull, since)
	default:
		img.WantCheck = timer.Later(img.WantCheck, since)
	}
	return Answer{Problem: img.Problem}
}

// NeedUser is Need for who has to know whom the image runs as besides. A look says so and a pull
// does not: after one that has brought another image there is one more look, if somebody asks.
func (s *Store) NeedUser(uid, ref string, policy v1.PullPolicy, since time.Time) Answer {
	answer := s.Need(uid, ref, policy, since)
	img := s.Images[ref]
	switch answer.ID {
	case "":
		return answer
	case img.UserOf:
		answer.User = img.User
		return answer
	}
	img.WantUser = answer.ID
	return Answer{Problem: img.Problem}
}

// Release forgets that a pod waits for an image; an image that nobody waits for is forgotten.
func (s *Store) Release(uid, ref string) {
	img := s.Images[ref]
	if img == nil {
		return
	}
	if i, ok := slices.BinarySearch(img.Waiters, uid); ok {
		img.Waiters = slices.Delete(img.Waiters, i, i+1)
	}
	s.drop(img)
}

// drop forgets an image that nobody waits for, and gives up its turn.
func (s *Store) drop(img *Image) {
	if len(img.Waiters) > 0 {
		return
	}
	s.Turns.leave(img.Ref)
	if !img.busy() {
		delete(s.Images, img.Ref)
	}
}

func (i *Image) wait(uid string) {
	if at, ok := slices.BinarySearch(i.Waiters, uid); !ok {
		i.Waiters = slices.Insert(i.Waiters, at, uid)
	}
}

func (i *Image) busy() bool { return i.PullOp != 0 || i.LookOp != 0 }

// Plan asks the runtime for what some pod needs to know about an image, and says when to be
// called again. It touches the image whose turn to be pulled comes next. Nothing is pulled while
// that is held back.
func (s *Store) Plan(ref string, held bool, out *op.Out, touch func(timer.Key)) time.Time {
	next := s.Turns.next()
	wake := s.plan(ref, held, out)
	if now := s.Turns.next(); now != "" && now != next {
		touch(Key(now))
	}
	return wake
}

func (s *Store) plan(ref string, held bool, out *op.Out) time.Time {
	img := s.Images[ref]
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
	i.LookAsked, i.LookAgain = out.Now(), time.Time{}
	i.LookOp = out.Ask(Key(i.Ref), "", statusTimeout,
		&runtimeapi.ImageStatusRequest{Image: &runtimeapi.ImageSpec{Image: i.Ref}})
	return time.Time{}
}

// planPull pulls the image if someone needs it pulled.
func (s *Store) planPull(i *Image, out *op.Out) time.Time {
	switch {
	case i.PullOp != 0 || i.WantPull.IsZero() || !i.PulledAt.Before(i.WantPull):
		s.Turns.leave(i.Ref)
		return time.Time{}
	case out.Now().Before(i.NotBefore):
		return i.NotBefore
	}
	if its, at := s.Turns.take(i.Ref, s.Limits, out.Now()); !its {
		return at
	}
	out.Log(world.LevelDebug, "pulling image", "image", i.Ref)
	i.PullAsked = out.Now()
	timeout := min(pullTimeout<<min(i.Timeouts, 8), pullTimeoutMax)
	i.PullOp = out.Ask(Key(i.Ref), "", timeout,
		&runtimeapi.PullImageRequest{Image: &runtimeapi.ImageSpec{Image: i.Ref}})
	return i.PullAsked.Add(lookPeriod)
}

// Next is the image whose turn to be pulled comes next, by its key; false if none waits. It has to
// be planned when a pull has ended, and when it has become the next.
func (s *Store) Next() (timer.Key, bool) {
	ref := s.Turns.next()
	return Key(ref), ref != ""
}

// Refs are the images that pods wait for, in order.
func (s *Store) Refs() []string { return slices.Sorted(maps.Keys(s.Images)) }

// Answered takes the answer to an operation on an image, and returns the pods that wait for it.
func (s *Store) Answered(ref string, r op.Record, ev world.Event, out *op.Out) []string {
	img := s.Images[ref]
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
		return img.Waiters
	}
	switch body := ev.Body.(type) {
	case *runtimeapi.ImageStatusResponse:
		if void {
			return img.Waiters
		}
		if img.Problem != nil && img.Problem.Reason == inspectError {
			img.Problem = nil
		}
		img.looked(body.GetImage(), r.Began, ev.Time)
	case *runtimeapi.PullImageResponse:
		img.PulledAt, img.CheckedAt, img.ID = r.Began, r.Began, body.ImageRef
		img.Problem, img.Failures, img.Timeouts, img.NotBefore = nil, 0, 0, time.Time{}
	}
	return img.Waiters
}

// looked records what a look has found. What was pulled and is not there is to be pulled once
// more, or whoever waits for it would wait for ever, but not at once: it may go the same way.
func (i *Image) looked(found *runtimeapi.Image, asked, now time.Time) {
	i.CheckedAt, i.ID, i.UserOf = asked, found.GetId(), found.GetId()
	i.User = User{Name: found.GetUsername()}
	if uid := found.GetUid(); uid != nil {
		i.User.UID = &uid.Value
	}
	if i.ID == "" && !i.PulledAt.IsZero() {
		i.PulledAt, i.NotBefore = time.Time{}, now.Add(backoffFirst)
		i.Problem = &Problem{Reason: inspectError, Message: "the image was pulled and has gone"}
	}
}

const inspectError = "ImageInspectError"

// failed counts a failure and sets the back-off: 10 s, doubling to 300 s, for pulls.
func (i *Image) failed(call string, ev world.Event, out *op.Out) {
	if call == "ImageStatus" {
		i.LookRetry = ev.Time.Add(statusRetry)
		if i.PullOp == 0 && i.Failures == 0 {
			i.Problem = &Problem{Reason: inspectError, Message: ev.Err.Message}
		}
		return
	}
	i.Failures++
	if ev.Err.Has(world.KindTimeout) {
		i.Timeouts++
	}
	delay := timer.Backoff(i.Failures, backoffFirst, backoffMax)
	i.NotBefore = ev.Time.Add(delay)
	i.Problem = &Problem{Reason: "ErrImagePull", Message: ev.Err.Message}
	if i.Failures > 1 {
		i.Problem = &Problem{Reason: "ImagePullBackOff", Message: fmt.Sprintf(
			"Back-off pulling image %q: %s", i.Ref, ev.Err.Message)}
	}
	out.Log(world.LevelWarning, "image cannot be pulled", "image", i.Ref,
		"error", ev.Err.Error(), "retryIn", delay.String())
}

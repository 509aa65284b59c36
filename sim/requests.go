package sim

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"seedlet.dev/core/mirror"
	"seedlet.dev/sim/truth"
	"seedlet.dev/world"
)

// Request is one thing that a client of the agent's HTTP API asks for.
type Request struct {
	At Duration `json:"at"`
	Of Asked    `json:"of"`
	// Of a container, or of a pod alone: the name of an entry of pods, and what is added to it, to
	// make a name that nobody has.
	Pod       string `json:"pod,omitempty"`
	Suffix    string `json:"suffix,omitempty"`
	Container string `json:"container,omitempty"`
	UID       Whose  `json:"uid,omitempty"`
}

// Asked is what is asked for.
type Asked string

// What can be asked for.
const (
	AskedContainer Asked = "container"
	AskedRunning   Asked = "running" // pods, as the runtime has them
	AskedPods      Asked = "pods"
	AskedHealth    Asked = "health"
	AskedMetrics   Asked = "metrics"
	AskedState     Asked = "state"
)

var askedFor = []Asked{AskedContainer, AskedRunning, AskedPods, AskedHealth, AskedMetrics,
	AskedState}

// Whose says with which UID a pod is asked for.
type Whose string

// Whose UID it can be. Absent: none is given.
const (
	WhoseCurrent  Whose = "current"  // of the newest pod of the name
	WhosePrevious Whose = "previous" // of the one before it
	WhoseMirror   Whose = "mirror"   // of its newest mirror
	WhoseStranger Whose = "stranger" // of nobody
)

var whose = []Whose{"", WhoseCurrent, WhosePrevious, WhoseMirror, WhoseStranger}

// requests draws what clients ask for: at any time, and soon after something has happened. It comes
// last: what happens is not changed by it.
func (d *drawing) requests() {
	r := d.stream("clients")
	happens := append(d.plan.times(), 0)
	for range d.times("clients", d.scenario.Spec.Requests, false) {
		at := d.moment(r)
		if r.IntN(2) == 0 {
			at = happens[r.IntN(len(happens))] + Duration(r.Int64N(int64(20*time.Second)))
			at = min(max(at, Duration(time.Millisecond)), d.plan.Spec.Duration)
		}
		q := Request{At: at, Of: askedFor[0]}
		if r.IntN(4) == 0 {
			q.Of = askedFor[1+r.IntN(len(askedFor)-1)]
		} else {
			d.container(&q, r)
		}
		d.plan.Spec.Requests = append(d.plan.Spec.Requests, q)
	}
	slices.SortStableFunc(d.plan.Spec.Requests, func(x, y Request) int {
		return int(x.At - y.At)
	})
}

// container draws which container is asked for, and how.
func (d *drawing) container(q *Request, r *rand.Rand) {
	pod := &d.plan.Spec.Pods[r.IntN(len(d.plan.Spec.Pods))]
	q.Pod = pod.Name
	names := containersOf(pod.Manifest)
	q.Container = names[r.IntN(len(names))]
	switch r.IntN(16) {
	case 0:
		q.Container = ""
	case 1:
		q.Container += "-x"
	case 2:
		q.Suffix = "-x"
	case 3:
		q.Suffix = "/../" + pod.Name
	}
	switch r.IntN(10) {
	case 0, 1, 2:
		q.UID = WhoseCurrent
	case 3, 4:
		q.UID = WhosePrevious
	case 5:
		q.UID = WhoseMirror
	case 6:
		q.UID = WhoseStranger
	}
}

// validateRequests checks what clients ask for.
func (s *PlanSpec) validateRequests() error {
	for i := range s.Requests {
		if err := s.Requests[i].validate(s); err != nil {
			return fmt.Errorf("spec.requests[%d].%w", i, err)
		}
	}
	return nil
}

func (q *Request) validate(s *PlanSpec) error {
	switch {
	case !slices.Contains(askedFor, q.Of):
		return fmt.Errorf("of: want one of %v, have %q", askedFor, q.Of)
	case (q.Of == AskedContainer) != (q.Pod != ""):
		return errors.New("pod: want one of a container, and only there")
	case q.Pod != "" && s.pod(q.Pod) == nil:
		return fmt.Errorf("pod: no pod is called %q", q.Pod)
	case !slices.Contains(whose, q.UID):
		return fmt.Errorf("uid: want one of %v, have %q", whose, q.UID)
	case q.At > s.Duration:
		return fmt.Errorf("at: %s is after spec.duration, %s", q.At, s.Duration)
	}
	return nil
}

// clients ask, and remember which pods have had which names.
type clients struct {
	run     *run
	uids    map[string][]string // by full name, in the order in which they came
	mirrors map[string]string   // the newest of each full name
	asked   world.RequestID     // the newest request
	answer  any                 // to it; nil: none yet
}

// firstRequest is the number of the first request of a client, which tells them from those that are
// asked all the time.
const firstRequest = 1_000_000

func newClients(r *run) clients {
	return clients{run: r, uids: map[string][]string{}, mirrors: map[string]string{},
		asked: firstRequest}
}

// came remembers that a pod has a name.
func (c *clients) came(full, uid string) {
	c.uids[full] = append(slices.DeleteFunc(c.uids[full], func(u string) bool {
		return u == uid
	}), uid)
}

// fact remembers the pods of the API server.
func (c *clients) fact(f truth.Fact) {
	if f.Kind != truth.ObjectMade || f.Write.After.Pod == nil {
		return
	}
	pod := f.Write.After.Pod
	full := pod.Namespace + "/" + pod.Name
	if mirror.Is(pod) {
		c.mirrors[full] = string(pod.UID)
		return
	}
	c.came(full, string(pod.UID))
}

// schedule puts all requests on the agenda.
func (c *clients) schedule() {
	for i := range c.run.plan.Requests {
		q := &c.run.plan.Requests[i]
		c.run.at(q.At, func() { c.ask(q) })
	}
}

// ask does what an entry of the plan says. While the agent is away there is nobody to be asked.
func (c *clients) ask(q *Request) {
	r := c.run
	if r.life == nil {
		return
	}
	switch q.Of {
	case AskedContainer:
		c.askContainer(q)
	case AskedRunning:
		if a, is := c.send(&world.RunningPodsRequest{Request: c.next()}).(*world.RunningPodsAnswer); is {
			r.panel.Runs(r.agenda.Now(), a.Pods)
		}
	case AskedPods:
		c.send(&world.PodsRequest{Request: c.next()})
	case AskedHealth:
		c.send(&world.HealthRequest{Request: c.next()})
	case AskedMetrics:
		c.send(&world.MetricsRequest{Request: c.next()})
	case AskedState:
		c.send(&world.StateRequest{Request: c.next()})
	}
}

// askContainer asks for a container, right after all pods were shown.
func (c *clients) askContainer(q *Request) {
	r := c.run
	_, namespace, name := r.target(&Act{Pod: q.Pod})
	ask := &world.ContainerRequest{Namespace: namespace, Pod: name + q.Suffix,
		Container: q.Container}
	switch uids := c.uids[namespace+"/"+name]; {
	case q.UID == WhoseMirror:
		ask.UID = c.mirrors[namespace+"/"+name]
	case q.UID == WhoseStranger:
		ask.UID = "../" + q.Pod
	case q.UID == WhoseCurrent && len(uids) > 0:
		ask.UID = uids[len(uids)-1]
	case q.UID == WhosePrevious && len(uids) > 1:
		ask.UID = uids[len(uids)-2]
	}
	shown, is := c.send(&world.PodsRequest{Request: c.next()}).(*world.PodsAnswer)
	if !is {
		return
	}
	ask.Request = c.next()
	if a, is := c.send(ask).(*world.ContainerAnswer); is {
		r.panel.Asked(r.agenda.Now(), ask, a, shown.Pods)
	}
}

func (c *clients) next() world.RequestID {
	c.asked++
	return c.asked
}

// send sends a request, and returns its answer; nil if the agent is killed over it. An agent that
// lives has answered when it has nothing more to do.
func (c *clients) send(request any) any {
	r, asked := c.run, c.run.life
	if asked == nil || r.over() {
		return nil
	}
	c.answer = nil
	r.offer(world.Event{Body: request})
	if c.answer == nil && r.life == asked && !r.over() {
		r.panel.Unanswered(r.agenda.Now(), world.BodyName(request))
	}
	return c.answer
}

// ofClient says whether an effect answers a client that the plan has ask.
func ofClient(body any) bool {
	id := answerTo(body)
	return id > firstRequest
}

// answerTo is the number of the request that an effect answers; zero if it answers none.
func answerTo(body any) world.RequestID {
	switch b := body.(type) {
	case *world.ContainerAnswer:
		return b.Request
	case *world.RunningPodsAnswer:
		return b.Request
	case *world.PodsAnswer:
		return b.Request
	case *world.HealthAnswer:
		return b.Request
	case *world.MetricsAnswer:
		return b.Request
	case *world.StateAnswer:
		return b.Request
	}
	return 0
}

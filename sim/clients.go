package sim

import (
	"slices"
	"strings"

	"seedlet.dev/core/mirror"
	"seedlet.dev/sim/plan"
	"seedlet.dev/sim/truth"
	"seedlet.dev/world"
)

// clients are the clients of the agent's HTTP API. They know which pods have had which names.
type clients struct {
	run      *run
	uids     map[string][]string // by full name, in the order in which the pods appeared
	mirrors  map[string]string   // the UID of the newest mirror pod, by full name
	lastID   world.RequestID     // of the last request
	response any                 // to the last request; nil: none yet
}

// firstClientID is below the ID of every request of the plan, and above those of the periodic
// requests (startPolling).
const firstClientID = 1_000_000

func newClients(r *run) clients {
	return clients{run: r, uids: map[string][]string{}, mirrors: map[string]string{},
		lastID: firstClientID}
}

// addUID records the UID of the newest pod of a full name.
func (c *clients) addUID(full, uid string) {
	c.uids[full] = append(slices.DeleteFunc(c.uids[full], func(u string) bool {
		return u == uid
	}), uid)
}

// isPod reports whether a UID is one that the pod of an entry of the plan has had.
func (c *clients) isPod(entry, uid string) bool {
	return slices.Contains(c.uids[c.run.fullName(entry)], uid)
}

// observe subscribes to the truth: it records the UIDs of the pods of the API server.
func (c *clients) observe(f truth.Fact) {
	if f.Kind != truth.ObjectCreated || f.Write.After.Pod == nil {
		return
	}
	pod := f.Write.After.Pod
	full := pod.Namespace + "/" + pod.Name
	if mirror.IsMirror(pod) {
		c.mirrors[full] = string(pod.UID)
		return
	}
	c.addUID(full, string(pod.UID))
}

// perform sends a request of the plan, unless the agent is down or paused.
func (c *clients) perform(q *plan.Request) {
	r := c.run
	if r.current == nil || r.isStalled() {
		return
	}
	switch q.Kind {
	case plan.RequestContainer:
		c.requestContainer(q)
	case plan.RequestRunningPods:
		response := c.send(&world.RunningPodsRequest{Request: c.nextID()})
		if running, ok := response.(*world.RunningPodsAnswer); ok {
			r.oracles.CheckRunningPods(r.agenda.Now(), running.Pods)
		}
	case plan.RequestPods:
		c.send(&world.PodsRequest{Request: c.nextID()})
	case plan.RequestHealth:
		c.send(&world.HealthRequest{Request: c.nextID()})
	case plan.RequestMetrics:
		c.send(&world.MetricsRequest{Request: c.nextID()})
	case plan.RequestState:
		c.send(&world.StateRequest{Request: c.nextID()})
	}
}

// requestContainer requests a container right after all pods, so that an oracle can compare the two
// responses.
func (c *clients) requestContainer(q *plan.Request) {
	r := c.run
	full := r.fullName(q.Pod)
	namespace, name, _ := strings.Cut(full, "/")
	request := &world.ContainerRequest{Namespace: namespace, Pod: name + q.Suffix,
		Container: q.Container}
	switch uids := c.uids[full]; {
	case q.UID == plan.UIDMirror:
		request.UID = c.mirrors[full]
	case q.UID == plan.UIDUnknown:
		request.UID = "../" + q.Pod
	case q.UID == plan.UIDCurrent && len(uids) > 0:
		request.UID = uids[len(uids)-1]
	case q.UID == plan.UIDPrevious && len(uids) > 1:
		request.UID = uids[len(uids)-2]
	}
	served, ok := c.send(&world.PodsRequest{Request: c.nextID()}).(*world.PodsAnswer)
	if !ok {
		return
	}
	request.Request = c.nextID()
	if response, ok := c.send(request).(*world.ContainerAnswer); ok {
		r.oracles.CheckContainerAnswer(r.agenda.Now(), request, response, served.Pods)
	}
}

func (c *clients) nextID() world.RequestID {
	c.lastID++
	return c.lastID
}

// send sends a request and returns the response; nil if the agent is killed meanwhile. An agent
// that is not killed must have responded once it has nothing more to do.
func (c *clients) send(request any) any {
	r, receiver := c.run, c.run.current
	if receiver == nil || r.isDone() {
		return nil
	}
	c.response = nil
	r.deliver(world.Event{Body: request})
	if c.response == nil && r.current == receiver && !r.isDone() {
		r.oracles.RequestUnanswered(r.agenda.Now(), world.BodyName(request))
	}
	return c.response
}

// isClientResponse reports whether an effect is the response to a request of the plan.
func isClientResponse(body any) bool {
	id := requestIDOf(body)
	return id > firstClientID
}

// requestIDOf returns the ID of the request that an effect is the response to; zero if it is none.
func requestIDOf(body any) world.RequestID {
	switch b := body.(type) {
	case *world.ContainerAnswer:
		return b.Request
	case *world.RunningPodsAnswer:
		return b.Request
	case *world.PodsAnswer:
		return b.Request
	case *world.VolumeStatsAnswer:
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

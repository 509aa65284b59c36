package core

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/world"
)

// fakeServer is an API server that performs every call at once.
type fakeServer struct {
	objects     map[string]*v1.Pod // by namespace/name
	node        *v1.Node
	version     int
	unavailable bool           // every call fails with Unavailable
	silentWatch world.Resource // watches of it deliver nothing
	writes      []string
	undelivered []any // events of watches for the agent
	watch       world.WatchID
	nodeWrites  nodeWrites
	others      map[string]world.Object // ConfigMaps and Secrets, by name
	onEffect    func(effect any)        // called with every effect of the agent; may be nil
	delayedPod  string                  // a pod whose changes the watch does not deliver yet
	services    []*v1.Service
	patchMax    int // bytes of a patch to a pod; zero: no bound
	csiNode     *storagev1.CSINode
}

func newServer() *fakeServer {
	return &fakeServer{objects: map[string]*v1.Pod{}, node: &v1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "node-uid"}}}
}

func (s *fakeServer) put(p *v1.Pod) *v1.Pod {
	s.version++
	p = p.DeepCopy()
	p.ResourceVersion = fmt.Sprint(s.version)
	if p.UID == "" {
		p.UID = types.UID(fmt.Sprintf("made-%d", s.version))
	}
	s.objects[p.Namespace+"/"+p.Name] = p
	if p.Name != s.delayedPod {
		s.undelivered = append(s.undelivered,
			&world.ObjectChanged{Watch: s.watch, Object: world.Object{Pod: p}})
	}
	return p
}

func (s *fakeServer) remove(name string) {
	p := s.objects[name]
	delete(s.objects, name)
	s.undelivered = append(s.undelivered,
		&world.ObjectGone{Watch: s.watch, Object: world.Object{Pod: p}})
}

// perform performs one call, and returns the body of the completion or an error.
func (s *fakeServer) perform(effect any) any {
	if _, isWatch := effect.(*world.WatchObjects); s.unavailable && !isWatch {
		return world.Errorf(world.KindUnavailable, world.CallName(effect), "away")
	}
	if body, ok := s.performNodeOrLease(effect); ok {
		return body
	}
	switch e := effect.(type) {
	case *world.WatchObjects:
		list := &world.ObjectsListed{Watch: e.Watch}
		switch {
		case e.Resource == world.ResourceNodes:
			if s.node != nil {
				list.Objects = []world.Object{{Node: s.node}}
			}
		case e.Resource == world.ResourcePods:
			s.watch = e.Watch
			for _, p := range s.objects {
				list.Objects = append(list.Objects, world.Object{Pod: p})
			}
		case e.Resource == world.ResourceServices:
			for _, service := range s.services {
				list.Objects = append(list.Objects, world.Object{Service: service})
			}
		default:
			if object, ok := s.others[e.Name]; ok && object.Resource() == e.Resource {
				list.Objects = []world.Object{object}
			}
		}
		if !s.unavailable && e.Resource != s.silentWatch {
			s.undelivered = append(s.undelivered, list)
		}
	case *world.PatchObject:
		if s.objects[e.Namespace+"/"+e.Name] == nil {
			return world.Errorf(world.KindNotFound, "PatchObject", "no pod %s", e.Name)
		}
		if s.patchMax > 0 && len(e.Patch) > s.patchMax {
			return world.Errorf(world.KindTooLarge, "PatchObject", "%d bytes", len(e.Patch))
		}
		p := s.objects[e.Namespace+"/"+e.Name].DeepCopy()
		var patch v1.Pod
		text := strings.NewReplacer(`{"$patch":"replace"},`, "", `{"$patch":"replace"}`, "").
			Replace(string(e.Patch))
		if err := json.Unmarshal([]byte(text), &patch); err != nil {
			panic(err)
		}
		if patch.UID != p.UID {
			return world.Errorf(world.KindConflict, "PatchObject", "another uid")
		}
		s.writes = append(s.writes, fmt.Sprintf("%s %s", e.Name, patch.Status.Phase))
		for _, c := range p.Status.Conditions { // conditions of other clients stay
			if strings.Contains(string(c.Type), "/") {
				patch.Status.Conditions = append(patch.Status.Conditions, c)
			}
		}
		p.Status = patch.Status
		return &world.ObjectRead{Object: world.Object{Pod: s.put(p)}}
	case *world.CreateObject:
		s.writes = append(s.writes, "create "+e.Object.Pod.Name)
		return &world.ObjectRead{Object: world.Object{Pod: s.put(e.Object.Pod)}}
	case *world.CreateToken:
		return &world.TokenCreated{Token: "hidden-token"}
	case *world.DeleteObject:
		s.writes = append(s.writes, "delete "+e.Name)
		s.remove(e.Namespace + "/" + e.Name)
		return &world.Done{}
	}
	return nil
}

// performCSINode performs a call for the CSINode, which has no versions.
func (s *fakeServer) performCSINode(effect any) any {
	switch e := effect.(type) {
	case *world.CreateObject:
		s.csiNode = e.Object.CSINode
	case *world.UpdateObject:
		s.csiNode = e.Object.CSINode
	}
	if s.csiNode == nil {
		return world.Errorf(world.KindNotFound, "GetObject", "no CSINode")
	}
	return &world.ObjectRead{Object: world.Object{CSINode: s.csiNode}}
}

// bootWithPods returns a node that has an API server with these pods.
func bootWithPods(manifests map[string]string, pods ...*v1.Pod) *fakeNode {
	n := newNode(manifests)
	n.apiServer = newServer()
	for _, p := range pods {
		n.apiServer.put(p)
	}
	n.apiServer.undelivered = nil
	n.restart()
	n.advance(5 * time.Second)
	return n
}

func apiPodNamed(name, uid string) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(uid)},
		Spec: v1.PodSpec{NodeName: "n1", RestartPolicy: v1.RestartPolicyAlways,
			Containers: []v1.Container{{Name: "c", Image: "i"}}},
		Status: v1.PodStatus{Phase: v1.PodPending},
	}
}

func (n *fakeNode) markDeleted(name string, grace int64) {
	p := n.apiServer.objects[name].DeepCopy()
	at := metav1.NewTime(n.now.Add(time.Duration(grace) * time.Second))
	p.DeletionTimestamp, p.DeletionGracePeriodSeconds = &at, &grace
	n.apiServer.put(p)
	n.advance(10 * time.Second)
}

// phases returns the phases that are served, by name of the pod.
func (n *fakeNode) phases() map[string]v1.PodPhase {
	phases := map[string]v1.PodPhase{}
	for _, p := range n.agent.listServedPods() {
		phases[p.Name] = p.Status.Phase
	}
	return phases
}

func withRequests(p *v1.Pod, cpu string, priority int32) *v1.Pod {
	p.Spec.Containers[0].Resources.Requests = v1.ResourceList{"cpu": resource.MustParse(cpu)}
	p.Spec.Priority = &priority
	return p
}

// nodeWrites is what the agent has written about the node itself.
type nodeWrites struct {
	lease            *coordinationv1.Lease
	leaseRenewals    []time.Time
	nodePatches      int
	nodeCallsTimeOut bool // calls about the Node time out
}

// performNodeOrLease performs a call about the Node or its lease; false for any other.
func (s *fakeServer) performNodeOrLease(effect any) (any, bool) {
	if o, ok := effect.(world.ObjectOperation); ok && o.TargetResource() == world.ResourceCSINodes {
		return s.performCSINode(effect), true
	}
	read := func(o world.Object) (any, bool) { return &world.ObjectRead{Object: o}, true }
	on, ok := effect.(world.ObjectOperation)
	switch {
	case !ok:
	case on.TargetResource() == world.ResourceLeases:
		switch e := effect.(type) {
		case *world.CreateObject:
			s.nodeWrites.lease = e.Object.Lease
		case *world.UpdateObject:
			s.nodeWrites.lease = e.Object.Lease
		}
		if s.nodeWrites.lease == nil {
			return world.Errorf(world.KindNotFound, world.CallName(effect), "no lease"), true
		}
		if _, reads := effect.(*world.GetObject); !reads {
			s.nodeWrites.leaseRenewals = append(s.nodeWrites.leaseRenewals,
				s.nodeWrites.lease.Spec.RenewTime.Time)
		}
		return read(world.Object{Lease: s.nodeWrites.lease})
	case world.CallName(effect) == "GetObject" && on.TargetResource() == world.ResourceNodes &&
		s.node == nil:
		return world.Errorf(world.KindNotFound, "GetObject", "no Node"), true
	case on.TargetResource() == world.ResourceNodes && s.nodeWrites.nodeCallsTimeOut:
		return world.Errorf(world.KindTimeout, world.CallName(effect), "no answer"), true
	case on.TargetResource() == world.ResourceNodes:
		if patch, ok := effect.(*world.PatchObject); ok {
			s.nodeWrites.nodePatches++
			s.node = patchedNode(s.node, patch.Patch)
			s.version++
			s.node.ResourceVersion = fmt.Sprint(s.version)
		}
		return read(world.Object{Node: s.node})
	}
	return nil, false
}

func patchedNode(is *v1.Node, patch []byte) *v1.Node {
	was, err := json.Marshal(is)
	if err != nil {
		panic(err)
	}
	data, err := strategicpatch.StrategicMergePatch(was, patch, v1.Node{})
	if err != nil {
		panic(err)
	}
	node := &v1.Node{}
	if err := json.Unmarshal(data, node); err != nil {
		panic(err)
	}
	return node
}

func runtimeStatus(ready bool) *runtimeapi.StatusResponse {
	return &runtimeapi.StatusResponse{Status: &runtimeapi.RuntimeStatus{
		Conditions: []*runtimeapi.RuntimeCondition{{Type: runtimeapi.RuntimeReady, Status: ready},
			{Type: runtimeapi.NetworkReady, Status: true}}}}
}

package apiserver

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"seedlet.dev/sim/truth"
	"seedlet.dev/sim/wire"
	"seedlet.dev/world"
)

// createConfigMap returns the creation of a ConfigMap.
func createConfigMap(name string) *world.CreateObject {
	return &world.CreateObject{Object: world.Object{ConfigMap: &v1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}}}
}

func createService(name string) *world.CreateObject {
	return &world.CreateObject{Object: world.Object{Service: &v1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}}}
}

func (c *simCluster) mustAdmin(t *testing.T, body any) {
	t.Helper()
	if _, err := c.Admin(body); err != nil {
		t.Fatal(err)
	}
}

// watchSummary summarizes the watch events so far.
func (c *simCluster) watchSummary() string {
	var all []string
	name := func(o world.Object) string {
		_, meta := o.Meta()
		return meta.GetName()
	}
	for _, body := range c.watchEvents {
		switch body := body.(type) {
		case *world.ObjectsListed:
			var names []string
			for _, o := range body.Objects {
				names = append(names, name(o))
			}
			all = append(all, "["+strings.Join(names, " ")+"]")
		case *world.ObjectChanged:
			all = append(all, "+"+name(body.Object))
		case *world.ObjectGone:
			all = append(all, "-"+name(body.Object))
		case *world.WatchFailing:
			all = append(all, string(body.Err.Kind))
		}
	}
	return strings.Join(all, " ")
}

// watchedServices returns a cluster with one service and a watch of services.
func watchedServices(t *testing.T, seed uint64) *simCluster {
	c := newCluster(seed)
	c.mustAdmin(t, createService("a"))
	c.Send(&world.WatchObjects{Watch: 1,
		WatchTarget: world.WatchTarget{Resource: world.ResourceServices}})
	c.Sleep(time.Second)
	return c
}

func TestServerDownRefusesCallsAndBreaksWatches(t *testing.T) {
	c := watchedServices(t, 1)
	wait := c.Begin(&world.GetObject{Resource: world.ResourceNodes, Name: "node-1"})
	c.server.SetReachability(ServerDown)
	if _, err := wait(); !err.Has(world.KindUnavailable) {
		t.Errorf("a call in flight: %v", err)
	}
	_, err := c.Call(&world.GetObject{Resource: world.ResourceNodes})
	if !err.Has(world.KindUnavailable) {
		t.Errorf("a later call: %v", err)
	}
	c.Sleep(30 * time.Second)
	c.mustAdmin(t, createService("b"))
	c.server.SetReachability(Reachable)
	c.Sleep(30 * time.Second)
	if got := c.watchSummary(); got != "[a] Unavailable [a b]" {
		t.Error(got)
	}
}

// A request that is sent while the network is down may or may not take effect; no change that
// happens meanwhile is lost to the watch.
func TestNetworkDown(t *testing.T) {
	created, summaries := 0, map[string]int{}
	for seed := range uint64(40) {
		c := watchedServices(t, seed)
		c.server.SetReachability(NetworkDown)
		c.mustAdmin(t, createService("b"))
		long := seed%2 == 0
		wait := c.Begin(&world.CreateObject{Object: world.Object{Node: &v1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: "node-1"}}}})
		c.Sleep(map[bool]time.Duration{true: 40 * time.Second, false: 3 * time.Second}[long])
		c.server.SetReachability(Reachable)
		c.Sleep(30 * time.Second)
		body, err := wait()
		exists := c.server.Object(world.ResourceNodes, "", "node-1").Node != nil
		if exists {
			created++
		}
		if err == nil != (body != nil) || err == nil && !exists || long && exists ||
			err != nil && !err.Has(world.KindTimeout) {
			t.Errorf("seed %d: completed with %v, %v, created: %v", seed, body, err, exists)
		}
		summaries[c.watchSummary()]++
	}
	if created == 0 || created == 20 {
		t.Errorf("created in %d of 20 runs", created)
	}
	for _, want := range []string{"[a] Timeout [a b]", "[a] +b"} {
		if summaries[want] == 0 {
			t.Errorf("never observed %q: %v", want, summaries)
		}
	}
	if len(summaries) != 2 {
		t.Errorf("watch events %v", summaries)
	}
}

// What an agent has sent, and the server has not received, arrives after a kill of the agent, in
// half of the cases if the network has dropped it, and never after a loss of the machine's power.
func TestRequestsOfDeadAgents(t *testing.T) {
	for _, network := range []Reachability{Reachable, NetworkDown} {
		for _, restoredBefore := range []bool{false, true} {
			killed, poweredOff := 0, 0
			for seed := range uint64(40) {
				for _, powerLoss := range []bool{false, true} {
					c := newCluster(seed)
					c.server.SetReachability(network)
					c.Begin(&world.CreateObject{Object: world.Object{Node: &v1.Node{
						ObjectMeta: metav1.ObjectMeta{Name: "node-1"}}}})
					if network == NetworkDown {
						c.Sleep(5 * time.Second)
					}
					if restoredBefore {
						c.server.SetReachability(Reachable)
					}
					c.server.Disconnect()
					arrived := &killed
					if powerLoss {
						c.server.LosePower()
						arrived = &poweredOff
					}
					c.server.SetReachability(Reachable)
					c.Sleep(10 * time.Second)
					if c.server.Object(world.ResourceNodes, "", "node-1").Node != nil {
						*arrived++
					}
				}
			}
			if poweredOff != 0 || killed == 0 || network == Reachable && killed != 40 {
				t.Errorf("network %q: of 40 requests %d arrived after a kill, %d after a loss of power",
					network, killed, poweredOff)
			}
		}
	}
	c := newCluster(1)
	c.server.Disconnect()
	c.server.LosePower()
	c.server.Connect(c.deliver)
	if _, err := c.Call(createConfigMap("a")); err.Has(world.KindTimeout) {
		t.Error("a request of the agent that started after the boot did not arrive")
	}
}

func TestUnauthorized(t *testing.T) {
	c := watchedServices(t, 1)
	c.server.SetReachability(Unauthorized)
	_, err := c.Call(&world.GetObject{Resource: world.ResourceNodes, Name: "node-1"})
	if !err.Has(world.KindRefused) {
		t.Error(err)
	}
	c.Sleep(10 * time.Second)
	c.server.SetReachability(Reachable)
	c.Sleep(30 * time.Second)
	if got := c.watchSummary(); got != "[a] Refused [a]" {
		t.Error(got)
	}
}

func TestWatchRelistsAfterCompaction(t *testing.T) {
	c := watchedServices(t, 1)
	c.mustAdmin(t, createService("b"))
	c.server.CompactHistory()
	c.mustAdmin(t, createService("c"))
	c.Sleep(30 * time.Second)
	if got := c.watchSummary(); got != "[a] [a b c]" {
		t.Error(got)
	}
}

// decreasingLag delays every change for long, later changes for less.
type decreasingLag struct{}

func (decreasingLag) Decide(id wire.CallID, _ time.Time) wire.Outcome {
	if id.Name != CallObject {
		return wire.Outcome{}
	}
	return wire.Outcome{EffectDelay: time.Duration(100-id.Nth) * time.Second}
}

func TestWatchDelayKeepsTheOrder(t *testing.T) {
	c := newCluster(1)
	c.server = New(Options{Agenda: c.agenda, Seed: 1, Node: "node-1", Faults: decreasingLag{},
		Deliver: c.deliver})
	c.Send(&world.WatchObjects{Watch: 1,
		WatchTarget: world.WatchTarget{Resource: world.ResourceServices}})
	c.Sleep(time.Second)
	for i := range 3 {
		c.mustAdmin(t, createService(fmt.Sprint("s", i)))
	}
	c.Sleep(90 * time.Second)
	if got := c.watchSummary(); got != "[]" {
		t.Error(got)
	}
	c.Sleep(20 * time.Second)
	if got := c.watchSummary(); got != "[] +s0 +s1 +s2" {
		t.Error(got)
	}
}

// A dead agent receives no event; the requests that it has sent take effect nevertheless.
func TestRequestsOutliveTheAgent(t *testing.T) {
	c := watchedServices(t, 1)
	c.Begin(&world.CreateObject{Object: world.Object{Node: &v1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "node-1"}}}})
	c.server.Disconnect()
	c.mustAdmin(t, createService("b"))
	c.Sleep(time.Minute)
	if got := c.watchSummary(); got != "[a]" || len(c.completions) > 0 {
		t.Errorf("watch events %s, completions %v", got, c.completions)
	}
	if c.server.Object(world.ResourceNodes, "", "node-1").Node == nil {
		t.Error("the request had no effect")
	}
}

// Every change is in the truth log, with its author.
func TestWritesAreInTheTruthLog(t *testing.T) {
	c := newCluster(1)
	var facts []string
	c.log.Subscribe(func(f truth.Fact) {
		w := f.Write
		facts = append(facts,
			fmt.Sprintf("%s %s %s by %d%s", f.Kind, w.Resource, w.Name, w.Incarnation, w.Client))
	})
	if _, err := c.Call(&world.CreateObject{Object: world.Object{Node: &v1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "node-1"}}}}); err != nil {
		t.Fatal(err)
	}
	c.mustAdmin(t, createConfigMap("m"))
	c.mustAdmin(t, &world.PatchObject{Resource: world.ResourceConfigMaps, Namespace: "default",
		Name: "m", Patch: json.RawMessage(`{"data":{"a":"b"}}`)})
	c.mustAdmin(t, &world.DeleteObject{Resource: world.ResourceConfigMaps, Namespace: "default",
		Name: "m"})
	want := "ObjectMade nodes node-1 by 1\nObjectMade configmaps m by 0admin\n" +
		"ObjectWritten configmaps m by 0admin\nObjectRemoved configmaps m by 0admin"
	if got := strings.Join(facts, "\n"); got != want {
		t.Error(got)
	}
}

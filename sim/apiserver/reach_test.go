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

// config is the making of a config map.
func config(name string) *world.CreateObject {
	return &world.CreateObject{Object: world.Object{ConfigMap: &v1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}}}
}

func service(name string) *world.CreateObject {
	return &world.CreateObject{Object: world.Object{Service: &v1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}}}
}

func (c *simCluster) admin(t *testing.T, body any) {
	t.Helper()
	if _, err := c.Admin(body); err != nil {
		t.Fatal(err)
	}
}

// says is what was heard, in short.
func (c *simCluster) says() string {
	var all []string
	name := func(o world.Object) string {
		_, meta := o.Get()
		return meta.GetName()
	}
	for _, body := range c.heard {
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

// watched is a cluster whose services are watched, of which there is one.
func watched(t *testing.T, seed uint64) *simCluster {
	c := newCluster(seed)
	c.admin(t, service("a"))
	c.Tell(&world.WatchObjects{Watch: 1, Watched: world.Watched{Resource: world.ResourceServices}})
	c.Sleep(time.Second)
	return c
}

func TestADownServerRefusesAndBreaksWatches(t *testing.T) {
	c := watched(t, 1)
	wait := c.Begin(&world.GetObject{Resource: world.ResourceNodes, Name: "node-1"})
	c.server.SetReach(Refused)
	if _, err := wait(); !err.Has(world.KindUnavailable) {
		t.Errorf("a call under way: %v", err)
	}
	_, err := c.Call(&world.GetObject{Resource: world.ResourceNodes})
	if !err.Has(world.KindUnavailable) {
		t.Errorf("a call later: %v", err)
	}
	c.Sleep(30 * time.Second)
	c.admin(t, service("b"))
	c.server.SetReach(Reached)
	c.Sleep(30 * time.Second)
	if got := c.says(); got != "[a] Unavailable [a b]" {
		t.Error(got)
	}
}

// What is sent into the silence has happened or not; nothing that happens meanwhile is lost.
func TestSilence(t *testing.T) {
	made, late := 0, map[string]int{}
	for seed := range uint64(40) {
		c := watched(t, seed)
		c.server.SetReach(Silent)
		c.admin(t, service("b"))
		long := seed%2 == 0
		wait := c.Begin(&world.CreateObject{Object: world.Object{Node: &v1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: "node-1"}}}})
		c.Sleep(map[bool]time.Duration{true: 40 * time.Second, false: 3 * time.Second}[long])
		c.server.SetReach(Reached)
		c.Sleep(30 * time.Second)
		body, err := wait()
		is := c.server.Object(world.ResourceNodes, "", "node-1").Node != nil
		if is {
			made++
		}
		if err == nil != (body != nil) || err == nil && !is || long && is ||
			err != nil && !err.Has(world.KindTimeout) {
			t.Errorf("seed %d: answered by %v, %v, made: %v", seed, body, err, is)
		}
		late[c.says()]++
	}
	if made == 0 || made == 20 {
		t.Errorf("made %d times of 20", made)
	}
	for _, way := range []string{"[a] Timeout [a b]", "[a] +b"} {
		if late[way] == 0 {
			t.Errorf("never told %q: %v", way, late)
		}
	}
	if len(late) != 2 {
		t.Errorf("told %v", late)
	}
}

func TestUnauthorized(t *testing.T) {
	c := watched(t, 1)
	c.server.SetReach(Unauthorized)
	_, err := c.Call(&world.GetObject{Resource: world.ResourceNodes, Name: "node-1"})
	if !err.Has(world.KindRefused) {
		t.Error(err)
	}
	c.Sleep(10 * time.Second)
	c.server.SetReach(Reached)
	c.Sleep(30 * time.Second)
	if got := c.says(); got != "[a] Refused [a]" {
		t.Error(got)
	}
}

func TestWhatIsForgottenIsListed(t *testing.T) {
	c := watched(t, 1)
	c.admin(t, service("b"))
	c.server.Forget()
	c.admin(t, service("c"))
	c.Sleep(30 * time.Second)
	if got := c.says(); got != "[a] [a b c]" {
		t.Error(got)
	}
}

// lagging has every change take long on its way, the later ones less.
type lagging struct{}

func (lagging) Fate(call string, op int, _ time.Time) wire.Fate {
	if call != CallObject {
		return wire.Fate{}
	}
	return wire.Fate{EffectDelay: time.Duration(100-op) * time.Second}
}

func TestLagKeepsTheOrder(t *testing.T) {
	c := newCluster(1)
	c.server = New(Options{Agenda: c.agenda, Seed: 1, Node: "node-1", Faults: lagging{},
		Answer: c.take})
	c.Tell(&world.WatchObjects{Watch: 1, Watched: world.Watched{Resource: world.ResourceServices}})
	c.Sleep(time.Second)
	for i := range 3 {
		c.admin(t, service(fmt.Sprint("s", i)))
	}
	c.Sleep(90 * time.Second)
	if got := c.says(); got != "[]" {
		t.Error(got)
	}
	c.Sleep(20 * time.Second)
	if got := c.says(); got != "[] +s0 +s1 +s2" {
		t.Error(got)
	}
}

// A life that has ended is told nothing; what it asked for happens all the same.
func TestDeadAgent(t *testing.T) {
	c := watched(t, 1)
	c.Begin(&world.CreateObject{Object: world.Object{Node: &v1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "node-1"}}}})
	c.server.Disconnect()
	c.admin(t, service("b"))
	c.Sleep(time.Minute)
	if got := c.says(); got != "[a]" || len(c.answers) > 0 {
		t.Errorf("told %s, answered %v", got, c.answers)
	}
	if c.server.Object(world.ResourceNodes, "", "node-1").Node == nil {
		t.Error("what was asked for did not happen")
	}
}

// Every change is in the truth log, with who made it.
func TestTruth(t *testing.T) {
	c := newCluster(1)
	var said []string
	c.log.Subscribe(func(f truth.Fact) {
		w := f.Write
		said = append(said, fmt.Sprintf("%s %s %s by %d%s", f.Kind, w.Resource, w.Name, w.Life, w.By))
	})
	if _, err := c.Call(&world.CreateObject{Object: world.Object{Node: &v1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "node-1"}}}}); err != nil {
		t.Fatal(err)
	}
	c.admin(t, config("m"))
	c.admin(t, &world.PatchObject{Resource: world.ResourceConfigMaps, Namespace: "default", Name: "m",
		Patch: json.RawMessage(`{"data":{"a":"b"}}`)})
	c.admin(t, &world.DeleteObject{Resource: world.ResourceConfigMaps, Namespace: "default",
		Name: "m"})
	want := "ObjectMade nodes node-1 by 1\nObjectMade configmaps m by 0admin\n" +
		"ObjectWritten configmaps m by 0admin\nObjectRemoved configmaps m by 0admin"
	if got := strings.Join(said, "\n"); got != want {
		t.Error(got)
	}
}

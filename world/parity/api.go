package parity

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"seedlet.dev/world"
)

// API runs the suite of the API server port. Each case has objects of its own, whose names say
// which case it is. The cluster is new.
func API(t *testing.T, w Cluster) {
	first := &cluster{T: t, w: w, name: "parity-node"}
	t.Run("a node registers itself, with a taint, once", func(t *testing.T) {
		first.on(t, registers)
	})
	for i, c := range apiCases() {
		t.Run(c.name, func(t *testing.T) {
			(&cluster{w: w, name: fmt.Sprintf("parity-%d", i+1)}).on(t, c.run)
		})
	}
}

type apiCase struct {
	name string
	run  func(*cluster)
}

func apiCases() []apiCase {
	return slices.Concat(objectCases, podCases, nodeCases, watchCases, bundleCases)
}

// objectCases are about objects of any kind.
var objectCases = []apiCase{
	{"what is made has an id, a version and a time, and a name once", madeOnce},
	{"a namespace and a version are not for whoever makes it to choose", badlyMade},
	{"an old version is a conflict, no version replaces", versions},
	{"another uid is a conflict", otherUID},
	{"a lease is not replaced without its version", leaseVersion},
	{"what changes nothing makes no version", noChange},
	{"of two who make one object one does", madeAtOnce},
	{"what is absent is not found", absent},
	{"what is immutable stays so", immutable},
	{"finalizers keep what is removed", finalizers},
}

// cluster is a cluster for one case.
type cluster struct {
	*testing.T
	w    Cluster
	name string // of the case's objects
	ids  world.WatchID
}

func (c *cluster) on(t *testing.T, run func(*cluster)) {
	c.T = t
	defer c.cleanUp()
	run(c)
}

// cleanUp removes the pods of the case, so that none is left that has finalizers or a grace period.
func (c *cluster) cleanUp() {
	for _, suffix := range []string{"", "-b", "-c"} {
		name := c.name + suffix
		_, _ = c.w.Admin(&world.PatchObject{Resource: world.ResourcePods, Namespace: c.w.Namespace(),
			Name: name, Patch: json.RawMessage(`{"metadata":{"finalizers":null}}`)})
		_, _ = c.w.Admin(c.deletion(world.ResourcePods, name, new(int64(0))))
		for _, r := range []world.Resource{world.ResourceConfigMaps, world.ResourceSecrets} {
			_, _ = c.w.Admin(c.deletion(r, name, nil))
		}
	}
}

func (c *cluster) check(ok bool, format string, args ...any) {
	c.Helper()
	if !ok {
		c.Fatalf(format, args...)
	}
}

// node does something as the node, which has to succeed.
func (c *cluster) node(body any) world.Object {
	c.Helper()
	answer, err := c.w.Call(body)
	return c.object(body, answer, err)
}

// admin is the same by somebody else.
func (c *cluster) admin(body any) world.Object {
	c.Helper()
	answer, err := c.w.Admin(body)
	return c.object(body, answer, err)
}

func (c *cluster) object(body, answer any, err *world.Error) world.Object {
	c.Helper()
	if err != nil {
		c.Fatalf("%s: %v", world.Call(body), err)
	}
	if is, ok := answer.(*world.ObjectRead); ok {
		return is.Object
	}
	return world.Object{}
}

// nodeFails does something as the node, which has to fail.
func (c *cluster) nodeFails(kind world.ErrorKind, body any) {
	c.Helper()
	answer, err := c.w.Call(body)
	c.check(err.Has(kind), "%s: answered by %v, %v, want an error of kind %s", world.Call(body),
		answer, err, kind)
}

func (c *cluster) adminFails(kind world.ErrorKind, body any) {
	c.Helper()
	answer, err := c.w.Admin(body)
	c.check(err.Has(kind), "%s: answered by %v, %v, want an error of kind %s", world.Call(body),
		answer, err, kind)
}

// soonIs waits until something is true: who may read what, and what watches tell, comes late.
func (c *cluster) soonIs(what string, is func() bool) {
	c.Helper()
	for deadline := c.w.Now().Add(30 * time.Second); !is(); c.w.Sleep(50 * time.Millisecond) {
		if c.w.Now().After(deadline) {
			c.Fatalf("within 30 s it is not so that %s", what)
		}
	}
}

// meta is of an object of the case, in its namespace.
func (c *cluster) meta() metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: c.w.Namespace(), Name: c.name}
}

func (c *cluster) config(data string) *world.CreateObject {
	return &world.CreateObject{Object: world.Object{ConfigMap: &v1.ConfigMap{ObjectMeta: c.meta(),
		Data: map[string]string{"key": data}}}}
}

func (c *cluster) get(r world.Resource, name string) *world.GetObject {
	return &world.GetObject{Resource: r, Namespace: c.w.Namespace(), Name: name}
}

func (c *cluster) deletion(r world.Resource, name string, grace *int64) *world.DeleteObject {
	return &world.DeleteObject{Resource: r, Namespace: c.w.Namespace(), Name: name,
		GracePeriodSeconds: grace}
}

// change is a patch of an object of the case.
func (c *cluster) change(r world.Resource, patch string, args ...any) *world.PatchObject {
	return &world.PatchObject{Resource: r, Namespace: c.w.Namespace(), Name: c.name,
		Patch: json.RawMessage(fmt.Sprintf(patch, args...))}
}

func madeOnce(c *cluster) {
	before := c.w.Now().Truncate(time.Second)
	made := c.admin(c.config("a")).ConfigMap
	c.check(made.UID != "" && made.ResourceVersion != "", "made %v", made.ObjectMeta)
	at := made.CreationTimestamp.Time
	c.check(!at.Before(before.Add(-time.Second)) && !at.After(c.w.Now().Add(time.Second)) &&
		at.Nanosecond() == 0, "made at %v, it is %v", at, c.w.Now())
	c.adminFails(world.KindExists, c.config("b"))
	c.check(c.admin(c.get(world.ResourceConfigMaps, c.name)).ConfigMap.Data["key"] == "a", "changed")
	c.admin(c.deletion(world.ResourceConfigMaps, c.name, nil))
	again := c.admin(c.config("c")).ConfigMap
	c.check(again.UID != made.UID, "the uid was used again")
}

func badlyMade(c *cluster) {
	versioned, nowhere, nameless := c.config("a"), c.config("a"), c.config("a")
	versioned.Object.ConfigMap.ResourceVersion = "1"
	c.adminFails(world.KindInvalid, versioned)
	nowhere.Object.ConfigMap.Namespace = ""
	c.adminFails(world.KindInvalid, nowhere)
	nameless.Object.ConfigMap.Name = "Not A Name"
	c.adminFails(world.KindInvalid, nameless)
	chosen := c.config("a")
	chosen.Object.ConfigMap.UID = "00000000-0000-4000-8000-000000000000"
	made := c.admin(chosen).ConfigMap
	c.check(made.UID != chosen.Object.ConfigMap.UID, "the uid is the one asked for")
}

func versions(c *cluster) {
	first := c.admin(c.config("a")).ConfigMap
	set := func(data, version string) *world.UpdateObject {
		m := first.DeepCopy()
		m.Data["key"], m.ResourceVersion = data, version
		return &world.UpdateObject{Object: world.Object{ConfigMap: m}}
	}
	second := c.admin(set("b", first.ResourceVersion)).ConfigMap
	c.check(second.ResourceVersion != first.ResourceVersion && second.Data["key"] == "b" &&
		second.UID == first.UID, "updated %v", second)
	c.adminFails(world.KindConflict, set("c", first.ResourceVersion))
	third := c.admin(set("d", "")).ConfigMap
	c.check(third.Data["key"] == "d", "replaced %v", third)
	c.adminFails(world.KindConflict, c.change(world.ResourceConfigMaps,
		`{"metadata":{"resourceVersion":%q},"data":{"key":"e"}}`, second.ResourceVersion))
	patched := c.admin(c.change(world.ResourceConfigMaps, `{"data":{"more":"f"}}`)).ConfigMap
	c.check(patched.Data["key"] == "d" && patched.Data["more"] == "f", "patched %v", patched.Data)
}

func otherUID(c *cluster) {
	made := c.admin(c.config("a")).ConfigMap
	const other = "00000000-0000-4000-8000-000000000000"
	c.adminFails(world.KindConflict, c.change(world.ResourceConfigMaps,
		`{"metadata":{"uid":%q},"data":{"key":"b"}}`, other))
	changed := made.DeepCopy()
	changed.UID, changed.ResourceVersion = other, ""
	c.adminFails(world.KindConflict, &world.UpdateObject{Object: world.Object{ConfigMap: changed}})
	removal := c.deletion(world.ResourceConfigMaps, c.name, nil)
	removal.UID = other
	c.adminFails(world.KindConflict, removal)
	removal.UID = string(made.UID)
	c.admin(removal)
}

func noChange(c *cluster) {
	made := c.admin(c.config("a")).ConfigMap
	same := c.admin(c.change(world.ResourceConfigMaps, `{"data":{"key":"a"}}`)).ConfigMap
	c.check(same.ResourceVersion == made.ResourceVersion, "from version %s to %s",
		made.ResourceVersion, same.ResourceVersion)
}

func madeAtOnce(c *cluster) {
	pod := c.mirror()
	waitA, waitB := c.w.Begin(&pod), c.w.Begin(&pod)
	_, errA := waitA()
	_, errB := waitB()
	if errA != nil {
		errA, errB = errB, errA
	}
	c.check(errA == nil && errB.Has(world.KindExists), "%v, %v", errA, errB)
}

func absent(c *cluster) {
	c.adminFails(world.KindNotFound, c.get(world.ResourceConfigMaps, c.name))
	c.adminFails(world.KindNotFound, c.change(world.ResourceConfigMaps, `{"data":{"key":"a"}}`))
	c.adminFails(world.KindNotFound, c.deletion(world.ResourceConfigMaps, c.name, nil))
	c.adminFails(world.KindNotFound, &world.UpdateObject{Object: c.config("a").Object})
	c.nodeFails(world.KindNotFound, c.status(`{"status":{"phase":"Running"}}`))
	c.nodeFails(world.KindNotFound, c.deletion(world.ResourcePods, c.name, nil))
	// Whether a pod of another name is of this node nobody can say.
	c.nodeFails(world.KindRefused, c.get(world.ResourcePods, c.name))
	c.nodeFails(world.KindNotFound, &world.GetObject{Resource: world.ResourceServices,
		Namespace: c.w.Namespace(), Name: c.name})
}

func immutable(c *cluster) {
	m := c.config("a")
	m.Object.ConfigMap.Immutable = new(true)
	c.admin(m)
	c.adminFails(world.KindInvalid, c.change(world.ResourceConfigMaps, `{"data":{"key":"b"}}`))
	c.adminFails(world.KindInvalid, c.change(world.ResourceConfigMaps, `{"immutable":false}`))
	c.admin(c.change(world.ResourceConfigMaps, `{"metadata":{"labels":{"a":"b"}}}`))
}

func finalizers(c *cluster) {
	m := c.config("a")
	m.Object.ConfigMap.Finalizers = []string{"parity.test/keep"}
	c.admin(m)
	c.admin(c.deletion(world.ResourceConfigMaps, c.name, nil))
	kept := c.admin(c.get(world.ResourceConfigMaps, c.name)).ConfigMap
	c.check(kept.DeletionTimestamp != nil, "not marked")
	c.admin(c.change(world.ResourceConfigMaps, `{"metadata":{"finalizers":null}}`))
	c.adminFails(world.KindNotFound, c.get(world.ResourceConfigMaps, c.name))
}

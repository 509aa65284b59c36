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

// API runs the suite of the API server port on a new cluster. Each case has its own objects, named
// after the number of the case.
func API(t *testing.T, w Cluster) {
	registration := &cluster{T: t, w: w, name: "parity-node"}
	t.Run("a node registers itself once and gets a taint", func(t *testing.T) {
		registration.run(t, nodeRegisters)
	})
	for i, c := range apiCases() {
		t.Run(c.name, func(t *testing.T) {
			(&cluster{w: w, name: fmt.Sprintf("parity-%d", i+1)}).run(t, c.run)
		})
	}
}

type apiCase struct {
	name string
	run  func(*cluster)
}

func apiCases() []apiCase {
	return slices.Concat(objectCases, podCases, nodeCases, watchCases, bundleCases, storageCases,
		certificateCases)
}

// objectCases are rules for objects of every kind.
var objectCases = []apiCase{
	{"a new object has a UID, a resource version and a creation time, and a unique name", createOnce},
	{"a new object needs a namespace, a valid name and no resource version", createInvalid},
	{"an old resource version is a conflict, no resource version replaces", resourceVersions},
	{"a UID that does not match is a conflict", uidPrecondition},
	{"a lease update needs a resource version", leaseNeedsVersion},
	{"a patch without changes keeps the resource version", noOpPatch},
	{"one of two concurrent creations of an object succeeds", concurrentCreate},
	{"a missing object is not found", objectNotFound},
	{"an immutable ConfigMap cannot be changed", immutableConfigMap},
	{"an object with finalizers is only marked for deletion", finalizersDelayRemoval},
}

// cluster is the cluster as one case uses it.
type cluster struct {
	*testing.T
	w          Cluster
	name       string // of the objects of the case
	watchCount world.WatchID
}

func (c *cluster) run(t *testing.T, run func(*cluster)) {
	c.T = t
	defer c.cleanUp()
	run(c)
}

// cleanUp removes the objects of the case, including pods with finalizers or a grace period.
func (c *cluster) cleanUp() {
	for _, suffix := range []string{"", "-b", "-c"} {
		name := c.name + suffix
		_, _ = c.w.Admin(&world.PatchObject{Resource: world.ResourcePods, Namespace: c.w.Namespace(),
			Name: name, Patch: json.RawMessage(`{"metadata":{"finalizers":null}}`)})
		_, _ = c.w.Admin(c.deleteObject(world.ResourcePods, name, new(int64(0))))
		for _, r := range []world.Resource{world.ResourceConfigMaps, world.ResourceSecrets} {
			_, _ = c.w.Admin(c.deleteObject(r, name, nil))
		}
	}
}

func (c *cluster) check(ok bool, format string, args ...any) {
	c.Helper()
	if !ok {
		c.Fatalf(format, args...)
	}
}

// asNode sends a request as the node, which must succeed.
func (c *cluster) asNode(body any) world.Object {
	c.Helper()
	result, err := c.w.Call(body)
	return c.resultObject(body, result, err)
}

// asAdmin sends a request as an administrator, which must succeed.
func (c *cluster) asAdmin(body any) world.Object {
	c.Helper()
	result, err := c.w.Admin(body)
	return c.resultObject(body, result, err)
}

func (c *cluster) resultObject(body, result any, err *world.Error) world.Object {
	c.Helper()
	if err != nil {
		c.Fatalf("%s: %v", world.CallName(body), err)
	}
	if read, ok := result.(*world.ObjectRead); ok {
		return read.Object
	}
	return world.Object{}
}

// nodeMustFail sends a request as the node, which must fail with an error of the given kind.
func (c *cluster) nodeMustFail(kind world.ErrorKind, body any) {
	c.Helper()
	result, err := c.w.Call(body)
	c.check(err.Has(kind), "%s: completed with %v, %v, want an error of kind %s", world.CallName(body),
		result, err, kind)
}

func (c *cluster) adminMustFail(kind world.ErrorKind, body any) {
	c.Helper()
	result, err := c.w.Admin(body)
	c.check(err.Has(kind), "%s: completed with %v, %v, want an error of kind %s", world.CallName(body),
		result, err, kind)
}

// eventually waits until a condition holds, because authorization and watches lag behind changes.
func (c *cluster) eventually(condition string, holds func() bool) {
	c.Helper()
	for deadline := c.w.Now().Add(Patience); !holds(); c.w.Sleep(50 * time.Millisecond) {
		if c.w.Now().After(deadline) {
			c.Fatalf("condition not met within %v: %s", Patience, condition)
		}
	}
}

// meta returns the metadata of an object of the case.
func (c *cluster) meta() metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: c.w.Namespace(), Name: c.name}
}

func (c *cluster) newConfigMap(data string) *world.CreateObject {
	return &world.CreateObject{Object: world.Object{ConfigMap: &v1.ConfigMap{ObjectMeta: c.meta(),
		Data: map[string]string{"key": data}}}}
}

func (c *cluster) get(r world.Resource, name string) *world.GetObject {
	return &world.GetObject{Resource: r, Namespace: c.w.Namespace(), Name: name}
}

func (c *cluster) deleteObject(r world.Resource, name string, grace *int64) *world.DeleteObject {
	return &world.DeleteObject{Resource: r, Namespace: c.w.Namespace(), Name: name,
		GracePeriodSeconds: grace}
}

// patch returns a patch of an object of the case.
func (c *cluster) patch(r world.Resource, patch string, args ...any) *world.PatchObject {
	return &world.PatchObject{Resource: r, Namespace: c.w.Namespace(), Name: c.name,
		Patch: json.RawMessage(fmt.Sprintf(patch, args...))}
}

func createOnce(c *cluster) {
	before := c.w.Now().Truncate(time.Second)
	first := c.asAdmin(c.newConfigMap("a")).ConfigMap
	c.check(first.UID != "" && first.ResourceVersion != "", "created %v", first.ObjectMeta)
	at := first.CreationTimestamp.Time
	c.check(!at.Before(before.Add(-time.Second)) && !at.After(c.w.Now().Add(time.Second)) &&
		at.Nanosecond() == 0, "created at %v, the time is %v", at, c.w.Now())
	c.adminMustFail(world.KindExists, c.newConfigMap("b"))
	current := c.asAdmin(c.get(world.ResourceConfigMaps, c.name)).ConfigMap
	c.check(current.Data["key"] == "a", "the object was changed")
	c.asAdmin(c.deleteObject(world.ResourceConfigMaps, c.name, nil))
	recreated := c.asAdmin(c.newConfigMap("c")).ConfigMap
	c.check(recreated.UID != first.UID, "the UID was reused")
}

func createInvalid(c *cluster) {
	versioned, nowhere, nameless := c.newConfigMap("a"), c.newConfigMap("a"), c.newConfigMap("a")
	versioned.Object.ConfigMap.ResourceVersion = "1"
	c.adminMustFail(world.KindInvalid, versioned)
	nowhere.Object.ConfigMap.Namespace = ""
	c.adminMustFail(world.KindInvalid, nowhere)
	nameless.Object.ConfigMap.Name = "Not A Name"
	c.adminMustFail(world.KindInvalid, nameless)
	chosen := c.newConfigMap("a")
	chosen.Object.ConfigMap.UID = "00000000-0000-4000-8000-000000000000"
	made := c.asAdmin(chosen).ConfigMap
	c.check(made.UID != chosen.Object.ConfigMap.UID, "the server used the requested UID")
}

func resourceVersions(c *cluster) {
	first := c.asAdmin(c.newConfigMap("a")).ConfigMap
	set := func(data, version string) *world.UpdateObject {
		m := first.DeepCopy()
		m.Data["key"], m.ResourceVersion = data, version
		return &world.UpdateObject{Object: world.Object{ConfigMap: m}}
	}
	second := c.asAdmin(set("b", first.ResourceVersion)).ConfigMap
	c.check(second.ResourceVersion != first.ResourceVersion && second.Data["key"] == "b" &&
		second.UID == first.UID, "updated %v", second)
	c.adminMustFail(world.KindConflict, set("c", first.ResourceVersion))
	third := c.asAdmin(set("d", "")).ConfigMap
	c.check(third.Data["key"] == "d", "replaced %v", third)
	c.adminMustFail(world.KindConflict, c.patch(world.ResourceConfigMaps,
		`{"metadata":{"resourceVersion":%q},"data":{"key":"e"}}`, second.ResourceVersion))
	patched := c.asAdmin(c.patch(world.ResourceConfigMaps, `{"data":{"more":"f"}}`)).ConfigMap
	c.check(patched.Data["key"] == "d" && patched.Data["more"] == "f", "patched %v", patched.Data)
}

func uidPrecondition(c *cluster) {
	made := c.asAdmin(c.newConfigMap("a")).ConfigMap
	const other = "00000000-0000-4000-8000-000000000000"
	c.adminMustFail(world.KindConflict, c.patch(world.ResourceConfigMaps,
		`{"metadata":{"uid":%q},"data":{"key":"b"}}`, other))
	changed := made.DeepCopy()
	changed.UID, changed.ResourceVersion = other, ""
	c.adminMustFail(world.KindConflict, &world.UpdateObject{Object: world.Object{ConfigMap: changed}})
	removal := c.deleteObject(world.ResourceConfigMaps, c.name, nil)
	removal.UID = other
	c.adminMustFail(world.KindConflict, removal)
	removal.UID = string(made.UID)
	c.asAdmin(removal)
}

func noOpPatch(c *cluster) {
	made := c.asAdmin(c.newConfigMap("a")).ConfigMap
	same := c.asAdmin(c.patch(world.ResourceConfigMaps, `{"data":{"key":"a"}}`)).ConfigMap
	c.check(same.ResourceVersion == made.ResourceVersion, "from version %s to %s",
		made.ResourceVersion, same.ResourceVersion)
}

func concurrentCreate(c *cluster) {
	pod := c.newMirrorPod()
	waitA, waitB := c.w.Begin(&pod), c.w.Begin(&pod)
	_, errA := waitA()
	_, errB := waitB()
	if errA != nil {
		errA, errB = errB, errA
	}
	c.check(errA == nil && errB.Has(world.KindExists), "%v, %v", errA, errB)
}

func objectNotFound(c *cluster) {
	c.adminMustFail(world.KindNotFound, c.get(world.ResourceConfigMaps, c.name))
	c.adminMustFail(world.KindNotFound, c.patch(world.ResourceConfigMaps, `{"data":{"key":"a"}}`))
	c.adminMustFail(world.KindNotFound, c.deleteObject(world.ResourceConfigMaps, c.name, nil))
	c.adminMustFail(world.KindNotFound, &world.UpdateObject{Object: c.newConfigMap("a").Object})
	c.nodeMustFail(world.KindNotFound, c.patchStatus(`{"status":{"phase":"Running"}}`))
	c.nodeMustFail(world.KindNotFound, c.deleteObject(world.ResourcePods, c.name, nil))
	// The server cannot tell whether a missing pod would be bound to this node.
	c.nodeMustFail(world.KindRefused, c.get(world.ResourcePods, c.name))
	c.nodeMustFail(world.KindNotFound, &world.GetObject{Resource: world.ResourceServices,
		Namespace: c.w.Namespace(), Name: c.name})
}

func immutableConfigMap(c *cluster) {
	m := c.newConfigMap("a")
	m.Object.ConfigMap.Immutable = new(true)
	c.asAdmin(m)
	c.adminMustFail(world.KindInvalid, c.patch(world.ResourceConfigMaps, `{"data":{"key":"b"}}`))
	c.adminMustFail(world.KindInvalid, c.patch(world.ResourceConfigMaps, `{"immutable":false}`))
	c.asAdmin(c.patch(world.ResourceConfigMaps, `{"metadata":{"labels":{"a":"b"}}}`))
}

func finalizersDelayRemoval(c *cluster) {
	m := c.newConfigMap("a")
	m.Object.ConfigMap.Finalizers = []string{"parity.test/keep"}
	c.asAdmin(m)
	c.asAdmin(c.deleteObject(world.ResourceConfigMaps, c.name, nil))
	kept := c.asAdmin(c.get(world.ResourceConfigMaps, c.name)).ConfigMap
	c.check(kept.DeletionTimestamp != nil, "the object is not marked for deletion")
	c.asAdmin(c.patch(world.ResourceConfigMaps, `{"metadata":{"finalizers":null}}`))
	c.adminMustFail(world.KindNotFound, c.get(world.ResourceConfigMaps, c.name))
}

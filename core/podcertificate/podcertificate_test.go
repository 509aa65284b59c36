package podcertificate

import (
	"encoding/json"
	"encoding/pem"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"seedlet.dev/core/budget"
	"seedlet.dev/core/objectcache"
	"seedlet.dev/core/op"
	"seedlet.dev/core/timer"
	"seedlet.dev/world"
)

var (
	t0    = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	owner = op.Owner{Component: "pod", Name: "u"}
)

// harness has a pod with certificates, and plays the ports: keys are "key 1", "key 2" and so on.
type harness struct {
	t       *testing.T
	set     Set
	pod     *v1.Pod
	table   op.Table
	wall    timer.WallClock
	now     time.Time
	wake    time.Time
	watch   *objectcache.Watch
	nodeUID types.UID
	events  []string
	keys    int
}

func newHarness(t *testing.T, sources ...v1.PodCertificateProjection) *harness {
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "p", UID: "u"}}
	pod.Spec.ServiceAccountName = "robot"
	projected := &v1.ProjectedVolumeSource{}
	for i := range sources {
		projected.Sources = append(projected.Sources, v1.VolumeProjection{PodCertificate: &sources[i]})
	}
	pod.Spec.Volumes = []v1.Volume{{Name: "v", VolumeSource: v1.VolumeSource{Projected: projected}}}
	return &harness{t: t, pod: pod, now: t0, nodeUID: "node-uid",
		watch: &objectcache.Watch{Listed: true, Objects: map[string]world.Object{}}}
}

func source() v1.PodCertificateProjection {
	return v1.PodCertificateProjection{SignerName: "example.com/signer", KeyType: "ED25519",
		MaxExpirationSeconds: new(int32), CredentialBundlePath: "bundle.pem",
		UserAnnotations: map[string]string{"example.com/a": "b"}}
}

// plan plans and returns the operations that were issued.
func (h *harness) plan() []world.Effect {
	var effects op.Effects
	effects.Reset(&h.table, h.now)
	effects.SetWall(&h.wall)
	h.wake = h.set.Plan(&Env{Pod: h.pod, NodeName: "node", NodeUID: h.nodeUID, Requests: h.watch,
		Owner: owner, Subject: "s", Effects: &effects,
		Jitter: func(_ string, limit time.Duration) time.Duration { return limit },
		RecordWarning: func(reason, message string) {
			h.events = append(h.events, reason+": "+message)
		}})
	requests := 0
	for i := range h.set.Certificates {
		if r := h.set.Certificates[i].Request; r != nil && r.Name != "" {
			requests++
		}
	}
	if len(h.watch.Awaited) > requests {
		h.t.Errorf("%d requests are awaited, of %d", len(h.watch.Awaited), requests)
	}
	return slices.Clone(effects.List())
}

func (h *harness) complete(eff world.Effect, body any, err *world.Error) {
	record, _ := h.table.Complete(eff.Op)
	h.set.HandleCompletion(eff.Op, record, world.Event{Time: h.now, Body: body, Err: err})
}

// planOne plans, and demands exactly one operation.
func (h *harness) planOne() world.Effect {
	h.t.Helper()
	issued := h.plan()
	if len(issued) != 1 {
		h.t.Fatalf("issued %d operations, not one; certificate %+v", len(issued), h.set.Certificates[0])
	}
	return issued[0]
}

// answer completes the next operation as the ports do when nothing fails, and returns its body.
func (h *harness) answer() any {
	h.t.Helper()
	eff := h.planOne()
	switch eff.Body.(type) {
	case *world.GetObject:
		h.complete(eff, &world.ObjectRead{Object: world.Object{ServiceAccount: &v1.ServiceAccount{
			ObjectMeta: metav1.ObjectMeta{UID: "account-uid"}}}}, nil)
	case *world.MakeKey:
		h.keys++
		h.complete(eff, &world.KeyMade{PrivateKey: fmt.Sprintf("key %d", h.keys),
			Request: []byte{byte(h.keys)}}, nil)
	case *world.CreateObject:
		h.complete(eff, &world.ObjectRead{Object: world.Object{CertificateRequest: created(eff)}}, nil)
	}
	return eff.Body
}

// created returns the object that a creation brings to the server.
func created(eff world.Effect) *certificatesv1beta1.PodCertificateRequest {
	r := eff.Body.(*world.CreateObject).Object.CertificateRequest.DeepCopy()
	r.UID = types.UID("uid of " + r.Name)
	return r
}

// request brings a request to the server, and returns it.
func (h *harness) request() *certificatesv1beta1.PodCertificateRequest {
	h.t.Helper()
	h.answer()
	h.answer()
	create, ok := h.answer().(*world.CreateObject)
	if !ok {
		h.t.Fatalf("%T is no creation", create)
	}
	return created(world.Effect{Body: create})
}

// show has the watch show a request with conditions.
func (h *harness) show(r *certificatesv1beta1.PodCertificateRequest, conditions ...string) {
	shown := r.DeepCopy()
	for _, condition := range conditions {
		shown.Status.Conditions = append(shown.Status.Conditions, metav1.Condition{Type: condition,
			Status: metav1.ConditionTrue, Reason: "Because", Message: "of that"})
	}
	h.watch.Objects[r.Namespace+"/"+r.Name] = world.Object{CertificateRequest: shown}
}

func certificate(text string) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte(text)}))
}

// issue has the watch show an issued request: renewed from, and valid until, so long after now.
func (h *harness) issue(r *certificatesv1beta1.PodCertificateRequest, chain string, renew,
	valid time.Duration) {
	issued := r.DeepCopy()
	issued.Status.CertificateChain = chain
	issued.Status.BeginRefreshAt = &metav1.Time{Time: h.now.Add(renew)}
	issued.Status.NotAfter = &metav1.Time{Time: h.now.Add(valid)}
	h.show(issued, conditionIssued)
}

// expect compares what the volume gets, as "key|chain", or the error.
func (h *harness) expect(when, want string) {
	h.t.Helper()
	key, chain, version, err := h.set.Find("v", 0)
	got := key + "|" + chain
	switch {
	case err != nil:
		got = err.Error()
	case version == "":
		got = ""
	}
	if d := cmp.Diff(want, got); d != "" {
		h.t.Errorf("%s: %s", when, d)
	}
}

// The service account is read first, then a key is made, then the request is created as the kubelet
// creates it, under a name that follows from the key.
func TestRequest(t *testing.T) {
	asked := source()
	asked.KeyType = "ECDSAP256"
	h := newHarness(t, asked)
	account, key := h.answer(), h.answer()
	h.expect("before the creation", "")
	got := h.answer().(*world.CreateObject).Object.CertificateRequest
	want := &certificatesv1beta1.PodCertificateRequest{
		ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: got.Name,
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "p",
				UID: "u"}}},
		Spec: certificatesv1beta1.PodCertificateRequestSpec{SignerName: "example.com/signer",
			PodName: "p", PodUID: "u", ServiceAccountName: "robot", ServiceAccountUID: "account-uid",
			NodeName: "node", NodeUID: "node-uid", MaxExpirationSeconds: new(int32),
			StubPKCS10Request:         []byte{1},
			UnverifiedUserAnnotations: map[string]string{"example.com/a": "b"}},
	}
	if d := cmp.Diff(want, got); d != "" || !strings.HasPrefix(got.Name, "req-") ||
		len(got.Name) != len("req-")+2*nameBytes {
		t.Errorf("%s %s", got.Name, d)
	}
	wantReads := []any{&world.GetObject{Resource: world.ResourceServiceAccounts, Namespace: "n",
		Name: "robot"}, &world.MakeKey{Type: "ECDSAP256"}}
	if d := cmp.Diff(wantReads, []any{account, key}); d != "" {
		t.Error(d)
	}
	got.Spec.StubPKCS10Request[0] = 9
	if h.set.Certificates[0].Request.Proof[0] == 9 {
		t.Error("the object that was sent refers to the state")
	}
	if again := h.plan(); len(again) > 0 {
		t.Errorf("created, and issued again: %v", again)
	}
	h.expect("while it is pending", "credential bundle is not issued yet")
}

// The chain is installed without what is between its certificates, with the key that it is for.
func TestIssued(t *testing.T) {
	h := newHarness(t, source())
	r := h.request()
	h.show(r)
	if issued := h.plan(); len(issued) > 0 {
		t.Errorf("pending in the watch: %v", issued)
	}
	h.issue(r, "leaf:\n"+certificate("leaf")+"root:\n"+certificate("root"), time.Hour, 2*time.Hour)
	h.plan()
	h.expect("issued", "key 1|"+certificate("leaf")+certificate("root"))
	if len(h.events) > 0 {
		t.Errorf("events: %q", h.events)
	}
}

// A certificate is renewed with another key when it is time, after a jitter. The old one stays
// until the new one is issued.
func TestRenewal(t *testing.T) {
	h := newHarness(t, source())
	h.issue(h.request(), certificate("a"), 40*time.Minute, time.Hour)
	h.plan()
	renewAt := t0.Add(40*time.Minute + jitterMax)
	h.now = renewAt.Add(-1)
	if issued := h.plan(); len(issued) > 0 {
		t.Errorf("renewed early: %v", issued)
	}
	if !h.wake.Equal(renewAt) {
		t.Errorf("planned again at %s, not %s", h.wake, renewAt)
	}
	h.now = renewAt
	r := h.request()
	h.expect("while the next one is pending", "key 1|"+certificate("a"))
	h.issue(r, certificate("b"), time.Hour, 2*time.Hour)
	h.plan()
	h.expect("renewed", "key 2|"+certificate("b"))
	if len(h.events) > 0 {
		t.Errorf("events: %q", h.events)
	}
}

// A request that was denied or has failed is the last one: the files stay as they are, the volume
// says why, and so does an event.
func TestRefused(t *testing.T) {
	for condition, want := range map[string]string{conditionDenied: "was denied",
		conditionFailed: "failed"} {
		h := newHarness(t, source())
		r := h.request()
		h.show(r, condition)
		for range 2 {
			if issued := h.plan(); len(issued) > 0 {
				t.Errorf("%s: issued %v", condition, issued)
			}
			h.now = h.now.Add(24 * time.Hour)
		}
		h.expect(condition, "PodCertificateRequest was permanently "+strings.ToLower(condition)+
			`: reason="Because" message="of that"`)
		if d := cmp.Diff([]string{condition + ": PodCertificateRequest n/" + r.Name + " " + want +
			`, reason="Because", message="of that"`}, h.events); d != "" {
			t.Errorf("%s: %s", condition, d)
		}
	}
}

// A renewal that is refused ends renewals as well.
func TestRefusedRenewal(t *testing.T) {
	h := newHarness(t, source())
	h.issue(h.request(), certificate("a"), 40*time.Minute, time.Hour)
	h.plan()
	h.now = h.now.Add(50 * time.Minute)
	h.show(h.request(), conditionDenied)
	h.plan()
	h.expect("denied", `PodCertificateRequest was permanently denied: reason="Because" `+
		`message="of that"`)
}

// A creation whose outcome is unknown is repeated with the same name and key, and finds what it has
// created.
func TestUnknownOutcome(t *testing.T) {
	h := newHarness(t, source())
	h.answer()
	h.answer()
	first := h.planOne()
	h.complete(first, nil, world.Errorf(world.KindTimeout, "", "no answer"))
	h.expect("after a failure", "credential bundle is not issued yet: CreateObject: no answer")
	if issued := h.plan(); len(issued) > 0 {
		t.Errorf("repeated without a back-off: %v", issued)
	}
	h.now = h.now.Add(backoffFirst)
	h.answer() // the service account may be another one
	second := h.planOne()
	name := func(eff world.Effect) string {
		return eff.Body.(*world.CreateObject).Object.CertificateRequest.Name
	}
	if name(first) != name(second) || h.keys != 1 {
		t.Errorf("created %s, then %s, with %d keys", name(first), name(second), h.keys)
	}
	h.complete(second, nil, world.Errorf(world.KindExists, "", "exists"))
	if issued := h.plan(); len(issued) > 0 {
		t.Errorf("exists, and issued: %v", issued)
	}
	h.expect("exists", "credential bundle is not issued yet")
}

// A request that the watch shows was created, also while the answer to its creation is missing.
func TestShownBeforeTheAnswer(t *testing.T) {
	h := newHarness(t, source())
	h.answer()
	h.answer()
	create := h.planOne()
	r := create.Body.(*world.CreateObject).Object.CertificateRequest
	h.issue(r, certificate("a"), time.Hour, 2*time.Hour)
	h.plan()
	h.complete(create, nil, world.Errorf(world.KindTimeout, "", "no answer"))
	if issued := h.plan(); len(issued) > 0 {
		t.Errorf("issued %v", issued)
	}
	h.expect("issued", "key 1|"+certificate("a"))
}

// A request that is not in the watch is given up ten minutes after its creation, and up to five
// more, but not while the watch fails.
func TestDeletedRequest(t *testing.T) {
	h := newHarness(t, source())
	h.show(h.request())
	h.plan()
	clear(h.watch.Objects)
	h.now = t0.Add(lostAfter + jitterMax - 1)
	if issued := h.plan(); len(issued) > 0 || !h.wake.Equal(h.now.Add(1)) {
		t.Errorf("given up early: %v, planned again at %s", issued, h.wake)
	}
	h.now = h.now.Add(1)
	h.watch.Failing = world.Errorf(world.KindUnavailable, "", "down")
	if issued := h.plan(); len(issued) > 0 || !h.wake.IsZero() {
		t.Errorf("given up while the watch fails: %v, planned again at %s", issued, h.wake)
	}
	h.watch.Failing = nil
	h.plan()
	h.now = h.now.Add(backoffFirst)
	if r := h.request(); h.keys != 2 || r.Spec.StubPKCS10Request[0] != 2 {
		t.Errorf("after %d keys: %v", h.keys, r.Spec)
	}
}

// An object with the name of the request that asks for something else is not its answer, nor is one
// that asks for the same and was not created by the agent.
func TestReplacedRequest(t *testing.T) {
	type request = certificatesv1beta1.PodCertificateRequest
	for name, change := range map[string]func(*request){
		"key":     func(r *request) { r.Spec.StubPKCS10Request[0]++ },
		"signer":  func(r *request) { r.Spec.SignerName += "2" },
		"pod":     func(r *request) { r.Spec.PodName = "q" },
		"pod UID": func(r *request) { r.Spec.PodUID = "u2" },
		"account": func(r *request) { r.Spec.ServiceAccountName = "x" },
		"node":    func(r *request) { r.Spec.NodeName = "node2" },
		"UID":     func(r *request) { r.UID += "2" },
	} {
		h := newHarness(t, source())
		r := h.request()
		change(r)
		h.issue(r, certificate("a"), time.Hour, 2*time.Hour)
		h.plan()
		h.expect("another "+name, "credential bundle is not issued yet: PodCertificateRequest "+r.Name+
			" was replaced by another one")
		h.now = h.now.Add(renewalPause)
		h.request()
		if h.keys != 2 || len(h.watch.Awaited) != 1 {
			t.Errorf("another %s: %d keys, awaited: %v", name, h.keys, h.watch.Awaited)
		}
	}
}

// An object whose UID no answer has said has to ask for what was sent. Its UID counts then.
func TestReplacedRequestOfUnknownOutcome(t *testing.T) {
	type request = certificatesv1beta1.PodCertificateRequest
	for name, change := range map[string]func(*request){
		"account's UID": func(r *request) { r.Spec.ServiceAccountUID = "x" },
		"Node's UID":    func(r *request) { r.Spec.NodeUID = "x" },
		"lifetime":      func(r *request) { r.Spec.MaxExpirationSeconds = new(int32(7)) },
		"no lifetime":   func(r *request) { r.Spec.MaxExpirationSeconds = nil },
		"annotations":   func(r *request) { r.Spec.UnverifiedUserAnnotations["b"] = "c" },
		"later UID":     nil,
	} {
		h := newHarness(t, source())
		h.answer()
		h.answer()
		create := h.planOne()
		h.complete(create, nil, world.Errorf(world.KindTimeout, "", "no answer"))
		r := created(create)
		if change != nil {
			change(r)
		} else {
			h.show(r)
			h.plan()
			r.UID = "another"
		}
		h.issue(r, certificate("a"), time.Hour, 2*time.Hour)
		h.plan()
		h.expect("another "+name, "credential bundle is not issued yet: PodCertificateRequest "+r.Name+
			" was replaced by another one")
	}
}

// The UIDs of the account and of the node may have changed between a creation that has succeeded
// without an answer and one that was repeated.
func TestRequestWithOlderUIDs(t *testing.T) {
	h := newHarness(t, source())
	h.answer()
	h.answer()
	create := h.planOne()
	h.complete(create, nil, world.Errorf(world.KindTimeout, "", "no answer"))
	h.now = h.now.Add(backoffFirst)
	h.complete(h.planOne(), &world.ObjectRead{Object: world.Object{ServiceAccount: &v1.ServiceAccount{
		ObjectMeta: metav1.ObjectMeta{UID: "newer-account"}}}}, nil)
	h.nodeUID = "newer-node"
	again := h.planOne()
	if spec := &created(again).Spec; spec.ServiceAccountUID != "newer-account" ||
		spec.NodeUID != "newer-node" {
		t.Errorf("repeated for %s on %s", spec.ServiceAccountUID, spec.NodeUID)
	}
	h.complete(again, nil, world.Errorf(world.KindExists, "", "exists"))
	h.issue(created(create), certificate("a"), time.Hour, 2*time.Hour)
	h.plan()
	h.expect("issued", "key 1|"+certificate("a"))
}

// A few identities that were sent are remembered.
func TestIdentitiesOfARequest(t *testing.T) {
	var r Request
	for _, account := range []types.UID{"a", "b", "c", "a", "d", "e"} {
		r.noteSent(Identity{AccountUID: account})
	}
	want := []Identity{{AccountUID: "c"}, {AccountUID: "a"}, {AccountUID: "d"}, {AccountUID: "e"}}
	if d := cmp.Diff(want, r.Sent); d != "" {
		t.Error(d)
	}
}

// A read that answers without the UID of an account, and a key without its parts, are failures: the
// operation is repeated after a back-off.
func TestIncompleteAnswers(t *testing.T) {
	withoutUID := &world.ObjectRead{Object: world.Object{ServiceAccount: &v1.ServiceAccount{}}}
	for _, c := range []struct {
		call string
		body any
	}{
		{"GetObject", &world.ObjectRead{Object: world.Object{Pod: &v1.Pod{}}}},
		{"GetObject", withoutUID},
		{"GetObject", nil},
		{"MakeKey", &world.KeyMade{Request: []byte{1}}},
		{"MakeKey", &world.KeyMade{PrivateKey: "key"}},
		{"MakeKey", withoutUID},
	} {
		h := newHarness(t, source())
		if c.call == "MakeKey" {
			h.answer()
		}
		h.complete(h.planOne(), c.body, nil)
		h.expect(c.call, "credential bundle is not issued yet: "+c.call+
			": the answer lacks what was asked for")
		if issued := h.plan(); len(issued) > 0 || !h.wake.Equal(t0.Add(backoffFirst)) {
			t.Errorf("%s, answer %+v: issued %v, planned again at %s", c.call, c.body, issued, h.wake)
		}
		h.now = h.now.Add(backoffFirst)
		if again := h.planOne(); world.CallName(again.Body) != c.call {
			t.Errorf("%s, answer %+v: then %T", c.call, c.body, again.Body)
		}
	}
}

// Only the creation of the request can find it.
func TestExistsOfAnotherCall(t *testing.T) {
	h := newHarness(t, source())
	h.answer()
	h.complete(h.planOne(), nil, world.Errorf(world.KindExists, "", "exists"))
	if c := &h.set.Certificates[0]; c.Request.isCreated() || c.Failures != 1 {
		t.Errorf("after the key: %+v", c)
	}
}

// An RSA key has the time that those of other pods take before it.
func TestTimeoutOfKeys(t *testing.T) {
	for keyType, want := range map[string]time.Duration{"RSA4096": slowKeyTimeout,
		"ECDSAP256": operationTimeout} {
		asked := source()
		asked.KeyType = keyType
		h := newHarness(t, asked)
		h.answer()
		if got := h.planOne().Deadline.Sub(h.now); got != want {
			t.Errorf("%s: %s", keyType, got)
		}
	}
}

// Nothing is requested before the node's requests are listed, nor before the Node is known.
func TestNothingWithoutListAndNode(t *testing.T) {
	h := newHarness(t, source())
	h.watch.Listed, h.watch.Failing = false, world.Errorf(world.KindNotFound, "", "not served")
	if issued := h.plan(); len(issued) > 0 || !h.wake.IsZero() {
		t.Errorf("not served: %v, planned again at %s", issued, h.wake)
	}
	h.expect("not served", "credential bundle is not issued yet: podcertificaterequests cannot be "+
		"watched: not served")
	h.watch.Listed, h.watch.Failing, h.nodeUID = true, nil, ""
	if issued := h.plan(); len(issued) > 0 || !h.wake.IsZero() {
		t.Errorf("no Node: %v, planned again at %s", issued, h.wake)
	}
	h.expect("no Node", "credential bundle is not issued yet: the Node is not known")
	h.nodeUID = "node-uid"
	h.answer()
	h.expect("after an operation", "")
	h.answer()
	h.answer()
	h.nodeUID = ""
	h.plan()
	h.expect("the Node has gone after the creation", "credential bundle is not issued yet")
}

// Events say that a renewal is overdue and that a certificate has expired, once each, and the
// metric has the same.
func TestAge(t *testing.T) {
	h := newHarness(t, source())
	h.issue(h.request(), certificate("a"), 40*time.Minute, time.Hour)
	h.plan()
	h.nodeUID = "" // the renewal waits
	overdueAt := t0.Add(40*time.Minute + jitterMax + overdueFor)
	expiry := t0.Add(time.Hour + time.Second) // the first second after the date
	for _, c := range []struct {
		after  time.Duration
		state  string
		events []string
		wake   time.Time
	}{
		{0, stateFresh, nil, t0.Add(renewalPause)},
		{renewalPause, stateFresh, nil, overdueAt.Add(-overdueFor)},
		{overdueAt.Sub(t0) - overdueFor, stateFresh, nil, overdueAt.Add(time.Second)},
		{overdueAt.Sub(t0), stateFresh, nil, overdueAt.Add(time.Second)},
		{overdueAt.Sub(t0) + time.Second, stateOverdue,
			[]string{"CertificateOverdueForRefresh: PodCertificate refresh overdue"}, expiry},
		{time.Hour, stateOverdue, nil, expiry},
		{time.Hour + time.Second, stateExpired, []string{"CertificateExpired: PodCertificate expired"},
			time.Time{}},
		{2 * time.Hour, stateExpired, nil, time.Time{}},
	} {
		h.now, h.events = t0.Add(c.after), nil
		h.plan()
		if !h.wake.Equal(c.wake) {
			t.Errorf("after %s: planned again at %s, not %s", c.after, h.wake, c.wake)
		}
		if d := cmp.Diff(c.events, h.events); d != "" {
			t.Errorf("after %s: %s", c.after, d)
		}
		h.set.VisitStates(h.pod, h.now, func(signer, state string) {
			if signer != "example.com/signer" || state != c.state {
				t.Errorf("after %s: %s of %s", c.after, state, signer)
			}
		})
		h.expect("an old certificate stays", "key 1|"+certificate("a"))
	}
}

// The ages of certificates are dates: a date that is set forward makes them due.
func TestDateChanges(t *testing.T) {
	h := newHarness(t, source())
	h.issue(h.request(), certificate("a"), 40*time.Minute, time.Hour)
	h.plan()
	h.now = h.now.Add(10 * time.Minute)
	h.wall.Record(h.now, 34*time.Minute)
	if issued := h.plan(); len(issued) > 0 || !h.wake.Equal(h.now.Add(time.Minute)) {
		t.Errorf("issued %v, planned again %s later", issued, h.wake.Sub(h.now))
	}
	h.wall.Record(h.now, 35*time.Minute)
	h.request()
}

// A signer that has its certificates renewed at once gets a request a minute.
func TestRenewalPause(t *testing.T) {
	h := newHarness(t, source())
	h.issue(h.request(), certificate("a"), -time.Hour, time.Hour)
	h.plan()
	h.now = h.now.Add(renewalPause - 1)
	if issued := h.plan(); len(issued) > 0 {
		t.Errorf("issued %v", issued)
	}
	h.now = h.now.Add(1)
	h.request()
}

// An answer without a certificate or with one that is too long counts as a failure.
func TestBadAnswers(t *testing.T) {
	long := strings.Repeat(certificate("leaf"), budget.CertificateChainMax/len(certificate("leaf"))+1)
	for chain, want := range map[string]string{
		"":   "it was issued without a certificate, beginRefreshAt or notAfter",
		long: fmt.Sprintf("the chain has %d bytes, and may have 102400", len(long)),
	} {
		h := newHarness(t, source())
		h.issue(h.request(), chain, time.Hour, time.Hour)
		h.plan()
		h.expect("a bad answer", `PodCertificateRequest was permanently failed: `+
			`reason="InvalidAnswer" message="`+want+`"`)
	}
}

// ofSources returns the calls of operations, and the numbers of the sources that they are for.
func (h *harness) ofSources(issued []world.Effect) string {
	var text strings.Builder
	for _, eff := range issued {
		source := -1
		for i := range h.set.Certificates {
			if h.set.Certificates[i].Op == eff.Op {
				source = i
			}
		}
		fmt.Fprint(&text, world.CallName(eff.Body), " ", source, "; ")
	}
	return text.String()
}

func (h *harness) expectIssued(when string, issued []world.Effect, want string) {
	h.t.Helper()
	if d := cmp.Diff(want, h.ofSources(issued)); d != "" {
		h.t.Errorf("%s: %s", when, d)
	}
}

// A pod reads its account once for all sources, has a few operations in flight, and the others
// follow.
func TestManySources(t *testing.T) {
	h := newHarness(t, slices.Repeat([]v1.PodCertificateProjection{source()}, 10)...)
	h.answer()
	issued := h.plan()
	h.expectIssued("after the account", issued, "MakeKey 0; MakeKey 1; MakeKey 2; MakeKey 3; ")
	h.complete(issued[0], nil, world.Errorf(world.KindUnavailable, "", "no key"))
	h.expectIssued("after a completion", h.plan(), "MakeKey 4; ")
}

// Sources whose operations hang, again and again, leave the others their turns.
func TestTurnsOfSources(t *testing.T) {
	h := newHarness(t, slices.Repeat([]v1.PodCertificateProjection{source()}, 10)...)
	h.answer()
	for _, want := range []string{
		"MakeKey 0; MakeKey 1; MakeKey 2; MakeKey 3; ", "MakeKey 4; MakeKey 5; MakeKey 6; MakeKey 7; ",
		"MakeKey 8; MakeKey 9; MakeKey 0; MakeKey 1; ", "MakeKey 2; MakeKey 3; MakeKey 4; MakeKey 5; ",
	} {
		issued := h.plan()
		h.expectIssued("next", issued, want)
		h.now = h.now.Add(operationTimeout / 3) // so that the account is not read again
		for _, eff := range issued {
			h.complete(eff, nil, world.Errorf(world.KindTimeout, "", "hung"))
			h.set.Account.AsOf = h.now
		}
		h.now = h.now.Add(backoffMax)
		h.set.Account.AsOf = h.now
	}
}

// The account is read again when the read is a minute old, and when a creation was refused that was
// issued after it.
func TestReadsOfTheAccount(t *testing.T) {
	h := newHarness(t, source(), source())
	h.answer()
	keys := h.plan()
	for i, eff := range keys {
		h.complete(eff, &world.KeyMade{PrivateKey: "key", Request: []byte{byte(i)}}, nil)
	}
	h.now = h.now.Add(accountAgeMax - 1)
	creations := h.plan()
	h.expectIssued("before a minute has passed", creations, "CreateObject 0; CreateObject 1; ")
	refused := world.Errorf(world.KindRefused, "", "another account")
	h.complete(creations[0], nil, refused)
	h.now = h.now.Add(backoffFirst)
	read := h.planOne()
	h.complete(creations[1], nil, refused)
	h.complete(read, &world.ObjectRead{Object: world.Object{ServiceAccount: &v1.ServiceAccount{
		ObjectMeta: metav1.ObjectMeta{UID: "other"}}}}, nil)
	h.now = h.now.Add(backoffFirst)
	h.expectIssued("after a newer read", h.plan(), "CreateObject 0; CreateObject 1; ")

	h = newHarness(t, source())
	h.answer()
	h.answer()
	h.now = h.now.Add(accountAgeMax)
	h.expectIssued("after a minute", h.plan(), "GetObject -1; ")
}

// A failure of a creation does not concern a read that was issued later.
func TestAccountReadAfterTheCreation(t *testing.T) {
	a := Account{UID: "u", AsOf: t0}
	if a.forget(t0.Add(-1)); a.UID == "" {
		t.Error("forgotten for an earlier creation")
	}
	if a.forget(t0); a.UID != "" {
		t.Error("kept after a later creation")
	}
}

// While the account cannot be read, the volumes say so, and it is read for all sources after a
// back-off.
func TestAccountCannotBeRead(t *testing.T) {
	h := newHarness(t, source(), source())
	h.complete(h.planOne(), nil, world.Errorf(world.KindNotFound, "", "no account"))
	h.expect("after a failure", "credential bundle is not issued yet: GetObject: no account")
	if issued := h.plan(); len(issued) > 0 || !h.wake.Equal(t0.Add(backoffFirst)) {
		t.Errorf("issued %v, planned again at %s", issued, h.wake)
	}
	h.now = h.now.Add(backoffFirst)
	h.complete(h.planOne(), nil, world.Errorf(world.KindNotFound, "", "no account"))
	if issued := h.plan(); len(issued) > 0 || !h.wake.Equal(h.now.Add(2*backoffFirst)) {
		t.Errorf("after two failures: issued %v, planned again at %s", issued, h.wake)
	}
	h.now = h.now.Add(2 * backoffFirst)
	h.answer()
	h.expect("when it was read", "")
	h.expectIssued("when it was read", h.plan(), "MakeKey 0; MakeKey 1; ")
}

// What a read says is as old as its request: a creation that was issued before the answer, and is
// refused, concerns it.
func TestAccountIsAsOldAsItsRequest(t *testing.T) {
	h := newHarness(t, source())
	read := h.planOne()
	h.now = h.now.Add(5 * time.Second)
	h.complete(read, &world.ObjectRead{Object: world.Object{ServiceAccount: &v1.ServiceAccount{
		ObjectMeta: metav1.ObjectMeta{UID: "u"}}}}, nil)
	if !h.set.Account.AsOf.Equal(t0) {
		t.Errorf("as of %s, want %s", h.set.Account.AsOf, t0)
	}
}

// The read of the account waits while as many operations are in flight as may be.
func TestAccountWaitsForRoom(t *testing.T) {
	h := newHarness(t, slices.Repeat([]v1.PodCertificateProjection{source()}, 10)...)
	h.answer()
	issued := h.plan()
	h.now = h.now.Add(accountAgeMax)
	h.expectIssued("without room", h.plan(), "")
	h.complete(issued[0], nil, world.Errorf(world.KindUnavailable, "", "no key"))
	h.expectIssued("with room", h.plan(), "GetObject -1; ")
}

// A restored set goes on as the original does.
func TestRestore(t *testing.T) {
	h := newHarness(t, source())
	h.issue(h.request(), certificate("a"), 40*time.Minute, time.Hour)
	h.plan()
	h.now = h.now.Add(45 * time.Minute)
	h.answer()
	h.answer()
	data, err := json.Marshal(h.set)
	if err != nil {
		t.Fatal(err)
	}
	before := h.set
	h.set = Set{}
	if err := json.Unmarshal(data, &h.set); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(before, h.set); d != "" {
		t.Error(d)
	}
	if _, ok := h.answer().(*world.CreateObject); !ok {
		t.Error("the restored set does not create the request")
	}
}

package objectcache

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"seedlet.dev/core/budget"
	"seedlet.dev/world"
)

var requestsTarget = world.WatchTarget{Resource: world.ResourcePodCertificateRequests}

func request(name string) world.Object {
	return world.Object{CertificateRequest: &certificatesv1beta1.PodCertificateRequest{
		ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: name, UID: "uid", ResourceVersion: "1",
			Annotations: map[string]string{"long": strings.Repeat("x", 1<<20)}},
		Spec: certificatesv1beta1.PodCertificateRequestSpec{PodName: "p"}}}
}

// Of the requests for certificates only those are kept that a user awaits, without their metadata.
func TestAwaitedOnly(t *testing.T) {
	var s Store
	var effects effectRecorder
	s.AddReference(requestsTarget, "x", &effects)
	s.AddReference(requestsTarget, "y", &effects)
	w := s.Watch(requestsTarget)
	w.Await("a/one", "x")
	w.Await("a/two", "y")
	expect := func(when string, changed []string, wantChanged, kept string) {
		t.Helper()
		if got := strings.Join(changed, " "); got != wantChanged {
			t.Errorf("%s: changed %q, not %q", when, got, wantChanged)
		}
		if got := strings.Join(w.Names(), " "); got != kept {
			t.Errorf("%s: kept %q, not %q", when, got, kept)
		}
	}
	_, changed := s.HandleWatchEvent(&world.ObjectsListed{Watch: 1,
		Objects: []world.Object{request("one"), request("three")}}, t0)
	expect("listed", changed, "a/one", "a/one")
	want := &certificatesv1beta1.PodCertificateRequest{ObjectMeta: metav1.ObjectMeta{Namespace: "a",
		Name: "one", UID: "uid", ResourceVersion: "1"},
		Spec: certificatesv1beta1.PodCertificateRequestSpec{PodName: "p"}}
	if d := cmp.Diff(want, w.Objects["a/one"].CertificateRequest); d != "" {
		t.Error(d)
	}
	before := w.Changes()
	_, changed = s.HandleWatchEvent(&world.ObjectChanged{Watch: 1, Object: request("three")}, t0)
	expect("another one changed", changed, "", "a/one")
	if w.Changes() != before {
		t.Error("an object that is not kept is a change")
	}
	_, changed = s.HandleWatchEvent(&world.ObjectChanged{Watch: 1, Object: request("two")}, t0)
	expect("an awaited one changed", changed, "a/two", "a/one a/two")
	w.Release("a/one")
	expect("released", nil, "", "a/two")
	s.DeleteReference(requestsTarget, "y", &effects)
	if expect("its user has gone", nil, "", ""); len(w.Awaited) > 0 {
		t.Errorf("awaited: %v", w.Awaited)
	}
}

// A request that is too large is kept without spec and status, so it is not what was created.
func TestLargeRequest(t *testing.T) {
	for _, c := range []struct{ over, chain int }{{0, budget.CertificateRequestMax - 100},
		{1, budget.CertificateRequestMax}} {
		o := request("one")
		o.CertificateRequest.Status.CertificateChain = strings.Repeat("x", c.chain)
		kept := condensed(o).CertificateRequest
		if got, want := kept.Spec.PodName, []string{"p", ""}[c.over]; got != want ||
			kept.UID != "uid" || (kept.Status.CertificateChain == "") != (c.over == 1) {
			t.Errorf("chain of %d: %q, %d bytes", c.chain, got, len(kept.Status.CertificateChain))
		}
	}
	pod := podObject("p", "1")
	if d := cmp.Diff(pod, condensed(pod)); d != "" {
		t.Error(d)
	}
}

package apiserver

import (
	"encoding/json"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"seedlet.dev/world"
)

var webMeta = metav1.ObjectMeta{Namespace: "ns", Name: "web"}

// requestCase is a request of the core, and the one that follows to the API server.
type requestCase struct {
	body   any
	method string
	path   string
	sent   string // a part of the request's body
	answer map[string]any
}

// accountRequests are the requests about service accounts.
func accountRequests() []requestCase {
	return []requestCase{
		{&world.GetObject{Resource: world.ResourceServiceAccounts, Namespace: "ns", Name: "builder"},
			"GET", "/api/v1/namespaces/ns/serviceaccounts/builder", "",
			object("ServiceAccount", "ns", "builder", "7")},
		{&world.CreateToken{Namespace: "ns", ServiceAccount: "builder", UID: "sa-uid",
			Spec: authenticationv1.TokenRequestSpec{}},
			"POST", "/api/v1/namespaces/ns/serviceaccounts/builder/token", `"uid":"sa-uid"`,
			map[string]any{"kind": "TokenRequest", "apiVersion": "authentication.k8s.io/v1",
				"spec": map[string]any{"expirationSeconds": 600},
				"status": map[string]any{
					"token": "t", "expirationTimestamp": "2026-01-02T03:04:05Z"}}},
		{&world.CreateToken{Namespace: "ns", ServiceAccount: "builder",
			Spec: authenticationv1.TokenRequestSpec{Audiences: []string{"api"}}},
			"POST", "/api/v1/namespaces/ns/serviceaccounts/builder/token", `"audiences":["api"]`,
			map[string]any{"kind": "TokenRequest", "apiVersion": "authentication.k8s.io/v1",
				"spec": map[string]any{"expirationSeconds": 600},
				"status": map[string]any{
					"token": "t", "expirationTimestamp": "2026-01-02T03:04:05Z"}}},
	}
}

func TestRequests(t *testing.T) {
	grace := int64(0)
	pod := object("Pod", "ns", "web", "7")
	lease := object("Lease", "ns", "web", "7")
	lease["apiVersion"] = "coordination.k8s.io/v1"
	pods, leases := "/api/v1/namespaces/ns/pods", "/apis/coordination.k8s.io/v1/namespaces/ns/leases"
	cases := []requestCase{
		{&world.GetObject{Resource: world.ResourcePods, Namespace: "ns", Name: "web"},
			"GET", pods + "/web", "", pod},
		{&world.CreateObject{Object: world.Object{Pod: &v1.Pod{ObjectMeta: webMeta}}},
			"POST", pods, `"name":"web"`, pod},
		{&world.CreateObject{Object: world.Object{Lease: &coordinationv1.Lease{ObjectMeta: webMeta}}},
			"POST", leases, `"kind":"Lease"`, lease},
		{&world.UpdateObject{Object: world.Object{Lease: &coordinationv1.Lease{ObjectMeta: webMeta}}},
			"PUT", leases + "/web", `"apiVersion":"coordination.k8s.io/v1"`, lease},
		{&world.PatchObject{Resource: world.ResourcePods, Namespace: "ns", Name: "web", Status: true,
			Patch: json.RawMessage(`{"status":{}}`)},
			"PATCH", pods + "/web/status", `{"status":{}}`, pod},
		{&world.PatchObject{Resource: world.ResourceNodes, Name: "node-1",
			Patch: json.RawMessage(`{"metadata":{}}`)},
			"PATCH", "/api/v1/nodes/node-1", `{"metadata":{}}`, object("Node", "", "node-1", "7")},
		{&world.DeleteObject{Resource: world.ResourcePods, Namespace: "ns", Name: "web", UID: "u",
			GracePeriodSeconds: &grace},
			"DELETE", pods + "/web", `"gracePeriodSeconds":0,"preconditions":{"uid":"u"}`, pod},
	}
	for _, c := range append(cases, accountRequests()...) {
		t.Run(world.CallName(c.body), func(t *testing.T) {
			var requested, contentType, sent string
			f := newFake(t, func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body) // a partial body fails the checks below
				requested, sent = r.Method+" "+r.URL.String(), string(body)
				contentType = r.Header.Get("Content-Type")
				respond(w, http.StatusOK, c.answer)
			}, nil)
			got, err := f.call(c.body, waitMax)
			if err != nil {
				t.Fatal(err)
			}
			if want := c.method + " " + c.path; requested != want {
				t.Errorf("request %s, want %s", requested, want)
			}
			if !strings.Contains(sent, c.sent) {
				t.Errorf("sent %s, want a body with %s", sent, c.sent)
			}
			if patch := c.method == "PATCH"; patch !=
				(contentType == "application/strategic-merge-patch+json") {
				t.Errorf("content type %s", contentType)
			}
			checkResult(t, got)
		})
	}
}

// checkResult checks the result of one of the requests above.
func checkResult(t *testing.T, got any) {
	t.Helper()
	switch got := got.(type) {
	case *world.ObjectRead:
		_, meta := got.Object.Meta()
		if meta == nil || meta.GetResourceVersion() != "7" || meta.GetManagedFields() != nil {
			t.Errorf("read %+v", got.Object)
		}
		if pod := got.Object.Pod; pod != nil && pod.Kind != "" {
			t.Errorf("read with kind %q", pod.Kind)
		}
	case *world.TokenCreated:
		want := &world.TokenCreated{Token: "t", ExpirationSeconds: 600}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	case *world.Done:
	default:
		t.Errorf("result %T", got)
	}
}

// An error of the server is reported after a single request: requests are not retried.
func TestErrors(t *testing.T) {
	cases := []struct {
		code       int
		reason     string
		kind       world.ErrorKind
		retryAfter time.Duration
	}{
		{400, "BadRequest", world.KindInvalid, 0},
		{401, "Unauthorized", world.KindRefused, 0},
		{403, "Forbidden", world.KindRefused, 0},
		{404, "NotFound", world.KindNotFound, 0},
		{409, "AlreadyExists", world.KindExists, 0},
		{409, "Conflict", world.KindConflict, 0},
		{410, "Gone", world.KindNotFound, 0},
		{413, "RequestEntityTooLarge", world.KindTooLarge, 0},
		{413, "", world.KindTooLarge, 0}, // a proxy responds
		{422, "Invalid", world.KindInvalid, 0},
		{429, "TooManyRequests", world.KindThrottled, 3 * time.Second},
		{500, "InternalError", world.KindInternal, 0},
		{500, "ServerTimeout", world.KindTimeout, 3 * time.Second},
		{503, "ServiceUnavailable", world.KindUnavailable, 0},
		{504, "Timeout", world.KindTimeout, 0},
		{429, "", world.KindThrottled, 2 * time.Second}, // load shedding: no Status
		{502, "", world.KindUnavailable, 0},             // a proxy responds
		{418, "", world.KindInternal, 0},
	}
	for _, c := range cases {
		t.Run(http.StatusText(c.code)+c.reason, func(t *testing.T) {
			requests := 0
			f := newFake(t, func(w http.ResponseWriter, _ *http.Request) {
				requests++
				if c.code == http.StatusTooManyRequests {
					w.Header().Set("Retry-After", "2")
				}
				if c.reason == "" {
					http.Error(w, "go away", c.code)
					return
				}
				respondError(w, c.code, c.reason,
					map[string]any{"retryAfterSeconds": c.retryAfter.Seconds()})
			}, nil)
			_, err := f.call(&world.GetObject{
				Resource: world.ResourcePods, Namespace: "ns", Name: "web"}, waitMax)
			if err == nil || err.Kind != c.kind || err.RetryAfter != c.retryAfter {
				t.Errorf("got %+v, want %s and %v", err, c.kind, c.retryAfter)
			}
			if err != nil && (err.Op != "GetObject" || !strings.Contains(err.Message, c.reason)) {
				t.Errorf("message %q of operation %s", err.Message, err.Op)
			}
			if requests != 1 {
				t.Errorf("%d requests, want one", requests)
			}
		})
	}
}

// The API server answers with 500 if etcd refuses an object as too large, or its client does.
func TestTooLargeForTheStore(t *testing.T) {
	for message, want := range map[string]world.ErrorKind{
		"etcdserver: request is too large": world.KindTooLarge,
		"rpc error: code = ResourceExhausted desc = trying to send message larger than max " +
			"(2100000 vs. 2097152)": world.KindTooLarge,
		"etcdserver: mvcc: database space exceeded": world.KindInternal,
	} {
		f := newFake(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusInternalServerError)
			status := metav1.Status{Status: metav1.StatusFailure, Code: 500, Message: message}
			status.Kind, status.APIVersion = "Status", "v1"
			if err := json.NewEncoder(w).Encode(&status); err != nil {
				t.Error(err)
			}
		}, nil)
		_, err := f.call(&world.PatchObject{Resource: world.ResourcePods, Namespace: "ns",
			Name: "web", Status: true, Patch: []byte("{}")}, waitMax)
		if !err.Has(want) {
			t.Errorf("%q is %v, want %s", message, err, want)
		}
	}
}

func TestInvalid(t *testing.T) {
	f := newFake(t, func(http.ResponseWriter, *http.Request) { t.Error("got a request") }, nil)
	for _, body := range []any{
		&world.GetObject{Resource: "gizmos", Namespace: "ns", Name: "web"},
		&world.GetObject{Resource: world.ResourcePods, Name: "web"},
		&world.GetObject{Resource: world.ResourcePods, Namespace: "ns"},
		&world.GetObject{Resource: world.ResourcePods, Namespace: "ns", Name: "../secrets"},
		&world.CreateObject{},
		&world.CreateToken{Namespace: "ns"},
		&world.CreateToken{Namespace: "ns", ServiceAccount: "a/b"},
	} {
		if _, err := f.call(body, waitMax); !err.Has(world.KindInvalid) {
			t.Errorf("%+v: got %v", body, err)
		}
	}
}

// A response that cannot be decoded leaves the outcome unknown.
func TestUndecodableResponse(t *testing.T) {
	f := newFake(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, "{nonsense")
	}, nil)
	get := &world.GetObject{Resource: world.ResourcePods, Namespace: "ns", Name: "web"}
	if _, err := f.call(get, waitMax); !err.Has(world.KindInternal) {
		t.Errorf("invalid JSON: got %v", err)
	}
	f.setHandler(func(w http.ResponseWriter, _ *http.Request) {
		respond(w, 200, object("ConfigMap", "ns", "web", "1"))
	})
	if _, err := f.call(get, waitMax); !err.Has(world.KindInternal) {
		t.Errorf("another type: got %v", err)
	}
	f.setHandler(func(w http.ResponseWriter, _ *http.Request) { respond(w, 200, map[string]any{}) })
	if _, err := f.call(get, waitMax); !err.Has(world.KindInternal) {
		t.Errorf("an empty object: got %v", err)
	}
}

func TestNoResponse(t *testing.T) {
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	free.Close()
	f := &fake{t: t, events: make(chan world.Event, 1)}
	f.connect("https://"+free.Addr().String(), nil, nil)
	get := &world.GetObject{Resource: world.ResourceNodes, Name: "node-1"}
	if _, err := f.call(get, waitMax); !err.Has(world.KindUnavailable) {
		t.Errorf("connection refused: got %v", err)
	}

	f = newFake(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
		func(o *Options) { o.HeartbeatTimeout = 50 * time.Millisecond })
	if _, err := f.call(&world.GetObject{Resource: world.ResourcePods, Namespace: "ns", Name: "web"},
		50*time.Millisecond); !err.Has(world.KindTimeout) {
		t.Errorf("no response: got %v", err)
	}
	if _, err := f.call(get, waitMax); !err.Has(world.KindTimeout) {
		t.Errorf("no response, for a heartbeat with a later deadline: got %v", err)
	}
}

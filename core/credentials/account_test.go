package credentials

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	pluginapi "k8s.io/kubelet/pkg/apis/credentialprovider/v1"

	"seedlet.dev/world"
)

const tokenImage = "a.dkr.example/app"

// tokenHarness goes through rounds of a node with one plugin, and answers as an API server and the
// plugin would.
type tokenHarness struct {
	t        *testing.T
	node     Node
	now      time.Time
	account  *Account
	pod      string
	noToken  *world.Error
	failure  *world.Error
	echoes   bool // the plugin returns the token as the password
	requests []string
	asked    []pluginapi.CredentialProviderRequest
	failures []string
}

func newTokenHarness(t *testing.T, fields string) *tokenHarness {
	h := &tokenHarness{t: t, now: t0, pod: "p1", node: Node{Settings: Settings{
		Providers: parse(t, withTokens("serviceAccountTokenAudience: reg, "+fields))}}}
	h.account = h.read("robot", "u1", map[string]string{"role": "reader", "other": "x"})
	return h
}

func (h *tokenHarness) read(name, uid string, annotations map[string]string) *Account {
	a := &Account{Namespace: "ns", Name: name}
	h.node.HandleAccount(a, nil, h.now, world.Event{Body: &world.ObjectRead{
		Object: world.Object{ServiceAccount: &v1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: name, UID: types.UID(uid), Annotations: annotations}}}}})
	return a
}

// round goes through a round, and returns what it has found.
func (h *tokenHarness) round() []Found {
	h.t.Helper()
	h.requests, h.asked, h.failures = nil, nil, nil
	var r Round
	for {
		request, err := h.node.Next(&r, Subject{tokenImage, h.account, h.pod, "uid-" + h.pod}, h.now)
		if err != nil {
			h.failures = append(h.failures, err.Error())
			continue
		}
		if request == nil {
			return r.List
		}
		h.requests = append(h.requests, world.CallName(request))
		ev := h.respond(request)
		ev.Time = h.now
		text, err := json.Marshal(&r)
		var restored Round
		if err == nil {
			err = json.Unmarshal(text, &restored)
		}
		if err != nil || !reflect.DeepEqual(&restored, &r) {
			h.t.Errorf("not plain data: %v, %s", err, cmp.Diff(&r, &restored))
		}
		if err := h.node.Handle(&r, tokenImage, recordOf(request, h.now), ev); err != nil {
			h.failures = append(h.failures, err.Error())
		}
	}
}

func (h *tokenHarness) respond(request any) world.Event {
	switch m := request.(type) {
	case *world.CreateToken:
		if h.noToken != nil {
			return world.Event{Err: h.noToken}
		}
		if m.UID != h.account.UID || m.Spec.Audiences[0] != "reg" || m.Spec.ExpirationSeconds != nil ||
			m.Spec.BoundObjectRef.Name != h.pod {
			h.t.Errorf("token request %+v", m)
		}
		return world.Event{Body: &world.TokenCreated{ExpirationSeconds: 3600, Token: fmt.Sprintf(
			"token-%s-%s-%d", m.UID, m.Spec.BoundObjectRef.UID, h.now.Unix())}}
	case *world.GetCredentials:
		var asked pluginapi.CredentialProviderRequest
		if err := json.Unmarshal(m.Request, &asked); err != nil {
			h.t.Error(err)
		}
		h.asked = append(h.asked, asked)
		if h.failure != nil {
			return world.Event{Body: &world.CredentialsGot{Took: time.Second, Err: h.failure}}
		}
		text := string(output("Registry", "", "*.dkr.example", "plugin"))
		if h.echoes {
			text = strings.Replace(text, `"p"`, `"`+asked.ServiceAccountToken+`"`, 1)
		}
		return world.Event{Body: &world.CredentialsGot{Output: []byte(text)}}
	}
	panic("unexpected request")
}

func (h *tokenHarness) check(what string, found []Found, uid string, requests ...string) {
	h.t.Helper()
	got := "none"
	if len(found) > 0 {
		got = found[0].AccountUID
	}
	if got != uid || len(found) > 1 {
		h.t.Errorf("%s: found %+v, want those of %q", what, found, uid)
	}
	if diff := cmp.Diff(requests, h.requests); diff != "" {
		h.t.Errorf("%s: %s", what, diff)
	}
}

const both = "requireServiceAccount: true, requiredServiceAccountAnnotationKeys: [role], " +
	"optionalServiceAccountAnnotationKeys: [zone]"

// A plugin gets a token that is bound to a pod, and the annotations that it asks for. Its response
// counts for the other pods of the service account, and for no other service account.
func TestTokenOfServiceAccount(t *testing.T) {
	h := newTokenHarness(t, "cacheType: ServiceAccount, "+both)
	h.check("first", h.round(), "u1", "CreateToken", "GetCredentials")
	want := pluginapi.CredentialProviderRequest{Image: tokenImage,
		TypeMeta: metav1.TypeMeta{APIVersion: tokensVersion,
			Kind: "CredentialProviderRequest"},
		ServiceAccountToken:       fmt.Sprintf("token-u1-uid-p1-%d", t0.Unix()),
		ServiceAccountAnnotations: map[string]string{"role": "reader"}}
	if diff := cmp.Diff([]pluginapi.CredentialProviderRequest{want}, h.asked); diff != "" {
		t.Error(diff)
	}
	h.pod = "p2"
	h.check("another pod", h.round(), "u1")
	h.account = h.read("robot", "u1", map[string]string{"role": "reader", "zone": "north"})
	h.check("another annotation", h.round(), "u1", "CreateToken", "GetCredentials")
	h.account = h.read("robot", "u2", map[string]string{"role": "reader"})
	h.check("created again", h.round(), "u2", "CreateToken", "GetCredentials")
	h.account = h.read("robot2", "u3", map[string]string{"role": "reader"})
	h.check("another service account", h.round(), "u3", "CreateToken", "GetCredentials")
	h.account = h.read("robot", "u1", map[string]string{"zone": "north"})
	h.check("not opted in", h.round(), "none")
	if h.node.Admits(h.account, tokenImage) || len(h.failures) > 0 {
		t.Errorf("admitted without a required annotation, or %q", h.failures)
	}
	h.account = nil
	h.check("no service account", h.round(), "none")
}

// With the cache type Token a response counts for one pod, for as long as its token does.
func TestResponseOfToken(t *testing.T) {
	h := newTokenHarness(t, "cacheType: Token, "+both)
	h.echoes = true
	if found := h.round(); len(found) != 1 || found[0].Password != h.asked[0].ServiceAccountToken {
		t.Errorf("found %+v, failures %q", found, h.failures)
	}
	h.check("again", h.round(), "u1")
	h.pod = "p2"
	h.check("another pod", h.round(), "u1", "CreateToken", "GetCredentials")
	if use := h.node.AccountUse(tokenImage); !use.Any || !use.PerPod {
		t.Errorf("%+v", use)
	}
	if use := h.node.AccountUse("docker.io/app"); use.Any || use.PerPod {
		t.Errorf("%+v for another image", use)
	}
	h.now = t0.Add(48 * time.Minute)
	h.check("the token is renewed", h.round(), "u1", "CreateToken", "GetCredentials")
	h.node.ForgetPod("uid-p2")
	h.check("the pod has gone", h.round(), "u1", "CreateToken")
}

// Without a service account a plugin that does not need one is asked without a token.
func TestPluginNeedsNoServiceAccount(t *testing.T) {
	h := newTokenHarness(t, "cacheType: ServiceAccount, requireServiceAccount: false")
	h.account = nil
	h.check("no service account", h.round(), "", "GetCredentials")
	if h.asked[0].ServiceAccountToken != "" || h.asked[0].ServiceAccountAnnotations != nil {
		t.Errorf("%+v", h.asked)
	}
	h.check("kept", h.round(), "")
	h.account = h.read("robot", "u1", nil)
	h.check("with one", h.round(), "u1", "CreateToken", "GetCredentials")
}

// A plugin is not asked without the token that it needs. No failure quotes a token.
func TestTokenFailures(t *testing.T) {
	h := newTokenHarness(t, "cacheType: ServiceAccount, "+both)
	expect := func(what, failure string, requests ...string) {
		t.Helper()
		h.check(what, h.round(), "none", requests...)
		if len(h.failures) != 1 || h.failures[0] != failure {
			t.Errorf("%s: failures %q", what, h.failures)
		}
	}
	h.noToken = world.Errorf(world.KindConflict, callCreateToken, "the UID does not match")
	expect("no token", "plugin ecr: no token of the service account: the UID does not match",
		"CreateToken")
	h.noToken, h.echoes = nil, true
	expect("the token comes back",
		"plugin ecr: the password is the token, which needs cacheType Token", "CreateToken",
		"GetCredentials")
	h.failure = world.Errorf(world.KindInternal, "GetCredentials", "exit status 1: no")
	expect("the plugin fails", "plugin ecr: exit status 1: no", "GetCredentials")
	h.failure, h.echoes, h.now = nil, false, t0.Add(50*time.Minute)
	h.noToken = world.Errorf(world.KindUnavailable, callCreateToken, "no server")
	h.check("the token is not renewed", h.round(), "u1", "CreateToken", "GetCredentials")
	h.now = t0.Add(2 * time.Hour)
	expect("it has expired", "plugin ecr: no token of the service account: no server", "CreateToken")
	h.node.HandleAccount(h.account, nil, h.now, world.Event{Err: world.Errorf(
		world.KindNotFound, "GetObject", "not found")})
	expect("no service account", "plugin ecr: the service account ns/robot is not known: not found")
	h.account = h.read("robot", "u1", map[string]string{"role": strings.Repeat("x", 64<<10)})
	expect("too large", "plugin ecr: the service account ns/robot is not known: the annotations for "+
		"plugins have 65540 bytes, and may have 65536")
	if h.node.Admits(h.account, tokenImage) || !h.account.AsOf.Equal(h.now) {
		t.Errorf("%+v", h.account)
	}
}

// While the API server is away, a pod has the service account that was read for it before.
func TestServerIsAway(t *testing.T) {
	h := newTokenHarness(t, "cacheType: ServiceAccount, "+both)
	read := world.Event{Body: &world.ObjectRead{Object: world.Object{
		ServiceAccount: &v1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "ns",
			Name: "robot", UID: "u1", Annotations: map[string]string{"role": "reader"}}}}}}
	fails := func(kind world.ErrorKind) world.Event {
		return world.Event{Err: world.Errorf(kind, "GetObject", "no")}
	}
	check := func(what, pod string, ev world.Event, uid string) {
		t.Helper()
		a := &Account{Namespace: "ns", Name: "robot"}
		h.node.HandleAccount(a, []string{pod}, h.now, ev)
		if a.UID != uid || h.node.Admits(a, tokenImage) != (uid != "") || !a.AsOf.Equal(h.now) {
			t.Errorf("%s: %+v", what, a)
		}
	}
	check("not read before", "p1", fails(world.KindUnavailable), "")
	check("read", "p1", read, "u1")
	check("away", "p1", fails(world.KindTimeout), "u1")
	check("away, another pod", "p2", fails(world.KindTimeout), "")
	check("gone", "p1", fails(world.KindNotFound), "")
	check("away after it has gone", "p1", fails(world.KindUnavailable), "")
	check("read again", "p1", read, "u1")
	h.node.ForgetPod("p1")
	check("the pod has gone", "p1", fails(world.KindUnavailable), "")
}

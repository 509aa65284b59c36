package image

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/core/credentials"
	"seedlet.dev/core/keyring"
	"seedlet.dev/core/op"
	"seedlet.dev/world"
)

const pluginOutput = `{"apiVersion": "v1", "kind": "CredentialProviderResponse",
"cacheKeyType": "Global", "cacheDuration": "1m", "auth": {"docker.io": {"username": "node"}}}`

// pulls plans an image until nothing is issued, responds to every request, and returns the users
// of the pulls; each pull is refused.
func pulls(t *testing.T, s *Store, name string, at time.Duration,
	plugin world.Event) (users []string, asked int) {
	t.Helper()
	var table op.Table
	var out op.Effects
	for range 10 {
		out.Reset(&table, t0.Add(at))
		s.Plan(name, &Env{Effects: &out})
		issued := out.List()
		if len(issued) == 0 {
			return users, asked
		}
		for _, eff := range issued {
			ev := world.Event{Time: t0.Add(at), Op: eff.Op, Err: refused}
			switch m := eff.Body.(type) {
			case *runtimeapi.PullImageRequest:
				users = append(users, m.Auth.GetUsername())
			case *world.GetCredentials:
				asked++
				ev.Body, ev.Err = plugin.Body, plugin.Err
			}
			record, _ := table.Complete(eff.Op)
			out.Reset(&table, t0.Add(at))
			s.HandleCompletion(name, record, ev, &out)
		}
	}
	t.Fatal("there is no end")
	return nil, 0
}

// The plugins are asked before a pull, and their credentials are tried after those of the pod. The
// next attempt asks again only if the response has expired.
func TestNodeCredentials(t *testing.T) {
	s := &Store{Node: credentials.Node{Settings: credentials.Settings{
		Providers: []credentials.Provider{{Name: "p", MatchImages: []string{"docker.io"},
			APIVersion: "v1"}}}}}
	request := Request{Ref: "i", Credentials: Credentials{Name: "s@1",
		List: []keyring.Credential{{Username: "pod"}}}}
	s.Require("pod", request, v1.PullAlways, t0)
	plugin := world.Event{Body: &world.CredentialsGot{Output: []byte(pluginOutput)}}
	for _, c := range []struct {
		at    time.Duration
		asked int
	}{{0, 1}, {10 * time.Second, 0}, {2 * time.Minute, 1}} {
		users, asked := pulls(t, s, request.Name(), c.at, plugin)
		if asked != c.asked || len(users) != 2 || users[0] != "pod" || users[1] != "node" {
			t.Errorf("after %v: %d requests to the plugin, pulls with %q", c.at, asked, users)
		}
	}
}

// A plugin that fails keeps no pod from its image: the pull goes on without the node's credentials.
func TestPullGoesOnWithoutNodeCredentials(t *testing.T) {
	s := &Store{Node: credentials.Node{Settings: credentials.Settings{
		Providers: []credentials.Provider{{Name: "p", MatchImages: []string{"docker.io"}}}}}}
	s.Require("pod", Request{Ref: "i"}, v1.PullAlways, t0)
	users, asked := pulls(t, s, "i", 0, world.Event{Err: world.Errorf(world.KindTimeout, "", "late")})
	if asked != 1 || len(users) != 1 || users[0] != "" {
		t.Errorf("%d requests to the plugin, pulls with %q", asked, users)
	}
}

// An image whose last pod is gone stays until the request to a plugin has completed.
func TestReleaseWhilePluginIsAsked(t *testing.T) {
	s := &Store{Node: credentials.Node{Settings: credentials.Settings{
		DockerPaths: []string{"/config.json"}}}}
	var table op.Table
	var out op.Effects
	s.Require("pod", Request{Ref: "i"}, v1.PullAlways, t0)
	out.Reset(&table, t0)
	s.Plan("i", &Env{Effects: &out})
	issued := out.List()
	if len(issued) != 1 || world.CallName(issued[0].Body) != "ReadDockerConfig" {
		t.Fatalf("issued %+v", issued)
	}
	s.Release("pod", "i")
	record, _ := table.Complete(issued[0].Op)
	s.HandleCompletion("i", record, world.Event{Time: t0, Body: &world.DockerConfigRead{}}, &out)
	s.Plan("i", &Env{Effects: &out})
	if len(s.Images) > 0 {
		t.Errorf("images left: %v", s.Names())
	}
}

// An image is not pulled for a pod with a secret that cannot be decoded. One that the pod may use
// as it is, is used, as by a kubelet.
func TestUndecodableSecret(t *testing.T) {
	broken := Request{Ref: "q.io/i", Credentials: Credentials{Name: "s@1", Problem: "no JSON"}}
	r := newAccessHarness(t)
	for _, policy := range []v1.PullPolicy{v1.PullIfNotPresent, v1.PullAlways} {
		result := r.require(broken, policy)
		if p := result.Problem; p == nil || p.Reason != ErrImagePull || p.Message != "no JSON" ||
			len(r.pulls) > 0 {
			t.Errorf("%s: %+v, pulls with %q", policy, result, r.pulls)
		}
	}
	r.require(withSecret("s"), v1.PullIfNotPresent)
	if result := r.require(broken, v1.PullIfNotPresent); result.ID != "" || len(r.pulls) != 1 {
		t.Errorf("%+v, pulls with %q", result, r.pulls)
	}
	r.require(Request{Ref: "q.io/i"}, v1.PullAlways)
	if result := r.require(broken, v1.PullIfNotPresent); result.ID == "" || len(r.pulls) != 2 {
		t.Errorf("%+v, pulls with %q", result, r.pulls)
	}
}

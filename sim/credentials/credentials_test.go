package credentials

import (
	"encoding/json"
	"testing"
	"time"

	pluginapi "k8s.io/kubelet/pkg/apis/credentialprovider/v1"

	"seedlet.dev/sim/agenda"
	"seedlet.dev/sim/plan"
	"seedlet.dev/world"
)

// A plugin returns the user of the service account for a valid token of its audience.
func TestPlugins(t *testing.T) {
	a := agenda.New(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), 1)
	var completed *world.Event
	p := New(Options{Agenda: a, Seed: 1, Deliver: func(ev world.Event) { completed = &ev },
		Audiences: map[string]string{"cloud": "registry"},
		Review: func(token, audience string) bool {
			return token == "good" && audience == "registry"
		}})
	do := func(body any) *world.Event {
		completed = nil
		p.Do(world.Effect{Op: 1, Body: body, Deadline: a.Now().Add(time.Minute)})
		for completed == nil && a.Run() {
		}
		return completed
	}
	for _, c := range []struct{ program, token, want string }{
		{"/plugins/cloud", "good", "a"}, {"/plugins/cloud", "", NodeUser},
		{"/plugins/cloud", "bad", ""}, {"/plugins/other", "good", ""},
	} {
		request := pluginapi.CredentialProviderRequest{Image: "registry.test/app",
			ServiceAccountToken:       c.token,
			ServiceAccountAnnotations: map[string]string{plan.UserAnnotation: "a"}}
		data, err := json.Marshal(request)
		if err != nil {
			t.Fatal(err)
		}
		ev, user := do(&world.GetCredentials{Program: c.program, Request: data}), ""
		got, ok := ev.Body.(*world.CredentialsGot)
		if !ok || got.Took < runMin {
			t.Fatalf("%+v, %v", ev.Body, ev.Err)
		}
		if got.Err == nil {
			var response pluginapi.CredentialProviderResponse
			if err := json.Unmarshal(got.Output, &response); err != nil {
				t.Fatal(err)
			}
			user = response.Auth[plan.Registry].Username
		}
		if user != c.want || (got.Err != nil) != (c.want == "") {
			t.Errorf("%+v: user %q, %v", c, user, got.Err)
		}
	}
	if read, ok := do(&world.ReadDockerConfig{}).Body.(*world.DockerConfigRead); !ok ||
		len(read.Files) > 0 {
		t.Errorf("Docker configuration %+v", read)
	}
}

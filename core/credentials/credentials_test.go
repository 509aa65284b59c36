package credentials

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"seedlet.dev/core/keyring"
	"seedlet.dev/core/op"
	"seedlet.dev/world"
)

var t0 = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

const header = "apiVersion: kubelet.config.k8s.io/v1\nkind: CredentialProviderConfig\n"

const pluginConfig = header + `providers:
- name: ecr
  apiVersion: credentialprovider.kubelet.k8s.io/v1
  matchImages: ["*.dkr.example", "registry.example:5000/team"]
  defaultCacheDuration: 10m
  args: [get]
  env: [{name: REGION, value: north}]
`

func parse(t *testing.T, texts ...string) []Provider {
	t.Helper()
	var files []File
	for i, text := range texts {
		files = append(files, File{fmt.Sprintf("/%d.yaml", i), []byte(text)})
	}
	providers, err := ParseConfig(files)
	if err != nil {
		t.Fatal(err)
	}
	return providers
}

// output returns the output of a plugin with one credential.
func output(scope, duration, registry, user string) []byte {
	return fmt.Appendf(nil, `{"apiVersion": "credentialprovider.kubelet.k8s.io/v1",
"kind": "CredentialProviderResponse", "cacheKeyType": %q, %s
"auth": {%q: {"username": %q, "password": "p"}}}`, scope, duration, registry, user)
}

// answerAll goes through a round, and returns the requests.
func answerAll(t *testing.T, n *Node, image string, now time.Time,
	respond func(request any) world.Event) (requests []any, users []string) {
	t.Helper()
	var r Round
	for {
		request, err := n.Next(&r, Subject{Image: image}, now)
		if err != nil {
			t.Error(err)
		}
		if request == nil {
			break
		}
		requests = append(requests, request)
		ev := respond(request)
		ev.Time = now
		err = n.Handle(&r, image, recordOf(request, now), ev)
		if _, isRun := request.(*world.GetCredentials); isRun && (err != nil) != (ev.Err != nil) {
			t.Errorf("%v", err)
		}
	}
	for _, c := range r.List {
		users = append(users, c.Username)
	}
	return requests, users
}

func recordOf(request any, issued time.Time) op.Record {
	return op.Record{Call: world.CallName(request), IssuedAt: issued}
}

// The Docker configuration goes before the plugins; only those are asked that are for the image,
// and again only when their responses have expired.
func TestRound(t *testing.T) {
	n := &Node{Settings: Settings{Providers: parse(t, pluginConfig), BinDir: "/bin",
		DockerPaths: []string{"/root/config.json", "/.dockercfg"}}}
	respond := func(request any) world.Event {
		switch m := request.(type) {
		case *world.ReadDockerConfig:
			return world.Event{Body: &world.DockerConfigRead{Files: []world.DockerConfigFile{
				{Path: "/root/config.json", Data: []byte("not JSON")},
				{Path: "/.dockercfg", Data: []byte(`{"a.dkr.example": {"username": "node"}}`)}}}}
		case *world.GetCredentials:
			want := `{"kind":"CredentialProviderRequest","apiVersion":` +
				`"credentialprovider.kubelet.k8s.io/v1","image":"a.dkr.example/app"}`
			if string(m.Request) != want || m.Program != "/bin/ecr" || m.Args[0] != "get" ||
				m.Env[0] != (world.CredentialVariable{Name: "REGION", Value: "north"}) {
				t.Errorf("%+v, %s", m, m.Request)
			}
			return world.Event{Body: &world.CredentialsGot{
				Output: output("Registry", "", "*.dkr.example", "plugin")}}
		}
		panic("unexpected request")
	}
	requests, users := answerAll(t, n, "a.dkr.example/app:1", t0, respond)
	if len(requests) != 2 || !cmp.Equal(users, []string{"node", "plugin"}) {
		t.Errorf("%d requests, users %q", len(requests), users)
	}
	requests, users = answerAll(t, n, "a.dkr.example/other", t0.Add(time.Minute), respond)
	if len(requests) != 0 || len(users) != 2 {
		t.Errorf("another image of the registry: %d requests, users %q", len(requests), users)
	}
	if requests, users = answerAll(t, n, "nginx", t0.Add(time.Minute), respond); len(requests) != 0 ||
		len(users) != 0 {
		t.Errorf("an image of another registry: %d requests, users %q", len(requests), users)
	}
	requests, _ = answerAll(t, n, "a.dkr.example/app", t0.Add(10*time.Minute), respond)
	if len(requests) != 2 {
		t.Errorf("after the responses have expired: %d requests", len(requests))
	}
	text, err := json.Marshal(n)
	var restored Node
	if err == nil {
		err = json.Unmarshal(text, &restored)
	}
	if err != nil || !reflect.DeepEqual(&restored, n) {
		t.Errorf("not plain data: %v, %s", err, cmp.Diff(n, &restored))
	}
}

// plugins returns plugins of a name each, which are for an image and answer at once.
func plugins(t *testing.T, answers ...map[string]string) *Node {
	n := &Node{}
	for i, auth := range answers {
		name := fmt.Sprint("p", i)
		config := strings.Replace(pluginConfig, "name: ecr", "name: "+name, 1)
		n.Providers = append(n.Providers,
			parse(t, strings.Replace(config, `"*.dkr.example"`, `"*.*", "docker.io"`, 1))...)
		answer := Answer{Credentials: map[string]keyring.Credential{}, Expires: t0.Add(time.Hour)}
		for registry, user := range auth {
			answer.Credentials[registry] = keyring.Credential{Username: user}
		}
		store(&n.Answers, answerKey(&n.Providers[i], "", Ask{}), answer, answersMax, t0)
	}
	return n
}

// The answers of all plugins are one keyring: the longest registry path goes first, whichever
// plugin has it, and an entry for Docker Hub counts if no plugin has another one for the image. The
// Docker configuration of the node is a keyring of its own, and goes before them.
func TestOrderOfPlugins(t *testing.T) {
	type auth = map[string]string
	for _, c := range []struct {
		name, image string
		docker      auth
		answers     []auth
		want        []string
	}{
		{"the longest path", "q.io/team/app", nil, []auth{{"q.io": "short"}, {"q.io/team": "long"}},
			[]string{"long", "short"}},
		{"the order of plugins for the same path", "q.io/app", nil,
			[]auth{{"q.io": "first"}, {"https://q.io/v2/": "second"}}, []string{"first", "second"}},
		{"Docker Hub beside another entry", "nginx", nil,
			[]auth{{"https://index.docker.io/v1/": "hub"}, {"docker.io/library": "official"}},
			[]string{"official"}},
		{"Docker Hub alone", "nginx", nil, []auth{{"index.docker.io": "hub"}, {"q.io": "other"}},
			[]string{"hub"}},
		{"Docker Hub of the node", "nginx",
			auth{"index.docker.io": "node", "https://index.docker.io": ""},
			[]auth{{"docker.io": "plugin"}}, []string{"", "node", "plugin"}},
		{"the same credential", "q.io/app", auth{"q.io": "node"},
			[]auth{{"q.io/app": "node"}, {"q.io": "other"}}, []string{"node", "other"}},
	} {
		n := plugins(t, c.answers...)
		n.DockerPaths, n.DockerRead = []string{"/config.json"}, t0
		n.Docker = map[string]keyring.Credential{}
		for registry, user := range c.docker {
			n.Docker[registry] = keyring.Credential{Username: user}
		}
		_, users := answerAll(t, n, c.image, t0, nil)
		if !cmp.Equal(users, c.want) {
			t.Errorf("%s: users %q, want %q", c.name, users, c.want)
		}
	}
}

// An answer with which the plugins have more credentials than an image may have is left out, with
// an error that names its plugin, each time: it is kept.
func TestTooManyCredentials(t *testing.T) {
	many := map[string]string{}
	for i := range 10 {
		many["q.io/"+strings.Repeat("a", i)] = fmt.Sprint("first", i)
	}
	more := map[string]string{}
	for i := range 7 {
		more["q.io/"+strings.Repeat("a", i)] = fmt.Sprint("second", i)
	}
	n := plugins(t, many, more, map[string]string{"q.io": "third"})
	for range 2 {
		var r Round
		_, err := n.Next(&r, Subject{Image: "q.io/" + strings.Repeat("a", 20)}, t0)
		want := `plugin p1: the answers of plugins have 17 credentials for image "q.io/` +
			strings.Repeat("a", 20) + `", and one image may have 16`
		if err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
		request, err := n.Next(&r, Subject{Image: "q.io/" + strings.Repeat("a", 20)}, t0)
		if request != nil || err != nil || len(r.List) != 11 {
			t.Errorf("%v, %v, %d credentials", request, err, len(r.List))
		}
	}
}

// A Docker configuration that a kubelet refuses is passed over as a whole, and the error names it.
func TestDockerConfigIsRefused(t *testing.T) {
	n := &Node{Settings: Settings{DockerPaths: []string{"/a/config.json", "/b/config.json"}}}
	file := func(path, text string) world.DockerConfigFile {
		return world.DockerConfigFile{Path: path, Data: []byte(text)}
	}
	for name, c := range map[string]struct {
		files      []world.DockerConfigFile
		want, user string
	}{
		"an auth": {[]world.DockerConfigFile{
			file("/a/config.json", `{"auths": {"q.io": {"username": "me"}, "r.io": {"auth": "?"}}}`),
			file("/b/config.json", `{"auths": {"q.io": {"username": "other"}}}`)},
			"the node's Docker configuration: /a/config.json: illegal base64 data at input byte 0",
			"other"},
		"not read": {[]world.DockerConfigFile{
			{Path: "/a/config.json", Err: world.Errorf(world.KindExhausted, "", "too large")},
			file("/b/.dockercfg", `{"q.io": 5}`)},
			"the node's Docker configuration: /a/config.json: too large; /b/.dockercfg: json: cannot " +
				"unmarshal number into Go value", ""},
		"none": {nil, "", ""},
	} {
		var r Round
		ev := world.Event{Time: t0, Body: &world.DockerConfigRead{Files: c.files}}
		err := n.Handle(&r, "q.io/app", op.Record{}, ev)
		if (err != nil) != (c.want != "") ||
			err != nil && !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
		user := ""
		if len(r.List) > 0 {
			user = r.List[0].Username
		}
		if user != c.user {
			t.Errorf("%s: user %q, want %q", name, user, c.user)
		}
	}
}

// A plugin that fails, or whose output is wrong, has no credentials, and the next source is asked.
// The error does not quote the output.
func TestFailures(t *testing.T) {
	second := strings.Replace(pluginConfig, "name: ecr", "name: second", 1)
	for name, ev := range map[string]world.Event{
		"failure": {Body: &world.CredentialsGot{
			Err: world.Errorf(world.KindInternal, "GetCredentials", "exit status 1")}},
		"no answer":  {Err: world.Errorf(world.KindTimeout, "GetCredentials", "expired")},
		"not JSON":   {Body: &world.CredentialsGot{Output: []byte("secret")}},
		"no scope":   {Body: &world.CredentialsGot{Output: output("Pod", "", "a.dkr.example", "u")}},
		"wrong type": {Body: &world.CredentialsGot{Output: []byte(`{"auth": "secret"}`)}},
		"other kind": {Body: &world.CredentialsGot{Output: []byte(`{"kind": "Pod"}`)}},
		"YAML": {Body: &world.CredentialsGot{Output: []byte("apiVersion: credentialprovider.kubelet." +
			"k8s.io/v1\nkind: CredentialProviderResponse\ncacheKeyType: Image\n")}},
		"unknown field": {Body: &world.CredentialsGot{
			Output: output("Image", `"secret": 1,`, "a.dkr.example", "u")}},
		"another case": {Body: &world.CredentialsGot{
			Output: output("Image", `"Auth": {},`, "a.dkr.example", "u")}},
		"twice": {Body: &world.CredentialsGot{
			Output: output("Image", `"auth": {},`, "a.dkr.example", "u")}},
		"more": {Body: &world.CredentialsGot{
			Output: append(output("Image", "", "a.dkr.example", "u"), "{}"...)}},
	} {
		n := &Node{Settings: Settings{Providers: parse(t, pluginConfig, second)}}
		var r Round
		request, _ := n.Next(&r, Subject{Image: "a.dkr.example/app"}, t0)
		if request == nil {
			t.Fatal("nothing is asked")
		}
		ev.Time = t0.Add(5 * time.Minute) // it has waited for slower ones
		failed, ran := ev.Err != nil, 0
		if got, ok := ev.Body.(*world.CredentialsGot); ok {
			got.Took, ran = time.Second, 1
			failed = got.Err != nil // a wrong output is not counted, as by the kubelet
		}
		err := n.Handle(&r, "a.dkr.example/app", recordOf(request, t0), ev)
		if len(n.Runs) != ran || ran > 0 && n.Runs["ecr"].Sum != time.Second ||
			(n.Failures["ecr"] == 1) != failed {
			t.Errorf("%s: runs %+v, failures %v", name, n.Runs["ecr"], n.Failures)
		}
		if err == nil || !strings.HasPrefix(err.Error(), "plugin ecr: ") ||
			strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", name, err)
		}
		next, _ := n.Next(&r, Subject{Image: "a.dkr.example/app"}, t0)
		if m, ok := next.(*world.GetCredentials); !ok || m.Program != "second" || len(r.List) > 0 {
			t.Errorf("%s: next is %+v, with %v", name, next, r.List)
		}
	}
}

// A response says for what and for how long it counts; zero: for this pull only.
func TestCache(t *testing.T) {
	for _, c := range []struct {
		scope, duration, image string
		after                  time.Duration
		asks                   bool
	}{
		{"Image", "", "a.dkr.example/app", time.Minute, false},
		{"Image", "", "a.dkr.example/app2", time.Minute, true},
		{"Registry", "", "a.dkr.example/app2", time.Minute, false},
		{"Registry", "", "b.dkr.example/app", time.Minute, true},
		{"Global", "", "b.dkr.example/app", time.Minute, false},
		{"Global", `"cacheDuration": "30s",`, "a.dkr.example/app", time.Minute, true},
		{"Global", `"cacheDuration": "0s",`, "a.dkr.example/app", 0, true},
	} {
		n := &Node{Settings: Settings{Providers: parse(t, pluginConfig)}}
		respond := func(any) world.Event {
			return world.Event{Body: &world.CredentialsGot{
				Output: output(c.scope, c.duration, "*.dkr.example", "u")}}
		}
		answerAll(t, n, "a.dkr.example/app", t0, respond)
		requests, users := answerAll(t, n, c.image, t0.Add(c.after), respond)
		if (len(requests) > 0) != c.asks || len(users) != 1 {
			t.Errorf("%+v: %d requests, users %q", c, len(requests), users)
		}
	}
}

// The responses that are kept are bounded.
func TestCacheIsBounded(t *testing.T) {
	var all map[string]Answer
	add := func(name, namespace string, after time.Duration) {
		a := Answer{map[string]keyring.Credential{}, namespace, t0.Add(after)}
		store(&all, name, a, answersMax, t0)
	}
	add("other", "b", time.Second)
	for i := range answersMax + 10 {
		add(fmt.Sprint(i), "a", time.Duration(i+2)*time.Second)
	}
	if _, hasOldest := all["0"]; len(all) != answersMax || hasOldest {
		t.Errorf("%d answers, the oldest is there: %v", len(all), hasOldest)
	}
	if _, hasOther := all["other"]; !hasOther {
		t.Error("a tenant has lost its answer to another one")
	}
	store(&all, "new", Answer{Expires: t0.Add(2 * time.Hour)}, answersMax, t0.Add(time.Hour))
	if len(all) != 1 {
		t.Errorf("%d answers after all others have expired", len(all))
	}
}

func TestParseConfigNamesTheField(t *testing.T) {
	for text, want := range map[string]string{
		"# nothing\n": "/0.yaml: the file is empty, want kind CredentialProviderConfig",
		"kind: Pod\n": "/0.yaml: want apiVersion kubelet.config.k8s.io/v1, " +
			`kind CredentialProviderConfig; have apiVersion "", kind "Pod"`,
		header:                       "/0.yaml: providers: Required value: ",
		header + "providrs: []\n":    "/0.yaml: unknown fields: providrs",
		header + "providers: [{}]\n": "/0.yaml: [providers[0].name: Invalid value: \"\"",
		strings.Replace(pluginConfig, "name: ecr", "name: a/b", 1): "/0.yaml: providers[0].name: ",
		strings.Replace(pluginConfig, "10m", "-1s", 1): "/0.yaml: providers[0].defaultCacheDuration: " +
			`Invalid value: "-1s": must not be negative`,
		strings.Replace(pluginConfig, `"*.dkr.example"`, `"/x"`, 1): "/0.yaml: " +
			`providers[0].matchImages[0]: Invalid value: "/x"`,
		strings.Replace(pluginConfig, `"*.dkr.example"`, `"[::1]:5000", "x.io:*"`, 1): "/0.yaml: " +
			`providers[0].matchImages[1]: Invalid value: "x.io:*"`,
	} {
		_, err := ParseConfig([]File{{"/0.yaml", []byte(text)}})
		if err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
	both := []File{{"/0.yaml", []byte(pluginConfig)}, {"/1.yaml", []byte(pluginConfig)}}
	if _, err := ParseConfig(both); err == nil || !strings.Contains(err.Error(),
		"/1.yaml: providers[0].name: Duplicate value") {
		t.Errorf("a plugin in two files: %v", err)
	}
}

func TestDockerPaths(t *testing.T) {
	want := []string{"/var/lib/kubelet/config.json", "/config.json", "/root/.docker/config.json",
		"/.docker/config.json", "/var/lib/kubelet/.dockercfg", "/.dockercfg", "/root/.dockercfg",
		"/.dockercfg"}
	if diff := cmp.Diff(want, DockerPaths("/var/lib/kubelet", "/", "/root")); diff != "" {
		t.Error(diff)
	}
}

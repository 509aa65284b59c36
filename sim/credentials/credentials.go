// Package credentials is the simulated credentials port: the plugins of the plan, which get
// credentials of the registry for tokens of service accounts (KEP-4412).
//
// Contract: a plugin answers as the program of a cloud would. It has its token reviewed, and
// returns the user of the registry that an annotation of the service account names. It fails if the
// token is not valid. Without a token it returns the user of the node. Its arguments are for what
// its responses count, and the registry that they are for. Plugins are processes of the agent, and
// end with it.
//
// Start reading at run.
package credentials

import (
	"encoding/json"
	"path"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	pluginapi "k8s.io/kubelet/pkg/apis/credentialprovider/v1"

	"seedlet.dev/sim/agenda"
	"seedlet.dev/sim/plan"
	"seedlet.dev/sim/wire"
	"seedlet.dev/world"
)

// NodeUser is the user of the registry for pods without a token.
const NodeUser = "node"

const (
	runMin = 20 * time.Millisecond
	runMax = 3 * time.Second
	// keptFor is how long the agent may keep a response.
	keptFor = 2 * time.Minute
)

// Options configure the plugins.
type Options struct {
	Agenda  *agenda.Agenda
	Seed    uint64
	Faults  wire.FaultSource  // nil: no faults
	Deliver func(world.Event) // receives the events of the first incarnation
	// Audiences are those of the tokens that plugins get, by the name of the plugin.
	Audiences map[string]string
	// Review reports whether a token is valid for an audience. Nil: none is.
	Review func(token, audience string) bool
}

// Plugins are the simulated plugins. They are for use by one goroutine.
type Plugins struct {
	opts Options
	wire *wire.Wire
}

// New returns the plugins of a node.
func New(opts Options) *Plugins {
	return &Plugins{opts: opts, wire: wire.New(wire.Options{Agenda: opts.Agenda, Faults: opts.Faults,
		Deliver: opts.Deliver, Seed: opts.Seed})}
}

// InFlight returns the calls that the agent waits for, as wire.InFlight does.
func (p *Plugins) InFlight() []*wire.Call { return p.wire.InFlight() }

// Reseed makes every later call draw from another seed.
func (p *Plugins) Reseed(seed uint64) { p.wire.Reseed(seed) }

// Do implements world.Port.
func (p *Plugins) Do(eff world.Effect) { p.wire.Send(eff, p.serve) }

// Connect starts an incarnation of the agent, which receives all events from now on.
func (p *Plugins) Connect(deliver func(world.Event)) { p.wire.Connect(deliver) }

// Disconnect ends an incarnation of the agent. The callers of all calls in flight are gone.
func (p *Plugins) Disconnect() { p.wire.Disconnect() }

func (p *Plugins) serve(call *wire.Call) {
	if call.Outcome.ErrorBefore != nil {
		call.Fail(call.Outcome.ErrorBefore)
		return
	}
	if _, isRun := call.Effect.Body.(*world.GetCredentials); isRun &&
		call.Outcome.EffectDelay >= world.CredentialRunMax {
		p.opts.Agenda.After(world.CredentialRunMax, func() {
			call.Reply(&world.CredentialsGot{Took: world.CredentialRunMax,
				Err: world.Errorf(world.KindTimeout, call.Name, "the plugin was killed")})
		})
		return
	}
	call.Execute(func() {
		switch m := call.Effect.Body.(type) {
		case *world.ReadDockerConfig:
			call.Reply(&world.DockerConfigRead{})
		case *world.GetCredentials:
			took := call.DurationBetween(runMin, runMax)
			call.ContinueAfter(took, func() { p.run(call, m, took) })
		default:
			panic("credentials: unknown call: " + call.Name)
		}
	})
}

// run ends a run of a plugin.
func (p *Plugins) run(call *wire.Call, m *world.GetCredentials, took time.Duration) {
	var asked pluginapi.CredentialProviderRequest
	fail := func(text string) {
		call.Reply(&world.CredentialsGot{Took: took, Err: world.Errorf(world.KindInternal, call.Name,
			"exit status 1: %s", world.WithoutToken(text, asked.ServiceAccountToken))})
	}
	if err := json.Unmarshal(m.Request, &asked); err != nil {
		fail(err.Error())
		return
	}
	user := NodeUser
	if token := asked.ServiceAccountToken; token != "" {
		if p.opts.Review == nil || !p.opts.Review(token, p.opts.Audiences[path.Base(m.Program)]) {
			fail("the token is not valid: " + token)
			return
		}
		user = asked.ServiceAccountAnnotations[plan.UserAnnotation]
	}
	response := pluginapi.CredentialProviderResponse{
		CacheKeyType:  pluginapi.PluginCacheKeyType(argument(m, 0, "Registry")),
		CacheDuration: &metav1.Duration{Duration: keptFor},
		Auth: map[string]pluginapi.AuthConfig{
			argument(m, 1, plan.Registry): {Username: user, Password: "p-" + user}},
	}
	response.Kind, response.APIVersion = "CredentialProviderResponse", asked.APIVersion
	output, err := json.Marshal(response)
	if err != nil {
		panic(err) // a struct of strings
	}
	call.Reply(&world.CredentialsGot{Output: output, Took: took})
}

// argument returns an argument of a plugin.
func argument(m *world.GetCredentials, i int, otherwise string) string {
	if i < len(m.Args) {
		return m.Args[i]
	}
	return otherwise
}

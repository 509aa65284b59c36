package sim

import (
	"maps"
	"slices"
	"strings"

	corecredentials "seedlet.dev/core/credentials"
	"seedlet.dev/sim/credentials"
	"seedlet.dev/sim/plan"
	"seedlet.dev/sim/wire"
)

// providersOf returns the plugins for credentials of a plan that was validated.
func providersOf(node *plan.Node) []corecredentials.Provider {
	providers, err := node.Providers()
	if err != nil {
		panic("sim: a plan that was not validated: " + err.Error())
	}
	return providers
}

// credentialSettings returns the settings of the agent about its own credentials for images.
func credentialSettings(node *plan.Node) corecredentials.Settings {
	return corecredentials.Settings{Providers: providersOf(node), BinDir: "/plugins"}
}

// audiencesOf returns the audiences of the tokens that plugins get, by the name of the plugin.
func audiencesOf(node *plan.Node) map[string]string {
	audiences := map[string]string{}
	for _, p := range providersOf(node) {
		if p.Tokens != nil {
			audiences[p.Name] = p.Tokens.Audience
		}
	}
	return audiences
}

// tokenAudiences returns the audiences for which the node may request tokens.
func tokenAudiences(node *plan.Node) []string {
	return slices.Compact(slices.Sorted(maps.Values(audiencesOf(node))))
}

// nodePulls returns the private images that every pod can pull: a plugin that gets no tokens has
// the credentials of the node for them.
func nodePulls(node *plan.Node, private map[string][]string) map[string]bool {
	pulls := map[string]bool{}
	for _, p := range providersOf(node) {
		for ref, users := range private { //ordered: into a set
			isFor := func(pattern string) bool { return strings.HasPrefix(ref, pattern) }
			if p.Tokens == nil && slices.ContainsFunc(p.MatchImages, isFor) &&
				slices.Contains(users, credentials.NodeUser) {
				pulls[ref] = true
			}
		}
	}
	return pulls
}

// newProviders returns the simulated plugins for credentials.
func (r *run) newProviders(calls wire.FaultSource) *credentials.Plugins {
	opts := credentials.Options{Agenda: r.agenda.Actor("credential plugins"), Seed: r.plan.Seed,
		Faults: calls, Audiences: audiencesOf(&r.plan.Node)}
	if r.server != nil {
		opts.Review = r.server.ReviewToken
	}
	return credentials.New(opts)
}

// userAnnotation returns the annotation that says which user a service account stands for; empty if
// no plugin gets tokens.
func userAnnotation(node *plan.Node) string {
	if len(audiencesOf(node)) == 0 {
		return ""
	}
	return plan.UserAnnotation
}

// Package credentials finds the credentials of the node for images: those of the node's Docker
// configuration, and those of plugins (KEP-2133), as the kubelet does.
//
// Facts: the Docker configuration as it was read last, and the responses of plugins, until they
// expire. A pull that needs credentials goes through a Round: the Docker configuration first, then
// each plugin that is for the image, each asked at most once. A source that fails has no
// credentials, and the pull goes on without them. Start reading at Node.Next.
package credentials

import (
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	pluginapi "k8s.io/kubelet/pkg/apis/credentialprovider/v1"

	"seedlet.dev/core/document"
	"seedlet.dev/core/imagename"
	"seedlet.dev/core/keyring"
	"seedlet.dev/core/metrics"
	"seedlet.dev/world"
)

const (
	// Timeout bounds the run of a plugin, as in the kubelet.
	Timeout = time.Minute
	// dockerPeriod is how long the Docker configuration is used before it is read again, as in the
	// kubelet (defaultDockerConfigProvider).
	dockerPeriod = 5 * time.Minute
	// answersMax bounds the responses of plugins that are kept. The one that expires first is dropped.
	answersMax = 256
	// creditsMax bounds the credentials that a round collects.
	creditsMax = 16
)

// Settings are the sources of credentials.
type Settings struct {
	Providers []Provider `json:"providers,omitempty"`
	BinDir    string     `json:"binDir,omitempty"` // of the plugins
	// DockerPaths are the files that may be the Docker configuration; the first that is one counts.
	DockerPaths []string `json:"dockerPaths,omitempty"`
	ConfigHash  string   `json:"configHash,omitempty"` // of the plugins' configuration
}

// Node is what is known of the credentials of the node.
type Node struct {
	Settings
	Docker     map[string]keyring.Credential `json:"docker,omitempty"` // by registry
	DockerRead time.Time                     `json:"dockerRead,omitzero"`
	Answers    map[string]Answer             `json:"answers,omitempty"` // by answerKey
	// Runs are the durations of runs of plugins, and Failures those runs that failed, by the name of
	// the plugin.
	Runs     metrics.Histograms `json:"runs,omitempty"`
	Failures metrics.Counters   `json:"failures,omitempty"`
}

// Answer is a response of a plugin that is kept.
type Answer struct {
	Credentials map[string]keyring.Credential `json:"credentials"` // by registry
	Expires     time.Time                     `json:"expires"`
}

// Round is the search for the credentials of one pull.
type Round struct {
	Op   world.OpID           `json:"op,omitempty"`   // the request in flight
	Step int                  `json:"step,omitempty"` // 0: the Docker configuration; then the plugins
	List []keyring.Credential `json:"list,omitempty"`
}

// Next returns the next request of a round for an image, or nil when all sources have been asked.
func (n *Node) Next(r *Round, image string, now time.Time) any {
	repository := imagename.Split(image).Path()
	for ; r.Step <= len(n.Providers); r.Step++ {
		if r.Step == 0 {
			if len(n.DockerPaths) == 0 {
				continue
			}
			if n.DockerRead.IsZero() || now.Sub(n.DockerRead) >= dockerPeriod {
				return &world.ReadDockerConfig{Paths: n.DockerPaths}
			}
			_ = r.add(n.Docker, image) // its error was returned when it was read
			continue
		}
		p := &n.Providers[r.Step-1]
		if !p.isFor(repository) {
			continue
		}
		if answer, ok := n.answer(p, repository, now); ok {
			_ = r.add(answer, image)
			continue
		}
		return p.request(n.BinDir, repository)
	}
	return nil
}

// Handle records the completion of the request of a round, which was issued at a time, and returns
// the failure of the source, if any. The next source is asked then.
func (n *Node) Handle(r *Round, image string, issued time.Time, ev world.Event) (failure error) {
	var found map[string]keyring.Credential
	step := r.Step
	r.Op, r.Step = 0, r.Step+1
	if step > 0 {
		n.count(n.Providers[step-1].Name, ev.Time.Sub(issued), ev.Err)
	}
	switch body := ev.Body.(type) {
	case *world.DockerConfigRead:
		found = decodeFiles(body.Files)
		n.Docker, n.DockerRead = found, ev.Time
	case *world.CredentialsGot:
		p := &n.Providers[step-1]
		found, failure = n.keep(p, imagename.Split(image).Path(), body.Output, ev.Time)
		if failure != nil {
			return fmt.Errorf("plugin %s: %w", p.Name, failure)
		}
	}
	if ev.Err != nil {
		if step > 0 {
			return fmt.Errorf("plugin %s: %s", n.Providers[step-1].Name, ev.Err.Message)
		}
		return ev.Err
	}
	return r.add(found, image)
}

// count counts the run of a plugin.
func (n *Node) count(plugin string, took time.Duration, err *world.Error) {
	n.Runs.Observe(plugin, metrics.DefaultBounds, took)
	if err != nil {
		n.Failures.Increment(plugin)
	}
}

// add adds the credentials for an image to the round. More than one image may have are an error.
func (r *Round) add(byRegistry map[string]keyring.Credential, image string) error {
	k, err := keyring.Join([]*keyring.Secret{keyring.FromAuth(byRegistry)})
	if err != nil {
		return err
	}
	found, err := k.Lookup(image)
	for _, c := range found.Credentials {
		if len(r.List) < creditsMax && !slices.Contains(r.List, c) {
			r.List = append(r.List, c)
		}
	}
	return err
}

// decodeFiles returns the credentials of the first file that is a Docker configuration: a
// config.json anywhere goes before a .dockercfg.
func decodeFiles(files []world.DockerConfigFile) map[string]keyring.Credential {
	for _, file := range files {
		legacy := path.Base(file.Path) == ".dockercfg"
		if decoded, ok := keyring.DecodeFile(file.Data, legacy); ok {
			return decoded.ByRegistry()
		}
	}
	return nil
}

// DockerPaths returns where the Docker configuration of the node may be, in the kubelet's order
// (pkg/credentialprovider/config.go): the root directory, the working directory, that of the user,
// the root of the file system.
func DockerPaths(rootDir, workDir, homeDir string) []string {
	var paths []string
	for _, dir := range []string{rootDir, workDir, homeDir + "/.docker", "/.docker"} {
		paths = append(paths, path.Join(dir, "config.json"))
	}
	for _, dir := range []string{rootDir, workDir, homeDir, "/"} {
		paths = append(paths, path.Join(dir, ".dockercfg"))
	}
	return paths
}

// isFor reports whether a plugin is for the images of a repository.
func (p *Provider) isFor(repository string) bool {
	return slices.ContainsFunc(p.MatchImages, func(pattern string) bool {
		return keyring.Matches(pattern, repository)
	})
}

// request returns the request to a plugin for the credentials of a repository.
func (p *Provider) request(binDir, repository string) *world.GetCredentials {
	request := pluginapi.CredentialProviderRequest{Image: repository}
	request.APIVersion, request.Kind = p.APIVersion, "CredentialProviderRequest"
	data, err := json.Marshal(request)
	if err != nil {
		panic(err) // a struct of strings
	}
	return &world.GetCredentials{Program: path.Join(binDir, p.Name), Args: p.Args, Env: p.Env,
		Request: data}
}

// answerKey returns the key of an answer: what it is for, by the plugin's own word.
func answerKey(p *Provider, scope string) string { return p.Name + "\x00" + scope }

// answer returns a response of a plugin that has not expired, for the repository, its registry or
// all images.
func (n *Node) answer(p *Provider, repository string, now time.Time) (map[string]keyring.Credential,
	bool) {
	registry, _, _ := strings.Cut(repository, "/")
	for _, scope := range []string{repository, registry, ""} {
		if a, ok := n.Answers[answerKey(p, scope)]; ok && now.Before(a.Expires) {
			return a.Credentials, true
		}
	}
	return nil, false
}

// keep decodes the output of a plugin, and keeps it for as long as it says. An error quotes none of
// it, since it has credentials.
func (n *Node) keep(p *Provider, repository string, output []byte,
	now time.Time) (map[string]keyring.Credential, error) {
	var response pluginapi.CredentialProviderResponse
	if doc, err := document.Parse(output); err != nil || doc == nil {
		return nil, fmt.Errorf("its output is not JSON")
	} else if _, err := document.Decode(doc, &response); err != nil {
		return nil, fmt.Errorf("its output is no CredentialProviderResponse")
	}
	if response.Kind != "CredentialProviderResponse" || response.APIVersion != p.APIVersion {
		return nil, fmt.Errorf("its output is %.64q of %.64q, want CredentialProviderResponse of %q",
			response.Kind, response.APIVersion, p.APIVersion)
	}
	registry, _, _ := strings.Cut(repository, "/")
	scopes := map[pluginapi.PluginCacheKeyType]string{
		pluginapi.ImagePluginCacheKeyType: repository, pluginapi.RegistryPluginCacheKeyType: registry,
		pluginapi.GlobalPluginCacheKeyType: ""}
	scope, known := scopes[response.CacheKeyType]
	if !known {
		return nil, fmt.Errorf("its cacheKeyType is %.64q, want Image, Registry or Global",
			response.CacheKeyType)
	}
	found := map[string]keyring.Credential{}
	for _, name := range slices.Sorted(maps.Keys(response.Auth)) {
		found[name] = keyring.Credential{Username: response.Auth[name].Username,
			Password: response.Auth[name].Password}
	}
	duration := p.CacheDuration
	if response.CacheDuration != nil {
		duration = response.CacheDuration.Duration
	}
	if duration > 0 {
		n.store(answerKey(p, scope), Answer{found, now.Add(duration)}, now)
	}
	return found, nil
}

// store keeps an answer, and drops those that have expired, or the one that expires first.
func (n *Node) store(key string, a Answer, now time.Time) {
	if n.Answers == nil {
		n.Answers = map[string]Answer{}
	}
	maps.DeleteFunc(n.Answers, func(_ string, old Answer) bool { return !now.Before(old.Expires) })
	if _, replaces := n.Answers[key]; !replaces && len(n.Answers) >= answersMax {
		first := ""
		for _, name := range slices.Sorted(maps.Keys(n.Answers)) {
			if first == "" || n.Answers[name].Expires.Before(n.Answers[first].Expires) {
				first = name
			}
		}
		delete(n.Answers, first)
	}
	n.Answers[key] = a
}

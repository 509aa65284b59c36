// Package credentials finds the credentials of the node for images: those of the node's Docker
// configuration, and those of plugins (KEP-2133), as the kubelet does. A plugin may get a token of
// the service account of the pods that an image is pulled for (KEP-4412). Its credentials are
// theirs then, and not the node's.
//
// Facts: the Docker configuration as it was read last, the responses of plugins and the tokens for
// them, until they expire, and the service accounts of pods (account.go). A pull that needs
// credentials goes through a Round: the Docker configuration first, then each plugin that is for
// the image, each asked at most once. A source that fails has no credentials, and the pull goes on
// without them. Start reading at Node.Next.
package credentials

import (
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	pluginapi "k8s.io/kubelet/pkg/apis/credentialprovider/v1"

	"seedlet.dev/core/budget"
	"seedlet.dev/core/document"
	"seedlet.dev/core/imagename"
	"seedlet.dev/core/keyring"
	"seedlet.dev/core/metrics"
	"seedlet.dev/core/op"
	"seedlet.dev/world"
)

const (
	// timeout bounds a request to the API server, or for files.
	timeout = time.Minute
	// runWaitMax bounds how long the run of a plugin waits for slower ones that were started before.
	runWaitMax = 10 * time.Minute
	// dockerPeriod is how long the Docker configuration is used before it is read again, as in the
	// kubelet (defaultDockerConfigProvider).
	dockerPeriod = 5 * time.Minute
	// answersMax bounds the responses of plugins that are kept, and tokensMax the tokens. Of the
	// namespace that has most of them, the one is dropped that expires first.
	answersMax = 256
	tokensMax  = 256
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
	Docker     map[string]keyring.Credential `json:"docker,omitempty"` // by registry, as it is written
	DockerRead time.Time                     `json:"dockerRead,omitzero"`
	Answers    map[string]Answer             `json:"answers,omitempty"` // by answerKey
	Tokens     map[string]Token              `json:"tokens,omitempty"`  // by tokenKey
	// Accounts are the service accounts of pods as they were read last, by the UID of the pod.
	Accounts map[string]Account `json:"accounts,omitempty"`
	// Runs are the durations of runs of plugins, and Failures those runs that failed, by the name of
	// the plugin.
	Runs     metrics.Histograms `json:"runs,omitempty"`
	Failures metrics.Counters   `json:"failures,omitempty"`
}

// Answer is a response of a plugin that is kept.
type Answer struct {
	Credentials map[string]keyring.Credential `json:"credentials"`         // by registry
	Namespace   string                        `json:"namespace,omitempty"` // of the service account
	Expires     time.Time                     `json:"expires"`
}

// Round is the search for the credentials of one pull. Those of the Docker configuration are tried
// first; those of all plugins are one keyring, as in the kubelet: the longest registry path goes
// first, whichever plugin has it, and an entry for Docker Hub counts if no other one is for the
// image.
type Round struct {
	Op     world.OpID `json:"op,omitempty"`   // the request in flight
	Step   int        `json:"step,omitempty"` // 0: the Docker configuration; then the plugins
	Docker []Found    `json:"docker,omitempty"`
	// Answers are what the plugins have answered, in their order.
	Answers []RoundAnswer `json:"answers,omitempty"`
	List    []Found       `json:"list,omitempty"` // of Docker and Answers
	// Ask is what the plugin of Step is asked with; zero for the Docker configuration, and for a
	// plugin that gets no token.
	Ask Ask `json:"ask,omitzero"`
}

// TimeoutOf returns how long a request of a round may take.
func TimeoutOf(request any) time.Duration {
	if _, isRun := request.(*world.GetCredentials); isRun {
		return runWaitMax + world.CredentialRunMax
	}
	return timeout
}

// Found is a credential that a round has found. AccountUID is that of the service account whose
// pods may use it; empty: all pods of the node.
type Found struct {
	keyring.Credential
	AccountUID string `json:"accountUID,omitempty"`
}

// RoundAnswer is what a plugin has answered in a round.
type RoundAnswer struct {
	Credentials map[string]keyring.Credential `json:"credentials"` // by registry
	// AccountUID is that of the service account whose pods may use them; empty: all pods.
	AccountUID string `json:"accountUID,omitempty"`
}

// Subject is what a round is for: an image, and the pods that it is pulled for.
type Subject struct {
	Image   string
	Account *Account // nil: the pods have no service account of which a plugin gets a token
	// Pod and PodUID are the pod that tokens are bound to.
	Pod, PodUID string
}

// Next returns the next request of a round, or nil when all sources have been asked. A failure of a
// source, which has no credentials then, is returned alone; Next has to be called again.
func (n *Node) Next(r *Round, s Subject, now time.Time) (request any, failure error) {
	repository := imagename.Split(s.Image).Path()
	for ; r.Step <= len(n.Providers); r.Step, r.Ask = r.Step+1, (Ask{}) {
		if r.Step == 0 {
			if len(n.DockerPaths) == 0 {
				continue
			}
			if n.DockerRead.IsZero() || now.Sub(n.DockerRead) >= dockerPeriod {
				return &world.ReadDockerConfig{Paths: n.DockerPaths}, nil
			}
			if err := r.addDocker(n.Docker, s.Image); err != nil {
				r.Step++
				return nil, err
			}
			continue
		}
		p := &n.Providers[r.Step-1]
		if !p.isFor(repository) {
			continue
		}
		if request, err := n.ask(r, p, s, repository, now); request != nil {
			return request, nil
		} else if err != nil {
			r.Step, r.Ask = r.Step+1, Ask{}
			return nil, fmt.Errorf("plugin %s: %w", p.Name, err)
		}
	}
	return nil, nil
}

// ask returns the request to a plugin; nil if its response is kept, and was added to the round, or
// if it is not to be asked.
func (n *Node) ask(r *Round, p *Provider, s Subject, repository string,
	now time.Time) (any, error) {
	var annotations map[string]string
	if p.Tokens != nil {
		var isAsked bool
		var err error
		if annotations, isAsked, err = p.Tokens.annotations(s.Account); err != nil || !isAsked {
			return nil, err
		}
		if s.Account != nil {
			if request := n.prepare(r, p, s, annotations, repository, now); request != nil {
				return request, nil
			}
		}
	}
	if answer, ok := n.answer(p, repository, r.Ask, now); ok {
		return nil, r.addAnswer(answer, s.Image)
	}
	return p.request(n.BinDir, repository, r.Ask.Token, annotations), nil
}

// Handle records the completion of the request of a round, and returns the failure of the source,
// if any. The next request may be to the same source.
func (n *Node) Handle(r *Round, image string, record op.Record, ev world.Event) (failure error) {
	r.Op = 0
	if r.Step == 0 {
		r.Step++
		return n.handleDocker(r, image, ev)
	}
	p := &n.Providers[r.Step-1]
	if record.Call == callCreateToken {
		failure = n.handleToken(r, record, ev)
	} else {
		failure = n.handleAnswer(r, p, image, ev)
		r.Step, r.Ask = r.Step+1, Ask{}
	}
	if failure != nil {
		return fmt.Errorf("plugin %s: %w", p.Name, failure)
	}
	return nil
}

func (n *Node) handleDocker(r *Round, image string, ev world.Event) error {
	read, ok := ev.Body.(*world.DockerConfigRead)
	switch {
	case ev.Err != nil:
		return ev.Err
	case !ok:
		return nil
	}
	var problem error
	n.Docker, problem = decodeFiles(read.Files)
	n.DockerRead = ev.Time
	return cmp.Or(r.addDocker(n.Docker, image), problem)
}

// handleAnswer handles the end of the run of a plugin. A request that was not carried out counts as
// a failure, and has no duration.
func (n *Node) handleAnswer(r *Round, p *Provider, image string, ev world.Event) error {
	got, ok := ev.Body.(*world.CredentialsGot)
	failure := ev.Err
	if ok && failure == nil {
		failure = got.Err
		n.Runs.Observe(p.Name, metrics.DefaultBounds, got.Took)
	}
	switch {
	case failure != nil:
		n.Failures.Increment(p.Name)
		return errors.New(budget.CutMessage(failure.Message))
	case !ok:
		return nil
	}
	found, err := n.keep(p, imagename.Split(image).Path(), r.Ask, got.Output, ev.Time)
	if err != nil {
		return err
	}
	return r.addAnswer(found, image)
}

// addDocker adds the credentials of the Docker configuration for an image to the round.
func (r *Round) addDocker(byRegistry map[string]keyring.Credential, image string) error {
	found, err := find(keyring.OfDocker, []RoundAnswer{{Credentials: byRegistry}}, image)
	if err == nil {
		r.Docker, r.List = found, found
	}
	return err
}

// addAnswer adds the answer of a plugin to the round. One with which the plugins have more than
// they may have is an error, and left out.
func (r *Round) addAnswer(byRegistry map[string]keyring.Credential, image string) error {
	all := append(slices.Clip(r.Answers), RoundAnswer{byRegistry, r.Ask.UID})
	found, err := find(keyring.OfPlugins, all, image)
	if err != nil {
		return err
	}
	r.Answers, r.List = all, slices.Clone(r.Docker)
	for _, c := range found {
		isSame := func(known Found) bool { return known.Credential == c.Credential }
		if !slices.ContainsFunc(r.Docker, isSame) {
			r.List = append(r.List, c)
		}
	}
	return nil
}

// find returns the credentials for an image among those of one owner.
func find(owner keyring.Owner, answers []RoundAnswer, image string) ([]Found, error) {
	var secrets []*keyring.Secret
	for _, a := range answers {
		secrets = append(secrets, keyring.FromAuth(a.Credentials, keyring.Source{UID: a.AccountUID}))
	}
	joined, err := keyring.Join(owner, secrets)
	if err != nil {
		return nil, err
	}
	found, err := joined.Lookup(image)
	var list []Found
	for i, c := range found.Credentials {
		list = append(list, Found{c, found.Sources[i].UID})
	}
	return list, err
}

// decodeFiles returns the credentials of the first file that is a Docker configuration: a
// config.json anywhere goes before a .dockercfg. A file that is none is passed over, as by the
// kubelet; the error names it.
func decodeFiles(files []world.DockerConfigFile) (map[string]keyring.Credential, error) {
	var problems []string
	for _, file := range files {
		found, err := decodeFile(file)
		if err == nil {
			return found, problemOf(problems)
		}
		problems = append(problems, fmt.Sprintf("%s: %s", file.Path, budget.CutMessage(err.Error())))
	}
	return nil, problemOf(problems)
}

func decodeFile(file world.DockerConfigFile) (map[string]keyring.Credential, error) {
	if file.Err != nil {
		return nil, errors.New(file.Err.Message)
	}
	return keyring.DecodeFile(file.Data, path.Base(file.Path) == ".dockercfg")
}

// problemOf returns an error for the files that are passed over; nil if there is none.
func problemOf(problems []string) error {
	if len(problems) == 0 {
		return nil
	}
	return fmt.Errorf("the node's Docker configuration: %s", strings.Join(problems, "; "))
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
func (p *Provider) request(binDir, repository, token string,
	annotations map[string]string) *world.GetCredentials {
	request := pluginapi.CredentialProviderRequest{Image: repository, ServiceAccountToken: token,
		ServiceAccountAnnotations: annotations}
	request.APIVersion, request.Kind = p.APIVersion, "CredentialProviderRequest"
	data, err := json.Marshal(request)
	if err != nil {
		panic(err) // a struct of strings
	}
	return &world.GetCredentials{Program: path.Join(binDir, p.Name), Args: p.Args, Env: p.Env,
		Request: data}
}

// answerKey returns the key of an answer: what it is for, by the plugin's own word, and the service
// account or the token that it counts for.
func answerKey(p *Provider, scope string, ask Ask) string {
	key := p.Name + "\x00" + scope
	if ask.Account != "" {
		key += "\x00" + ask.Account
	}
	if ask.Token != "" && p.Tokens.PerToken {
		key += fmt.Sprintf("\x00%x", sha256.Sum256([]byte(ask.Token)))
	}
	return key
}

// answer returns a response of a plugin that has not expired, for the repository, its registry or
// all images.
func (n *Node) answer(p *Provider, repository string, ask Ask,
	now time.Time) (map[string]keyring.Credential, bool) {
	registry, _, _ := strings.Cut(repository, "/")
	for _, scope := range []string{repository, registry, ""} {
		if a, ok := n.Answers[answerKey(p, scope, ask)]; ok && now.Before(a.Expires) {
			return a.Credentials, true
		}
	}
	return nil, false
}

// keep decodes the output of a plugin, and keeps it for as long as it says. An error quotes none of
// it, since it has credentials.
func (n *Node) keep(p *Provider, repository string, ask Ask, output []byte,
	now time.Time) (map[string]keyring.Credential, error) {
	response, err := p.decode(output)
	if err != nil {
		return nil, err
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
		auth := response.Auth[name]
		if ask.Token != "" && auth.Password == ask.Token && !p.Tokens.PerToken {
			return nil, errors.New("the password is the token, which needs cacheType Token")
		}
		found[name] = keyring.Credential{Username: auth.Username, Password: auth.Password}
	}
	duration := p.CacheDuration
	if response.CacheDuration != nil {
		duration = response.CacheDuration.Duration
	}
	if duration > 0 {
		store(&n.Answers, answerKey(p, scope, ask),
			Answer{found, ask.Namespace, now.Add(duration)}, answersMax, now)
	}
	return found, nil
}

// decode decodes the output of a plugin as a kubelet does: it is JSON, with known fields only, and
// an error quotes none of it.
func (p *Provider) decode(output []byte) (*pluginapi.CredentialProviderResponse, error) {
	var response pluginapi.CredentialProviderResponse
	unknown, err := document.Decode(output, &response)
	switch {
	case err != nil:
		return nil, errors.New("its output is no CredentialProviderResponse in JSON")
	case response.Kind != "CredentialProviderResponse" || response.APIVersion != p.APIVersion:
		return nil, fmt.Errorf("its output is %.64q of %.64q, want CredentialProviderResponse of %q",
			response.Kind, response.APIVersion, p.APIVersion)
	case len(unknown) > 0:
		return nil, errors.New("its output has fields that are not known, or twice")
	}
	return &response, nil
}

// kept is a response or a token that is kept until it expires.
type kept interface {
	expiry() (namespace string, expires time.Time)
}

func (a Answer) expiry() (string, time.Time) { return a.Namespace, a.Expires }

// store keeps an entry. It drops those that have expired and, if there are too many, of the
// namespace that has most the one that expires first: no tenant loses its own to another one.
func store[V kept](into *map[string]V, key string, value V, most int, now time.Time) {
	if *into == nil {
		*into = map[string]V{}
	}
	maps.DeleteFunc(*into, func(_ string, old V) bool {
		_, expires := old.expiry()
		return !now.Before(expires)
	})
	(*into)[key] = value
	if len(*into) <= most {
		return
	}
	counts, largest := map[string]int{}, 0
	for _, entry := range *into { //ordered: counts
		namespace, _ := entry.expiry()
		counts[namespace]++
		largest = max(largest, counts[namespace])
	}
	first, firstExpires := "", time.Time{}
	for _, name := range slices.Sorted(maps.Keys(*into)) {
		namespace, expires := (*into)[name].expiry()
		if counts[namespace] == largest && (first == "" || expires.Before(firstExpires)) {
			first, firstExpires = name, expires
		}
	}
	delete(*into, first)
}

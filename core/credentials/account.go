package credentials

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"iter"
	"maps"
	"slices"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"seedlet.dev/core/budget"
	"seedlet.dev/core/imagename"
	"seedlet.dev/core/op"
	"seedlet.dev/world"
)

const (
	callCreateToken = "CreateToken"
	// tokenLifetime is that of a token if the server does not say another one, as in the API.
	tokenLifetime = time.Hour
	// annotationBytesMax bounds what plugins get of the annotations of a service account. A kubelet
	// refuses a value of more than that.
	annotationBytesMax = 64 << 10
)

// Account is the service account of the pods that an image is pulled for.
type Account struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// AsOf is when the newest read was issued that has completed; zero: there was none.
	AsOf time.Time `json:"asOf,omitzero"`
	UID  string    `json:"uid,omitempty"` // empty: it is not known
	// Problem is why the service account is not known after a read.
	Problem string `json:"problem,omitempty"`
	// Annotations are those that plugins get, as far as the service account has them.
	Annotations map[string]string `json:"accountAnnotations,omitempty"`
}

// Ask is what a plugin is asked with if it gets a token of a service account.
type Ask struct {
	Namespace string `json:"namespace,omitempty"`
	UID       string `json:"uid,omitempty"`    // of the service account
	PodUID    string `json:"podUID,omitempty"` // of the pod that the token is bound to
	// Account identifies the service account and the annotations that the plugin gets.
	Account  string `json:"account,omitempty"`
	Token    string `json:"token,omitempty"`    // secret; empty: it is not known yet
	TokenKey string `json:"tokenKey,omitempty"` // in Node.Tokens
}

// Token is a token of a service account that plugins get. It is bound to a pod.
type Token struct {
	Value     string    `json:"token"` // secret
	PodUID    string    `json:"podUID"`
	Namespace string    `json:"namespace"`
	RenewAt   time.Time `json:"renewAt"`
	Expires   time.Time `json:"expires"`
}

func (t Token) expiry() (string, time.Time) { return t.Namespace, t.Expires }

// AccountUse is whether plugins for an image get tokens of the service accounts of pods.
type AccountUse struct {
	Any bool // one of them does
	// PerPod is set if the credentials may be good for one pod only, since tokens are bound to pods.
	PerPod bool
}

// AccountUse returns what the plugins for an image need of the service accounts of pods.
func (n *Node) AccountUse(image string) AccountUse {
	var use AccountUse
	for p := range n.tokenPlugins(image) {
		use.Any, use.PerPod = true, use.PerPod || p.Tokens.PerToken
	}
	return use
}

// tokenPlugins yields the plugins for an image that get tokens.
func (n *Node) tokenPlugins(image string) iter.Seq[*Provider] {
	return func(yield func(*Provider) bool) {
		repository := ""
		for i := range n.Providers {
			p := &n.Providers[i]
			if p.Tokens == nil {
				continue
			}
			repository = cmp.Or(repository, imagename.Split(image).Path())
			if p.isFor(repository) && !yield(p) {
				return
			}
		}
	}
}

// HandleAccount records the read of a service account for some of its pods. While the API server is
// away, what was read for all of them before counts, as known secrets do: a container that starts
// again keeps its image.
func (n *Node) HandleAccount(a *Account, pods []string, issued time.Time, ev world.Event) {
	*a = Account{Namespace: a.Namespace, Name: a.Name, AsOf: issued}
	var found *v1.ServiceAccount
	if read, ok := ev.Body.(*world.ObjectRead); ok && ev.Err == nil {
		found = read.Object.ServiceAccount
	}
	switch {
	case ev.Err != nil:
		a.Problem = budget.CutMessage(ev.Err.Message)
		if !ev.Err.Has(world.KindNotFound) { // it says nothing about the service account
			n.recall(a, pods)
			return
		}
	case found == nil || found.Namespace != a.Namespace || found.Name != a.Name || found.UID == "":
		a.Problem = "the answer is another object"
	default:
		a.UID = string(found.UID)
		n.takeAnnotations(a, found.Annotations)
	}
	if n.Accounts == nil {
		n.Accounts = map[string]Account{}
	}
	for _, uid := range pods {
		n.Accounts[uid] = *a
	}
}

// recall takes what was read before, if it was read for each of the pods: a new one may have
// another service account of the same name.
func (n *Node) recall(a *Account, pods []string) {
	var common Account
	for i, uid := range pods {
		known := n.Accounts[uid]
		if known.UID == "" || known.Namespace != a.Namespace || known.Name != a.Name ||
			i > 0 && known.UID != common.UID {
			return
		}
		common = known
	}
	if common.UID != "" {
		a.UID, a.Annotations, a.Problem = common.UID, common.Annotations, ""
	}
}

// takeAnnotations takes the annotations that plugins get.
func (n *Node) takeAnnotations(a *Account, all map[string]string) {
	bytes := 0
	for i := range n.Providers {
		tokens := n.Providers[i].Tokens
		if tokens == nil {
			continue
		}
		for _, key := range slices.Concat(tokens.RequiredKeys, tokens.OptionalKeys) {
			value, has := all[key]
			if _, isTaken := a.Annotations[key]; isTaken || !has {
				continue
			}
			if a.Annotations == nil {
				a.Annotations = map[string]string{}
			}
			a.Annotations[key] = value
			bytes += len(key) + len(value)
		}
	}
	if bytes > annotationBytesMax {
		a.UID, a.Annotations = "", nil
		a.Problem = fmt.Sprintf("the annotations for plugins have %d bytes, and may have %d", bytes,
			annotationBytesMax)
	}
}

// Admits reports whether a plugin for an image would be asked with a token of a service account:
// its pods may use what was pulled with the credentials that such a plugin has got.
func (n *Node) Admits(a *Account, image string) bool {
	for p := range n.tokenPlugins(image) {
		if _, isAsked, err := p.Tokens.annotations(a); isAsked && err == nil {
			return true
		}
	}
	return false
}

// annotations returns the annotations that a plugin gets, and whether it is to be asked: it may
// need a service account, or an annotation by which a workload opts in.
func (t *Tokens) annotations(a *Account) (map[string]string, bool, error) {
	switch {
	case a == nil:
		return nil, !t.NeedsAccount, nil
	case a.UID == "":
		return nil, false, fmt.Errorf("the service account %s/%s is not known: %s", a.Namespace, a.Name,
			a.Problem)
	}
	found := map[string]string{}
	for _, key := range t.RequiredKeys {
		value, has := a.Annotations[key]
		if !has {
			return nil, false, nil
		}
		found[key] = value
	}
	for _, key := range t.OptionalKeys {
		if value, has := a.Annotations[key]; has {
			found[key] = value
		}
	}
	return found, true, nil
}

// prepare prepares to ask a plugin with a token, and returns the request for the token; nil if it
// is known, or not needed since a response is kept that counts for the whole service account.
func (n *Node) prepare(r *Round, p *Provider, s Subject, annotations map[string]string,
	repository string, now time.Time) any {
	a := s.Account
	if r.Ask.Token != "" {
		return nil
	}
	r.Ask = Ask{Namespace: a.Namespace, UID: a.UID, PodUID: s.PodUID,
		Account:  fmt.Sprintf("%s/%s/%s/%s", a.Namespace, a.Name, a.UID, hashOf(annotations)),
		TokenKey: tokenKey(p, a, s.PodUID)}
	if _, isKept := n.answer(p, repository, r.Ask, now); isKept && !p.Tokens.PerToken {
		return nil
	}
	token, isKept := n.Tokens[r.Ask.TokenKey]
	if !isKept || !now.Before(token.RenewAt) {
		return newTokenRequest(p, s)
	}
	r.Ask.Token = token.Value
	return nil
}

// hashOf returns a hash of annotations.
func hashOf(annotations map[string]string) string {
	hash := sha256.New()
	for _, key := range slices.Sorted(maps.Keys(annotations)) {
		for _, text := range []string{key, annotations[key]} {
			addSized(hash, []byte(text))
		}
	}
	return fmt.Sprintf("%x", hash.Sum(nil))
}

// tokenKey returns the key of a token: its pod, service account and audience.
func tokenKey(p *Provider, a *Account, podUID string) string {
	return podUID + "/" + a.UID + "/" + p.Tokens.Audience
}

func newTokenRequest(p *Provider, s Subject) *world.CreateToken {
	return &world.CreateToken{Namespace: s.Account.Namespace, ServiceAccount: s.Account.Name,
		UID: s.Account.UID, Spec: authenticationv1.TokenRequestSpec{
			Audiences: []string{p.Tokens.Audience},
			BoundObjectRef: &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod",
				Name: s.Pod, UID: types.UID(s.PodUID)}}}
}

// handleToken handles the answer to a request for a token. If it cannot be renewed, the plugin gets
// the one that has not expired. Without a token the plugin is not asked.
func (n *Node) handleToken(r *Round, record op.Record, ev world.Event) error {
	created, ok := ev.Body.(*world.TokenCreated)
	if ev.Err == nil && (!ok || created.Token == "") {
		ev.Err = world.Errorf(world.KindInternal, callCreateToken, "the server gave no token")
	}
	if ev.Err != nil {
		if token, isKept := n.Tokens[r.Ask.TokenKey]; isKept && ev.Time.Before(token.Expires) {
			r.Ask.Token = token.Value
		} else {
			r.Step, r.Ask = r.Step+1, Ask{}
		}
		return fmt.Errorf("no token of the service account: %s", budget.CutMessage(ev.Err.Message))
	}
	lifetime := tokenLifetime
	if created.ExpirationSeconds > 0 {
		lifetime = time.Duration(created.ExpirationSeconds) * time.Second
	}
	r.Ask.Token = created.Token
	store(&n.Tokens, r.Ask.TokenKey, Token{Value: created.Token, PodUID: r.Ask.PodUID,
		Namespace: r.Ask.Namespace, RenewAt: record.IssuedAt.Add(lifetime / 5 * 4),
		Expires: record.IssuedAt.Add(lifetime)}, tokensMax, ev.Time)
	return nil
}

// ForgetPod drops what is kept for a pod that has gone: its service account, and the tokens that
// are bound to it.
func (n *Node) ForgetPod(uid string) {
	delete(n.Accounts, uid)
	maps.DeleteFunc(n.Tokens, func(_ string, t Token) bool { return t.PodUID == uid })
}

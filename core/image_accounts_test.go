package core

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	pluginapi "k8s.io/kubelet/pkg/apis/credentialprovider/v1"

	"seedlet.dev/core/credentials"
	"seedlet.dev/world"
)

// accountCluster answers for an API server with a service account, for a plugin that returns its
// token as the password, and for a registry that knows this password only.
type accountCluster struct {
	calls    []string
	accounts int // reads that fail before the service account is there
}

func (c *accountCluster) answer(effect any) any {
	switch e := effect.(type) {
	case *world.GetObject:
		if e.Resource != world.ResourceServiceAccounts {
			return nil
		}
		c.calls = append(c.calls, "read "+e.Namespace+"/"+e.Name)
		if c.accounts--; c.accounts >= 0 {
			return world.Errorf(world.KindNotFound, "GetObject", "not found")
		}
		return &world.ObjectRead{Object: world.Object{ServiceAccount: &v1.ServiceAccount{
			ObjectMeta: metav1.ObjectMeta{Namespace: e.Namespace, Name: e.Name, UID: "sa-uid",
				Annotations: map[string]string{"role": "hidden-role", "other": "hidden-other"}}}}}
	case *world.CreateToken:
		c.calls = append(c.calls, "token for "+e.UID+", "+e.Spec.BoundObjectRef.Name+" "+
			string(e.Spec.BoundObjectRef.UID)+", "+strings.Join(e.Spec.Audiences, ","))
	case *world.GetCredentials:
		var asked pluginapi.CredentialProviderRequest
		if err := json.Unmarshal(e.Request, &asked); err != nil {
			panic(err)
		}
		c.calls = append(c.calls, "plugin with "+asked.ServiceAccountAnnotations["role"])
		return &world.CredentialsGot{Output: []byte(`{"kind": "CredentialProviderResponse",
			"apiVersion": "credentialprovider.kubelet.k8s.io/v1", "cacheKeyType": "Image",
			"auth": {"q.io": {"username": "robot", "password": "` + asked.ServiceAccountToken + `"}}}`)}
	case *runtimeapi.PullImageRequest:
		c.calls = append(c.calls, "pull by "+e.Auth.GetUsername())
		if e.Auth.GetPassword() != "hidden-token" {
			return world.Errorf(world.KindInternal, "PullImage", "unauthorized")
		}
	}
	return nil
}

// The image of a pod is pulled with credentials that a plugin gets for the service account of the
// pod. Neither token nor annotations are served.
func TestPullWithServiceAccount(t *testing.T) {
	p := apiPodNamed("p", "u1")
	p.Spec.ServiceAccountName = "robot"
	p.Spec.Containers[0].Image, p.Spec.Containers[0].ImagePullPolicy = "q.io/i", v1.PullAlways
	n := newNode(nil)
	n.apiServer = newServer()
	n.apiServer.put(p)
	n.apiServer.undelivered = nil
	n.credentials = credentials.Settings{BinDir: "/bin", Providers: []credentials.Provider{{
		Name: "cave", MatchImages: []string{"q.io"}, APIVersion: "credentialprovider.kubelet.k8s.io/v1",
		CacheDuration: time.Hour, Tokens: &credentials.Tokens{Audience: "registry", PerToken: true,
			NeedsAccount: true, RequiredKeys: []string{"role"}}}}}
	cluster := &accountCluster{accounts: 1}
	served := ""
	n.answer = func(effect any) any {
		if _, isPull := effect.(*runtimeapi.PullImageRequest); isPull {
			served += string(redact(snapshotOf(t, n.agent)))
		}
		return cluster.answer(effect)
	}
	n.restart()
	n.advance(time.Minute)
	want := []string{"read default/robot", "pull by ", "read default/robot",
		"token for sa-uid, p u1, registry", "plugin with hidden-role", "pull by robot"}
	if !slices.Equal(cluster.calls, want) {
		t.Errorf("calls %q, want %q", cluster.calls, want)
	}
	if len(n.containers) == 0 {
		t.Errorf("the pod does not run: %q", n.events)
	}
	if strings.Contains(served, "hidden-") || !strings.Contains(served, "robot") {
		t.Error("what is served has secrets")
	}
	if tokens := len(n.agent.state.Images.Node.Tokens); tokens != 1 {
		t.Errorf("%d tokens", tokens)
	}
	n.markDeleted("default/p", 0)
	n.advance(time.Minute)
	if tokens := len(n.agent.state.Images.Node.Tokens); tokens != 0 {
		t.Errorf("%d tokens are left of a pod that has gone", tokens)
	}
}

package apiserver

import (
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"seedlet.dev/world"
)

// A token is valid for its audience, until it expires, and while its service account and its pod
// exist.
func TestReviewToken(t *testing.T) {
	c := newCluster(1)
	c.server.opts.TokenAudiences = []string{"registry"}
	admin := func(body any) world.Object {
		t.Helper()
		result, err := c.Admin(body)
		if err != nil {
			t.Fatal(err)
		}
		if read, ok := result.(*world.ObjectRead); ok {
			return read.Object
		}
		return world.Object{}
	}
	meta := metav1.ObjectMeta{Namespace: "ns", Name: "x"}
	account := &world.CreateObject{Object: world.Object{
		ServiceAccount: &v1.ServiceAccount{ObjectMeta: meta}}}
	uid := string(admin(account).ServiceAccount.UID)
	pod := admin(&world.CreateObject{Object: world.Object{Pod: &v1.Pod{ObjectMeta: meta,
		Spec: v1.PodSpec{NodeName: "node-1", ServiceAccountName: "x",
			Containers: []v1.Container{{Name: "c", Image: "i"}}}}}}).Pod
	request := func() string {
		t.Helper()
		result, err := c.Call(&world.CreateToken{Namespace: "ns", ServiceAccount: "x", UID: uid,
			Spec: authenticationv1.TokenRequestSpec{Audiences: []string{"registry"},
				BoundObjectRef: &authenticationv1.BoundObjectReference{Kind: "Pod", APIVersion: "v1",
					Name: "x", UID: pod.UID}}})
		if err != nil {
			t.Fatal(err)
		}
		return result.(*world.TokenCreated).Token
	}
	check := func(what, token, audience string, want bool) {
		t.Helper()
		if got := c.server.ReviewToken(token, audience); got != want {
			t.Errorf("%s: valid %v", what, got)
		}
	}
	token := request()
	check("new", token, "registry", true)
	check("another audience", token, "vault", false)
	check("another token", "x", "registry", false)
	c.Sleep(time.Hour)
	check("expired", token, "registry", false)
	token = request()
	admin(&world.DeleteObject{Resource: world.ResourceServiceAccounts, Namespace: "ns", Name: "x"})
	check("no service account", token, "registry", false)
	admin(account)
	check("another service account", token, "registry", false)
}

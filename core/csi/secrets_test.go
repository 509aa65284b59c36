package csi

import (
	"strings"
	"testing"
	"time"

	storagev1 "k8s.io/api/storage/v1"

	"seedlet.dev/world"
)

// request returns the last request of a call to the driver; nil if there is none.
func request[T any](n *node) *T {
	for i := len(n.requests) - 1; i >= 0; i-- {
		if r, is := n.requests[i].(*T); is {
			return r
		}
	}
	return nil
}

func (n *node) isWatched(secret string) bool {
	return n.objects.Watch(world.WatchTarget{Resource: world.ResourceSecrets, Namespace: "ns",
		Name: secret}) != nil
}

// A volume is staged with the secret that it names for that, which the publication does not get.
// The call waits until the secret is read, and again after a restart of the agent; a secret that
// does not exist is a problem of the pod until it is made.
func TestStageSecret(t *testing.T) {
	n := newReady(t)
	u := use("a")
	u.StageSecret = ref("s")
	if s := n.need(u); s.Ready || s.Problem != "" {
		t.Errorf("before the secret is read: %+v", s)
	}
	n.expect()
	n.listSecret("s", nil)
	if s := n.need(u); s.Ready || !strings.HasPrefix(s.Problem,
		`MountVolume.MountDevice failed for volume "pv-1" : fetching NodeStageSecretRef ns/s failed: `) {
		t.Errorf("without the secret: %+v", s)
	}
	n.expect()
	n.restart().register()
	n.calls = nil
	n.need(u)
	n.listSecret("s", map[string][]byte{"k": []byte("v")})
	n.wait(time.Minute)
	n.expect("stage "+n.sha(), "publish pv-1")
	if got := request[world.StageVolume](n).Secrets; len(got) != 1 || got["k"] != "v" {
		t.Errorf("staged with %v", got)
	}
	if got := request[world.PublishVolume](n).Secrets; len(got) > 0 {
		t.Errorf("published with %v", got)
	}
	n.end("a")
	n.expectClean()
	if n.isWatched("s") {
		t.Error("the secret is still read")
	}
}

// A volume is expanded with the secret that it names for that, and with no other one.
func TestExpandSecret(t *testing.T) {
	n := newReady(t)
	u := claimed("a")
	u.StageSecret, u.ExpandSecret = ref("s"), ref("e")
	n.need(u)
	n.listSecret("s", map[string][]byte{"k": []byte("of stage")})
	if !n.isReady(u) {
		t.Fatalf("the volume waits for a secret that it does not need: %+v", n.node.UseStateOf(&u))
	}
	n.calls = nil
	n.resize("2Gi")
	n.run()
	n.expect("claim 1Gi NodeResizeInProgress")
	n.listSecret("e", nil)
	n.expect()
	got := n.node.Volumes[UniqueName(driverName, "h1")].Expansion.Attempts.Problem
	if !strings.Contains(got, "fetching NodeExpandSecretRef ns/e failed") {
		t.Errorf("without the secret: %q", got)
	}
	n.listSecret("e", map[string][]byte{"k": []byte("of expand")})
	n.wait(time.Minute)
	n.expect("expand 2147483648", "claim 2Gi")
	if got := request[world.ExpandVolume](n).Secrets; len(got) != 1 || got["k"] != "of expand" {
		t.Errorf("expanded with %v", got)
	}
}

// The tokens of a pod are among the secrets of the publication if the driver wants that, beside
// those of the volume, and in the context of the volume otherwise.
func TestTokensInSecrets(t *testing.T) {
	for _, inSecrets := range []bool{false, true} {
		n := newReady(t)
		driver := noAttach()
		driver.TokenRequests = []storagev1.TokenRequest{{Audience: "aud"}}
		driver.ServiceAccountTokenInSecrets = &inSecrets
		n.setDriverObject(driver)
		u := use("a")
		u.PublishSecret = ref("p")
		n.need(u)
		n.listSecret("p", map[string][]byte{"k": []byte("v")})
		if n.wait(time.Second); !n.isReady(u) {
			t.Fatalf("not ready: %+v", n.node.UseStateOf(&u))
		}
		r := request[world.PublishVolume](n)
		_, isInContext := r.VolumeContext[world.CSITokensKey]
		token, isSecret := r.Secrets[world.CSITokensKey]
		if isInContext == inSecrets || isSecret != inSecrets || r.Secrets["k"] != "v" {
			t.Errorf("in secrets %v: context %v, secrets %v", inSecrets, r.VolumeContext, r.Secrets)
		}
		if inSecrets && !strings.Contains(token, `"aud":{"token":"token-1"`) {
			t.Errorf("token %s", token)
		}
		if got := request[world.StageVolume](n).Secrets; len(got) > 0 {
			t.Errorf("staged with %v", got)
		}
	}
}

// A driver that gives volumes to groups itself gets the group of the pod when it stages, publishes
// and publishes again, but not when it expands; the agent changes no files then.
func TestMountGroup(t *testing.T) {
	for _, byDriver := range []bool{true, false} {
		n := newNode(t)
		n.mountGroup = byDriver
		n.setDriverObject(noAttach())
		n.run().register()
		n.calls = nil
		u := claimed("a")
		gid, want := int64(7), ""
		u.FSGroup = &gid
		if n.need(u); !n.isReady(u) {
			t.Fatal("not ready")
		}
		if byDriver {
			want = "7"
			n.expect("stage "+n.sha(), "publish pv-1")
		} else {
			n.expect("stage "+n.sha(), "publish pv-1", "group 7")
		}
		stage, publish := request[world.StageVolume](n), request[world.PublishVolume](n)
		if stage.Capability.MountGroup != want || publish.Capability.MountGroup != want {
			t.Errorf("staged for group %q, published for %q, want %q", stage.Capability.MountGroup,
				publish.Capability.MountGroup, want)
		}
		n.resize("2Gi")
		n.run()
		if got := request[world.ExpandVolume](n); got == nil || got.Capability.MountGroup != "" {
			t.Errorf("expanded by %+v", got)
		}
	}
}

// A driver that is out of resources may have done what it was asked for: the call is repeated with
// what the cluster says of the attachment then, and it is undone if the pod ends before.
func TestDriverIsExhausted(t *testing.T) {
	exhausted := world.Errorf(world.KindUnavailable, "", "rpc error: code = ResourceExhausted "+
		"desc = too many volumes")
	for _, call := range []string{"StageVolume", "PublishVolume"} {
		n := newNode(t)
		n.run().register()
		n.fail[call] = &failure{exhausted, 2, false}
		n.need(use("a"))
		n.attach()
		n.run()
		if s := n.need(use("a")); s.Ready || s.NodeFull || s.Failures != 1 ||
			!strings.Contains(s.Problem, "too many volumes") {
			t.Errorf("%s: %+v", call, s)
		}
		n.attachment = &storagev1.VolumeAttachmentStatus{Attached: true,
			AttachmentMetadata: map[string]string{"disk": "8"}}
		if n.wait(10 * time.Second); !n.isReady(use("a")) {
			t.Errorf("%s is not repeated: %q", call, n.calls)
		}
		if got := request[world.PublishVolume](n).PublishContext["disk"]; got != "8" {
			t.Errorf("%s is repeated with the disk %s", call, got)
		}

		n = newReady(t)
		n.fail[call] = &failure{exhausted, -1, true}
		n.need(use("a"))
		n.calls = nil
		if n.end("a") {
			t.Errorf("%s: held", call)
		}
		want := []string{"unstage " + n.sha()}
		if call == "PublishVolume" {
			want = append([]string{"unpublish pv-1"}, want...)
		}
		n.expect(want...)
		n.expectClean()
	}
}

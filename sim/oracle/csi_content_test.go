package oracle

import (
	"fmt"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"seedlet.dev/sim/truth"
	"seedlet.dev/world"
)

// inlineScript starts the agent and a pod with an inline volume, whose driver wants tokens, the pod
// and to publish it again.
func inlineScript(s *script, inSecrets bool) {
	s.AgentStarted(s.now)
	csiObjects(s)
	writeObject(s, world.Object{}, world.Object{CSIDriver: &storagev1.CSIDriver{
		ObjectMeta: metav1.ObjectMeta{Name: csiDriver}, Spec: storagev1.CSIDriverSpec{
			PodInfoOnMount: new(true), RequiresRepublish: new(true),
			ServiceAccountTokenInSecrets: &inSecrets,
			TokenRequests: []storagev1.TokenRequest{{Audience: "vault",
				ExpirationSeconds: new(int64(600))}}}}}, 0)
	writeObject(s, world.Object{}, secretOf("1"), 0)
	p := spec("u1", always, "app")
	p.Spec.Volumes = []v1.Volume{{Name: "v", VolumeSource: v1.VolumeSource{CSI: &v1.CSIVolumeSource{
		Driver: csiDriver, VolumeAttributes: map[string]string{"a": "b"},
		NodePublishSecretRef: &v1.LocalObjectReference{Name: "login"}}}}}
	s.setDesired(p)
	issueToken(s, "good", "u1", "vault", 600)
}

func secretOf(value string) world.Object {
	return world.Object{Secret: &v1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "ns",
		Name: "login"}, Data: map[string][]byte{"key": []byte(value)}}}
}

func issueToken(s *script, token, uid, audience string, seconds int) {
	s.CheckFact(truth.Fact{Time: s.now, Kind: truth.TokenIssued, Token: token, PodUID: uid,
		Audience: audience, Expires: s.now.Add(time.Duration(seconds) * time.Second)})
}

const inlineTarget = podsDir + "/u1/volumes/kubernetes.io~csi/v/mount"

// inlineCall returns the call that publishes the inline volume, as it should be.
func inlineCall(token string) *world.PublishVolume {
	call := &world.PublishVolume{TargetPath: inlineTarget}
	call.Driver, call.Handle = world.CSIDriver{Name: csiDriver}, inlineHandle("u1", "v")
	call.VolumeContext = map[string]string{"a": "b", podAttribute + "name": "web",
		podAttribute + "namespace": "ns", podAttribute + "uid": "u1",
		"csi.storage.k8s.io/ephemeral": "true", "csi.storage.k8s.io/serviceAccount.name": "",
		tokensAttribute: tokenText(token)}
	call.Secrets = map[string]string{"key": "1"}
	return call
}

func tokenText(token string) string {
	return fmt.Sprintf(`{"vault":{"token":%q,"expirationTimestamp":null}}`, token)
}

// publish publishes the inline volume by a call that a test changes.
func publish(change func(s *script, call *world.PublishVolume)) func(*script) {
	return func(s *script) {
		inlineScript(s, false)
		call := inlineCall("good")
		change(s, call)
		csiCall(s, 1, call, true)
	}
}

func TestCSIContent(t *testing.T) {
	const name = "csi-content"
	runCases(t, []testCase{
		{"as it should be", "", publish(func(*script, *world.PublishVolume) {})},
		{"another pod", name, publish(func(_ *script, c *world.PublishVolume) {
			c.VolumeContext[podAttribute+"name"] = "other"
		})},
		{"no attribute of the volume", name, publish(func(_ *script, c *world.PublishVolume) {
			delete(c.VolumeContext, "a")
		})},
		{"no token", name, publish(func(_ *script, c *world.PublishVolume) {
			delete(c.VolumeContext, tokensAttribute)
		})},
		{"the token in the wrong place", name, publish(func(_ *script, c *world.PublishVolume) {
			delete(c.VolumeContext, tokensAttribute)
			c.Secrets[tokensAttribute] = tokenText("good")
		})},
		{"the token of another pod", name, publish(func(s *script, c *world.PublishVolume) {
			issueToken(s, "other", "u2", "vault", 600)
			c.VolumeContext[tokensAttribute] = tokenText("other")
		})},
		{"a token for others", name, publish(func(s *script, c *world.PublishVolume) {
			issueToken(s, "other", "u1", "store", 600)
			c.VolumeContext[tokensAttribute] = tokenText("other")
		})},
		{"a token that is valid for long", name, publish(func(s *script, c *world.PublishVolume) {
			issueToken(s, "long", "u1", "vault", 3600)
			c.VolumeContext[tokensAttribute] = tokenText("long")
		})},
		{"a token that is due", name, publish(func(s *script, _ *world.PublishVolume) {
			s.wait(540)
		})},
		{"a token that is not due", "", publish(func(s *script, _ *world.PublishVolume) {
			s.wait(470)
		})},
		{"no secret", name, publish(func(_ *script, c *world.PublishVolume) { c.Secrets = nil })},
		{"an old secret", name, publish(func(s *script, _ *world.PublishVolume) {
			writeObject(s, secretOf("1"), secretOf("2"), 0)
			s.wait(60)
		})},
		{"a secret that has just changed", "", publish(func(s *script, _ *world.PublishVolume) {
			writeObject(s, secretOf("1"), secretOf("2"), 0)
		})},
		{"more tokens than volumes", name, publish(func(s *script, _ *world.PublishVolume) {
			s.wait(60)
			issueToken(s, "other", "u1", "vault", 600)
			issueToken(s, "third", "u1", "vault", 600)
		})},
		{"a token that is renewed", "", func(s *script) {
			inlineScript(s, false)
			s.wait(480)
			issueToken(s, "other", "u1", "vault", 600)
			csiCall(s, 1, inlineCall("other"), true)
		}},
		{"tokens in secrets", "", func(s *script) {
			inlineScript(s, true)
			call := inlineCall("good")
			delete(call.VolumeContext, tokensAttribute)
			call.Secrets[tokensAttribute] = tokenText("good")
			csiCall(s, 1, call, true)
		}},
		{"staged with a secret that no volume names", name, func(s *script) {
			csiStartAgent(s)
			call := csiStageCall()
			call.Secrets = map[string]string{"key": "1"}
			csiCall(s, 1, call, true)
		}},
	})
}

// A call may have an old secret for a while after a fault of what brings it.
func TestCSISecretsUnderFaults(t *testing.T) {
	const name = "csi-content"
	runCases(t, []testCase{
		{"an old secret, as the watch has just failed", "", publish(func(s *script,
			_ *world.PublishVolume) {
			writeObject(s, secretOf("1"), secretOf("2"), 0)
			s.loseCall("WatchObjects")
			s.wait(60)
		})},
		{"an old secret, as the watch has failed long ago", name, publish(func(s *script,
			_ *world.PublishVolume) {
			writeObject(s, secretOf("1"), secretOf("2"), 0)
			s.loseCall("WatchObjects")
			s.wait(200)
		})},
		{"an old secret, as another call has failed", name, publish(func(s *script,
			_ *world.PublishVolume) {
			writeObject(s, secretOf("1"), secretOf("2"), 0)
			s.loseCall("PublishVolume")
			s.wait(60)
		})},
	})
}

// A token that is due may be used if it could not be renewed, and never once it has expired.
func TestCSIContentWithFaults(t *testing.T) {
	for after, want := range map[float64]int{540: 0, 601: 1} {
		s := newScript()
		s.model.opts.FaultPossible = func(call string, _, _ time.Time) bool {
			return call == "CreateToken"
		}
		inlineScript(s, false)
		s.wait(after)
		csiCall(s, 1, inlineCall("good"), true)
		if got := s.Violations(); len(got) != want {
			t.Errorf("after %v s: got %v", after, got)
		}
	}
}

// inlineStart publishes the inline volume, and starts its pod.
func inlineStart(s *script) {
	inlineScript(s, false)
	csiCall(s, 1, inlineCall("good"), true)
	s.CheckFact(truth.Fact{Time: s.now, Kind: truth.DriverStarted,
		Driver: &truth.Driver{Name: csiDriver}})
	csiFact(s, truth.VolumePublished, inlineHandle("u1", "v"), inlineTarget)
	s.start(s.sandbox("u1", 0), "app", 0)
}

// regroup has the files of the inline volume given to group 7 by a pod, and publishes the volume
// again, after which a new file in it has a group.
func regroup(got int64, change func(*script), again, serve func(*script, float64)) func(*script) {
	return func(s *script) {
		inlineStart(s)
		policy := storagev1.FileFSGroupPolicy
		s.model.csi.drivers[csiDriver].Spec.FSGroupPolicy = &policy
		s.model.podsInOrder[0].spec.Spec.SecurityContext = &v1.PodSecurityContext{FSGroup: new(int64(7))}
		s.model.opts.GroupOf = func(path string) (int64, bool) {
			return got, path == inlineTarget+"/"+truth.RenewedFile
		}
		if change != nil {
			change(s)
		}
		for range 4 {
			again(s, 60)
		}
		serve(s, 40)
	}
}

func TestCSIRepublish(t *testing.T) {
	const name = "csi-republish"
	again := func(s *script, after float64) {
		s.wait(after)
		csiCall(s, 2, inlineCall("good"), true)
	}
	serve := func(s *script, after float64) {
		s.wait(after)
		s.CheckServed(s.now, nil)
	}
	runCases(t, []testCase{
		{"once a minute", "", func(s *script) { inlineStart(s); again(s, 60); serve(s, 120) }},
		{"too early", name, func(s *script) { inlineStart(s); again(s, 20) }},
		{"by the next agent", "", func(s *script) {
			inlineStart(s)
			s.AgentKilled(s.now)
			s.AgentStarted(s.now)
			again(s, 20)
		}},
		{"again after a failure", "", func(s *script) {
			inlineStart(s)
			s.wait(60)
			s.CallIssued(s.now, &world.Effect{Op: 2, Body: inlineCall("good"),
				Deadline: s.now.Add(2 * time.Minute)})
			s.EventReceived(s.now, &world.Event{Time: s.now, Op: 2, Err: world.Errorf(
				world.KindInternal, "PublishVolume", "away")})
			again(s, 20)
		}},
		{"never", name, func(s *script) { inlineStart(s); serve(s, 300) }},
		{"without the group of its pod", name, regroup(0, nil, again, serve)},
		{"with the group of its pod", "", regroup(7, nil, again, serve)},
		{"without a group that its driver sets", "", regroup(0, func(s *script) {
			s.CheckFact(truth.Fact{Time: s.now, Kind: truth.DriverStarted,
				Driver: &truth.Driver{Name: csiDriver, Groups: true}})
			s.wait(60)
		}, again, serve)},
		{"without a group that need not be right", "", regroup(0, func(s *script) {
			policy := v1.FSGroupChangeOnRootMismatch
			s.model.podsInOrder[0].spec.Spec.SecurityContext.FSGroupChangePolicy = &policy
		}, again, serve)},
		{"never, while a call hangs", "", func(s *script) {
			inlineStart(s)
			s.wait(60)
			s.CallIssued(s.now, &world.Effect{Op: 2, Body: inlineCall("good"),
				Deadline: s.now.Add(2 * time.Minute)})
			serve(s, 300)
		}},
		{"never, as its Secret has gone", "", func(s *script) {
			inlineStart(s)
			s.CheckFact(truth.Fact{Time: s.now, Kind: truth.ObjectDeleted, Write: &truth.Write{
				Resource: world.ResourceSecrets, Namespace: "ns", Name: "login", Before: secretOf("1")}})
			serve(s, 300)
		}},
	})
}

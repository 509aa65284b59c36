package volume

import (
	"encoding/pem"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"seedlet.dev/core/objectcache"
	"seedlet.dev/world"
)

const mesh = "sign.test/mesh"

func encodePEM(names ...string) string {
	var b strings.Builder
	for _, name := range names {
		b.Write(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte(name)}))
	}
	return b.String()
}

func bundle(name, version, signer, text string) world.Object {
	return world.Object{TrustBundle: &certificatesv1beta1.ClusterTrustBundle{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: "b", ResourceVersion: version,
			Labels: map[string]string{"live": "yes"}},
		Spec: certificatesv1beta1.ClusterTrustBundleSpec{SignerName: signer, TrustBundle: text}}}
}

func byName(optional *bool) *v1.ClusterTrustBundleProjection {
	return &v1.ClusterTrustBundleProjection{Name: new("root"), Path: "ca", Optional: optional}
}

func bySigner(optional *bool, labels ...string) *v1.ClusterTrustBundleProjection {
	s := &v1.ClusterTrustBundleProjection{SignerName: new(mesh), Path: "ca", Optional: optional}
	if len(labels) > 0 {
		s.LabelSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"live": labels[0]}}
	}
	return s
}

// podWithTrustBundles returns a pod with a volume of trust anchors, and with the watch that it
// needs.
func podWithTrustBundles(s *v1.ClusterTrustBundleProjection) *Pod {
	pod := newPod(projected(v1.VolumeProjection{ClusterTrustBundle: s}))
	pod.Objects = &objectcache.Store{}
	pod.Objects.AddReference(AllTrustBundles, "u", noEffects{})
	return pod
}

func TestTrustBundleVolume(t *testing.T) {
	root := bundle("root", "1", "", "# a comment\n"+encodePEM("one", "two")+"\nmore")
	a := bundle("sign.test:mesh:a", "2", mesh, encodePEM("one"))
	b := bundle("sign.test:mesh:b", "3", mesh, encodePEM("two", "one", "three"))
	all := []world.Object{root, a, b}
	const none = "combination of signerName and labelSelector matched zero ClusterTrustBundles"
	for _, c := range []struct {
		name    string
		source  *v1.ClusterTrustBundleProjection
		objects []world.Object
		want    []string
		problem string
	}{
		{"by name", byName(nil), all, []string{"one", "two"}, ""},
		{"a name that does not exist", byName(nil), all[1:], nil,
			`clustertrustbundle.certificates.k8s.io "root" not found`},
		{"an optional name", byName(&yes), all[1:], nil, ""},
		{"by signer", bySigner(nil, "yes"), all, []string{"one", "three", "two"}, ""},
		{"by other labels", bySigner(nil, "no"), all, nil, none},
		{"no labels select nothing", bySigner(nil), all, nil, none},
		{"nothing, optional", bySigner(&yes, "no"), all, nil, ""},
		{"neither", &v1.ClusterTrustBundleProjection{Path: "ca", Optional: &yes}, all, nil,
			"ClusterTrustBundle projection requires either name or signerName to be set"},
	} {
		s, pod := &Set{}, podWithTrustBundles(c.source)
		pod.Objects.HandleWatchEvent(&world.ObjectsListed{Watch: 1, Objects: c.objects}, t0)
		text, written := strings.CutPrefix(writtenFiles(runSteps(s, pod, "")), "ca:644=")
		problem := strings.TrimPrefix(s.Problem(), `MountVolume.SetUp failed for volume "v" : `)
		if got := certificateNames(text); problem != c.problem || written != (c.problem == "") ||
			written && !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, %q; want %q, %q", c.name, got, problem, c.want, c.problem)
		}
	}
}

// certificateNames returns the certificates of a text that has nothing else.
func certificateNames(text string) []string {
	var names []string
	for block, rest := pem.Decode([]byte(text)); block != nil; block, rest = pem.Decode(rest) {
		names = append(names, string(block.Bytes))
	}
	if encodePEM(names...) != text {
		return []string{"not only certificates: " + text}
	}
	slices.Sort(names)
	return names
}

// A file of trust anchors is updated when any of its bundles changes.
func TestVolumeFollowsTrustBundles(t *testing.T) {
	s, pod := &Set{}, podWithTrustBundles(bySigner(nil, "yes"))
	if done := runSteps(s, pod, ""); len(done) > 0 || s.Problem() != "" {
		t.Errorf("%v, %q before the first list", done, s.Problem())
	}
	a := bundle("a", "1", mesh, encodePEM("one"))
	b := bundle("b", "2", mesh, encodePEM("two"))
	pod.Objects.HandleWatchEvent(&world.ObjectsListed{Watch: 1, Objects: []world.Object{a, b}}, t0)
	runSteps(s, pod, "")
	for _, step := range []struct {
		event any
		want  string
	}{
		{&world.ObjectChanged{Watch: 1, Object: bundle("a", "3", mesh, encodePEM("three"))},
			"[three two]"},
		{&world.ObjectGone{Watch: 1, Object: b}, "[three]"},
		{&world.ObjectChanged{Watch: 1, Object: bundle("c", "4", "other", encodePEM("four"))}, ""},
		{&world.ObjectGone{Watch: 1, Object: a}, ""}, // the written content stays
	} {
		pod.Objects.HandleWatchEvent(step.event, t0)
		text, written := strings.CutPrefix(writtenFiles(runSteps(s, pod, "")), "ca:644=")
		if got := fmt.Sprint(certificateNames(text)); written != (step.want != "") ||
			written && got != step.want || !s.Ready(&pod.Spec.Spec) {
			t.Errorf("%+v: %v, want %s", step.event, got, step.want)
		}
	}
}

// A server without the resource has no bundles: an optional file is empty, other volumes wait with
// a problem. A forbidden list does not count as an absence.
func TestServerWithoutTrustBundles(t *testing.T) {
	for kind, want := range map[world.ErrorKind]string{
		world.KindNotFound:    "the API server does not serve clustertrustbundles",
		world.KindRefused:     "clustertrustbundles cannot be listed: forbidden",
		world.KindUnavailable: "failed to sync clustertrustbundle cache",
	} {
		for _, optional := range []bool{false, true} {
			s, pod := &Set{}, podWithTrustBundles(byName(&optional))
			pod.Objects.HandleWatchEvent(&world.WatchFailing{Watch: 1,
				Err: world.Errorf(kind, "", "forbidden")}, t0)
			got := writtenFiles(runSteps(s, pod, ""))
			if empty := optional && kind == world.KindNotFound; empty && got != "ca:644=" ||
				!empty && !strings.Contains(s.Problem(), want) {
				t.Errorf("%s, optional %v: %q, %q", kind, optional, got, s.Problem())
			}
			pod.Objects.HandleWatchEvent(&world.ObjectsListed{Watch: 1,
				Objects: []world.Object{bundle("root", "1", "", encodePEM("one"))}}, t0.Add(time.Hour))
			if d := cmp.Diff("ca:644="+encodePEM("one"), writtenFiles(runSteps(s, pod, ""))); d != "" {
				t.Errorf("%s: after the resource is served: %s", kind, d)
			}
		}
	}
}

// The order of trust anchors differs between pods, and is stable within a pod.
func TestOrderOfTrustAnchors(t *testing.T) {
	texts := []string{encodePEM("a", "b", "c"), encodePEM("d", "e")}
	orders := map[string]bool{}
	for i := range 20 {
		uid := newPod().Spec.UID + "u"
		for range i {
			uid += "x"
		}
		order := trustAnchors(texts, uid)
		if again := trustAnchors([]string{texts[1], texts[0]}, uid); again != order {
			t.Errorf("two orders in one pod")
		}
		orders[order] = true
	}
	if len(orders) < 10 {
		t.Errorf("only %d orders in 20 pods", len(orders))
	}
}

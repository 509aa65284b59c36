package e2e

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"seedlet.dev/realworld/csi/loopcsi"
)

// tokenAudience is the audience of the tokens that the driver gets in testRepublish.
const tokenAudience = "vault"

// testRepublish has a driver that wants its volumes published again and again, with a token of the
// pod, as those of secret stores do. The pod reads what the driver was given. A restarted agent
// goes on with that, a minute later.
func (c *csiSuite) testRepublish(t *testing.T) {
	c.setRepublish(t, true)
	pod := c.inlinePod("republished")
	c.republished = pod
	csi := pod.Spec.Volumes[0].CSI
	csi.ReadOnly = new(true)
	csi.VolumeAttributes["contextFile"] = "given"
	c.createPods(t, pod)
	c.waitReady(t, pod)
	before := c.runningPods(t)
	first := c.publicationIn(t, pod)
	for key, want := range map[string]string{"csi.storage.k8s.io/pod.name": pod.Name,
		"csi.storage.k8s.io/pod.namespace":       testNamespace,
		"csi.storage.k8s.io/pod.uid":             string(c.apiPod(t, pod.Name).UID),
		"csi.storage.k8s.io/serviceAccount.name": "default"} {
		if first.Context[key] != want {
			t.Errorf("the driver was given %s %q, want %q", key, first.Context[key], want)
		}
	}
	c.checkToken(t, pod, first)
	c.restartAgent(t)
	c.waitUntil(t, "a restarted agent publishes the volume again", func() bool {
		return c.publicationIn(t, pod).Number > first.Number
	})
	last := c.publicationIn(t, pod)
	c.checkToken(t, pod, last)
	c.publication = last.Number
	c.checkUnchanged(t, before, c.runningPods(t))
}

// testPeriodicRepublish waits until the volume of testRepublish was published once more, about a
// minute later, by an agent that was not restarted since.
func (c *csiSuite) testPeriodicRepublish(t *testing.T) {
	pod := c.republished
	c.waitUntil(t, "the volume is published once more", func() bool {
		return c.publicationIn(t, pod).Number > c.publication
	})
	last := c.publicationIn(t, pod)
	if last.Number > c.publication+2 {
		t.Errorf("the volume was published %d times in some two minutes", last.Number-c.publication)
	}
	c.checkToken(t, pod, last)
	c.deletePods(t, pod)
	c.waitUntil(t, "the pod has gone", func() bool { return c.apiPod(t, pod.Name) == nil })
	c.setRepublish(t, false)
}

// setRepublish has the driver want its volumes published again, with tokens, or not.
func (c *csiSuite) setRepublish(t *testing.T, wanted bool) {
	t.Helper()
	c.changeDriverObject(t, func(spec *storagev1.CSIDriverSpec) {
		spec.RequiresRepublish, spec.TokenRequests = &wanted, nil
		if wanted {
			spec.TokenRequests = []storagev1.TokenRequest{{Audience: tokenAudience}}
		}
	})
}

// publicationIn returns what the driver was given last for the volume of a pod, as the pod sees it.
func (c *csiSuite) publicationIn(t *testing.T, pod *v1.Pod) (p loopcsi.Publication) {
	t.Helper()
	got := c.runReport(t, c.apiPod(t, pod.Name), "/disk/given").Paths["/disk/given"]
	if err := json.Unmarshal([]byte(got.Text), &p); err != nil || !got.ReadOnly {
		t.Fatalf("the file in %s is %+v, %v", pod.Name, got, err)
	}
	return p
}

// checkToken checks that the API server takes the token in a publication for the pod's.
func (c *csiSuite) checkToken(t *testing.T, pod *v1.Pod, p loopcsi.Publication) {
	t.Helper()
	var tokens map[string]authenticationv1.TokenRequestStatus // by audience
	err := json.Unmarshal([]byte(p.Context["csi.storage.k8s.io/serviceAccount.tokens"]), &tokens)
	if err != nil {
		t.Fatal(err)
	}
	review, err := c.api.AuthenticationV1().TokenReviews().Create(t.Context(),
		&authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{
			Token: tokens[tokenAudience].Token, Audiences: []string{tokenAudience}}},
		metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	s := review.Status
	if !s.Authenticated || s.User.Username != "system:serviceaccount:"+testNamespace+":default" ||
		!slices.Equal(s.User.Extra["authentication.kubernetes.io/pod-name"], []string{pod.Name}) {
		t.Errorf("the review of the token is %+v", s)
	}
}

// testUnownedClaim has a pod wait because the claim that it would own exists already, and is not
// its own (KEP-1698). Once that claim has gone, the pod gets its own, which goes with it. The agent
// reads a bound claim once a minute, or when it starts.
func (c *csiSuite) testUnownedClaim(t *testing.T) {
	c.createClass(t, "loop-now", storagev1.VolumeBindingImmediate, nil)
	c.createClaimOf(t, "owner-disk", claimOfClass("loop-now", "32Mi"))
	pod := c.passingPod("owner")
	pod.Spec.NodeName = nodeName // the scheduler refuses it as well
	pod.Spec.Volumes[0].Ephemeral.VolumeClaimTemplate.Spec = claimOfClass("loop-now", "32Mi")
	c.createPods(t, pod)
	c.waitUntil(t, "the agent refuses a claim that is not the pod's", func() bool {
		return hasLine(c.eventText(t, pod.Name), "FailedMount: ",
			"PVC town/owner-disk was not created for pod town/owner (pod is not owner)")
	})
	c.kubectl(t, "delete", "persistentvolumeclaim/owner-disk", patience)
	c.restartAgent(t)
	c.waitReady(t, pod)
	if owners := c.apiClaim(t, "owner-disk").OwnerReferences; len(owners) != 1 ||
		owners[0].UID != c.apiPod(t, pod.Name).UID {
		t.Errorf("the claim of the pod has the owners %+v", owners)
	}
	shown := c.kubectl(t, "describe", "pod", pod.Name)
	for _, parts := range [][]string{{"PodReadyToStartContainers", "True"},
		{"SuccessfulAttachVolume", "AttachVolume.Attach succeeded for volume"},
		{"FailedMount", "kubelet", "pod is not owner"}} {
		if !hasLine(shown, parts...) {
			t.Errorf("kubectl shows no line with %q:\n%s", parts, shown)
		}
	}
	c.deletePods(t, pod)
	c.kubectl(t, "wait", "--for=delete", "persistentvolumeclaim/owner-disk", patience)
	c.waitVolumesRemoved(t)
}

// testNFS has pods wait for volumes of a server that is not there, one in the pod and one with a
// claim. Their events have the command and what it says.
func (c *csiSuite) testNFS(t *testing.T) {
	source := v1.NFSVolumeSource{Server: "127.0.0.1", Path: "/missing"}
	c.createBoundClaim(t, "nfs", v1.PersistentVolumeSpec{
		AccessModes:            []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce},
		MountOptions:           []string{"retry=0", "soft"},
		PersistentVolumeSource: v1.PersistentVolumeSource{NFS: &source}})
	own, claimed := c.csiPod("nfs-own", v1.VolumeSource{NFS: &source}), c.claimPod("nfs-claim", "nfs")
	c.createPods(t, own, claimed)
	for pod, name := range map[*v1.Pod]string{own: "disk", claimed: "nfs"} {
		c.waitUntil(t, "an event says why a volume of NFS is not mounted", func() bool {
			text := c.eventText(t, pod.Name)
			return strings.Contains(text, `FailedMount: MountVolume.SetUp failed for volume "`+name+
				`" : mount failed: exit status 32`) && strings.Contains(text, "Mounting arguments: -t nfs") &&
				strings.Contains(text, "127.0.0.1:/missing") && strings.Contains(text, "Output: mount")
		})
		t.Log(c.eventText(t, pod.Name))
	}
	c.deletePods(t, own, claimed)
	c.waitUntil(t, "the pods have gone", func() bool {
		return c.apiPod(t, own.Name) == nil && c.apiPod(t, claimed.Name) == nil
	})
	c.kubectl(t, "delete", "persistentvolumeclaim/nfs", "persistentvolume/nfs", patience)
}

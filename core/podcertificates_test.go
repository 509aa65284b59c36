package core

import (
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"seedlet.dev/world"
)

const chainText = "-----BEGIN CERTIFICATE-----\nbGVhZg==\n-----END CERTIFICATE-----\n"

// certificateCluster answers for a machine that makes keys, and for an API server with requests for
// certificates.
type certificateCluster struct {
	watch    world.WatchID
	keys     int
	requests []world.Object
	bundle   string // written last
}

func (c *certificateCluster) answer(effect any) any {
	switch e := effect.(type) {
	case *world.WatchObjects:
		if e.Resource == world.ResourcePodCertificateRequests {
			c.watch = e.Watch
		}
	case *world.GetObject:
		if e.Resource == world.ResourceServiceAccounts {
			return &world.ObjectRead{Object: world.Object{ServiceAccount: &v1.ServiceAccount{
				ObjectMeta: metav1.ObjectMeta{Namespace: e.Namespace, Name: e.Name, UID: "sa-uid"}}}}
		}
	case *world.MakeKey:
		c.keys++
		return &world.KeyMade{PrivateKey: "hidden-key", Request: []byte{byte(c.keys)}}
	case *world.CreateObject:
		if e.Object.CertificateRequest != nil {
			c.requests = append(c.requests, e.Object)
			return &world.ObjectRead{Object: e.Object}
		}
	case *world.WriteDir:
		for _, f := range e.Files {
			c.bundle = f.Text + string(f.Data)
		}
	}
	return nil
}

// issue has the watch show the newest request as issued, for an hour.
func (c *certificateCluster) issue(n *fakeNode) {
	r := c.requests[len(c.requests)-1].CertificateRequest.DeepCopy()
	r.Status.CertificateChain = chainText
	r.Status.BeginRefreshAt = &metav1.Time{Time: n.now.Add(40 * time.Minute)}
	r.Status.NotAfter = &metav1.Time{Time: n.now.Add(time.Hour)}
	r.Status.Conditions = []metav1.Condition{{Type: "Issued", Status: metav1.ConditionTrue}}
	n.apiServer.undelivered = append(n.apiServer.undelivered,
		&world.ObjectChanged{Watch: c.watch, Object: world.Object{CertificateRequest: r}})
	n.advance(5 * time.Second)
}

func podWithCertificate() *v1.Pod {
	p := apiPodNamed("p", "u1")
	p.Spec.ServiceAccountName = "robot"
	p.Spec.Volumes = []v1.Volume{{Name: "v", VolumeSource: v1.VolumeSource{
		Projected: &v1.ProjectedVolumeSource{Sources: []v1.VolumeProjection{{
			PodCertificate: &v1.PodCertificateProjection{SignerName: "example.com/s",
				KeyType: "ED25519", CredentialBundlePath: "all.pem"}}}}}}}
	p.Spec.Containers[0].VolumeMounts = []v1.VolumeMount{{Name: "v", MountPath: "/v"}}
	return p
}

func bootWithCertificates(gates map[string]bool, change ...func(*v1.Pod)) (*fakeNode,
	*certificateCluster) {
	n, cluster := newNode(nil), &certificateCluster{}
	n.apiServer, n.gates, n.answer = newServer(), gates, cluster.answer
	p := podWithCertificate()
	for _, do := range change {
		do(p)
	}
	n.apiServer.put(p)
	n.apiServer.undelivered = nil
	n.restart()
	n.advance(5 * time.Second)
	return n, cluster
}

// A pod gets its certificate, and another one when it is due. The next agent has another one
// requested while the container runs on. The key is in no state that is served.
func TestPodCertificate(t *testing.T) {
	const states = "kubelet_podcertificate_states example.com/s "
	n, cluster := bootWithCertificates(map[string]bool{"PodCertificateRequest": true})
	n.expectMetrics(t, "pending", map[string]float64{states + "not_yet_issued": 1})
	if len(cluster.requests) != 1 || len(n.containers) > 0 {
		t.Fatalf("%d requests, %d containers", len(cluster.requests), len(n.containers))
	}
	spec := &cluster.requests[0].CertificateRequest.Spec
	if spec.NodeUID != "node-uid" || spec.ServiceAccountUID != "sa-uid" || spec.NodeName != "n1" {
		t.Errorf("requested %+v", spec)
	}
	cluster.issue(n)
	if cluster.bundle != "hidden-key"+chainText || len(n.containers) != 1 {
		t.Errorf("%d containers, the volume has %q", len(n.containers), cluster.bundle)
	}
	n.expectMetrics(t, "issued", map[string]float64{states + "fresh": 1})
	n.event(world.Event{Body: &world.StateRequest{}})
	if !strings.Contains(string(snapshotOf(t, n.agent)), "hidden-key") ||
		strings.Contains(n.stateJSON, "hidden-key") {
		t.Error("the key is not in the state, or it is served")
	}
	n.advance(46 * time.Minute)
	if len(cluster.requests) != 2 {
		t.Errorf("%d requests when the certificate is due", len(cluster.requests))
	}
	cluster.bundle = ""
	n.restart()
	n.advance(time.Minute)
	if len(cluster.requests) != 3 || len(n.containers) != 1 || cluster.bundle != "" {
		t.Errorf("after a restart: %d requests, %d containers, written %q", len(cluster.requests),
			len(n.containers), cluster.bundle)
	}
	cluster.issue(n)
	if cluster.bundle != "hidden-key"+chainText || len(n.containers) != 1 {
		t.Errorf("%d containers, the volume has %q", len(n.containers), cluster.bundle)
	}
}

// Without the feature gate the volume cannot be set up, in the kubelet's words, and nothing is
// requested.
func TestPodCertificateWithoutGate(t *testing.T) {
	n, cluster := bootWithCertificates(nil)
	n.advance(time.Minute)
	hasFailed := func(event string) bool {
		return strings.Contains(event, `MountVolume.SetUp failed for volume "v" : unimplemented`)
	}
	if cluster.keys > 0 || cluster.watch != 0 || len(n.containers) > 0 ||
		!slices.ContainsFunc(n.events, hasFailed) {
		t.Errorf("%d keys, watch %d, %d containers, events %q", cluster.keys, cluster.watch,
			len(n.containers), n.events)
	}
}

// A date that is set forward makes a certificate due at once.
func TestPodCertificateAfterDateChange(t *testing.T) {
	n, cluster := bootWithCertificates(map[string]bool{"PodCertificateRequest": true})
	cluster.issue(n)
	n.advance(2 * time.Minute)
	n.event(world.Event{Body: &world.ClockStepped{Offset: 50 * time.Minute}})
	if len(cluster.requests) != 2 {
		t.Errorf("%d requests", len(cluster.requests))
	}
}

// The certificates of a pod that has ended, and their keys, are dropped before its object is
// deleted.
func TestPodCertificateAfterEnd(t *testing.T) {
	n, cluster := bootWithCertificates(map[string]bool{"PodCertificateRequest": true},
		func(p *v1.Pod) { p.Spec.RestartPolicy = v1.RestartPolicyNever })
	cluster.issue(n)
	n.endContainers()
	n.advance(2 * time.Minute)
	if phase := n.phases()["p"]; phase != v1.PodSucceeded {
		t.Fatalf("the pod is %s", phase)
	}
	n.advance(2 * time.Hour)
	for name, value := range n.metricValues() { //ordered: each is independent of the others
		if strings.HasPrefix(name, "kubelet_podcertificate_states") && value != 0 {
			t.Errorf("%s %v", name, value)
		}
	}
	if strings.Contains(string(snapshotOf(t, n.agent)), "hidden-key") || len(cluster.requests) != 1 {
		t.Errorf("the key is still in the state, or there are %d requests, not one",
			len(cluster.requests))
	}
}

// A certificate that is due while the pod terminates is renewed and installed.
func TestPodCertificateWhileTerminating(t *testing.T) {
	n, cluster := bootWithCertificates(map[string]bool{"PodCertificateRequest": true})
	cluster.issue(n)
	n.stopsFail = true
	n.markDeleted("default/p", 2*60*60)
	n.advance(46 * time.Minute)
	if len(cluster.requests) != 2 || len(n.containers) != 1 {
		t.Fatalf("%d requests, %d containers", len(cluster.requests), len(n.containers))
	}
	cluster.bundle = ""
	cluster.issue(n)
	if cluster.bundle != "hidden-key"+chainText {
		t.Errorf("the volume has %q", cluster.bundle)
	}
}

// Without a Node nothing is requested. A new one is named at once.
func TestPodCertificateOfNewNode(t *testing.T) {
	n, cluster := bootWithCertificates(map[string]bool{"PodCertificateRequest": true})
	cluster.issue(n)
	n.advance(2 * time.Minute)
	node := n.apiServer.node.DeepCopy()
	n.event(world.Event{Body: &world.ObjectGone{
		Watch:  n.agent.state.Objects.Watch(n.agent.nodeWatch()).ID,
		Object: world.Object{Node: node}}})
	n.event(world.Event{Body: &world.ClockStepped{Offset: 50 * time.Minute}})
	if len(cluster.requests) != 1 {
		t.Errorf("%d requests without a Node", len(cluster.requests))
	}
	node.UID = "node-2"
	n.setNode(node)
	if len(cluster.requests) != 2 ||
		cluster.requests[1].CertificateRequest.Spec.NodeUID != "node-2" {
		t.Errorf("requests: %+v", cluster.requests)
	}
}

package oracle

import (
	"crypto/ed25519"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"testing"
	"time"

	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"seedlet.dev/sim/truth"
	"seedlet.dev/world"
)

const (
	testSigner = "sign.test/a"
	tlsPath    = podsDir + "/u1/volumes/kubernetes.io~projected/tls"
)

// certificateScript has a pod with a source podCertificate, and the files of its volume.
type certificateScript struct {
	*script
	files map[string][]byte
}

func withCertificates(tell func(*certificateScript)) func(*script) {
	return withCertificatesOf("ED25519", tell)
}

// withCertificatesOf has a pod that asks for a type of keys.
func withCertificatesOf(keyType string, tell func(*certificateScript)) func(*script) {
	return func(s *script) {
		c := &certificateScript{script: s, files: map[string][]byte{}}
		s.model.opts.ReadFile = func(path string) ([]byte, bool) {
			text, exists := c.files[path]
			return text, exists
		}
		s.AgentStarted(s.now)
		p := spec("u1", always, "app")
		p.Spec.Containers[0].VolumeMounts = []v1.VolumeMount{{Name: "tls", MountPath: "/tls"}}
		p.Spec.Volumes = []v1.Volume{{Name: "tls", VolumeSource: v1.VolumeSource{
			Projected: &v1.ProjectedVolumeSource{Sources: []v1.VolumeProjection{{
				PodCertificate: &v1.PodCertificateProjection{SignerName: testSigner,
					KeyType: keyType, CredentialBundlePath: "all.pem"}}}}}}}
		s.setDesired(p)
		s.CheckFact(truth.Fact{Time: s.now, Kind: truth.KeyMade, Token: "k"})
		tell(c)
	}
}

func requestObject(name string) *certificatesv1beta1.PodCertificateRequest {
	return &certificatesv1beta1.PodCertificateRequest{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID("uid-" + name)},
		Spec:       certificatesv1beta1.PodCertificateRequestSpec{PodUID: "u1", SignerName: testSigner}}
}

// write writes a request at the API server: nil before or after for a creation or deletion.
func (c *certificateScript) write(kind truth.Kind,
	before, after *certificatesv1beta1.PodCertificateRequest) {
	named := after
	if named == nil {
		named = before
	}
	c.CheckFact(truth.Fact{Time: c.now, Kind: kind, Write: &truth.Write{
		Resource: world.ResourcePodCertificateRequests, Namespace: "ns", Name: named.Name,
		Before: world.Object{CertificateRequest: before}, After: world.Object{CertificateRequest: after},
		Incarnation: 1, SentAt: c.now}})
}

func (c *certificateScript) request(name string) {
	c.write(truth.ObjectCreated, nil, requestObject(name))
}

// answer gives a request a condition and, if it is issued, a certificate for a key.
func (c *certificateScript) answer(name, condition, chain string) {
	after := requestObject(name)
	after.Status.Conditions = []metav1.Condition{{Type: condition}}
	if after.Status.CertificateChain = chain; chain != "" {
		after.Status.BeginRefreshAt = &metav1.Time{Time: c.now.Add(10 * time.Minute)}
		after.Status.NotAfter = &metav1.Time{Time: c.now.Add(time.Hour)}
	}
	c.write(truth.ObjectUpdated, requestObject(name), after)
}

// credential returns a key that follows from a number, and a certificate for it.
func credential(n byte) (key, chain string) {
	private := ed25519.NewKeyFromSeed(append(make([]byte, ed25519.SeedSize-1), n))
	der, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		panic(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(int64(n))}
	leaf, err := x509.CreateCertificate(nil, template, template, private.Public(), private)
	if err != nil {
		panic(err)
	}
	encode := func(kind string, der []byte) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
	}
	return encode("PRIVATE KEY", der), encode("CERTIFICATE", leaf)
}

// install writes the volume, and starts the container for the first time.
func (c *certificateScript) install(bundle string) {
	c.files[tlsPath+"/all.pem"] = []byte(bundle)
	c.CheckFact(truth.Fact{Time: c.now, Kind: truth.PathWritten, Path: tlsPath})
}

// issueFirst has a first certificate requested, issued and installed, and starts the container.
func (c *certificateScript) issueFirst() {
	key, chain := credential(1)
	c.request("a")
	c.answer("a", "Issued", chain)
	c.install(key + chain)
	c.start(c.sandbox("u1", 0), "app", 0)
}

// after serves the pod after some minutes.
func (c *certificateScript) after(minutes float64) {
	c.wait(minutes * 60)
	c.serve("u1", v1.PodRunning, "app#0 ready")
}

func TestPodCertificates(t *testing.T) {
	const name = "pod-certificates"
	key, chain := credential(1)
	otherKey, otherChain := credential(2)
	runCases(t, []testCase{
		{"issued and renewed", "", withCertificates(func(c *certificateScript) {
			c.issueFirst()
			c.after(12)
			c.request("b")
			c.answer("b", "Issued", otherChain)
			c.install(otherKey + otherChain)
			c.after(1)
		})},
		{"never issued", name, withCertificates(func(c *certificateScript) {
			c.request("a")
			c.install(key + chain)
		})},
		{"another key", name, withCertificates(func(c *certificateScript) {
			c.request("a")
			c.answer("a", "Issued", chain)
			c.install(otherKey + chain)
		})},
		{"a key of another type", name, withCertificatesOf("ECDSAP256", func(c *certificateScript) {
			c.request("a")
			c.answer("a", "Issued", chain)
			c.install(key + chain)
		})},
		{"no key", name, withCertificates(func(c *certificateScript) {
			c.request("a")
			c.answer("a", "Issued", chain)
			c.install(chain)
		})},
		{"started without a certificate", name, withCertificates(func(c *certificateScript) {
			c.changePath(truth.PathCreated, tlsPath, "")
			c.start(c.sandbox("u1", 0), "app", 0)
		})},
		{"two open requests", name, withCertificates(func(c *certificateScript) {
			c.request("a")
			c.request("b")
		})},
		{"one was deleted", "", withCertificates(func(c *certificateScript) {
			c.request("a")
			c.write(truth.ObjectDeleted, requestObject("a"), nil)
			c.request("b")
		})},
		{"denied, and requested again", name, withCertificates(func(c *certificateScript) {
			c.request("a")
			c.answer("a", "Denied", "")
			c.request("b")
		})},
		{"renewed too early", name, withCertificates(func(c *certificateScript) {
			c.issueFirst()
			c.wait(9 * 60)
			c.request("b")
		})},
		{"a pod that does not exist", name, withCertificates(func(c *certificateScript) {
			r := requestObject("a")
			r.Spec.PodUID = "u9"
			c.write(truth.ObjectCreated, nil, r)
		})},
		{"a key in a file", name, withCertificates(func(c *certificateScript) {
			c.files["/var/lib/kubelet/state"] = []byte(key)
			c.CheckFact(truth.Fact{Time: c.now, Kind: truth.PathWritten, Path: "/var/lib/kubelet/state"})
		})},
		{"a key in an event", name, withCertificates(func(c *certificateScript) {
			c.addFact(truth.EventRecorded, truth.Fact{Reason: "FailedMount", Message: "no " + key})
		})},
	})
}

// Certificates are renewed in time, and installed.
func TestPodCertificatesAreRenewed(t *testing.T) {
	const name = "pod-certificates"
	_, otherChain := credential(2)
	loseKeyAfter := func(c *certificateScript, minutes float64, keyType string) {
		volume := &c.model.pods["u1"].spec.Spec.Volumes[0] // its first key is another one
		volume.Projected.Sources[0].PodCertificate.KeyType = keyType
		lost := c.now.Add(time.Duration(minutes * float64(time.Minute)))
		c.model.opts.FaultPossible = func(call string, from, to time.Time) bool {
			return call == "MakeKey" && !lost.Before(from) && !lost.After(to)
		}
	}
	runCases(t, []testCase{
		{"the key was lost, which is made at once", name, withCertificates(func(c *certificateScript) {
			c.issueFirst()
			loseKeyAfter(c, 12, "ED25519")
			c.after(20)
		})},
		{"an RSA key was lost", "", withCertificates(func(c *certificateScript) {
			c.issueFirst()
			loseKeyAfter(c, 12, "RSA3072")
			c.after(25)
		})},
		{"an RSA key was lost long ago", name, withCertificates(func(c *certificateScript) {
			c.issueFirst()
			loseKeyAfter(c, 12, "RSA3072")
			c.after(27)
		})},
		{"not renewed", name, withCertificates(func(c *certificateScript) {
			c.issueFirst()
			c.after(20)
		})},
		{"not renewed, but not late", "", withCertificates(func(c *certificateScript) {
			c.issueFirst()
			c.after(18)
		})},
		{"the renewal is refused", "", withCertificates(func(c *certificateScript) {
			c.issueFirst()
			c.wait(12 * 60)
			c.request("b")
			c.answer("b", "Denied", "")
			c.after(30)
		})},
		{"renewed and not installed", name, withCertificates(func(c *certificateScript) {
			c.issueFirst()
			c.wait(12 * 60)
			c.request("b")
			c.answer("b", "Issued", otherChain)
			c.after(5)
		})},
		{"a deleted renewal is not repeated", name, withCertificates(func(c *certificateScript) {
			c.issueFirst()
			c.wait(12 * 60)
			c.request("b")
			c.write(truth.ObjectDeleted, requestObject("b"), nil)
			c.after(20)
		})},
	})
}

// An Event says that a certificate has expired, and none says so before.
func TestPodCertificatesExpire(t *testing.T) {
	const name = "pod-certificates"
	expire := func(minutes float64, reportedAfter ...float64) func(*script) {
		return withCertificates(func(c *certificateScript) {
			c.wait(1)
			c.issueFirst()
			c.wait(12 * 60)
			c.request("b")
			at := 12.0
			for _, after := range reportedAfter {
				c.wait((after - at) * 60)
				at = after
				c.addFact(truth.EventRecorded, truth.Fact{Reason: reasonExpired})
			}
			c.after(minutes - at)
		})
	}
	runCases(t, []testCase{
		{"it has not", "", expire(56)},
		{"no Event says so", name, expire(62)},
		{"an Event says so", "", expire(62, 60.5)},
		{"an Event says so early", name, expire(50, 40)},
		{"the next agent does not know it", "", withCertificates(func(c *certificateScript) {
			c.issueFirst()
			c.wait(12 * 60)
			c.restartAgent()
			c.request("b")
			c.after(62)
		})},
		{"a user's request has its name", name, withCertificates(func(c *certificateScript) {
			key, chain := credential(1)
			c.request("a")
			c.write(truth.ObjectDeleted, requestObject("a"), nil)
			other := requestObject("a")
			other.UID = "other"
			c.CheckFact(truth.Fact{Time: c.now, Kind: truth.ObjectCreated, Write: &truth.Write{
				Resource: world.ResourcePodCertificateRequests, Namespace: "ns", Name: "a",
				After: world.Object{CertificateRequest: other}}})
			answered := other.DeepCopy()
			answered.Status.Conditions = []metav1.Condition{{Type: "Issued"}}
			answered.Status.CertificateChain = chain
			c.write(truth.ObjectUpdated, other, answered)
			c.install(key + chain)
		})},
	})
}

// The date of the machine says when a certificate is renewed.
func TestPodCertificatesByDate(t *testing.T) {
	const name = "pod-certificates"
	with := func(offset time.Duration, minutes float64) func(*script) {
		return withCertificates(func(c *certificateScript) {
			c.model.opts.DateOffset = func(time.Time) time.Duration { return offset }
			c.issueFirst()
			c.wait(minutes * 60)
			c.request("b")
		})
	}
	runCases(t, []testCase{
		{"too early", name, with(0, 5)},
		{"the date is ahead", "", with(6*time.Minute, 5)},
		{"the date is behind", name, with(-6*time.Minute, 12)},
		{"not renewed, and the date is behind", "", withCertificates(func(c *certificateScript) {
			c.model.opts.DateOffset = func(time.Time) time.Duration { return -6 * time.Minute }
			c.issueFirst()
			c.after(20)
		})},
	})
}

// In quiet times a key is for one request, a request is created once, and a pod reads its account
// once for all of them.
func TestCostOfCertificates(t *testing.T) {
	key := &world.MakeKey{Type: "ED25519"}
	read := &world.GetObject{Resource: world.ResourceServiceAccounts, Namespace: "ns", Name: "robot"}
	create := func(name string) *world.CreateObject {
		return &world.CreateObject{Object: world.Object{CertificateRequest: requestObject(name)}}
	}
	type step struct {
		after   time.Duration
		request any
	}
	for name, test := range map[string]struct {
		steps []step
		want  bool // the last one is found
	}{
		"one request": {[]step{{0, read}, {0, key}, {0, create("a")}}, false},
		"the next one": {[]step{{0, read}, {0, key}, {0, create("a")}, {time.Hour, read}, {0, key},
			{0, create("b")}}, false},
		"two keys":               {[]step{{0, read}, {0, key}, {time.Hour, key}}, true},
		"two reads":              {[]step{{0, read}, {58 * time.Second, read}}, true},
		"two reads in a minute":  {[]step{{0, read}, {time.Minute, read}}, false},
		"a request is repeated":  {[]step{{time.Minute, create("known")}}, true},
		"a repetition in flight": {[]step{{time.Second, create("known")}}, false},
	} {
		withCertificates(func(c *certificateScript) {
			c.model.pods["u1"].spec.Spec.ServiceAccountName = "robot"
			c.model.healedAt = c.now
			c.now = c.now.Add(callBound + time.Second)
			c.request("known")
			var found *finding
			for _, s := range test.steps {
				if found != nil {
					t.Errorf("%s: found early: %v", name, found)
				}
				c.now = c.now.Add(s.after)
				found = c.model.certificates.checkCost(c.model, c.now, s.request)
			}
			if (found != nil) != test.want {
				t.Errorf("%s: found %v", name, found)
			}
		})(newScript())
	}
}

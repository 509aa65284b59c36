package pullrecord

import (
	"fmt"
	"maps"
	"path"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"seedlet.dev/core/keyring"
	"seedlet.dev/core/op"
	"seedlet.dev/world"
)

var t0 = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// node is a store on a disk. Operations are carried out at once, unless they are held.
type node struct {
	t     *testing.T
	store Store
	table op.Table
	out   op.Effects
	now   time.Time
	files map[string]string // by path; directories end in a slash
	// fail is the error of the calls of a name; held keeps effects.
	fail   map[string]*world.Error
	held   bool
	ready  []string // images whose pulls may begin
	loaded int
}

func newNode(t *testing.T, policy kubeletconfig.ImagePullCredentialsVerificationPolicy) *node {
	n := &node{t: t, now: t0, files: map[string]string{}, fail: map[string]*world.Error{}}
	n.store = Store{Dir: "/im", Settings: Settings{Policy: policy}, IsListed: true}
	n.run()
	return n
}

// restart has another agent read the disk.
func (n *node) restart() {
	n.store = Store{Dir: "/im", Settings: n.store.Settings, IsListed: true}
	n.table = op.Table{}
	n.run()
}

// readAgain has the agent read what cannot be read until it gives up.
func (n *node) readAgain() {
	for range readsMax {
		n.now = n.now.Add(time.Minute)
		n.run()
	}
}

// run plans until nothing is issued.
func (n *node) run() {
	n.t.Helper()
	for range 100 {
		n.out.Reset(&n.table, n.now)
		n.store.Plan(&n.out)
		effects := slices.Clone(n.out.List())
		if wrong := n.store.wrongCounts(); wrong != "" {
			n.t.Error(wrong)
		}
		if len(effects) == 0 && !n.store.Changed || n.held {
			return
		}
		for _, e := range effects {
			n.complete(e)
		}
	}
	n.t.Fatal("it plans without end")
}

func (n *node) complete(e world.Effect) {
	r, ok := n.table.Complete(e.Op)
	if !ok {
		return // a log line
	}
	ev := world.Event{Time: n.now, Op: e.Op, Body: &world.Done{}, Err: n.fail[r.Call]}
	if ev.Err == nil {
		ev.Body, ev.Err = n.carryOut(e.Body)
	}
	n.out.Reset(&n.table, n.now)
	images, loaded := n.store.HandleCompletion(r, ev, &n.out)
	n.ready = append(n.ready, images...)
	if loaded {
		n.loaded++
	}
}

func (n *node) carryOut(body any) (any, *world.Error) {
	switch b := body.(type) {
	case *world.ReadFiles:
		if _, exists := n.files[b.Path+"/"]; !exists {
			return nil, world.Errorf(world.KindNotFound, "ReadFiles", "no such directory")
		}
		read := &world.FilesRead{Directory: true}
		for _, at := range slices.Sorted(maps.Keys(n.files)) {
			if path.Dir(at) == b.Path && !strings.HasSuffix(at, "/") {
				read.Files = append(read.Files,
					world.File{Name: path.Base(at), Data: []byte(n.files[at])})
			}
		}
		if len(read.Files) > b.FilesMax {
			return nil, world.Errorf(world.KindExhausted, "ReadFiles", "too many files")
		}
		return read, nil
	case *world.ListDir:
		listed := &world.DirListed{}
		for _, at := range slices.Sorted(maps.Keys(n.files)) {
			if path.Dir(at) == b.Path && !strings.HasSuffix(at, "/") {
				listed.Entries = append(listed.Entries,
					world.DirEntry{Name: path.Base(at), Size: int64(len(n.files[at]))})
			}
		}
		return listed, nil
	case *world.MakeDir:
		n.files[b.Path+"/"] = ""
	case *world.WriteFile:
		if _, exists := n.files[path.Dir(b.Path)+"/"]; !exists {
			return nil, world.Errorf(world.KindNotFound, "WriteFile", "no such directory")
		}
		n.files[b.Path] = string(b.Data)
	case *world.RemoveTree:
		delete(n.files, b.Path)
	default:
		n.t.Fatalf("unexpected %T", body)
	}
	return &world.Done{}, nil
}

// begin begins a pull, which must be possible.
func (n *node) begin(ref, name string) {
	n.t.Helper()
	if n.canBegin(ref, name) {
		return
	}
	if n.run(); !slices.Contains(n.ready, name) || !n.canBegin(ref, name) {
		n.t.Fatalf("the pull of %s does not begin", ref)
	}
}

// canBegin asks whether a pull can begin.
func (n *node) canBegin(ref, name string) bool {
	ready, _ := n.store.Begin(ref, name, "", n.now)
	return ready
}

// images are a list of the runtime, by ID, of which some have the name of ref.
func images(named ...string) map[string][]string {
	list := map[string][]string{}
	for _, id := range named {
		list[id] = []string{ref}
	}
	return list
}

// list has the runtime list its images.
func (n *node) list(images map[string][]string) {
	n.t.Helper()
	n.now = n.now.Add(time.Second)
	n.store.Reconcile(images, n.now, n.now, n.now)
	n.run()
}

// pull pulls an image with the credentials of a secret; nil for those of the node.
func (n *node) pull(ref, id string, secret *keyring.Source) {
	n.t.Helper()
	n.begin(ref, ref)
	n.store.Pulled(ref, id, OfSecret(secret), n.now, n.now)
	n.store.End(ref, ref)
	n.run()
}

// expect checks whether a pod with some secrets may use an image.
func (n *node) expect(want Access, ref, id string, secrets ...*keyring.Source) {
	n.t.Helper()
	var sources []keyring.Source
	for _, s := range secrets {
		sources = append(sources, *s)
	}
	if got := n.store.Access(ref, id, []string{ref}, sources); got != want {
		n.t.Errorf("access to %s: %q, want %q", ref, got, want)
	}
}

// names returns the files in a directory.
func (n *node) names(dir string) (names []string) {
	for at := range maps.Keys(n.files) {
		if path.Dir(at) == "/im/"+dir && !strings.HasSuffix(at, "/") {
			names = append(names, path.Base(at))
		}
	}
	slices.Sort(names)
	return names
}

func secret(name, hash string) *keyring.Source {
	return &keyring.Source{UID: name + "-uid", Namespace: "ns", Name: name, CredentialHash: hash}
}

const (
	ref = "q.io/private:1"
	id  = "sha256:1"
)

// A pod uses an image with a secret that was good for it, by its name or by its content. Another
// pod has to pull it.
func TestSecrets(t *testing.T) {
	n := newNode(t, kubeletconfig.NeverVerifyPreloadedImages)
	n.expect(Allowed, ref, id) // it was on the node before
	n.pull(ref, id, secret("a", "1"))
	n.expect(Denied, ref, id)
	n.expect(Denied, ref, id, secret("b", "2"))
	n.expect(Recorded, ref, id, secret("b", "2"), secret("a", "1"))
	n.expect(Recorded, "q.io/private@sha256:0", id, secret("a", "1"))
	n.expect(Denied, "other.io/private:1", id, secret("a", "1"))
	n.expect(Recorded, ref, id, secret("same-content", "1"))
	n.expect(Recorded, ref, id, secret("a", "changed"))
	n.run()
	n.restart()
	n.expect(Recorded, ref, id, secret("same-content", "other"))
	n.expect(Recorded, ref, id, secret("other", "changed"))
	n.expect(Denied, ref, id)
	n.pull(ref, id, nil)
	n.expect(Recorded, ref, id)
	n.restart()
	n.expect(Recorded, ref, id)
	if got := n.names("pulling"); len(got) > 0 {
		t.Errorf("intents are left: %q", got)
	}
}

func TestPolicies(t *testing.T) {
	for policy, want := range map[kubeletconfig.ImagePullCredentialsVerificationPolicy]Access{
		"": Allowed, kubeletconfig.NeverVerify: Allowed, kubeletconfig.AlwaysVerify: Denied,
		kubeletconfig.NeverVerifyPreloadedImages:   Allowed,
		kubeletconfig.NeverVerifyAllowlistedImages: Denied,
	} {
		n := newNode(t, policy)
		n.store.Settings.Allowed = []string{"a.io/base", "b.io/team/*"}
		n.expect(want, ref, id)
		if policy == kubeletconfig.NeverVerifyAllowlistedImages {
			n.expect(Allowed, "a.io/base:1", id)
			n.expect(Denied, "a.io/base2", id)
			n.expect(Allowed, "b.io/team/x@sha256:0", id)
			n.expect(Denied, "b.io/teams", id)
		}
		if policy == "" {
			n.pull(ref, id, secret("a", "1"))
			n.expect(Allowed, ref, id)
		}
		if isKept := policy != ""; isKept != (n.loaded == 1) {
			t.Errorf("%q: read %d times", policy, n.loaded)
		}
	}
}

func TestPatterns(t *testing.T) {
	for pattern, want := range map[string]string{
		"a.io/base": "", "a.io/*": "", "base": "", "a.io/x/*": "",
		" a.io/x": "space", "": "registry", "*": "wildcard", "/*": "registry", "a.io/*/x": "wildcard",
		"a.io/x:1": "tag", "a.io/X Y": "name of an image",
	} {
		got := CheckPattern(pattern)
		if (got == "") != (want == "") || !strings.Contains(got, want) {
			t.Errorf("%q: %q, want %q", pattern, got, want)
		}
	}
}

// A pull begins when its intent is on the disk. An agent that is started within a pull, or after
// one whose record could not be written, knows that the image was pulled, and no more.
func TestAgentEndsWithinPull(t *testing.T) {
	n := newNode(t, kubeletconfig.NeverVerifyPreloadedImages)
	n.begin(ref, ref)
	n.expect(Denied, ref, id, secret("a", "1"))
	n.restart()
	n.expect(Denied, ref, id, secret("a", "1"))
	images := map[string][]string{id: {"q.io/private:1", "q.io/private@sha256:0"}}
	n.store.Reconcile(map[string][]string{}, n.now, n.now, n.now)
	n.run()
	n.expect(Denied, ref, id) // it may still come
	n.store.Reconcile(images, n.now, n.now, n.now)
	n.run()
	n.expect(Denied, ref, id, secret("a", "1"))
	n.expect(Denied, "q.io/private@sha256:0", id)
	if len(n.names("pulling")) != 0 || len(n.names("pulled")) != 1 {
		t.Errorf("files %q", n.files)
	}

	n = newNode(t, kubeletconfig.NeverVerifyPreloadedImages)
	n.begin(ref, ref)
	n.fail["WriteFile"] = world.Errorf(world.KindExhausted, "WriteFile", "no space")
	n.store.Pulled(ref, id, OfSecret(secret("a", "1")), n.now, n.now)
	n.store.End(ref, ref)
	n.run()
	n.expect(Recorded, ref, id, secret("a", "1"))
	if len(n.names("pulling")) != 1 {
		t.Error("the intent is removed before the record is on the disk")
	}
	if records, intents := n.store.FilesOnDisk(); records != 0 || intents != 1 {
		t.Errorf("%d records and %d intents are said to be on the disk", records, intents)
	}
	clear(n.fail)
	n.restart()
	n.expect(Denied, ref, id, secret("a", "1"))
	if records, intents := n.store.FilesOnDisk(); records != 0 || intents != 1 {
		t.Errorf("%d records and %d intents are said to be on the disk", records, intents)
	}
	n.pull(ref, id, secret("a", "1"))
	n.expect(Recorded, ref, id, secret("a", "1"))
	if records, intents := n.store.FilesOnDisk(); records != 1 || intents != 0 {
		t.Errorf("%d records and %d intents are said to be on the disk", records, intents)
	}
	if len(n.names("pulling")) != 0 {
		t.Error("the intent is left after another pull")
	}
}

// A failed pull leaves nothing, unless the image may still come.
func TestFailedPull(t *testing.T) {
	n := newNode(t, kubeletconfig.NeverVerifyPreloadedImages)
	n.begin(ref, ref)
	n.begin(ref, "another pod's")
	n.store.End(ref, ref)
	n.run()
	n.expect(Denied, ref, id)
	n.store.End(ref, "another pod's")
	n.run()
	n.expect(Allowed, ref, id)
	n.begin(ref, ref)
	n.store.MayCome(ref, n.now)
	n.store.End(ref, ref)
	n.run()
	n.expect(Denied, ref, id)
	n.now = n.now.Add(outcomeAwaited)
	n.store.Reconcile(map[string][]string{}, n.now, n.now, n.now)
	n.run()
	n.expect(Allowed, ref, id)
	if got := n.names("pulling"); len(got) > 0 {
		t.Errorf("intents are left: %q", got)
	}
}

// While the disk takes no intent, no pull begins; the images are planned after each attempt.
func TestIntentIsNotWritten(t *testing.T) {
	n := newNode(t, kubeletconfig.NeverVerifyPreloadedImages)
	n.fail["WriteFile"] = world.Errorf(world.KindExhausted, "WriteFile", "no space")
	if n.canBegin(ref, ref) {
		t.Error("a pull begins without an intent")
	}
	n.run()
	if n.store.Problem(ref) != "no space" || !slices.Equal(n.ready, []string{ref}) {
		t.Errorf("problem %q, %q may begin", n.store.Problem(ref), n.ready)
	}
	clear(n.fail)
	n.now = n.now.Add(time.Minute)
	n.begin(ref, ref)
	if n.store.Problem(ref) != "" {
		t.Errorf("problem %q after a success", n.store.Problem(ref))
	}
	n.store.End(ref, ref)
	if !n.canBegin(ref, "second") {
		t.Error("an intent that is still on the disk is written again")
	}
	if n.run(); len(n.names("pulling")) != 1 {
		t.Error("a pull has begun, and its intent is not on the disk")
	}
	n.store.End(ref, "second")
	n.held = true
	n.run()
	if n.canBegin(ref, "third") {
		t.Error("a pull begins while its intent is being removed")
	}
}

// A pull that is given up before its intent is on the disk leaves none.
func TestPullIsGivenUp(t *testing.T) {
	n := newNode(t, kubeletconfig.NeverVerifyPreloadedImages)
	n.store.Begin(ref, ref, "", n.now)
	n.store.End(ref, ref)
	n.run()
	n.expect(Allowed, ref, id)
	n.held = true
	n.store.Begin(ref, ref, "", n.now)
	n.run()
	write := n.out.List()[0]
	n.store.End(ref, ref)
	n.held = false
	n.complete(write)
	n.run()
	n.expect(Allowed, ref, id)
	if got := n.names("pulling"); len(got) > 0 || len(n.store.Intents) > 0 {
		t.Errorf("intents are left: %q", got)
	}
}

// What comes of a pull without an answer is another image than those that were on the node before,
// which stay what they were.
func TestImageBeforePull(t *testing.T) {
	n := newNode(t, kubeletconfig.NeverVerifyPreloadedImages)
	n.list(images(id))
	n.now = n.now.Add(time.Second)
	n.begin(ref, ref)
	n.expect(Allowed, ref, id)
	n.expect(Denied, ref, "sha256:new")
	n.store.MayCome(ref, n.now)
	n.store.End(ref, ref)
	n.run()
	n.list(images(id))
	n.expect(Allowed, ref, id)
	n.expect(Denied, ref, "sha256:new")
	n.list(images("sha256:new"))
	n.expect(Denied, ref, "sha256:new", secret("a", "1"))
	if len(n.names("pulling")) != 0 || len(n.names("pulled")) != 1 {
		t.Errorf("files %q", n.files)
	}
}

// An intent is for its image under every name: that of a pod, and those that the runtime has for
// the image.
func TestNamesOfIntent(t *testing.T) {
	n := newNode(t, kubeletconfig.NeverVerifyPreloadedImages)
	n.begin("app:1", "app:1")
	for _, c := range []struct {
		ref   string
		names []string
		want  Access
	}{
		{"docker.io/library/app:1", nil, Denied},
		{id, []string{"docker.io/library/app:1", "docker.io/library/app@sha256:0"}, Denied},
		{id, []string{"docker.io/library/other:1"}, Allowed},
	} {
		if got := n.store.Access(c.ref, id, c.names, nil); got != c.want {
			t.Errorf("%s of %q: %q, want %q", c.ref, c.names, got, c.want)
		}
	}
}

// Two pulls of one reference have brought two images: its intent stays until both are recorded.
func TestTwoImagesOfReference(t *testing.T) {
	n := newNode(t, kubeletconfig.NeverVerifyPreloadedImages)
	n.begin(ref, "first")
	n.begin(ref, "second")
	n.held = true
	n.store.Pulled(ref, id, OfSecret(secret("a", "1")), n.now, n.now)
	n.store.End(ref, "first")
	n.run()
	first := n.out.List()[0]
	n.store.Pulled(ref, "sha256:2", OfSecret(secret("b", "2")), n.now, n.now)
	n.store.End(ref, "second")
	n.held = false
	n.run()
	if len(n.names("pulling")) != 1 {
		t.Error("the intent is removed before the first record is on the disk")
	}
	n.complete(first)
	n.run()
	if len(n.names("pulling")) != 0 || len(n.names("pulled")) != 2 {
		t.Errorf("files %q", n.files)
	}
}

// Records go with their images, once those were absent for an hour.
func TestRecordsOfRemovedImages(t *testing.T) {
	n := newNode(t, kubeletconfig.NeverVerifyPreloadedImages)
	n.pull(ref, id, secret("a", "1"))
	n.list(images())
	n.now = n.now.Add(absenceAwaited)
	n.list(images(id))
	n.list(images())
	n.now = n.now.Add(absenceAwaited - 2*time.Second)
	n.list(images())
	n.expect(Denied, ref, id)
	n.pull(ref, id, secret("a", "1"))
	n.store.Reconcile(images(), n.now.Add(-time.Second), n.now.Add(time.Hour), n.now) // an old list
	n.expect(Denied, ref, id)
	n.list(images())
	n.now = n.now.Add(absenceAwaited)
	n.store.Reconcile(images(), n.now, n.now, n.now)
	n.expect(Allowed, ref, id)
	n.pull(ref, id, secret("b", "2")) // before the removal is planned
	n.expect(Recorded, ref, id, secret("b", "2"))
	n.expect(Denied, ref, id, secret("a", "1"))
	n.restart()
	n.expect(Recorded, ref, id, secret("b", "2"))
}

// Files of a kubelet are read, of both versions; of a damaged one it is known that the image was
// pulled. A directory that cannot be read leaves no image to all pods.
func TestFilesOfAKubelet(t *testing.T) {
	n := newNode(t, kubeletconfig.NeverVerifyPreloadedImages)
	n.files["/im/pulled/"], n.files["/im/pulling/"] = "", ""
	put := func(dir, of, text string) { n.files["/im/"+dir+"/"+fileName(of)] = text }
	put("pulled", id, `{"kind":"ImagePulledRecord","apiVersion":"kubelet.config.k8s.io/v1alpha1",`+
		`"lastUpdatedTime":"2026-01-01T00:00:00Z","imageRef":"sha256:1","credentialMapping":{`+
		`"q.io/private":{"kubernetesSecrets":[{"uid":"a-uid","namespace":"ns","name":"a",`+
		`"credentialHash":"1"}]}}}`)
	put("pulled", "sha256:2", `{"kind":"ImagePulledRecord",`+
		`"apiVersion":"kubelet.config.k8s.io/v1beta1","imageRef":"sha256:2",`+
		`"credentialMapping":{"q.io/public":{"nodePodsAccessible":true}}}`)
	put("pulled", "sha256:3", `{`)
	put("pulled", "sha256:4", `{"kind":"ImagePulledRecord",`+
		`"apiVersion":"kubelet.config.k8s.io/v1beta1","imageRef":"sha256:1",`+
		`"credentialMapping":{"q.io/x":{"nodePodsAccessible":true}}}`)
	put("pulling", "q.io/late", `{"kind":"ImagePullIntent",`+
		`"apiVersion":"kubelet.config.k8s.io/v1beta1","image":"q.io/late"}`)
	n.files["/im/pulled/"+fileName("sha256:5")+".tmp"] = "{"
	put("pulling", "q.io/torn", "")
	n.restart()
	n.expect(Recorded, ref, id, secret("a", "1"))
	n.expect(Denied, ref, id)
	n.expect(Recorded, "q.io/public", "sha256:2")
	n.expect(Denied, "q.io/x", "sha256:3")
	listed := map[string][]string{}
	for _, id := range []string{id, "sha256:2", "sha256:3", "sha256:4", "sha256:5"} {
		listed[id] = nil
	}
	n.store.Reconcile(listed, n.now, n.now, n.now)
	n.expect(Denied, "q.io/x", "sha256:3")
	n.expect(Denied, "q.io/x", "sha256:4")
	n.expect(Allowed, "q.io/x", "sha256:5")
	n.expect(Denied, "q.io/late", "sha256:6")
	n.expect(Denied, "q.io/torn", "sha256:6")
	n.pull("q.io/torn", "sha256:6", secret("a", "1"))
	n.expect(Recorded, "q.io/torn", "sha256:6", secret("a", "1"))
	n.pull("q.io/x", "sha256:3", secret("a", "1"))
	n.restart()
	n.expect(Recorded, "q.io/x", "sha256:3", secret("a", "1"))

	n.fail["ReadFiles"] = world.Errorf(world.KindInternal, "ReadFiles", "input/output error")
	n.restart()
	n.expect(Unknown, ref, id)
	n.readAgain()
	n.expect(Denied, "q.io/x", "sha256:5")
	n.pull("q.io/x", "sha256:3", secret("b", "2"))
	clear(n.fail)
	before := n.loaded
	n.now = n.now.Add(backoffMax)
	n.run()
	n.expect(Allowed, "q.io/x", "sha256:5")
	n.expect(Recorded, "q.io/x", "sha256:3", secret("b", "2"))
	n.expect(Denied, "q.io/x", "sha256:3", secret("a", "1")) // its record was written again
	if n.loaded != before+2 {                                // once for each directory
		t.Errorf("loaded %d times, before %d", n.loaded, before)
	}
}

// A damaged intent counts for its image under each spelling, and for what the runtime lists under
// such a name, which has a record from then on.
func TestDamagedIntent(t *testing.T) {
	for _, written := range []string{"app", "app:latest", "library/app", "docker.io/app",
		"docker.io/library/app"} {
		n := newNode(t, kubeletconfig.NeverVerifyPreloadedImages)
		n.files["/im/pulled/"], n.files["/im/pulling/"] = "", ""
		n.files["/im/pulling/"+fileName(written)] = "{"
		n.restart()
		if got := n.store.Access("docker.io/library/app:latest", id, nil, nil); got != Denied {
			t.Errorf("%s: %q for another spelling", written, got)
		}
		n.restart()
		n.list(map[string][]string{"sha256:2": {"docker.io/library/other:latest"},
			id: {"docker.io/library/app:latest"}})
		n.now = n.now.Add(outcomeAwaited)
		n.list(map[string][]string{})
		n.expect(Allowed, ref, "sha256:2")
		n.expect(Denied, ref, id)
		if len(n.names("pulling")) > 0 || len(n.store.IntentsOf) > 0 {
			t.Errorf("%s: %q, %v", written, n.names("pulling"), n.store.IntentsOf)
		}
	}
}

// An intent of an earlier agent counts, also if the directory can be read only after this agent has
// intended the same pull: the image is on the node since before that.
func TestIntentIsReadLate(t *testing.T) {
	n := newNode(t, kubeletconfig.NeverVerifyPreloadedImages)
	n.begin(ref, ref)
	n.fail["ReadFiles"] = world.Errorf(world.KindInternal, "ReadFiles", "input/output error")
	n.fail["WriteFile"] = n.fail["ReadFiles"]
	n.restart()
	n.list(images(id))
	n.readAgain()
	n.expect(Denied, ref, id)
	n.canBegin(ref, ref)
	n.run()
	n.store.End(ref, ref)
	clear(n.fail)
	n.now = n.now.Add(backoffMax)
	n.run()
	n.expect(Denied, ref, id)
	n.list(images(id))
	n.expect(Denied, ref, id)
}

// What an agent was writing when it ended is removed by the next one, and nothing else is.
func TestLeftovers(t *testing.T) {
	n := newNode(t, kubeletconfig.NeverVerifyPreloadedImages)
	n.pull(ref, id, secret("a", "1"))
	n.begin(ref, ref)
	kept := len(n.files)
	others := []string{"/im/pulled/" + fileName(id) + ".tmp", "/im/pulled/.new-1", "/im/pulling/x"}
	for _, at := range others {
		n.files[at] = "{"
	}
	for i := range 3 {
		n.files[fmt.Sprint("/im/pulled/.", fileName(id), ".new-", i)] = "{"
		n.files[fmt.Sprint("/im/pulling/.", fileName(ref), ".new-", i)] = "{"
	}
	n.fail["RemoveTree"] = world.Errorf(world.KindInternal, "RemoveTree", "input/output error")
	n.restart()
	n.expect(Recorded, ref, id, secret("a", "1"))
	if len(n.files) != kept+len(others)+6 || n.store.LeftoverOp != 0 {
		t.Errorf("files %q", n.files)
	}
	clear(n.fail)
	n.restart()
	if len(n.files) != kept+len(others) {
		t.Errorf("files %q", n.files)
	}
}

// A secret with two entries for an image confirms neither in place of the one that was good: a
// secret with the content of the other one has to pull.
func TestTwoEntriesOfASecret(t *testing.T) {
	n := newNode(t, kubeletconfig.NeverVerifyPreloadedImages)
	n.pull(ref, id, secret("a", "good"))
	n.expect(Recorded, ref, id, secret("a", "bad"), secret("a", "good"))
	n.run()
	n.expect(Recorded, ref, id, secret("b", "good"))
	n.run()
	n.expect(Denied, ref, id, secret("c", "bad"))
	n.expect(Recorded, ref, id, secret("a", "new"), secret("a", "newer"))
	n.run()
	n.expect(Denied, ref, id, secret("d", "new"))
	n.expect(Recorded, ref, id, secret("a", "new")) // with one entry, its new content counts
	n.run()
	n.expect(Recorded, ref, id, secret("d", "new"))
}

// A record of a kubelet with many repositories is trimmed in time that is linear in them.
func TestTrimIsLinear(t *testing.T) {
	trim := func(repositories int) uint64 {
		r := &Record{}
		for i := range repositories {
			put(&r.CredentialMapping, fmt.Sprint("q.io/", i), OfSecret(secret("a", "1")))
		}
		put(&r.GrantedAt, "q.io/1", t0)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		r.trim("q.io/0")
		runtime.ReadMemStats(&after)
		if _, isKept := r.CredentialMapping["q.io/0"]; len(r.CredentialMapping) != credentialsMax ||
			!isKept || len(r.GrantedAt) != 1 {
			t.Errorf("%d repositories are left", len(r.CredentialMapping))
		}
		return after.TotalAlloc - before.TotalAlloc
	}
	trim(1000)
	if few, many := trim(1000), trim(8000); many > 16*few {
		t.Errorf("%d bytes are allocated for 1000 repositories, and %d for 8000", few, many)
	}
	long := &Record{}
	for i := range credentialsMax {
		put(&long.CredentialMapping, fmt.Sprint("q.io/", i),
			OfSecret(secret(strings.Repeat("x", 900), "")))
	}
	long.trim("q.io/0")
	if size := len(encode(&long.ImagePulledRecord)); size > recordBytesMax ||
		size < recordBytesMax-2100 {
		t.Errorf("the record has %d bytes", size)
	}
}

// The file of a record is the kubelet's.
func TestFormat(t *testing.T) {
	n := newNode(t, kubeletconfig.NeverVerifyPreloadedImages)
	n.pull(ref, id, secret("a", "1"))
	const want = `{"kind":"ImagePulledRecord","apiVersion":"kubelet.config.k8s.io/v1beta1",` +
		`"lastUpdatedTime":"2026-01-01T00:00:00Z","imageRef":"sha256:1","credentialMapping":{` +
		`"q.io/private":{"kubernetesSecrets":[{"uid":"a-uid","namespace":"ns","name":"a",` +
		`"credentialHash":"1"}]}}}` + "\n"
	const at = "/im/pulled/sha256-51ae7fa00c92525c319404a3a6d400e52ff9372c5a39cb415e0486fe425f3165"
	if got := n.files[at]; got != want {
		t.Errorf("the record is\n%s, want\n%s, among %q", got, want, n.files)
	}
}

// A tenant cannot make a record grow without end, nor keep others from it.
func TestBounds(t *testing.T) {
	n := newNode(t, kubeletconfig.NeverVerifyPreloadedImages)
	n.pull(ref, id, &keyring.Source{UID: "v", Namespace: "victim", Name: "v", CredentialHash: "v"})
	for i := range 3 * credentialsMax {
		name := fmt.Sprint("x", i)
		n.now = n.now.Add(time.Second)
		n.pull(ref, id, secret(name, name))
		n.expect(Recorded, ref, id, secret(name, name))
	}
	n.expect(Recorded, ref, id, &keyring.Source{CredentialHash: "v"})
	for i := range 3 * credentialsMax {
		n.now = n.now.Add(time.Second)
		n.pull(fmt.Sprint("evil.io/", i), id, secret("a", "1"))
	}
	r := n.store.Records[fileName(id)]
	if len(r.CredentialMapping) > credentialsMax || len(r.GrantedAt) > credentialsMax {
		t.Errorf("%d repositories, %d times", len(r.CredentialMapping), len(r.GrantedAt))
	}
	n.pull(ref, id, nil)
	n.expect(Recorded, ref, id)
	long := strings.Repeat("x", 253)
	for i := range 4 * credentialsMax {
		n.now = n.now.Add(time.Second)
		n.pull(fmt.Sprint("evil.io/", i%4), id, secret(fmt.Sprint(long, i), long))
	}
	if size := len(encode(&r.ImagePulledRecord)); size > recordBytesMax {
		t.Errorf("the record has %d bytes", size)
	}
	n.expect(Recorded, "evil.io/3", id, secret(fmt.Sprint(long, 4*credentialsMax-1), long))
}

// The first pulls wait for the first list of images, which says what was there before, but not for
// long.
func TestPullsWaitForList(t *testing.T) {
	n := newNode(t, kubeletconfig.NeverVerifyPreloadedImages)
	n.store.IsListed = false
	ready, until := n.store.Begin(ref, ref, "", n.now)
	if want := n.now.Add(listAwaited); ready || !until.Equal(want) {
		t.Errorf("ready %t, asked again at %v, want %v", ready, until, want)
	}
	if !n.store.Reconcile(images(id), n.now, n.now, n.now) ||
		n.store.Reconcile(images(id), n.now, n.now, n.now) {
		t.Error("the first list is not told from later ones")
	}
	n.now = n.now.Add(time.Second)
	n.begin(ref, ref)
	n.expect(Allowed, ref, id)
	n.store.IsListed, n.store.ListAwaited = false, n.now.Add(-listAwaited)
	if !n.canBegin(ref, "other") {
		t.Error("a pull waits for a list without end")
	}
}

// If the directory cannot be made, the pulls that wait for it say so, and an intent that is given
// up is forgotten.
func TestDirectoryIsNotMade(t *testing.T) {
	n := newNode(t, kubeletconfig.NeverVerifyPreloadedImages)
	n.fail["MakeDir"] = world.Errorf(world.KindExhausted, "MakeDir", "read-only file system")
	if n.canBegin(ref, ref) {
		t.Error("a pull begins without an intent")
	}
	n.run()
	if n.store.Problem(ref) != "read-only file system" || !slices.Contains(n.ready, ref) {
		t.Errorf("problem %q, %q are planned", n.store.Problem(ref), n.ready)
	}
	clear(n.fail)
	n.now = n.now.Add(time.Minute)
	n.begin(ref, ref)
	n.store.End(ref, ref)
	n.store.Begin("q.io/other", "other", "", n.now)
	n.store.End("q.io/other", "other")
	n.run()
	if len(n.store.Intents) != 0 || len(n.names("pulling")) != 0 {
		t.Errorf("%d intents are left", len(n.store.Intents))
	}
}

// What a pull has brought is known by the ID that the runtime lists as well.
func TestRename(t *testing.T) {
	n := newNode(t, kubeletconfig.NeverVerifyPreloadedImages)
	n.pull(ref, "q.io/private@sha256:0", secret("a", "1"))
	n.store.Rename("q.io/private@sha256:0", id, n.now, n.now)
	n.run()
	n.restart()
	n.expect(Recorded, ref, id, secret("a", "1"))
	n.expect(Denied, ref, id)
}

package manifest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"seedlet.dev/core/op"
	"seedlet.dev/world"
)

// reader is sources that are read.
type reader struct {
	t     *testing.T
	s     Sources
	table op.Table
	out   op.Out
	now   time.Time
}

func newReader(t *testing.T) *reader {
	c := &kubeletconfig.KubeletConfiguration{StaticPodURL: pageURL,
		StaticPodURLHeader: map[string][]string{"B": {"2"}, "A": {"1", "0"}}}
	c.FileCheckFrequency.Duration, c.HTTPCheckFrequency.Duration = time.Minute, 20*time.Second
	r := &reader{t: t, s: NewSources(c, "/manifests/", "n"),
		now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	r.out.Begin(&r.table, r.now)
	return r
}

// page has the URL read: an empty text is an error.
func (r *reader) page(text string) {
	r.now = r.now.Add(20 * time.Second)
	ev := world.Event{Time: r.now, Body: &world.ManifestFetched{Data: []byte(text)}}
	if text == "" {
		ev.Body, ev.Err = nil, world.Errorf(world.KindUnavailable, "FetchManifest", "status 404")
	}
	r.out.Begin(&r.table, r.now)
	r.s.Answered(URLOwner, ev, &r.out)
}

// file has the directory read.
func (r *reader) file(text string) {
	r.out.Begin(&r.table, r.now)
	r.s.Answered(Owner, world.Event{Time: r.now, Body: &world.FilesRead{Directory: true,
		Files: []world.File{{Name: "f.yaml", Data: []byte(text)}}}}, &r.out)
}

// wants fails the test unless these pods are wanted.
func (r *reader) wants(names ...string) {
	r.t.Helper()
	var got []string
	for _, p := range r.s.Pods() {
		got = append(got, p.Name+" of "+p.Annotations[ConfigSourceAnnotation])
	}
	if diff := cmp.Diff(names, got); diff != "" {
		r.t.Errorf("pods (-want +got):\n%s", diff)
	}
}

func (r *reader) logs() (lines []string) {
	for _, eff := range r.out.Take() {
		if log, is := eff.Body.(*world.Log); is {
			lines = append(lines, log.Message)
		}
	}
	return lines
}

func TestTheURLIsAskedForEveryPeriod(t *testing.T) {
	r := newReader(t)
	r.s.Plan(URLOwner, &r.out)
	want := &world.FetchManifest{URL: pageURL, BytesMax: BytesMax, Headers: []world.HTTPHeader{
		{Name: "A", Value: "1"}, {Name: "A", Value: "0"}, {Name: "B", Value: "2"}}}
	if diff := cmp.Diff(want, r.out.Take()[0].Body); diff != "" {
		t.Errorf("asks (-want +got):\n%s", diff)
	}
	r.page(twoPods)
	if wake := r.s.Plan(URLOwner, &r.out); wake.Sub(r.now) != 20*time.Second {
		t.Errorf("asks again after %v", wake.Sub(r.now))
	}
}

func TestNothingIsKnownBeforeBothWereRead(t *testing.T) {
	r := newReader(t)
	r.file("")
	for _, page := range []string{"", "# nothing\n", "kind: Nonsense\n", twoPods[:80], "\n"} {
		if r.page(page); r.s.Ready() {
			t.Errorf("ready after %q", page)
		}
	}
	if r.page(emptyURL); !r.s.Ready() {
		t.Error("not ready after a list of no pods")
	}
}

// What the URL said last stays until it says something else.
func TestABadPageLosesNothing(t *testing.T) {
	r := newReader(t)
	r.page(twoPods)
	for _, page := range []string{"", "# nothing\n", "kind: Nonsense\n", twoPods + itemBad, "\n"} {
		r.page(page)
		r.wants("a-n of http", "b-n of http")
	}
	r.page(emptyURL + "items:\n" + itemB)
	r.wants("b-n of http")
	r.page(emptyURL)
	r.wants()
}

func TestTheSameProblemIsToldOnce(t *testing.T) {
	r := newReader(t)
	for page, want := range []struct {
		text string
		told int
	}{{"", 1}, {"", 0}, {"kind: Nonsense\n", 1}, {"kind: Nonsense\n", 0}, {twoPods, 0}, {"", 1}} {
		if r.page(want.text); len(r.logs()) != want.told {
			t.Errorf("page %d: told %q, want %d lines", page, r.logs(), want.told)
		}
	}
	log := r.out.Take()[0].Body.(*world.Log)
	if strings.Contains(fmt.Sprint(log.Fields...), "secret") {
		t.Errorf("a secret is told: %v", log)
	}
}

// A pod that says the same was first seen then, whatever happens to others of the page.
func TestAPodOfAPageKeepsWhenItWasSeen(t *testing.T) {
	r := newReader(t)
	r.page(twoPods)
	b := r.s.Pods()[1]
	r.page(emptyURL + "items:\n" + itemB)
	if r.s.Pods()[0] != b {
		t.Errorf("%v is another one than %v", r.s.Pods()[0].Annotations, b.Annotations)
	}
	r.page(strings.ReplaceAll(twoPods, "name: b", "name: b, uid: b"))
	if seen := r.s.Pods()[1].Annotations[ConfigSeenAnnotation]; seen ==
		b.Annotations[ConfigSeenAnnotation] {
		t.Error("another manifest has been seen as long")
	}
}

// Of two that ask for the same, the file has it, and then the first of the page, for as long as
// they are there.
func TestTheFirstSourceWins(t *testing.T) {
	const manifest = "apiVersion: v1\nkind: Pod\n"
	r := newReader(t)
	r.page(twoPods + strings.Replace(itemA, "image: i", "image: other", 1))
	r.wants("a-n of http", "b-n of http")
	r.file(manifest + "metadata: {name: a}\nspec: {containers: [{name: c, image: f}]}\n")
	r.wants("a-n of file", "b-n of http")
	if len(r.logs()) != 2 { // the two of the page are twins of another one now
		t.Errorf("told %q", r.logs())
	}
	if r.page(twoPods + itemA); len(r.logs()) != 1 {
		t.Errorf("told %q", r.logs())
	}
	r.file(manifest + "metadata: {name: x, uid: " + string(r.s.HTTP.Files["default/b-n"].Pod.UID) +
		"}\nspec: {containers: [{name: c, image: f}]}\n")
	r.wants("x-n of file", "a-n of http")
	if all, broken := r.s.Count(); all != 4 || broken != 2 {
		t.Errorf("%d manifests, %d broken", all, broken)
	}
	r.file("")
	r.wants("a-n of http", "b-n of http")
}

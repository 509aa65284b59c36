package manifest

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"seedlet.dev/core/op"
	"seedlet.dev/world"
)

// harness completes the reads of Sources.
type harness struct {
	t       *testing.T
	sources Sources
	table   op.Table
	out     op.Effects
	now     time.Time
}

func newHarness(t *testing.T) *harness {
	c := &kubeletconfig.KubeletConfiguration{StaticPodURL: manifestURL,
		StaticPodURLHeader: map[string][]string{"B": {"2"}, "A": {"1", "0"}}}
	c.FileCheckFrequency.Duration, c.HTTPCheckFrequency.Duration = time.Minute, 20*time.Second
	r := &harness{t: t, sources: NewSources(c, "/manifests/", "n"),
		now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	r.out.Reset(&r.table, r.now)
	return r
}

// readURL completes a read of the URL; an empty text is an error.
func (r *harness) readURL(text string) {
	r.now = r.now.Add(20 * time.Second)
	ev := world.Event{Time: r.now}
	if page, err := r.sources.HTTP.documents().ConvertPage([]byte(text)); err != nil {
		ev.Err = err
	} else {
		ev.Body = page
	}
	if text == "" {
		ev.Body, ev.Err = nil, world.Errorf(world.KindUnavailable, "FetchManifest", "status 404")
	}
	r.out.Reset(&r.table, r.now)
	r.sources.HandleCompletion(URLOwner, ev, &r.out)
}

// readDirectory completes a read of the directory.
func (r *harness) readDirectory(text string) {
	r.out.Reset(&r.table, r.now)
	r.completeRead([]world.File{{Name: "f.yaml", Data: []byte(text)}})
}

// completeRead completes a read of the directory as a port does.
func (r *harness) completeRead(files []world.File) {
	files = slices.Clone(files)
	r.sources.File.documents().Convert(files, true)
	r.sources.HandleCompletion(Owner, world.Event{Time: r.now,
		Body: &world.FilesRead{Directory: true, Files: files}}, &r.out)
}

// expectPods fails the test unless exactly these pods are desired.
func (r *harness) expectPods(names ...string) {
	r.t.Helper()
	var got []string
	for _, p := range r.sources.Pods() {
		got = append(got, p.Name+" of "+p.Annotations[ConfigSourceAnnotation])
	}
	if diff := cmp.Diff(names, got); diff != "" {
		r.t.Errorf("pods (-want +got):\n%s", diff)
	}
}

func (r *harness) logs() (lines []string) {
	for _, eff := range r.out.List() {
		if log, is := eff.Body.(*world.Log); is {
			lines = append(lines, log.Message)
		}
	}
	return lines
}

// A step decodes a part of the changed files only; no pod is gone meanwhile.
func TestManyFilesAreDecodedInParts(t *testing.T) {
	r := newHarness(t)
	r.readURL(emptyList)
	values := strings.Repeat("x, ", ValuesMax/8-20) // eight pods have a few less than the bound
	folder := func(prefix, image string) (files []world.File) {
		for i := range 40 {
			files = append(files, world.File{Name: fmt.Sprintf("%s%02d.yaml", prefix, i), Data: []byte(
				fmt.Sprintf("{apiVersion: v1, kind: Pod, metadata: {name: p%d, uid: u%d}, spec: "+
					"{containers: [{name: a, image: %s, args: [%s]}]}}", i, i, image, values))})
		}
		return files
	}
	read := func(files []world.File) (again bool) {
		t.Helper()
		r.out.Reset(&r.table, r.now)
		r.completeRead(files)
		return r.sources.File.NextAt.Equal(r.now)
	}
	for part, files := range [][]world.File{folder("a", "i"), folder("a", "j"), folder("b", "j")} {
		reads := 1
		for ; read(files); reads++ {
			if got := len(r.sources.Pods()); part == 0 && r.sources.File.Ready ||
				part > 0 && got != 40 || part == 0 && got != 8*reads {
				t.Errorf("part %d, read %d: %d pods, ready %v", part, reads, got,
					r.sources.File.Ready)
			}
		}
		if reads != 5 || len(r.sources.Pods()) != 40 || !r.sources.File.Ready ||
			len(r.sources.File.Files) != 40 {
			t.Errorf("part %d: %d reads, %d pods", part, reads, len(r.sources.Pods()))
		}
	}
	if got := r.sources.Pods()[0].Spec.Containers[0].Image; got != "j" {
		t.Errorf("image %q", got)
	}
}

func TestURLIsReadEveryPeriod(t *testing.T) {
	r := newHarness(t)
	r.sources.Plan(URLOwner, &r.out)
	want := &world.FetchManifest{URL: manifestURL, BytesMax: BytesMax, Documents: world.Documents{
		Known: map[string]string{"": ""}, BytesMax: DocumentMax, ValuesMax: ValuesMax},
		Headers: []world.HTTPHeader{
			{Name: "A", Value: "1"}, {Name: "A", Value: "0"}, {Name: "B", Value: "2"}}}
	if diff := cmp.Diff(want, r.out.List()[0].Body); diff != "" {
		t.Errorf("issued (-want +got):\n%s", diff)
	}
	r.readURL(twoPods)
	if wake := r.sources.Plan(URLOwner, &r.out); wake.Sub(r.now) != 20*time.Second {
		t.Errorf("next read after %v", wake.Sub(r.now))
	}
}

func TestNotReadyBeforeBothSourcesWereRead(t *testing.T) {
	r := newHarness(t)
	r.readDirectory("")
	for _, page := range []string{"", "# nothing\n", "kind: Nonsense\n", twoPods[:80], "\n"} {
		if r.readURL(page); r.sources.Ready() {
			t.Errorf("ready after %q", page)
		}
	}
	if r.readURL(emptyList); !r.sources.Ready() {
		t.Error("not ready after a list of no pods")
	}
}

// The pods of the last valid URL manifest stay until the next valid one.
func TestInvalidURLManifestKeepsPods(t *testing.T) {
	r := newHarness(t)
	r.readURL(twoPods)
	for _, page := range []string{"", "# nothing\n", "kind: Nonsense\n", twoPods + itemBad, "\n"} {
		r.readURL(page)
		r.expectPods("a-n of http", "b-n of http")
	}
	r.readURL(emptyList + "items:\n" + itemB)
	r.expectPods("b-n of http")
	r.readURL(emptyList)
	r.expectPods()
}

func TestSameProblemIsLoggedOnce(t *testing.T) {
	r := newHarness(t)
	for page, want := range []struct {
		text   string
		logged int
	}{{"", 1}, {"", 0}, {"kind: Nonsense\n", 1}, {"kind: Nonsense\n", 0}, {twoPods, 0}, {"", 1}} {
		if r.readURL(want.text); len(r.logs()) != want.logged {
			t.Errorf("read %d: logged %q, want %d lines", page, r.logs(), want.logged)
		}
	}
	log := r.out.List()[0].Body.(*world.Log)
	if strings.Contains(fmt.Sprint(log.Fields...), "secret") {
		t.Errorf("a secret is logged: %v", log)
	}
}

// A pod whose document is unchanged keeps its config.seen time, whatever happens to other pods of
// the manifest.
func TestURLPodKeepsSeenTime(t *testing.T) {
	r := newHarness(t)
	r.readURL(twoPods)
	b := r.sources.Pods()[1]
	r.readURL(emptyList + "items:\n" + itemB)
	if r.sources.Pods()[0] != b {
		t.Errorf("the unchanged pod was replaced: %v, want %v", r.sources.Pods()[0].Annotations,
			b.Annotations)
	}
	r.readURL(strings.ReplaceAll(twoPods, "name: b", "name: b, uid: b"))
	if seen := r.sources.Pods()[1].Annotations[ConfigSeenAnnotation]; seen ==
		b.Annotations[ConfigSeenAnnotation] {
		t.Error("a changed manifest kept its config.seen time")
	}
}

// Of two pods with the same UID or name the file's has precedence, then the first of the URL
// manifest, for as long as it exists.
func TestSourcePrecedence(t *testing.T) {
	const manifest = "apiVersion: v1\nkind: Pod\n"
	r := newHarness(t)
	r.readURL(twoPods + strings.Replace(itemA, "image: i", "image: other", 1))
	r.expectPods("a-n of http", "b-n of http")
	r.readDirectory(manifest + "metadata: {name: a}\nspec: {containers: [{name: c, image: f}]}\n")
	r.expectPods("a-n of file", "b-n of http")
	if len(r.logs()) != 2 { // both pods of the URL are duplicates of another pod now
		t.Errorf("logged %q", r.logs())
	}
	if r.readURL(twoPods + itemA); len(r.logs()) != 1 {
		t.Errorf("logged %q", r.logs())
	}
	uid := r.sources.HTTP.Files["default/b-n"].Pod.UID
	r.readDirectory(manifest + "metadata: {name: x, uid: " + string(uid) +
		"}\nspec: {containers: [{name: c, image: f}]}\n")
	r.expectPods("x-n of file", "a-n of http")
	if all, broken := r.sources.Count(); all != 4 || broken != 2 {
		t.Errorf("%d manifests, %d broken", all, broken)
	}
	r.readDirectory("")
	r.expectPods("a-n of http", "b-n of http")
}

// A file that is empty and then too large to be read is reported; one that is emptied again has no
// error.
func TestTooLargeFile(t *testing.T) {
	r := newHarness(t)
	broken := func() int { _, n := r.sources.Count(); return n }
	r.readDirectory("")
	if n := broken(); n != 0 {
		t.Errorf("%d of one empty file are invalid", n)
	}
	r.sources.HandleCompletion(Owner, world.Event{Time: r.now, Body: &world.FilesRead{Directory: true,
		Files: []world.File{{Name: "f.yaml", Err: world.Errorf(world.KindExhausted, "ReadFiles",
			"/manifests/f.yaml is larger than 5 bytes")}}}}, &r.out)
	if n := broken(); n != 1 {
		t.Errorf("%d of one file that is too large are invalid", n)
	}
	r.readDirectory("")
	if n := broken(); n != 0 {
		t.Errorf("%d of one file that was emptied are invalid", n)
	}
}

// What a port refuses to convert is an error that names the file, and the pod of the file is gone
// a second later, as that of any invalid manifest.
func TestManifestBeyondTheBounds(t *testing.T) {
	for _, args := range []string{strings.Repeat("x, ", ValuesMax), strings.Repeat("x", DocumentMax)} {
		r := newHarness(t)
		const head = "{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {containers: " +
			"[{name: a, image: i, args: ["
		r.readDirectory(head + "]}]}}")
		r.expectPods("p-n of file")
		for range 2 {
			r.readDirectory(head + args + "]}]}}")
			r.now = r.now.Add(2 * time.Second)
		}
		r.expectPods()
		got := r.sources.File.Files["f.yaml"].DecodeError
		if !strings.HasPrefix(got, "/manifests/f.yaml: the document has ") {
			t.Errorf("error %q", got)
		}
	}
}

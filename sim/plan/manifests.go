package plan

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"
)

// ManifestChange is one change of the manifest directory, or of the pod list at the manifest URL.
// It writes a pod or a text; with neither it removes the file.
type ManifestChange struct {
	URL  bool     `json:"url,omitempty"`  // an entry of the list at the manifest URL, not a file
	File string   `json:"file"`           // its name in the directory
	Pod  string   `json:"pod,omitempty"`  // the name of the entry of pods to write
	Text string   `json:"text,omitempty"` // instead of a pod: the content to write
	Torn Duration `json:"torn,omitempty"` // time between writing the first half and the rest
	Note string   `json:"note,omitempty"` // written as a comment on top, which changes no pod
}

// EmptyPodList is what the manifest URL serves while it has no entries.
const EmptyPodList = `{"apiVersion":"v1","kind":"PodList","items":[]}`

// ChurnRange is how often an administrator changes the manifests.
type ChurnRange struct {
	Removals     Count `json:"removals,omitempty"`     // a file is removed for good
	Recreations  Count `json:"recreations,omitempty"`  // a file is removed and written again
	Replacements Count `json:"replacements,omitempty"` // another image in the same file
	Rewrites     Count `json:"rewrites,omitempty"`     // the same pod again, with a comment
	Updates      Count `json:"updates,omitempty"`      // several new images, one soon after the other
	Renames      Count `json:"renames,omitempty"`      // another file gives the UID to another name
	Torn         Share `json:"torn,omitempty"`         // of writes: in two halves
	Interval     Span  `json:"away,omitempty"`         // from one change of a file to the next
	Twins        Count `json:"twins,omitempty"`        // a second file with a pod of the same name
	Broken       Count `json:"broken,omitempty"`       // a file that holds no pod
	BrokenPages  Count `json:"brokenPages,omitempty"`  // for a while the URL serves no pod list
	Always       bool  `json:"always,omitempty"`       // in every seed
}

func (c *ManifestChange) validate(s *Spec) error {
	switch {
	case c.File == "" || strings.ContainsAny(c.File, "/\x00") || c.File == "." || c.File == "..":
		return fmt.Errorf("file: want a file name, have %q", c.File)
	case c.Pod != "" && c.Text != "":
		return errors.New("pod: want either pod or text")
	case c.Pod != "" && s.PodNamed(c.Pod) == nil:
		return fmt.Errorf("pod: no pod is called %q", c.Pod)
	case c.Pod != "" && s.PodNamed(c.Pod).API:
		return fmt.Errorf("pod: %q is a pod of the API server", c.Pod)
	case c.URL && (s.Node.Config["staticPodURL"] == nil || c.Torn > 0):
		return errors.New("url: want a spec.node.config.staticPodURL, and no torn")
	case strings.Contains(c.Note, "\n"):
		return errors.New("note: want one line")
	}
	return nil
}

// Length implements Deed.
func (c *ManifestChange) Length() Duration { return c.Torn }

// PodEntry implements Deed.
func (c *ManifestChange) PodEntry() string { return c.Pod }

// manifestFile is a manifest file that exists in the run, as far as the plan is generated.
type manifestFile struct {
	url  bool // an entry of the list at the manifest URL
	name string
	pod  Pod
}

// removal returns the change that removes the file.
func (f manifestFile) removal() *ManifestChange {
	return &ManifestChange{URL: f.url, File: f.name}
}

// write returns the change that writes a pod into the file.
func (f manifestFile) write(pod string) *ManifestChange {
	return &ManifestChange{URL: f.url, File: f.name, Pod: pod}
}

// addManifestChanges generates the changes of the manifests. At most one of them, or one series of
// updates, is about each file, so the plan tells which pods are desired in the end.
func (g *generator) addManifestChanges() {
	c := &g.scenario.Spec.Churn
	files := g.untouchedFiles
	g.stream("churn files").Shuffle(len(files), func(i, k int) {
		files[i], files[k] = files[k], files[i]
	})
	g.forEachFile("removals", c.Removals, func(f manifestFile, at Duration, _ *rand.Rand) {
		g.addChange(at, f.removal())
	})
	g.forEachFile("recreations", c.Recreations, func(f manifestFile, at Duration, r *rand.Rand) {
		g.addChange(at, f.removal())
		g.addWrite(at+Duration(c.Interval.draw(r)), f.write(f.pod.Name), r)
	})
	g.forEachFile("replacements", c.Replacements, func(f manifestFile, at Duration, r *rand.Rand) {
		g.addWrite(at, f.write(g.addVersion(f.pod, 2)), r)
	})
	g.forEachFile("updates", c.Updates, func(f manifestFile, at Duration, r *rand.Rand) {
		for n := range 2 + r.IntN(3) {
			g.addWrite(at, f.write(g.addVersion(f.pod, n+2)), r)
			at += Duration(c.Interval.draw(r))
		}
	})
	g.forEachFile("renames", c.Renames, func(f manifestFile, at Duration, r *rand.Rand) {
		removedAt, writtenAt := at, at+Duration(c.Interval.draw(r))
		if r.IntN(3) == 0 { // two files have the UID for a while
			removedAt, writtenAt = writtenAt, removedAt
		}
		g.addChange(removedAt, f.removal())
		other := manifestFile{f.url, "other-" + f.name, f.pod}
		g.addWrite(writtenAt, other.write(g.addRenamed(f.pod)), r)
	})
	g.forEachFile("twins", c.Twins, func(f manifestFile, at Duration, r *rand.Rand) {
		twin := manifestFile{f.url && r.IntN(2) == 0, "twin-" + f.name, f.pod}
		g.addWrite(at, twin.write(g.addVersion(f.pod, 2)), r)
		if r.IntN(2) == 0 { // the twin takes over
			g.addChange(at+Duration(c.Interval.draw(r)), f.removal())
		} else if f.url && r.IntN(2) == 0 { // the first one takes over again
			g.addChange(at+Duration(c.Interval.draw(r)), twin.removal())
		}
	})
	g.forEachFile("rewrites", c.Rewrites, func(f manifestFile, at Duration, r *rand.Rand) {
		rewrite := f.write(f.pod.Name)
		rewrite.Note = "written again"
		g.addWrite(at, rewrite, r)
	})
	broken := g.stream("broken files")
	for n := range g.occurrences("broken files", c.Broken, c.Always) {
		g.addChange(g.randomTime(broken), &ManifestChange{
			File: fmt.Sprintf("broken-%d.yaml", n), Text: "kind: Nonsense\n"})
	}
	g.addBrokenPages()
}

// addBrokenPages generates when the manifest URL serves no list of pods.
func (g *generator) addBrokenPages() {
	c := &g.scenario.Spec.Churn
	r := g.stream("broken pages")
	for n := range g.occurrences("broken pages", c.BrokenPages, c.Always) {
		texts := []string{"kind: Nonsense\n", "# nothing\n", EmptyPodList[:30]}
		at, broken := g.randomTime(r), &ManifestChange{URL: true,
			File: fmt.Sprint("broken-page-", n), Text: texts[r.IntN(len(texts))]}
		g.addChange(at, broken)
		g.addChange(at+Duration(c.Interval.draw(r)), &ManifestChange{URL: true, File: broken.File})
	}
}

// forEachFile draws how many files a kind of change is made to, takes them from the untouched
// ones, and calls add for each with a random time.
func (g *generator) forEachFile(kind string, count Count,
	add func(manifestFile, Duration, *rand.Rand)) {
	r := g.stream("churn " + kind)
	for range g.occurrences(kind, count, g.scenario.Spec.Churn.Always) {
		if len(g.untouchedFiles) == 0 {
			return
		}
		f := g.untouchedFiles[0]
		g.untouchedFiles = g.untouchedFiles[1:]
		add(f, g.randomTime(r), r)
	}
}

// addWrite adds a write, which may be torn into two halves. They are less than a second apart,
// which is how long the agent waits for a broken file to become whole.
func (g *generator) addWrite(at Duration, c *ManifestChange, r *rand.Rand) {
	if g.scenario.Spec.Churn.Torn.drawBool(r) && !c.URL {
		c.Torn = Duration(time.Duration(1 + r.Int64N(int64(800*time.Millisecond))).
			Round(time.Millisecond))
	}
	g.addChange(at, c)
}

func (g *generator) addChange(at Duration, c *ManifestChange) {
	g.add(min(at, g.plan.Spec.Duration), c)
}

// addVersion adds a pod like the given one with the n-th image, and returns the name of its entry.
func (g *generator) addVersion(pod Pod, n int) string {
	version := pod
	version.Name = fmt.Sprintf("%s-v%d", pod.Name, n)
	version.Manifest = cloneManifest(pod.Manifest)
	for _, c := range containerFields(version.Manifest) {
		c["image"] = fmt.Sprintf("registry.test/other:%d", n)
	}
	g.plan.Spec.Pods = append(g.plan.Spec.Pods, version)
	return version.Name
}

// addRenamed adds a pod like the given one with another name and, if it has one, the same UID. It
// returns the name of its entry.
func (g *generator) addRenamed(pod Pod) string {
	renamed := pod
	renamed.Name = "other-" + pod.Name
	renamed.Manifest = renamedManifest(pod.Manifest, renamed.Name)
	g.plan.Spec.Pods = append(g.plan.Spec.Pods, renamed)
	return renamed.Name
}

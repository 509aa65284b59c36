package sim

import (
	"fmt"
	"math/rand/v2"
	"time"
)

// churn draws what somebody does to the manifests. Each file has at most one thing done to it,
// but for rewrites, so that what is wanted in the end can be told from the plan.
func (d *drawing) churn() {
	c := &d.scenario.Spec.Churn
	r := d.stream("churn files")
	r.Shuffle(len(d.files), func(i, k int) { d.files[i], d.files[k] = d.files[k], d.files[i] })
	d.each("removals", c.Removals, func(f drawnFile, at Duration, _ *rand.Rand) {
		d.change(f.goes(at))
	})
	d.each("recreations", c.Recreations, func(f drawnFile, at Duration, r *rand.Rand) {
		d.change(f.goes(at))
		d.write(f.says(at+Duration(c.Away.draw(r)), f.pod.Name), r)
	})
	d.each("replacements", c.Replacements, func(f drawnFile, at Duration, r *rand.Rand) {
		d.write(f.says(at, d.variant(f.pod)), r)
	})
	d.each("updates", c.Updates, func(f drawnFile, at Duration, r *rand.Rand) {
		for n := range 2 + r.IntN(3) {
			d.write(f.says(at, d.version(f.pod, n+2)), r)
			at += Duration(c.Away.draw(r))
		}
	})
	d.each("renames", c.Renames, func(f drawnFile, at Duration, r *rand.Rand) {
		goes, comes := at, at+Duration(c.Away.draw(r))
		if r.IntN(3) == 0 { // for a while two files have the UID
			goes, comes = comes, goes
		}
		d.change(f.goes(goes))
		other := drawnFile{f.url, "other-" + f.name, f.pod}
		d.write(other.says(comes, d.renamed(f.pod)), r)
	})
	d.each("twins", c.Twins, func(f drawnFile, at Duration, r *rand.Rand) {
		twin := drawnFile{f.url && r.IntN(2) == 0, "twin-" + f.name, f.pod}
		d.write(twin.says(at, d.variant(f.pod)), r)
		if r.IntN(2) == 0 { // the first one goes, and the twin takes over
			d.change(f.goes(at + Duration(c.Away.draw(r))))
		} else if f.url && r.IntN(2) == 0 { // the twin goes, and the first one takes over again
			d.change(twin.goes(at + Duration(c.Away.draw(r))))
		}
	})
	d.each("rewrites", c.Rewrites, func(f drawnFile, at Duration, r *rand.Rand) {
		again := f.says(at, f.pod.Name)
		again.Note = "written again"
		d.write(again, r)
	})
	broken := d.stream("broken files")
	for n := range d.times("broken files", c.Broken, c.Always) {
		d.change(Change{
			At: d.moment(broken), File: fmt.Sprintf("broken-%d.yaml", n), Text: "kind: Nonsense\n",
		})
	}
	d.breakPage()
}

// breakPage draws when the manifest URL says something that is no pods.
func (d *drawing) breakPage() {
	c := &d.scenario.Spec.Churn
	r := d.stream("broken pages")
	for n := range d.times("broken pages", c.BrokenPages, c.Always) {
		texts := []string{"kind: Nonsense\n", "# nothing\n", emptyPage[:30]}
		broken := Change{At: d.moment(r), URL: true, File: fmt.Sprint("broken-page-", n),
			Text: texts[r.IntN(len(texts))]}
		d.change(broken)
		d.change(Change{At: broken.At + Duration(c.Away.draw(r)), URL: true, File: broken.File})
	}
}

// each draws a number of files that nothing has been done to yet, and what is done to them.
func (d *drawing) each(what string, count Count, do func(drawnFile, Duration, *rand.Rand)) {
	r := d.stream("churn " + what)
	for range d.times(what, count, d.scenario.Spec.Churn.Always) {
		if len(d.files) == 0 {
			return
		}
		f := d.files[0]
		d.files = d.files[1:]
		do(f, d.moment(r), r)
	}
}

// write draws whether a file is written in two halves. They are closer together than the agent's
// patience with broken files, which is a second.
func (d *drawing) write(c Change, r *rand.Rand) {
	if d.scenario.Spec.Churn.Torn.chance(r) && !c.URL {
		c.Torn = Duration(time.Duration(1 + r.Int64N(int64(800*time.Millisecond))).
			Round(time.Millisecond))
	}
	d.change(c)
}

func (d *drawing) change(c Change) {
	c.At = min(c.At, d.plan.Spec.Duration)
	d.plan.Spec.Manifests = append(d.plan.Spec.Manifests, c)
}

// variant adds a pod like the given one, of the same name but for another image, and returns the
// name of its entry.
func (d *drawing) variant(pod PlanPod) string { return d.version(pod, 2) }

// version is the same for the n-th image.
func (d *drawing) version(pod PlanPod, n int) string {
	v := pod
	v.Name = fmt.Sprintf("%s-v%d", pod.Name, n)
	v.Manifest = clone(pod.Manifest)
	for _, c := range containerFields(v.Manifest) {
		c["image"] = fmt.Sprintf("registry.test/other:%d", n)
	}
	d.plan.Spec.Pods = append(d.plan.Spec.Pods, v)
	return v.Name
}

// renamed adds a pod like the given one, with its UID, if it has one, and another name.
func (d *drawing) renamed(pod PlanPod) string {
	v := pod
	v.Name = "other-" + pod.Name
	v.Manifest = named(pod.Manifest, v.Name)
	d.plan.Spec.Pods = append(d.plan.Spec.Pods, v)
	return v.Name
}

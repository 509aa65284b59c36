package sim

import (
	"cmp"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"seedlet.dev/core/manifest"
	"seedlet.dev/sim/network"
	"seedlet.dev/sim/plan"
)

// manifests changes the manifest directory and the manifest URL of the node, and reports to the
// oracles which static pods are desired.
type manifests struct {
	run      *run
	entries  map[string]*plan.Pod // of the plan's pods, by name
	current  map[source]*v1.Pod   // the pod that each source has now
	reported map[string]*v1.Pod   // by UID: the pods that the oracles know to be desired
	urlPage  manifestPage
}

// source is where a manifest is: a file of the directory, or an entry of the page at the manifest
// URL.
type source struct {
	url  bool
	file string
}

// compare orders sources by precedence: the directory before the URL.
func (s source) compare(o source) int {
	if s.url != o.url {
		if o.url {
			return -1
		}
		return 1
	}
	return cmp.Compare(s.file, o.file)
}

func newManifests(r *run) manifests {
	m := manifests{run: r, entries: map[string]*plan.Pod{}, current: map[source]*v1.Pod{},
		reported: map[string]*v1.Pod{}, urlPage: newManifestPage()}
	for i := range r.plan.Pods {
		m.entries[r.plan.Pods[i].Name] = &r.plan.Pods[i]
	}
	return m
}

// apply makes a change of the plan to a file or to the page at the URL.
func (m *manifests) apply(c *plan.ManifestChange) {
	if c.URL {
		m.applyToURL(c)
		return
	}
	r, file, src := m.run, plan.ManifestDir+"/"+c.File, source{file: c.File}
	if c.Pod == "" && c.Text == "" {
		m.setSource(src, nil)
		r.disk.Remove(file)
		r.disk.Sync()
		return
	}
	data := []byte(c.Text)
	if c.Pod != "" {
		data = m.entries[c.Pod].ManifestJSON()
	}
	if c.Note != "" {
		data = append([]byte("# "+c.Note+"\n"), data...)
	}
	pod, _, err := manifest.DecodeText(file, data, plan.NodeName)
	if err != nil {
		pod = nil // a text that is broken on purpose: Validate has decoded all pods
	}
	if c.Torn <= 0 {
		m.setSource(src, pod)
		r.disk.Write(file, data)
		r.disk.Sync()
		return
	}
	r.disk.WriteTorn(file, data, time.Duration(c.Torn), func() {
		r.disk.Sync()
		m.setSource(src, pod)
	})
}

// applyToURL makes a change of the plan to the page at the URL. While the page is broken, the pods
// of the last good page stay desired.
func (m *manifests) applyToURL(c *plan.ManifestChange) {
	m.urlPage.apply(c, m.entries)
	if m.urlPage.broken {
		m.run.excuses.PageBroken(m.run.agenda.Now())
	} else {
		m.run.excuses.PageMended(m.run.agenda.Now())
	}
	url := m.run.options.Config.StaticPodURL
	parts, _, err := manifest.DecodePage(url, m.urlPage.text, plan.NodeName)
	if err != nil {
		return
	}
	pods := map[source]*v1.Pod{}
	for i, name := range m.urlPage.names() {
		pods[source{true, name}] = parts[i].Pod
	}
	for _, src := range m.sources() {
		if src.url && pods[src] == nil {
			m.setSource(src, nil)
		}
	}
	for _, src := range slices.SortedFunc(maps.Keys(pods), source.compare) {
		old, pod := m.current[src], pods[src]
		if old == nil || old.UID != pod.UID || old.Name != pod.Name ||
			!equality.Semantic.DeepEqual(old.Spec, pod.Spec) {
			m.setSource(src, pod)
		}
	}
}

// fixPage removes the texts that break the page. An agent that was started while it was broken
// cannot know its pods.
func (m *manifests) fixPage() {
	for _, name := range m.urlPage.names() {
		if m.urlPage.entries[name].Text != "" {
			m.applyToURL(&plan.ManifestChange{File: name, URL: true})
		}
	}
}

// fetch returns the page at a URL.
func (m *manifests) fetch(url string) network.Page {
	if url != m.run.options.Config.StaticPodURL {
		return network.Page{}
	}
	return network.Page{Status: 200, Data: m.urlPage.text}
}

// setSource records the pod that a source has now, and reports to the oracles which pods are
// desired because of it.
func (m *manifests) setSource(src source, pod *v1.Pod) {
	before := m.current[src]
	if delete(m.current, src); pod != nil {
		m.current[src] = pod
	}
	if before != nil && pod == nil {
		m.run.startTimes.clearDesired(withoutNodeSuffix(before.Name))
	}
	if pod != nil {
		m.run.startTimes.setDesired(withoutNodeSuffix(pod.Name), m.run.agenda.Now())
	}
	desired := m.desired()
	for _, uid := range slices.Sorted(maps.Keys(m.reported)) {
		if desired[uid] == nil {
			delete(m.reported, uid)
			m.run.oracles.PodNoLongerDesired(m.run.agenda.Now(), uid)
			m.run.marks.PodNoLongerDesired(m.run.agenda.Now(), uid)
		}
	}
	for _, uid := range slices.Sorted(maps.Keys(desired)) {
		m.reportDesired(desired[uid], pod != nil && string(pod.UID) == uid)
	}
}

// sources returns the sources that have a pod, by precedence.
func (m *manifests) sources() []source {
	return slices.SortedFunc(maps.Keys(m.current), source.compare)
}

// desired returns the desired pods by UID. If several sources have the same UID the first one
// counts. A pod of the URL is not desired if another desired pod has its name.
func (m *manifests) desired() map[string]*v1.Pod {
	desired, named := map[string]*v1.Pod{}, map[string]bool{}
	for _, src := range m.sources() {
		pod := m.current[src]
		uid, name := string(pod.UID), pod.Namespace+"/"+pod.Name
		if desired[uid] == nil && !(src.url && named[name]) {
			desired[uid], named[name] = pod, true
		}
	}
	return desired
}

// reportDesired reports a desired pod to the oracles, if it is new or was written again.
func (m *manifests) reportDesired(pod *v1.Pod, rewritten bool) {
	now, oracles, uid := m.run.agenda.Now(), m.run.oracles, string(pod.UID)
	reported := m.reported[uid]
	if reported == pod && !rewritten {
		return
	}
	if reported != nil && (pod.Name != reported.Name || pod.Namespace != reported.Namespace) {
		m.run.marks.PodNoLongerDesired(now, uid)
		oracles.PodNoLongerDesired(now, uid) // the UID is that of another pod now
	}
	m.reported[uid] = pod
	m.run.clients.addUID(pod.Namespace+"/"+pod.Name, uid)
	oracles.PodDesired(now, pod)
	m.run.marks.PodDesired(now, pod)
}

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
)

// manifests is whoever changes the manifests of the simulated node, and tells the judges.
type manifests struct {
	run  *run
	pods map[string]*PlanPod // by the names of the plan's entries
	says map[place]*v1.Pod   // the pod in it now
	told map[string]*v1.Pod  // by UID, the pod that the judges know to be wanted
	page page
}

// place is where a manifest is: a file, or an entry of the page at the manifest URL.
type place struct {
	url  bool
	file string
}

// before orders places as they count: the directory's, then the page's.
func (p place) before(o place) int {
	if p.url != o.url {
		if o.url {
			return -1
		}
		return 1
	}
	return cmp.Compare(p.file, o.file)
}

func newManifests(r *run) manifests {
	m := manifests{run: r, pods: map[string]*PlanPod{}, says: map[place]*v1.Pod{},
		told: map[string]*v1.Pod{}, page: newPage()}
	for i := range r.plan.Pods {
		m.pods[r.plan.Pods[i].Name] = &r.plan.Pods[i]
	}
	return m
}

// change does what an entry of the plan says to a file or to the page.
func (m *manifests) change(c *Change) {
	if c.URL {
		m.changePage(c)
		return
	}
	r, file, at := m.run, manifestDir+"/"+c.File, place{file: c.File}
	if c.Pod == "" && c.Text == "" {
		m.want(at, nil)
		r.disk.Remove(file)
		r.disk.Sync()
		return
	}
	data := []byte(c.Text)
	if c.Pod != "" {
		data = m.pods[c.Pod].text()
	}
	if c.Note != "" {
		data = append([]byte("# "+c.Note+"\n"), data...)
	}
	pod, _, err := manifest.Decode(file, data, nodeName)
	if err != nil {
		pod = nil // broken on purpose: Validate has read all others
	}
	if c.Torn <= 0 {
		m.want(at, pod)
		r.disk.Write(file, data)
		r.disk.Sync()
		return
	}
	r.disk.WriteTorn(file, data, time.Duration(c.Torn), func() {
		r.disk.Sync()
		m.want(at, pod)
	})
}

// changePage does what an entry of the plan says to the page. While the page is broken, what is
// wanted is what it said before.
func (m *manifests) changePage(c *Change) {
	m.page.change(c, m.pods)
	parts, _, err := manifest.DecodePage(m.run.options.Config.StaticPodURL, m.page.text, nodeName)
	if err != nil {
		return
	}
	is := map[place]*v1.Pod{}
	for i, name := range m.page.names() {
		is[place{true, name}] = parts[i].Pod
	}
	for _, at := range m.places() {
		if at.url && is[at] == nil {
			m.want(at, nil)
		}
	}
	for _, at := range slices.SortedFunc(maps.Keys(is), place.before) {
		if was := m.says[at]; was == nil || was.UID != is[at].UID || was.Name != is[at].Name ||
			!equality.Semantic.DeepEqual(was.Spec, is[at].Spec) {
			m.want(at, is[at])
		}
	}
}

// at is what is at a URL now.
func (m *manifests) at(url string) network.Page {
	if url != m.run.options.Config.StaticPodURL {
		return network.Page{}
	}
	return network.Page{Status: 200, Data: m.page.text}
}

// want tells the judges what a place says now.
func (m *manifests) want(at place, pod *v1.Pod) {
	before := m.says[at]
	if delete(m.says, at); pod != nil {
		m.says[at] = pod
	}
	if before != nil && pod == nil {
		m.run.prompt.unwant(manifestName(before.Name))
	}
	if pod != nil {
		m.run.prompt.want(manifestName(pod.Name), m.run.agenda.Now())
	}
	wanted := m.wanted()
	for _, uid := range slices.Sorted(maps.Keys(m.told)) {
		if wanted[uid] == nil {
			delete(m.told, uid)
			m.run.panel.Unwanted(m.run.agenda.Now(), uid)
		}
	}
	for _, uid := range slices.Sorted(maps.Keys(wanted)) {
		m.tell(wanted[uid], pod != nil && string(pod.UID) == uid)
	}
}

// places are those that say something, in the order in which they count.
func (m *manifests) places() []place {
	return slices.SortedFunc(maps.Keys(m.says), place.before)
}

// wanted is the pods that are wanted, by UID: of several places that have one UID, what the first
// says; and of what the page says, nothing that has the name of another one's.
func (m *manifests) wanted() map[string]*v1.Pod {
	wanted, named := map[string]*v1.Pod{}, map[string]bool{}
	for _, at := range m.places() {
		pod := m.says[at]
		uid, name := string(pod.UID), pod.Namespace+"/"+pod.Name
		if wanted[uid] == nil && !(at.url && named[name]) {
			wanted[uid], named[name] = pod, true
		}
	}
	return wanted
}

// tell tells the judges that a pod is wanted. Said again, it is written again.
func (m *manifests) tell(pod *v1.Pod, again bool) {
	now, panel, uid := m.run.agenda.Now(), m.run.panel, string(pod.UID)
	told := m.told[uid]
	if told == pod && !again {
		return
	}
	if told != nil && (pod.Name != told.Name || pod.Namespace != told.Namespace) {
		panel.Unwanted(now, uid) // the UID is given to another pod
	}
	m.told[uid] = pod
	m.run.clients.came(pod.Namespace+"/"+pod.Name, uid)
	panel.Wanted(now, pod)
}

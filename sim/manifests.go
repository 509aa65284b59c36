package sim

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/core/manifest"
)

// manifests is whoever changes the manifests on the simulated node, and tells the judges.
type manifests struct {
	run  *run
	pods map[string]*PlanPod // by the names of the plan's entries
	says map[string]*v1.Pod  // by file, the pod in it now
	told map[string]*v1.Pod  // by UID, the pod that the judges know to be wanted
}

func newManifests(r *run) manifests {
	m := manifests{run: r, pods: map[string]*PlanPod{},
		says: map[string]*v1.Pod{}, told: map[string]*v1.Pod{}}
	for i := range r.plan.Pods {
		m.pods[r.plan.Pods[i].Name] = &r.plan.Pods[i]
	}
	return m
}

// change does what an entry of the plan says to a file.
func (m *manifests) change(c *Change) {
	r, file := m.run, manifestDir+"/"+c.File
	if c.Pod == "" && c.Text == "" {
		m.want(c.File, nil)
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
		m.want(c.File, pod)
		r.disk.Write(file, data)
		r.disk.Sync()
		return
	}
	r.disk.WriteTorn(file, data, time.Duration(c.Torn), func() {
		r.disk.Sync()
		m.want(c.File, pod)
	})
}

// want tells the judges what a file says now.
func (m *manifests) want(file string, pod *v1.Pod) {
	before := m.says[file]
	if delete(m.says, file); pod != nil {
		m.says[file] = pod
	}
	if before != nil && pod == nil {
		m.run.prompt.unwant(manifestName(before.Name))
	}
	if before != nil {
		m.tell(string(before.UID), false)
	}
	if pod != nil {
		m.run.prompt.want(manifestName(pod.Name), m.run.agenda.Now())
		m.tell(string(pod.UID), true)
	}
}

// tell tells the judges which pod of a UID is wanted now: if several files have one, that of the
// file whose name comes first. Said again, it is written again.
func (m *manifests) tell(uid string, again bool) {
	var first string
	for file, pod := range m.says { //ordered: the least is the same in any order
		if string(pod.UID) == uid && (first == "" || file < first) {
			first = file
		}
	}
	now, panel := m.run.agenda.Now(), m.run.panel
	pod, told := m.says[first], m.told[uid]
	switch {
	case pod == nil && told != nil:
		delete(m.told, uid)
		panel.Unwanted(now, uid)
	case pod != nil && told != nil && (pod.Name != told.Name || pod.Namespace != told.Namespace):
		panel.Unwanted(now, uid) // the UID is given to another pod
		m.told[uid] = pod
		panel.Wanted(now, pod)
	case pod != nil && (pod != told || again):
		m.told[uid] = pod
		panel.Wanted(now, pod)
	}
}

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
	uids map[string]string   // by file, of the pod that it wants now
}

func newManifests(r *run) manifests {
	m := manifests{run: r, pods: map[string]*PlanPod{}, uids: map[string]string{}}
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
		return
	}
	torn := time.Duration(c.Torn)
	r.agenda.After(torn, func() { m.want(c.File, pod) })
	r.disk.WriteTorn(file, data, torn)
}

// want tells the judges what a file says now.
func (m *manifests) want(file string, pod *v1.Pod) {
	now, before := m.run.agenda.Now(), m.uids[file]
	if before != "" && (pod == nil || string(pod.UID) != before) {
		m.run.panel.Unwanted(now, before)
		delete(m.uids, file)
	}
	if pod != nil {
		m.uids[file] = string(pod.UID)
		m.run.panel.Wanted(now, pod)
	}
}

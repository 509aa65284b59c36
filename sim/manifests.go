package sim

import (
	"encoding/json"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
	"sigs.k8s.io/yaml"

	"seedlet.dev/core/config"
	"seedlet.dev/core/manifest"
)

// manifests is whoever writes manifests on the simulated node.
type manifests struct {
	run  *run
	uids map[string]string // by file, of the pod that it wants now
}

// write does what an entry of the plan says to a file.
func (m *manifests) write(w *Write) {
	r, path := m.run, manifestDir+"/"+w.File
	now := r.agenda.Now()
	if w.Pod == nil {
		m.want(w.File, nil, now)
		r.disk.Remove(path)
		return
	}
	data, pod, err := decode(w)
	if err != nil {
		panic(err) // check has read it before
	}
	if w.Torn.Duration <= 0 {
		m.want(w.File, pod, now)
		r.disk.Write(path, data)
		return
	}
	r.disk.WriteTorn(path, data, w.Torn.Duration)
	r.agenda.After(w.Torn.Duration, func() { m.want(w.File, pod, r.agenda.Now()) })
}

// want tells the judges what a file says now.
func (m *manifests) want(file string, pod *v1.Pod, now time.Time) {
	before := m.uids[file]
	if before != "" && (pod == nil || string(pod.UID) != before) {
		m.run.panel.Unwanted(now, before)
		delete(m.uids, file)
	}
	if pod != nil {
		m.uids[file] = string(pod.UID)
		m.run.panel.Wanted(now, pod)
	}
}

// check reads every manifest of the plan, so that a bad one is an error and not a strange run.
func (m *manifests) check() error {
	for i := range m.run.plan.Writes {
		w := &m.run.plan.Writes[i]
		if w.Pod == nil {
			continue
		}
		if _, _, err := decode(w); err != nil {
			return fmt.Errorf("writes[%d]: %w", i, err)
		}
	}
	return nil
}

func decode(w *Write) ([]byte, *v1.Pod, error) {
	data, err := json.Marshal(w.Pod)
	if err != nil {
		return nil, nil, err
	}
	pod, _, err := manifest.Decode(manifestDir+"/"+w.File, data, nodeName)
	if err == nil && pod == nil {
		err = fmt.Errorf("%s: is empty", w.File)
	}
	return data, pod, err
}

// nodeConfig is the agent's configuration: the fragment of the scenario, and the defaults.
func nodeConfig(fragment map[string]any) (*kubeletconfig.KubeletConfiguration, error) {
	full := map[string]any{
		"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
		"staticPodPath": manifestDir,
	}
	for key, value := range fragment { //ordered: into a map
		full[key] = value
	}
	data, err := yaml.Marshal(full)
	if err != nil {
		return nil, fmt.Errorf("node: %w", err)
	}
	loaded, err := config.Load(&config.File{Name: "node", Data: data}, nil)
	if err != nil {
		return nil, err
	}
	if err := loaded.Finish(); err != nil {
		return nil, fmt.Errorf("node: %w", err)
	}
	return loaded.Config, nil
}

func backoffMax(c *kubeletconfig.KubeletConfiguration) time.Duration {
	if m := c.CrashLoopBackOff.MaxContainerRestartPeriod; m != nil {
		return m.Duration
	}
	return 300 * time.Second
}

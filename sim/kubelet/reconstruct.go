package kubelet

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"path"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// What a kubelet reconstructs of volumes of CSI drivers: by the directories of pods alone, and by
// the vol_data.json of each volume (reconstruct.go in pkg/kubelet/volumemanager/reconciler,
// ConstructVolumeSpec and ConstructBlockVolumeSpec in pkg/volume/csi/csi_plugin.go).

// volumeProblems returns which volumes a kubelet takes for others, or can never undo.
func (l *Left) volumeProblems(pods map[string]*v1.Pod) []string {
	var problems []string
	add := func(format string, args ...any) {
		problems = append(problems, fmt.Sprintf(format, args...))
	}
	inPods := map[string]bool{} // the keys of the volumes that a kubelet finds
	for _, uid := range l.List(l.RootDir + "/pods") {
		wanted := l.wantedVolumes(pods[uid])
		for _, isBlock := range []bool{false, true} {
			dir := l.RootDir + "/pods/" + uid + "/volumes/" + csiPlugin
			if isBlock {
				dir = l.RootDir + "/pods/" + uid + "/volumeDevices/" + csiPlugin
			}
			for _, name := range l.List(dir) {
				data, problem := l.dataOf(dir+"/"+name, name, isBlock)
				key := data["driverName"] + "^" + data["volumeHandle"]
				switch inPods[key] = true; {
				case problem != "" && (pods[uid] == nil && l.IsSettled || l.IsMounted(dir+"/"+name+"/mount")):
					add("%s/%s is never unpublished: %s", dir, name, problem)
				case problem == "" && l.IsSettled && wanted[name] != "" && wanted[name] != key:
					add("%s/%s is set up beside itself: its data has %s, and the pod needs %s", dir, name,
						key, wanted[name])
				}
			}
		}
	}
	return append(problems, l.stagingProblems(inPods)...)
}

// dataOf returns what the vol_data.json of a volume says, and why a kubelet cannot use it.
func (l *Left) dataOf(at, name string, isBlock bool) (data map[string]string, problem string) {
	file := at + "/vol_data.json"
	if isBlock {
		file = l.blocks() + "/" + name + "/data/vol_data.json"
	}
	text, exists := l.ReadFile(file)
	err := json.Unmarshal(text, &data)
	source := &v1.CSIPersistentVolumeSource{Driver: data["driverName"],
		VolumeHandle: data["volumeHandle"]}
	mode := data["volumeLifecycleMode"]
	switch {
	case !exists:
		return nil, "it has no " + file
	case err != nil:
		return nil, file + ": " + err.Error()
	case data["specVolID"] != name || source.Driver == "" || source.VolumeHandle == "":
		return data, fmt.Sprintf("%s is of another volume: %s", file, text)
	case data["nodeName"] != l.Name || data["attachmentID"] != l.attachmentName(source):
		return data, fmt.Sprintf("%s is of another attachment: %s", file, text)
	case !isBlock && mode != "Ephemeral" && mode != "Persistent":
		return data, fmt.Sprintf("%s has no lifecycle mode: %s", file, text)
	}
	return data, ""
}

// wantedVolumes returns the keys of the CSI volumes of a pod, by their directories.
func (l *Left) wantedVolumes(p *v1.Pod) map[string]string {
	wanted := map[string]string{}
	if p == nil {
		return wanted
	}
	for i := range p.Spec.Volumes {
		v := &p.Spec.Volumes[i]
		name, source := v.Name, (*v1.CSIPersistentVolumeSource)(nil)
		if v.CSI != nil {
			source = inlineSource(string(p.UID), v)
		} else if pv := l.VolumeOf(p, v); pv != nil {
			name, source = pv.Name, pv.Spec.CSI
		}
		if source != nil {
			wanted[name] = source.Driver + "^" + source.VolumeHandle
		}
	}
	return wanted
}

// stagingProblems returns which volumes stay staged: those whose data a kubelet cannot use
// (UnmountDevice in csi_attacher.go), and those that no directory of a pod names.
func (l *Left) stagingProblems(inPods map[string]bool) []string {
	var problems []string
	root := l.RootDir + "/plugins/kubernetes.io/csi"
	for _, driver := range l.List(root) {
		for _, hash := range l.List(root + "/" + driver) {
			at := root + "/" + driver + "/" + hash
			if !l.IsMounted(at + "/globalmount") {
				continue
			}
			var data map[string]string
			text, _ := l.ReadFile(at + "/vol_data.json")
			err := json.Unmarshal(text, &data)
			handle := data["volumeHandle"]
			switch isOf := fmt.Sprintf("%x", sha256.Sum256([]byte(handle))) == hash; {
			case err != nil || data["driverName"] != driver || !isOf:
				problems = append(problems, fmt.Sprintf("%s stays staged: its data is %q", at, text))
			case l.IsSettled && !inPods[driver+"^"+handle]:
				problems = append(problems, fmt.Sprintf("%s stays staged: no pod has a directory of it", at))
			}
		}
	}
	if !l.IsSettled {
		return problems
	}
	for _, name := range l.List(l.blocks()) {
		if name == "staging" || name == "publish" || strings.HasPrefix(name, ".") {
			continue
		}
		data, problem := l.dataOf("", name, true)
		if problem == "" && !inPods[data["driverName"]+"^"+data["volumeHandle"]] {
			problem = "no pod has a directory of it"
		}
		if problem != "" {
			problems = append(problems, fmt.Sprintf("the device in %s stays staged: %s",
				path.Join(l.blocks(), name), problem))
		}
	}
	return problems
}

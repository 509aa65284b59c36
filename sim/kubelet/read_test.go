package kubelet

import (
	"encoding/json"
	"path"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
)

// leftovers are what an agent has left of a pod of the API server and of a static pod, in order.
type leftovers struct {
	Left
	web, static *v1.Pod
	run         *runtimeapi.ContainerStatus // of web
	sandbox     *runtimeapi.PodSandboxStatus
	files       map[string]string
	mounts      map[string]bool
	pvs         map[string]*v1.PersistentVolume // by the names of volumes
}

func newLeftovers() *leftovers {
	grace := int64(30)
	l := &leftovers{files: map[string]string{}, mounts: map[string]bool{},
		pvs: map[string]*v1.PersistentVolume{}}
	l.web = &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default", UID: "u1"},
		Spec: v1.PodSpec{TerminationGracePeriodSeconds: &grace, Containers: []v1.Container{{
			Name: "app", Image: "registry.test/app:1", TerminationMessagePath: "/dev/termination-log",
			Ports: []v1.ContainerPort{{ContainerPort: 80}}, Lifecycle: &v1.Lifecycle{
				PreStop: &v1.LifecycleHandler{Exec: &v1.ExecAction{Command: []string{"stop"}}}}}}},
		Status: v1.PodStatus{ContainerStatuses: []v1.ContainerStatus{
			{Name: "app", ContainerID: "containerd://c1", RestartCount: 2}}}}
	l.static = &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "plane", Namespace: "default", UID: "u2",
		Annotations: map[string]string{annotationConfig: "u2"}}}
	mirror := l.static.DeepCopy()
	mirror.Annotations[annotationMirror] = "u2"
	labels := podLabels(l.web)
	labels[labelContainer] = "app"
	l.run = &runtimeapi.ContainerStatus{Id: "c1", State: runtimeapi.ContainerState_CONTAINER_RUNNING,
		Labels: labels, Annotations: containerAnnotations(l.web, &l.web.Spec.Containers[0], 2),
		LogPath: "/logs/default_web_u1/app/2.log", Mounts: []*runtimeapi.Mount{
			{ContainerPath: "/dev/termination-log", HostPath: "/root/pods/u1/containers/app/1"}}}
	l.sandbox = &runtimeapi.PodSandboxStatus{Id: "s1", Labels: podLabels(l.web),
		Metadata: &runtimeapi.PodSandboxMetadata{Uid: "u1"},
		State:    runtimeapi.PodSandboxState_SANDBOX_READY,
		Network:  &runtimeapi.PodSandboxNetworkStatus{Ip: "10.0.0.1"}}
	l.web.Spec.ImagePullSecrets = []v1.LocalObjectReference{{Name: "registry"}}
	l.Secret = func(namespace, name string) *v1.Secret {
		return &v1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: "s1"},
			Data: map[string][]byte{v1.DockerConfigJsonKey: []byte(
				`{"auths":{"registry.test":{"username":"a","password":"b"}}}`)}}
	}
	l.writePulled("registry.test/app", "s1")
	l.NeedsRecord = func(string) bool { return false }
	l.RootDir, l.LogsDir, l.IsSettled = "/root", "/logs", true
	l.Pods, l.Static = []*v1.Pod{l.web, mirror}, []*v1.Pod{l.static}
	l.Containers = []*runtimeapi.ContainerStatus{l.run}
	l.Sandboxes = []*runtimeapi.PodSandboxStatus{l.sandbox}
	for name, text := range l.managers() { //ordered: into a map
		l.files["/root/"+name] = text
	}
	l.files["/root/pods/u1/volumes/kubernetes.io~empty-dir/data"] = ""
	l.writeAllocated(&v1.ResourceRequirements{})
	l.addVolumes()
	l.files["/root/pods/u1/volume-subpaths/pv-files/app/0"] = ""
	l.IsMounted = func(path string) bool { return l.mounts[path] }
	l.VolumeOf = func(_ *v1.Pod, v *v1.Volume) *v1.PersistentVolume { return l.pvs[v.Name] }
	l.ReadFile = func(file string) ([]byte, bool) {
		text, exists := l.files[file]
		return []byte(text), exists
	}
	l.List = func(dir string) []string {
		names := map[string]bool{}
		for file := range l.files { //ordered: into a set
			if rest, below := strings.CutPrefix(file, dir+"/"); below {
				name, _, _ := strings.Cut(rest, "/")
				names[name] = true
			}
		}
		return sortedKeys(names)
	}
	return l
}

// addVolumes gives web a file system and a device of a driver, as a kubelet names them.
func (l *leftovers) addVolumes() {
	l.Name = "n1"
	for _, name := range []string{"device", "files"} {
		handle := "h-" + name
		source := &v1.CSIPersistentVolumeSource{Driver: "d.test", VolumeHandle: handle}
		l.pvs[name] = &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv-" + name},
			Spec: v1.PersistentVolumeSpec{
				PersistentVolumeSource: v1.PersistentVolumeSource{CSI: source}}}
		l.web.Spec.Volumes = append(l.web.Spec.Volumes, v1.Volume{Name: name})
		data := map[string]string{"specVolID": "pv-" + name, "driverName": "d.test",
			"volumeHandle": handle, "nodeName": "n1", "attachmentID": l.attachmentName(source),
			"volumeLifecycleMode": "Persistent"}
		if name == "device" {
			l.files[l.blocks()+"/pv-device/data/vol_data.json"] = encode(data)
			l.files["/root/pods/u1/volumeDevices/kubernetes.io~csi/pv-device"] = ""
			continue
		}
		l.files[filesData] = encode(data)
		l.mounts[path.Dir(filesData)+"/mount"] = true
		l.files[l.stagingDir(source)+"/vol_data.json"] = encode(map[string]string{
			"driverName": "d.test", "volumeHandle": handle})
		l.mounts[l.stagingDir(source)+"/globalmount"] = true
	}
}

// filesData describes a volume of web.
const filesData = "/root/pods/u1/volumes/kubernetes.io~csi/pv-files/vol_data.json"

// writeAllocated writes what is allocated to the container of web.
func (l *leftovers) writeAllocated(r *v1.ResourceRequirements) {
	data := encode(map[string]any{"entries": map[string]resourcesOfPod{"u1": {
		ContainerResources: map[string]v1.ResourceRequirements{"app": *r}}}})
	text, err := json.Marshal(checkpoint{Data: data, Checksum: checksum(data)})
	if err != nil {
		panic(err)
	}
	l.files["/root/allocated_pods_state"] = string(text)
}

// writePulled writes the record of the image of web, with the UID of the Secret that pulled it.
func (l *leftovers) writePulled(name, uid string) {
	l.run.ImageId = "i1"
	record := image{pulled: "i1"}
	record.add(name+":1", []pullSecret{{ImagePullSecret: kubeletconfig.ImagePullSecret{
		UID: uid, Namespace: "default", Name: "registry", CredentialHash: uid}}}, time.Time{})
	l.files["/root/image_manager/pulled/"+imageFile("i1")] = encode(record.record)
}

// A kubelet goes on with what is in order, and each thing that is not is named.
func TestRead(t *testing.T) {
	annotate := func(name, text string) func(*leftovers) {
		return func(l *leftovers) { l.run.Annotations[name] = text }
	}
	write := func(name, text string) func(*leftovers) {
		return func(l *leftovers) { l.files[path.Join("/root", name)] = text }
	}
	checkRead(t, map[string]func(*leftovers){
		"":               func(*leftovers) {},
		"known to be of": func(l *leftovers) { delete(l.run.Labels, labelUID) },
		"sandbox s1 is known to be of no pod": func(l *leftovers) {
			l.sandbox.Labels[labelUID] = "u9"
		},
		"so it is started again":    annotate(annotationHash, "x"),
		"it is restarted: its hash": annotate(annotationHash, "12"),
		"so it counts from 0":       annotate(annotationRestarts, ""),
		"loses a restart count": func(l *leftovers) {
			l.web.Status.ContainerStatuses[0].RestartCount = 3
		},
		"an orphan is killed":        annotate(annotationGrace, "soon"),
		"that of its spec \"30\"":    annotate(annotationGrace, "31"),
		"it ends without its hook":   annotate(annotationPreStop, "{"),
		"ports is \"[]\"":            annotate(annotationPorts, "[]"),
		"a kubelet reads and remove": func(l *leftovers) { l.run.LogPath = "/logs/app.log" },
		"nothing is mounted at":      func(l *leftovers) { l.run.Mounts = nil },
		"0 are ready": func(l *leftovers) {
			l.sandbox.State = runtimeapi.PodSandboxState_SANDBOX_NOTREADY
		},
		"it has no IP":   func(l *leftovers) { l.sandbox.Network = nil },
		"its network is": func(l *leftovers) { l.web.Spec.HostNetwork = true },
		"is created again": func(l *leftovers) {
			l.Pods[1].Annotations[annotationMirror] = "u7"
		},
		"a kubelet does not start:": write("allocated_pods_state", `{"data":"{}","checksum":1}`),
		"is resized": func(l *leftovers) {
			l.web.Spec.Containers[0].Resources.Limits = v1.ResourceList{"cpu": {}}
		},
		"is never unpublished": func(l *leftovers) {
			l.files[filesData] = ""
			delete(l.mounts, l.stagingDir(l.pvs["files"].Spec.CSI)+"/globalmount")
		},
		"is of another attachment": func(l *leftovers) {
			l.files[filesData] = strings.ReplaceAll(l.files[filesData], "n1", "n2")
		},
		"is set up beside itself": func(l *leftovers) { l.pvs["files"].Spec.CSI.Driver = "other.test" },
		"stays staged: its data is": func(l *leftovers) {
			l.files[l.stagingDir(l.pvs["files"].Spec.CSI)+"/vol_data.json"] = "{}"
		},
		"stays staged: no pod has": func(l *leftovers) {
			delete(l.files, "/root/pods/u1/volumeDevices/kubernetes.io~csi/pv-device")
		},
		"has no lifecycle mode": func(l *leftovers) {
			l.files[filesData] = strings.ReplaceAll(l.files[filesData], "Persistent", "")
		},
		"a kubelet has left":                  write("cpu_manager_state", "{}"),
		"stay for ever":                       write("pods/u1/volumes/of-a-tenant/x", ""),
		"of no pod is removed":                write("pods/u5/etc-hosts", ""),
		"volume-subpaths/files stay for ever": write("pods/u1/volume-subpaths/files/app/0", ""),
	})
}

// The files about images can be read, and are about what their names say.
func TestReadImages(t *testing.T) {
	write := func(name, text string) func(*leftovers) {
		return func(l *leftovers) { l.files[path.Join("/root", name)] = text }
	}
	checkRead(t, map[string]func(*leftovers){
		"is pulled again: the record has": func(l *leftovers) {
			l.writePulled("registry.test/app", "another")
		},
		"every pod may use its private image": func(l *leftovers) {
			delete(l.files, "/root/image_manager/pulled/"+imageFile("i1"))
			l.NeedsRecord = func(ref string) bool { return ref == "registry.test/app:1" }
		},
		"": func(l *leftovers) { // it is being pulled
			delete(l.files, "/root/image_manager/pulled/"+imageFile("i1"))
			l.files["/root/image_manager/pulling/"+imageFile("registry.test/app:1")] = encode(
				&kubeletconfig.ImagePullIntent{Image: "registry.test/app:1",
					TypeMeta: pullType("ImagePullIntent")})
			l.NeedsRecord = func(string) bool { return true }
		},
		"for which a kubelet reads": write("image_manager/pulled/sha256-1",
			`{"kind":"ImagePulledRecord","apiVersion":"kubelet.config.k8s.io/v1beta1","imageRef":"i"}`),
		"it is no": write("image_manager/pulling/sha256-1",
			`{"kind":"ImagePulledRecord","apiVersion":"kubelet.config.k8s.io/v1beta1"}`),
		"cannot be read by a kubelet: json": write("image_manager/pulled/sha256-1", `{"images":[]}`),
	})
}

// checkRead compares what Read says about damaged leftovers with a part of it.
func checkRead(t *testing.T, cases map[string]func(*leftovers)) {
	t.Helper()
	for want, damage := range cases { //ordered: each by itself
		l := newLeftovers()
		damage(l)
		got := Read(&l.Left)
		isRight := len(got) == 1 && strings.Contains(got[0], want)
		if want == "" && len(got) > 0 || want != "" && !isRight {
			t.Errorf("%q, want one with %q", got, want)
		}
	}
}

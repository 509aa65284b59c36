package kubelet

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Left is what an agent has left on a node, as a kubelet finds it.
type Left struct {
	Node
	Sandboxes  []*runtimeapi.PodSandboxStatus
	Containers []*runtimeapi.ContainerStatus
	Pods       []*v1.Pod // that the API server has bound to the node, mirrors among them
	Static     []*v1.Pod // of the manifest files
	ReadFile   func(path string) ([]byte, bool)
	List       func(dir string) []string
	IsMounted  func(path string) bool
	// VolumeOf returns the PersistentVolume of a volume of a pod; nil if it has none.
	VolumeOf func(p *v1.Pod, v *v1.Volume) *v1.PersistentVolume
	Secret   func(namespace, name string) *v1.Secret // nil: there is none
	// NeedsRecord reports whether an image was pulled in the run, and with credentials only.
	NeedsRecord func(ref string) bool
	// IsSettled is set if the agent had nothing left to do. Otherwise a kubelet may have a reason to
	// act, and only the formats are judged.
	IsSettled bool
}

// Read returns what a kubelet would do to what the agent has left, beyond going on: in sentences.
func Read(l *Left) []string {
	var problems []string
	add := func(format string, args ...any) {
		problems = append(problems, fmt.Sprintf(format, args...))
	}
	pods := l.podsByUID()
	for _, c := range l.Containers {
		uid := c.Labels[labelUID]
		of := fmt.Sprintf("container %s (%.12s) of pod %s", c.Labels[labelContainer], c.Id, uid)
		if problem := l.containerProblem(c); problem != "" {
			add("%s: %s", of, problem)
		} else if p := pods[uid]; p != nil && l.IsSettled && p.DeletionTimestamp == nil {
			if problem := cmp.Or(specProblem(p, c), l.imageProblem(p, c)); problem != "" {
				add("%s: %s", of, problem)
			}
		}
	}
	for _, s := range l.Sandboxes {
		if s.Labels[labelUID] == "" || s.Labels[labelName] == "" || s.Labels[labelNamespace] == "" ||
			s.Labels[labelUID] != s.Metadata.GetUid() {
			add("sandbox %.12s is known to be of no pod, by its labels %v", s.Id, s.Labels)
		}
	}
	for _, name := range []string{"allocated_pods_state", "actuated_pods_state"} {
		if problem := l.checkpointProblem(name, pods); problem != "" {
			add("%s: %s", name, problem)
		}
	}
	problems = append(problems, l.managerProblems()...)
	problems = append(problems, l.directoryProblems(pods)...)
	problems = append(problems, l.volumeProblems(pods)...)
	problems = append(problems, l.idsProblems()...)
	problems = append(problems, l.imageProblems()...)
	if l.IsSettled {
		problems = append(problems, l.sandboxProblems(pods)...)
		problems = append(problems, l.mirrorProblems()...)
	}
	return problems
}

// podsByUID returns the pods that are desired, by the UID on the node.
func (l *Left) podsByUID() map[string]*v1.Pod {
	pods := map[string]*v1.Pod{}
	for _, p := range l.Pods {
		if p.Annotations[annotationMirror] == "" {
			pods[string(p.UID)] = p
		}
	}
	for _, p := range l.Static {
		pods[string(p.UID)] = p
	}
	return pods
}

// containerProblem returns what a kubelet cannot read of a container; empty if it can read all.
func (l *Left) containerProblem(c *runtimeapi.ContainerStatus) string {
	for _, label := range []string{labelName, labelNamespace, labelUID, labelContainer} {
		if c.Labels[label] == "" {
			return "it has no label " + label + ", so it is known to be of no pod"
		}
	}
	if _, err := strconv.ParseUint(c.Annotations[annotationHash], 16, 64); err != nil {
		return fmt.Sprintf("its hash is %q, so it is started again", c.Annotations[annotationHash])
	}
	restarts, err := strconv.Atoi(c.Annotations[annotationRestarts])
	if err != nil {
		return fmt.Sprintf("its restart count is %q, so it counts from 0",
			c.Annotations[annotationRestarts])
	}
	if _, err := strconv.ParseInt(c.Annotations[annotationGrace], 10, 64); err != nil {
		return fmt.Sprintf("its grace period is %q, so an orphan is killed at once",
			c.Annotations[annotationGrace])
	}
	hook, ports := &v1.LifecycleHandler{}, []v1.ContainerPort{}
	for _, read := range []struct {
		name string
		into any
	}{{annotationPreStop, hook}, {annotationPorts, &ports}} {
		text, exists := c.Annotations[read.name]
		if exists && json.Unmarshal([]byte(text), read.into) != nil {
			return fmt.Sprintf("its %s is %q, so it ends without its hook", read.name, text)
		}
	}
	log := fmt.Sprintf("%s/%s_%s_%s/%s/%d.log", l.LogsDir, c.Labels[labelNamespace],
		c.Labels[labelName], c.Labels[labelUID], c.Labels[labelContainer], restarts)
	if c.LogPath != log {
		return fmt.Sprintf("its log is %s, but a kubelet reads and removes %s", c.LogPath, log)
	}
	if at := c.Annotations[annotationMessagePath]; at != "" &&
		!slices.ContainsFunc(c.Mounts, func(m *runtimeapi.Mount) bool {
			return m.ContainerPath == at && isWithin(m.HostPath, l.RootDir+"/pods")
		}) {
		return "its termination message is lost: nothing is mounted at " + at
	}
	return ""
}

func isWithin(file, dir string) bool { return strings.HasPrefix(file, dir+"/") }

// specProblem returns what a kubelet does to a container because of the spec of its pod; empty if
// nothing.
func specProblem(p *v1.Pod, c *runtimeapi.ContainerStatus) string {
	spec := specOf(&p.Spec, c.Labels[labelContainer])
	isRunning := c.State == runtimeapi.ContainerState_CONTAINER_RUNNING
	if spec.Name == "" || !isRunning {
		return ""
	}
	annotations := containerAnnotations(p, spec, 0)
	if have, want := c.Annotations[annotationHash], annotations[annotationHash]; have != want {
		return fmt.Sprintf("it is restarted: its hash is %s, and that of its spec is %s", have, want)
	}
	for _, name := range []string{annotationMessagePath, annotationMessagePolicy, annotationPreStop,
		annotationPorts, annotationGrace} {
		if c.Annotations[name] != annotations[name] {
			return fmt.Sprintf("its %s is %q, and that of its spec %q", name, c.Annotations[name],
				annotations[name])
		}
	}
	for _, list := range [][]v1.ContainerStatus{p.Status.InitContainerStatuses,
		p.Status.ContainerStatuses} {
		for i := range list {
			if _, id, _ := strings.Cut(list[i].ContainerID, "://"); id == c.Id &&
				c.Annotations[annotationRestarts] != strconv.Itoa(int(list[i].RestartCount)) {
				return fmt.Sprintf("it loses a restart count: it has %s, and its status %d",
					c.Annotations[annotationRestarts], list[i].RestartCount)
			}
		}
	}
	return ""
}

// sandboxProblems returns which pods a kubelet gives another sandbox, whose containers it then
// restarts.
func (l *Left) sandboxProblems(pods map[string]*v1.Pod) []string {
	var problems []string
	newest, ready := map[string]*runtimeapi.PodSandboxStatus{}, map[string]int{}
	for _, s := range l.Sandboxes {
		uid := s.Metadata.GetUid()
		if have := newest[uid]; have == nil || s.CreatedAt > have.CreatedAt {
			newest[uid] = s
		}
		if s.State == runtimeapi.PodSandboxState_SANDBOX_READY {
			ready[uid]++
		}
	}
	for _, uid := range sortedKeys(newest) {
		p, s := pods[uid], newest[uid]
		runs := slices.ContainsFunc(l.Containers, func(c *runtimeapi.ContainerStatus) bool {
			return c.Labels[labelUID] == uid && c.State == runtimeapi.ContainerState_CONTAINER_RUNNING
		})
		if p == nil || !runs {
			continue
		}
		network := s.GetLinux().GetNamespaces().GetOptions().GetNetwork()
		switch {
		case ready[uid] != 1 || s.State != runtimeapi.PodSandboxState_SANDBOX_READY:
			problems = append(problems, fmt.Sprintf("pod %s/%s gets another sandbox: %d are ready",
				p.Namespace, p.Name, ready[uid]))
		case (network == runtimeapi.NamespaceMode_NODE) != p.Spec.HostNetwork:
			problems = append(problems, fmt.Sprintf("pod %s/%s gets another sandbox: its network is %s",
				p.Namespace, p.Name, network))
		case !p.Spec.HostNetwork && s.GetNetwork().GetIp() == "":
			problems = append(problems, fmt.Sprintf("pod %s/%s gets another sandbox: it has no IP",
				p.Namespace, p.Name))
		}
	}
	return problems
}

// mirrorProblems returns which mirrors a kubelet creates again.
func (l *Left) mirrorProblems() []string {
	var problems []string
	for _, static := range l.Static {
		i := slices.IndexFunc(l.Pods, func(p *v1.Pod) bool {
			return p.Name == static.Name && p.Namespace == static.Namespace
		})
		if i < 0 {
			continue
		}
		if have, want := l.Pods[i].Annotations[annotationMirror],
			static.Annotations[annotationConfig]; have != want {
			problems = append(problems, fmt.Sprintf("the mirror of pod %s/%s is created again: it is "+
				"that of %q, not of %q", static.Namespace, static.Name, have, want))
		}
	}
	return problems
}

// checkpointProblem returns why a kubelet does not start with a checkpoint, or what it takes from
// it wrongly; empty if nothing is wrong.
func (l *Left) checkpointProblem(name string, pods map[string]*v1.Pod) string {
	data, exists := l.ReadFile(path.Join(l.RootDir, name))
	if !exists {
		return ""
	}
	var c checkpoint
	if err := json.Unmarshal(data, &c); err != nil {
		return "a kubelet does not start: " + err.Error()
	}
	if sum := checksum(c.Data); sum != c.Checksum {
		return fmt.Sprintf("a kubelet does not start: its checksum is %d, and that of its data %d",
			c.Checksum, sum)
	}
	var content struct {
		Entries map[string]resourcesOfPod `json:"entries"`
	}
	decoder := json.NewDecoder(bytes.NewReader([]byte(c.Data)))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&content); err != nil {
		return "a kubelet does not start: " + err.Error()
	}
	if name != "allocated_pods_state" || !l.IsSettled {
		return ""
	}
	for _, uid := range sortedKeys(content.Entries) {
		p := pods[uid]
		for _, container := range sortedKeys(content.Entries[uid].ContainerResources) {
			if p == nil || slices.ContainsFunc(p.Status.Conditions, isPendingResize) {
				break
			}
			allocated := content.Entries[uid].ContainerResources[container]
			spec := specOf(&p.Spec, container)
			if spec.Name != "" && !equality.Semantic.DeepEqual(allocated, spec.Resources) {
				return fmt.Sprintf("container %s of pod %s/%s is resized: %v is allocated, and its spec "+
					"has %v", container, p.Namespace, p.Name, allocated, spec.Resources)
			}
		}
	}
	return ""
}

func isPendingResize(c v1.PodCondition) bool { return c.Type == v1.PodResizePending }

// managerProblems returns which state files of managers are not as a kubelet has left them.
func (l *Left) managerProblems() []string {
	var problems []string
	files := l.managers()
	for _, name := range sortedKeys(files) {
		if data, _ := l.ReadFile(path.Join(l.RootDir, name)); string(data) != files[name] {
			problems = append(problems, fmt.Sprintf("%s: a kubelet has left %s, and it is %q", name,
				files[name], data))
		}
	}
	return problems
}

// volumePlugins are the names of directories of volumes for which a kubelet has a plugin.
var volumePlugins = []string{"empty-dir", "configmap", "secret", "projected", "downward-api", "csi",
	"host-path", "local-volume", "nfs", "image"}

// directoryProblems returns which directories of pods a kubelet does not know what to do with.
func (l *Left) directoryProblems(pods map[string]*v1.Pod) []string {
	var problems []string
	root := l.RootDir + "/pods"
	for _, uid := range l.List(root) {
		for _, name := range l.List(root + "/" + uid + "/volumes") {
			plugin, isNamed := strings.CutPrefix(name, "kubernetes.io~")
			if !isNamed || !slices.Contains(volumePlugins, plugin) {
				problems = append(problems, fmt.Sprintf("the volumes in %s/%s/volumes/%s stay for ever",
					root, uid, name))
			}
		}
		if p := pods[uid]; p != nil && l.IsSettled {
			problems = append(problems, l.subPathProblems(uid, p)...)
		}
		hasSandbox := slices.ContainsFunc(l.Sandboxes, func(s *runtimeapi.PodSandboxStatus) bool {
			return s.Metadata.GetUid() == uid
		})
		if l.IsSettled && pods[uid] == nil && !hasSandbox {
			problems = append(problems, fmt.Sprintf("%s/%s of no pod is removed", root, uid))
		}
	}
	return problems
}

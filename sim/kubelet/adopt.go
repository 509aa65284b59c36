package kubelet

import (
	"encoding/json"
	"slices"
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"seedlet.dev/world"
)

// What a kubelet that starts takes over of those before it, and of an agent: what it has in memory
// alone is lost, the rest it reads from the runtime, the disk and the API server. It makes volumes
// again, which changes nothing of those that are there (reconstruct.go in
// pkg/kubelet/volumemanager/reconciler), and it knows by statuses which containers have started and
// are ready (setReadyStateOnKubeletRestart in pkg/kubelet/prober).

// recalled is the step of a shared volume that an earlier kubelet or agent has made.
const recalled = "recalled"

// adopt recalls what there is of a pod that the kubelet sees for the first time.
func (k *Kubelet) adopt(p *pod) {
	now := k.opts.Agenda.Now()
	o := k.opts.Server.Object(world.ResourcePods, p.object.Namespace, p.object.Name).Pod
	if o == nil || p.isStatic &&
		o.Annotations[annotationMirror] != p.object.Annotations[annotationConfig] {
		o = &v1.Pod{}
	}
	if o.Status.StartTime != nil {
		p.seenAt, p.startTime = now, o.Status.StartTime.Time
		p.written, p.writtenText = o.Status.DeepCopy(), encode(&o.Status)
	}
	p.endedBefore = !p.isStatic &&
		(o.Status.Phase == v1.PodSucceeded || o.Status.Phase == v1.PodFailed)
	p.firstID = k.recordedID(string(p.object.UID))
	k.recallVolumes(p)
	_, runs := k.opts.Runtime.Statuses()
	for _, c := range runs {
		if c.Labels[labelUID] == string(p.object.UID) {
			k.recallRun(p, c, &o.Status)
		}
	}
}

// recallRun recalls what there is of a run of a container.
func (k *Kubelet) recallRun(p *pod, c *runtimeapi.ContainerStatus, status *v1.PodStatus) {
	name := c.Labels[labelContainer]
	for _, m := range c.Mounts {
		if m.ContainerPath == c.Annotations[annotationMessagePath] {
			p.messages[name+"/"+strconv.Itoa(int(c.Metadata.Attempt))] = m.HostPath
		}
	}
	if ref := c.Image.UserSpecifiedImage; ref != "" && k.images[ref] == "" {
		k.images[ref] = c.ImageId
		k.recallRecord(ref)
	}
	if c.State != runtimeapi.ContainerState_CONTAINER_RUNNING {
		return
	}
	p.hookEnded["after "+c.Id] = k.opts.Agenda.Now()
	for _, s := range slices.Concat(status.InitContainerStatuses, status.ContainerStatuses) {
		if s.ContainerID == runtimeName+c.Id {
			p.passed["startup/"+c.Id] = s.Started != nil && *s.Started
			p.passed["readiness/"+c.Id] = s.Ready
		}
	}
}

// recallVolumes has a pod use the volumes of which it has something, so that no other one undoes
// what they share.
func (k *Kubelet) recallVolumes(p *pod) {
	for i := range p.object.Spec.Volumes {
		v := &p.object.Spec.Volumes[i]
		if !isBacked(v) {
			continue
		}
		u := k.usedBy(p, v)
		if u == nil || !k.hasAnything(u) {
			continue
		}
		s := k.shared[u.key()]
		if s == nil {
			s = &sharedVolume{done: map[string]bool{}, users: map[string]bool{}}
			k.shared[u.key()] = s
		}
		s.users[u.uid], s.done[recalled] = true, true
		if u.csi != nil && !u.ephemeral && k.mustBeAttached(u) {
			s.inUse = v1.UniqueVolumeName("kubernetes.io/csi/" + u.key())
		}
	}
}

// hasAnything reports whether there is anything of a volume for its pod.
func (k *Kubelet) hasAnything(u *usedVolume) bool {
	dir, plugin := k.opts.RootDir+"/pods/"+u.uid, csiPlugin
	if u.csi == nil {
		plugin = localPlugin
		if u.pv.Spec.NFS != nil {
			plugin = "kubernetes.io~nfs"
		}
	}
	return slices.ContainsFunc([]string{dir + "/volumes/" + plugin + "/" + u.name,
		dir + "/volumeDevices/" + plugin + "/" + u.name,
		k.opts.blocks() + "/publish/" + u.name + "/" + u.uid}, k.opts.Disk.Exists)
}

// recallRecord reads the record of an image that is on the node. One that was being pulled when the
// one before ended, and has no record, may be used by no pod without a pull (writePulledRecord with
// empty credentials in PullManager.initialize).
func (k *Kubelet) recallRecord(ref string) {
	i := k.pulls[ref]
	if i == nil {
		i = &image{}
		k.pulls[ref] = i
	}
	if i.record != nil || k.images[ref] == "" {
		return
	}
	var record kubeletconfig.ImagePulledRecord
	text, exists := k.opts.Disk.Read(k.opts.imageDir("pulled") + "/" + imageFile(k.images[ref]))
	switch {
	case exists && json.Unmarshal(text, &record) == nil && record.CredentialMapping != nil:
		i.record = &record
	case k.opts.Disk.Exists(k.opts.imageDir("pulling") + "/" + imageFile(ref)):
		i.record = &kubeletconfig.ImagePulledRecord{TypeMeta: pullType("ImagePulledRecord"),
			ImageRef: k.images[ref], CredentialMapping: map[string]kubeletconfig.ImagePullCredentials{}}
	}
}

// recordedID returns the first host ID that is recorded for a pod; zero if none is.
func (k *Kubelet) recordedID(uid string) uint32 {
	var f idsFile
	text, _ := k.opts.Disk.Read(k.opts.RootDir + "/pods/" + uid + "/userns")
	if json.Unmarshal(text, &f) != nil || len(f.UIDMappings) == 0 {
		return 0
	}
	return f.UIDMappings[0].HostID
}

// recordedIDs returns the first host IDs that are recorded.
func (k *Kubelet) recordedIDs() (all []uint32) {
	for _, uid := range k.opts.Disk.List(k.opts.RootDir + "/pods") {
		all = append(all, k.recordedID(uid))
	}
	return all
}

// orphans returns the pods that the runtime has and no source: they are ended, with what the
// runtime knows of them (HandlePodCleanups in pkg/kubelet/kubelet_pods.go). Mirrors without a pod
// are deleted.
func (k *Kubelet) orphans() (all []*pod) {
	sandboxes, runs := k.opts.Runtime.Statuses()
	for _, s := range sandboxes {
		uid := s.Metadata.GetUid()
		if k.pods[uid] == nil {
			k.pods[uid] = k.newOrphan(s, runs)
		}
		if p := k.pods[uid]; p.isOrphan && !slices.Contains(all, p) {
			all = append(all, p)
		}
	}
	for _, o := range k.opts.Server.Objects(world.ResourcePods) {
		uid := o.Pod.Annotations[annotationMirror]
		if p := k.pods[uid]; uid != "" && o.Pod.Spec.NodeName == k.opts.Name && (p == nil || p.isOrphan) {
			k.admin(&world.DeleteObject{Resource: world.ResourcePods, Namespace: o.Pod.Namespace,
				Name: o.Pod.Name, UID: string(o.Pod.UID), GracePeriodSeconds: new(int64)})
		}
	}
	return all
}

// newOrphan returns a pod of which the runtime alone has something.
func (k *Kubelet) newOrphan(s *runtimeapi.PodSandboxStatus,
	runs []*runtimeapi.ContainerStatus) *pod {
	p := newPod()
	grace := int64(1)
	p.object = &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: s.Metadata.Name,
		Namespace: s.Metadata.Namespace, UID: types.UID(s.Metadata.Uid)}}
	for _, c := range runs {
		if c.Labels[labelUID] != s.Metadata.Uid {
			continue
		}
		container := v1.Container{Name: c.Labels[labelContainer]}
		if n, err := strconv.ParseInt(c.Annotations[annotationGrace], 10, 64); err == nil {
			grace = max(grace, n)
		}
		var hook v1.LifecycleHandler
		if json.Unmarshal([]byte(c.Annotations[annotationPreStop]), &hook) == nil {
			container.Lifecycle = &v1.Lifecycle{PreStop: &hook}
		}
		if specOf(&p.object.Spec, container.Name).Name == "" {
			p.object.Spec.Containers = append(p.object.Spec.Containers, container)
		}
	}
	ends := metav1.NewTime(k.opts.Agenda.Now().Add(time.Duration(grace) * time.Second))
	p.object.DeletionTimestamp, p.object.DeletionGracePeriodSeconds = &ends, &grace
	p.object.Spec.TerminationGracePeriodSeconds = &grace
	p.isOrphan, p.done["object"] = true, true
	return p
}

// hasOrphan reports whether a pod of the name of another one is being ended.
func (k *Kubelet) hasOrphan(p *v1.Pod) bool {
	sandboxes, _ := k.opts.Runtime.Statuses()
	return slices.ContainsFunc(sandboxes, func(s *runtimeapi.PodSandboxStatus) bool {
		other := k.pods[s.Metadata.Uid]
		return other != nil && other.isOrphan && s.Metadata.Namespace == p.Namespace &&
			s.Metadata.Name == p.Name
	})
}

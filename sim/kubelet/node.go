package kubelet

import (
	"encoding/json"
	"maps"
	"path"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"seedlet.dev/world"
)

// registerNode creates the Node, its lease and its CSINode, and the cgroups above those of the
// pods, once. It reports whether the Node exists.
func (k *Kubelet) registerNode() bool {
	if k.nodeUID != "" {
		return true
	}
	for _, tier := range k.tiers() {
		k.do(call{}, world.PortHost, tier)
	}
	if k.opts.Server.Object(world.ResourceNodes, "", k.opts.Name).Node == nil {
		k.admin(&world.CreateObject{Object: world.Object{Node: &v1.Node{ObjectMeta: metav1.ObjectMeta{
			Name: k.opts.Name, Labels: map[string]string{v1.LabelHostname: k.opts.Name,
				v1.LabelOSStable: "linux", v1.LabelArchStable: "amd64",
				"beta.kubernetes.io/os": "linux", "beta.kubernetes.io/arch": "amd64"},
			Annotations: map[string]string{
				"volumes.kubernetes.io/controller-managed-attach-detach": "true"},
		}}}})
	}
	node := k.opts.Server.Object(world.ResourceNodes, "", k.opts.Name).Node
	k.nodeUID = string(node.UID)
	_ = json.Unmarshal([]byte(node.Annotations[nodeIDs]), &k.nodeIDs) // or there are none
	k.admin(&world.PatchObject{Resource: world.ResourceNodes, Name: k.opts.Name, Status: true,
		Patch: []byte(encode(map[string]any{"status": k.nodeStatus(node)}))})
	owner := []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: k.opts.Name,
		UID: node.UID}}
	now := metav1.NewMicroTime(k.opts.Agenda.Now())
	k.admin(&world.CreateObject{Object: world.Object{Lease: &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: v1.NamespaceNodeLease, Name: k.opts.Name,
			OwnerReferences: owner},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: &k.opts.Name,
			LeaseDurationSeconds: new(int32(40)), RenewTime: &now}}}})
	annotations := map[string]string{v1.MigratedPluginsAnnotationKey: migratedPlugins}
	k.admin(&world.CreateObject{Object: world.Object{CSINode: &storagev1.CSINode{
		ObjectMeta: metav1.ObjectMeta{Name: k.opts.Name, OwnerReferences: owner,
			Annotations: annotations}}}})
	k.renewLease()
	return true
}

// migratedPlugins are the kinds of volumes that CSI drivers have replaced (nodeinfomanager).
const migratedPlugins = "kubernetes.io/aws-ebs,kubernetes.io/azure-disk,kubernetes.io/azure-file," +
	"kubernetes.io/cinder,kubernetes.io/gce-pd,kubernetes.io/portworx-volume," +
	"kubernetes.io/vsphere-volume"

// admin makes a request of the kubelet that cannot fail.
func (k *Kubelet) admin(body any) { _, _ = k.opts.Server.Admin("kubelet", body) }

// nodeIDs is the annotation of the Node with its ID of each driver.
const nodeIDs = "csi.volume.kubernetes.io/nodeid"

const leasePeriod = 10 * time.Second

func (k *Kubelet) renewLease() {
	if k.ended {
		return
	}
	now := k.opts.Agenda.Now().UTC().Format("2006-01-02T15:04:05.000000Z07:00")
	k.admin(&world.PatchObject{Resource: world.ResourceLeases, Namespace: v1.NamespaceNodeLease,
		Name: k.opts.Name, Patch: []byte(encode(map[string]any{
			"spec": map[string]any{"renewTime": now}}))})
	k.opts.Agenda.After(leasePeriod, k.renewLease)
}

// nodeStatus returns the status of the Node. A condition whose status stays keeps its time.
func (k *Kubelet) nodeStatus(node *v1.Node) *v1.NodeStatus {
	now := metav1.NewTime(k.opts.Agenda.Now())
	condition := func(t v1.NodeConditionType, status v1.ConditionStatus,
		reason, message string) v1.NodeCondition {
		since := now
		for _, c := range node.Status.Conditions {
			if c.Type == t && c.Status == status {
				since = c.LastTransitionTime
			}
		}
		return v1.NodeCondition{Type: t, Status: status, Reason: reason, Message: message,
			LastHeartbeatTime: now, LastTransitionTime: since}
	}
	capacity := v1.ResourceList{
		v1.ResourceCPU:    *resource.NewQuantity(int64(k.opts.CPUs), resource.DecimalSI),
		v1.ResourceMemory: *resource.NewQuantity(k.opts.MemoryBytes, resource.BinarySI),
		v1.ResourcePods:   *resource.NewQuantity(110, resource.DecimalSI),
	}
	return &v1.NodeStatus{
		Capacity: capacity, Allocatable: capacity,
		Conditions: []v1.NodeCondition{
			condition(v1.NodeMemoryPressure, v1.ConditionFalse, "KubeletHasSufficientMemory",
				"kubelet has sufficient memory available"),
			condition(v1.NodeDiskPressure, v1.ConditionFalse, "KubeletHasNoDiskPressure",
				"kubelet has no disk pressure"),
			condition(v1.NodePIDPressure, v1.ConditionFalse, "KubeletHasSufficientPID",
				"kubelet has sufficient PID available"),
			condition(v1.NodeReady, v1.ConditionTrue, "KubeletReady",
				"kubelet is posting ready status"),
		},
		Addresses: []v1.NodeAddress{{Type: v1.NodeInternalIP, Address: k.opts.IP},
			{Type: v1.NodeHostName, Address: k.opts.Name}},
		NodeInfo: v1.NodeSystemInfo{KubeletVersion: "v1.36.3", OperatingSystem: "linux",
			Architecture: "amd64"},
	}
}

// mirrorStep creates the mirror of a static pod.
func (k *Kubelet) mirrorStep(p *pod) *step {
	have := k.opts.Server.Object(world.ResourcePods, p.object.Namespace, p.object.Name).Pod
	switch {
	case have == nil:
	case have.Annotations[annotationMirror] == p.object.Annotations[annotationConfig]:
		return nil
	default: // it is that of an earlier manifest
		return &step{"unmirror", world.PortAPI, &world.DeleteObject{Resource: world.ResourcePods,
			Namespace: have.Namespace, Name: have.Name, UID: string(have.UID),
			GracePeriodSeconds: new(int64)}}
	}
	mirror := p.object.DeepCopy()
	mirror.UID = ""
	mirror.Annotations = maps.Clone(p.object.Annotations)
	mirror.Annotations[annotationMirror] = p.object.Annotations[annotationConfig]
	mirror.Annotations[annotationSeen] = podAnnotations(p)[annotationSeen]
	mirror.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node",
		Name: k.opts.Name, UID: types.UID(k.nodeUID), Controller: new(true)}}
	return &step{"mirror", world.PortAPI, &world.CreateObject{Object: world.Object{Pod: mirror}}}
}

// checkpoint is a file of the kubelet with a checksum of its data.
type checkpoint struct {
	Data     string `json:"data"`
	Checksum uint64 `json:"checksum"`
}

// resourcesOfPod is the entry of a pod in the files of allocated and of actuated resources.
type resourcesOfPod struct {
	ContainerResources map[string]v1.ResourceRequirements
	PodLevelResources  *v1.ResourceRequirements
}

// writeCheckpoints writes the files that the kubelet keeps in its root directory.
func (k *Kubelet) writeCheckpoints() {
	allocated, actuated := map[string]resourcesOfPod{}, map[string]resourcesOfPod{}
	for uid, p := range k.pods { //ordered: into maps
		if p.done["object"] || !p.done["dir "+k.dir(p)] {
			continue
		}
		allocated[uid] = resourcesOfPod{ContainerResources: p.allocated}
		actuated[uid] = resourcesOfPod{ContainerResources: p.actuated}
	}
	k.writeCheckpoint("allocated_pods_state", allocated)
	k.writeCheckpoint("actuated_pods_state", actuated)
	for name, text := range k.opts.managers() { //ordered: each file by itself
		k.opts.Disk.Write(path.Join(k.opts.RootDir, name), []byte(text))
	}
	k.opts.Disk.Sync()
}

func (k *Kubelet) writeCheckpoint(name string, entries map[string]resourcesOfPod) {
	data := encode(map[string]any{"entries": entries})
	k.opts.Disk.Write(path.Join(k.opts.RootDir, name),
		[]byte(encode(checkpoint{data, checksum(data)})))
}

// managers returns the state files of managers as a kubelet 1.36.3 leaves them: with the policy
// none, or with static policies and what they have assigned, and that of the device manager. A
// kubelet does not start with those of another policy; an agent without managers leaves them alone.
func (n *Node) managers() map[string]string {
	if n.StaticManagers {
		return map[string]string{
			"cpu_manager_state": `{"policyName":"static","defaultCpuSet":"0,2-15",` +
				`"entries":{"web.uid":{"web":"1"}},"checksum":808036222}`,
			"memory_manager_state": `{"policyName":"Static","machineState":{"0":{` +
				`"numberOfAssignments":1,"memoryMap":{"memory":{"total":2048,"systemReserved":512,` +
				`"allocatable":1536,"reserved":512,"free":1024}},"cells":[0]}},"entries":{"web.uid":{` +
				`"web":[{"numaAffinity":[0],"type":"memory","size":512}]}},"checksum":535294629}`,
			"device-plugins/kubelet_internal_checkpoint": `{"Data":{"PodDeviceEntries":null,` +
				`"RegisteredDevices":{}},"Checksum":3467439661}`,
		}
	}
	return map[string]string{
		"cpu_manager_state":    `{"policyName":"none","defaultCpuSet":"","checksum":1353318690}`,
		"memory_manager_state": `{"policyName":"None","machineState":{},"checksum":4236770233}`,
	}
}

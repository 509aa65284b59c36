package kubelet

import (
	"encoding/json"
	"fmt"
	"slices"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/world"
)

// The host IDs of pods with a user namespace (pkg/kubelet/userns): a kubelet has them in the file
// userns of the pod's directory, until the pod has ended.

const idsPerPod = 65536

// idsFile is the format of the file (userNamespace in userns_manager.go).
type idsFile struct {
	UIDMappings []idMapping `json:"uidMappings"`
	GIDMappings []idMapping `json:"gidMappings"`
}

type idMapping struct {
	HostID      uint32 `json:"hostId"`
	ContainerID uint32 `json:"containerId"`
	Length      uint32 `json:"length"`
}

func hasOwnUsers(p *pod) bool {
	users := p.object.Spec.HostUsers
	return users != nil && !*users
}

// idsStep records the IDs of a pod; nil if it has those of the host.
func (k *Kubelet) idsStep(p *pod) *step {
	if !hasOwnUsers(p) {
		return nil
	}
	if p.firstID == 0 {
		taken := k.recordedIDs()
		for _, other := range k.pods { //ordered: into a list of which is asked what it has
			taken = append(taken, other.firstID)
		}
		p.firstID = idsPerPod
		for slices.Contains(taken, p.firstID) {
			p.firstID += idsPerPod
		}
	}
	ids := []idMapping{{HostID: p.firstID, Length: idsPerPod}}
	return &step{"ids", world.PortFS, &world.WriteFile{Path: k.dir(p) + "/userns",
		Data: []byte(encode(idsFile{ids, ids})), Mode: 0o600}}
}

// releaseIDsStep removes the record of the IDs of a pod that has ended.
func (k *Kubelet) releaseIDsStep(p *pod) *step {
	if !hasOwnUsers(p) {
		return nil
	}
	return &step{"ids released", world.PortFS, &world.RemoveTree{Path: k.dir(p) + "/userns"}}
}

// users returns the user namespace of a pod; nil for that of the host.
func (p *pod) users() *runtimeapi.UserNamespace {
	if p.firstID == 0 {
		return nil
	}
	ids := []*runtimeapi.IDMapping{{HostId: p.firstID, Length: idsPerPod}}
	return &runtimeapi.UserNamespace{Mode: runtimeapi.NamespaceMode_POD, Uids: ids, Gids: ids}
}

// idsProblems returns why a kubelet does not start with the records of IDs, and which pods get
// others than their sandboxes have.
func (l *Left) idsProblems() []string {
	var problems []string
	root, users := l.RootDir+"/pods", map[uint32]string{}
	recorded := map[string]uint32{}
	for _, uid := range l.List(root) {
		text, exists := l.ReadFile(root + "/" + uid + "/userns")
		if !exists || len(text) == 0 {
			continue
		}
		var f idsFile
		err := json.Unmarshal(text, &f)
		isValid := err == nil && len(f.UIDMappings) == 1 && slices.Equal(f.UIDMappings, f.GIDMappings) &&
			f.UIDMappings[0].ContainerID == 0 && f.UIDMappings[0].Length == idsPerPod &&
			f.UIDMappings[0].HostID%idsPerPod == 0
		if !isValid {
			problems = append(problems, fmt.Sprintf("a kubelet does not start: %s/%s/userns is %q", root,
				uid, text))
			continue
		}
		first := f.UIDMappings[0].HostID
		if other := users[first]; other != "" {
			problems = append(problems, fmt.Sprintf("a kubelet does not start: pods %s and %s have the "+
				"host IDs from %d on", other, uid, first))
		}
		users[first], recorded[uid] = uid, first
	}
	for _, s := range l.Sandboxes {
		uid := s.Metadata.GetUid()
		ids := s.GetLinux().GetNamespaces().GetOptions().GetUsernsOptions().GetUids()
		if l.IsSettled && s.State == runtimeapi.PodSandboxState_SANDBOX_READY && len(ids) == 1 &&
			recorded[uid] != ids[0].HostId {
			problems = append(problems, fmt.Sprintf("pod %s gets other host IDs: its sandbox has those "+
				"from %d on, and %d is recorded", uid, ids[0].HostId, recorded[uid]))
		}
	}
	return problems
}

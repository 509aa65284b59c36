package userns

import "encoding/json"

// FileName is the file in a pod's directory that has the range of the pod, as a kubelet keeps it:
// one without the file gives a running pod other IDs, which another pod may have
// (pkg/kubelet/userns).
const FileName = "userns"

// file is the format of the kubelet's file.
type file struct {
	UIDMappings []mapping `json:"uidMappings"`
	GIDMappings []mapping `json:"gidMappings"`
}

type mapping struct {
	HostID      uint32 `json:"hostId"`
	ContainerID uint32 `json:"containerId"`
	Length      uint32 `json:"length"`
}

// File returns the content of the file of a range.
func (r Range) File() []byte {
	ids := []mapping{{HostID: r.First, Length: r.Length}}
	data, err := json.Marshal(file{ids, ids})
	if err != nil {
		panic("userns: encoding a range: " + err.Error())
	}
	return data
}

package userns

import (
	"encoding/json"
	"fmt"
)

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

// ParseFile parses the file of a pod. An empty one has no range, as for a kubelet. A file with
// which a kubelet of no configuration starts is an error.
func ParseFile(data []byte) (Range, error) {
	if len(data) == 0 {
		return Range{}, nil
	}
	var f file
	if err := json.Unmarshal(data, &f); err != nil {
		return Range{}, err
	}
	if len(f.UIDMappings) != 1 || len(f.GIDMappings) != 1 || f.UIDMappings[0] != f.GIDMappings[0] {
		return Range{}, fmt.Errorf("%d and %d mappings of users and groups, and not one for both",
			len(f.UIDMappings), len(f.GIDMappings))
	}
	m := f.UIDMappings[0]
	r := Range{First: m.HostID, Length: m.Length}
	if m.ContainerID != 0 || !r.mayBeOfPod() {
		return Range{}, fmt.Errorf("IDs from %d on are mapped to %v", m.ContainerID, r)
	}
	return r, nil
}

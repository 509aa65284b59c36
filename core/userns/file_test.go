package userns

import "testing"

// The file is that of a kubelet 1.36.3, byte for byte: one that finds it starts with the same IDs.
func TestFile(t *testing.T) {
	const want = `{"uidMappings":[{"hostId":131072,"containerId":0,"length":65536}],` +
		`"gidMappings":[{"hostId":131072,"containerId":0,"length":65536}]}`
	if got := string(Range{First: 131072, Length: 65536}.File()); got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

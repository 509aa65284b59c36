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

// What a kubelet writes is read, and so is an empty file, which has no range for it. Any other file
// is an error: a kubelet does not start with it.
func TestParseFile(t *testing.T) {
	mapping := func(first, length string) string {
		return `[{"hostId":` + first + `,"containerId":0,"length":` + length + `}]`
	}
	both := func(users, groups string) string {
		return `{"uidMappings":` + users + `,"gidMappings":` + groups + `}`
	}
	one := mapping("131072", "65536")
	for text, want := range map[string]Range{"": {}, both(one, one): {131072, 65536}} {
		if got, err := ParseFile([]byte(text)); err != nil || got != want {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
	root := `[{"hostId":131072,"containerId":1,"length":65536}]`
	odd, host := mapping("131073", "65536"), mapping("0", "65536")
	above := mapping("4294901760", "131072")
	for _, text := range []string{"{", "{}", both(one, "[]"), both("[]", "[]"), both(one, odd),
		both(odd, odd), both(host, host), both(root, root), both(above, above),
		both(mapping("131072", "0"), mapping("131072", "0"))} {
		if got, err := ParseFile([]byte(text)); err == nil || !got.IsEmpty() {
			t.Errorf("%q: %v", text, got)
		}
	}
}

func TestLayoutHas(t *testing.T) {
	l := Layout{First: 131072, IDsPerPod: 65536, RangesMax: 2}
	for r, want := range map[Range]bool{
		{131072, 65536}: true, {196608, 65536}: true, {262144, 65536}: false, {65536, 65536}: false,
		{131072, 131072}: false, {131073, 65536}: false, {}: false,
	} {
		if got := l.Has(r); got != want {
			t.Errorf("%v: %v", r, got)
		}
	}
}

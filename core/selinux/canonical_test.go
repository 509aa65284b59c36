package selinux

import "testing"

// A label reads as the kernel writes it.
func TestCanonicalLabel(t *testing.T) {
	const role = "system_u:object_r:container_file_t:"
	for label, want := range map[string]string{
		role + "s0":                    role + "s0",
		role + "s0:c1,c2":              role + "s0:c1,c2",
		role + "s0:c2,c1,c2":           role + "s0:c1,c2",
		role + "s0:c1,c2,c3,c9":        role + "s0:c1.c3,c9",
		role + "s0:c1.c2":              role + "s0:c1,c2",
		role + "s0:c0.c1023":           role + "s0:c0.c1023",
		role + "s0-s0":                 role + "s0",
		role + "s0-s0:c5,c4":           role + "s0-s0:c4,c5",
		role + "s0:c1-s0:c1":           role + "s0:c1",
		role + "s0:c1-s15:c3,c2,c1":    role + "s0:c1-s15:c1.c3",
		role + "s0:secret":             role + "s0:secret",
		role + "s0:c9.c1":              role + "s0:c9.c1",
		role + "s0:c0.c999999999":      role + "s0:c0.c999999999",
		role + "s0:c1.c4095,c0.c4095":  role + "s0:c1.c4095,c0.c4095", // more than any policy has
		"system_u:object_r:nfs_t":      "system_u:object_r:nfs_t",
		"":                             "",
		role + "s0:c1-s0:c1,c2:c3,c-1": role + "s0:c1-s0:c1,c2:c3,c-1",
	} {
		if got := Canonical(label); got != want {
			t.Errorf("Canonical(%q) = %q, want %q", label, got, want)
		}
	}
}

package host

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestOverlappingIDs(t *testing.T) {
	for _, test := range []struct {
		name, file, text string
		want             string // empty: no warning
	}{
		{"a user's range begins inside", "subuid", "bob:100000:65536\n", "bob (100000-165535)"},
		{"it begins before", "subuid", "bob:60000:5537\n", "bob (60000-65536)"},
		{"it ends before", "subuid", "bob:60000:5536\n", ""},
		{"it begins after", "subuid", "bob:196608:65536\n", ""},
		{"it begins with the last", "subgid", "bob:196607:1\n", "bob (196607-196607)"},
		{"it holds all", "subgid", "bob:1:4294967295\n", "bob (1-4294967295)"},
		{"an empty one", "subuid", "bob:65536:0\n", ""},
		{"that of the pods", "subuid", "kubelet:65536:131072\n", ""},
		{"two users", "subuid", "kubelet:65536:131072\namy:65536:1\nbob:65537:1\n",
			"amy (65536-65536) and 1 more"},
		{"a user", "passwd", "root:x:0:0::/:/bin/sh\nbob:x:65536:100::/:/bin/sh\n",
			"bob (65536-65536)"},
		{"a user with the group of a pod", "passwd", "bob:x:1000:65536::/:/bin/sh\n", ""},
		{"the user kubelet", "passwd", "kubelet:x:70000:100::/:/bin/sh\n",
			"kubelet (70000-70000)"},
		{"a group", "group", "bob:x:196607:\n", "bob (196607-196607)"},
		{"lines that give none", "subuid", "\n#bob:65536:1\nbob\nbob:65536\nbob:a:1\nbob:65536:b\n" +
			"bob:-1:65536\n", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			root := t.TempDir()
			if err := os.Mkdir(filepath.Join(root, "etc"), 0o755); err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(root, "etc", test.file)
			if err := os.WriteFile(path, []byte(test.text), 0o644); err != nil {
				t.Fatal(err)
			}
			got := strings.Join(OverlappingIDs(root, 65536, 131072), "\n")
			want := test.want
			if want != "" {
				want = "/etc/" + test.file + ": the host IDs 65536-196607 of pods with user namespaces are " +
					"also those of " + want + "; set IDs apart for the user kubelet"
			}
			if got != want {
				t.Errorf("%q, want %q", got, want)
			}
		})
	}
	if got := OverlappingIDs(t.TempDir(), 0, 1<<32); len(got) > 0 {
		t.Errorf("without files: %q", got)
	}
}

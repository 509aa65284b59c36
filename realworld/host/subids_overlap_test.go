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
		{"a user's range begins inside", "subuid", "bob:100000:65536\n", "to 1: bob has 65536 from " +
			"100000 on"},
		{"it begins before", "subuid", "bob:60000:5537\n", "to 1: bob has 5537 from 60000 on"},
		{"it ends before", "subuid", "bob:60000:5536\n", ""},
		{"it begins after", "subuid", "bob:196608:65536\n", ""},
		{"it begins with the last", "subgid", "bob:196607:1\n", "to 1: bob has 1 from 196607 on"},
		{"it holds all", "subgid", "bob:1:4294967295\n", "to 1: bob has 4294967295 from 1 on"},
		{"an empty one", "subuid", "bob:65536:0\n", ""},
		{"that of the pods", "subuid", "kubelet:65536:131072\n", ""},
		{"two users", "subuid", "kubelet:65536:131072\namy:65536:1\nbob:65537:1\n",
			"to 2: amy has 1 from 65536 on"},
		{"a user", "passwd", "root:x:0:0::/:/bin/sh\nbob:x:65536:100::/:/bin/sh\n",
			"to 1: bob has 1 from 65536 on"},
		{"a user with the group of a pod", "passwd", "bob:x:1000:65536::/:/bin/sh\n", ""},
		{"the user kubelet", "passwd", "kubelet:x:70000:100::/:/bin/sh\n",
			"to 1: kubelet has 1 from 70000 on"},
		{"a group", "group", "bob:x:196607:\n", "to 1: bob has 1 from 196607 on"},
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
				want = "/etc/" + test.file + " gives away IDs of the 131072 from 65536 on that pods with " +
					"user namespaces use, " + want
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

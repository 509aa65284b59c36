package seedlet_test

import (
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"testing"
)

// kubernetes is the module that is no library.
const kubernetes = "k8s.io/kubernetes"

// kubernetesModules may name it in their go.mod.
var kubernetesModules = []exemption{
	{"realworld/cluster/tools/go.mod", "builds the real components, to test with; has no code"},
}

func TestModules(t *testing.T) {
	judge(t, borrowers(t, "."), kubernetesModules)
}

func TestModulesCatchPlantedBorrower(t *testing.T) {
	var found []string
	for _, f := range borrowers(t, planted) {
		found = append(found, f.at+": "+f.message)
	}
	want := []string{
		"borrowed/borrowed.go: code in a module that names k8s.io/kubernetes",
		"borrowed/go.mod: names k8s.io/kubernetes",
	}
	if !slices.Equal(found, want) {
		t.Errorf("got %q, want %q", found, want)
	}
}

// borrowers returns the modules below dir that name Kubernetes, and the code in them: what is not
// there cannot be imported, and not be written against its internals either.
func borrowers(t *testing.T, dir string) []finding {
	t.Helper()
	var found []finding
	root := os.DirFS(dir)
	for _, file := range files(t, root, "go.mod") {
		data, err := fs.ReadFile(root, file)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.ContainsFunc(strings.Fields(string(data)), func(word string) bool {
			return within(word, kubernetes)
		}) {
			continue
		}
		found = append(found, finding{file, file, "names " + kubernetes})
		module, err := fs.Sub(root, path.Dir(file))
		if err != nil {
			t.Fatal(err)
		}
		for _, code := range files(t, module, ".go") {
			at := path.Join(path.Dir(file), code)
			found = append(found, finding{at, at, "code in a module that names " + kubernetes})
		}
	}
	slices.SortFunc(found, func(a, b finding) int { return strings.Compare(a.at, b.at) })
	return found
}

// files are the files whose names end so, but for hidden ones and those of tests.
func files(t *testing.T, root fs.FS, suffix string) []string {
	t.Helper()
	var found []string
	err := fs.WalkDir(root, ".", func(at string, entry fs.DirEntry, err error) error {
		hidden := at != "." && strings.HasPrefix(path.Base(at), ".")
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (hidden || entry.Name() == "testdata"):
			return fs.SkipDir
		case !entry.IsDir() && strings.HasSuffix(at, suffix):
			found = append(found, at)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

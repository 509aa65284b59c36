package seedlet_test

import (
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"testing"
)

// kubernetes is the module of Kubernetes itself, which is not a library.
const kubernetes = "k8s.io/kubernetes"

// kubernetesModules may name it in their go.mod.
var kubernetesModules = []exemption{
	{"realworld/cluster/tools/go.mod", "builds the real components, to test with"},
	{"realworld/cluster/tools/etcd/main.go", "is the etcd of kubeadm's static pods"},
	{"realworld/cluster/tools/kubeadm/main.go", "is kubeadm"},
	{"realworld/cluster/tools/featuregates/main.go", "prints a table of the kubelet's gates"},
	{"realworld/cluster/tools/kubeletflags/main.go", "prints the kubelet's flags, for a test"},
	{"realworld/cluster/tools/podtypes/main.go", "prints a table of the kubelet's types"},
}

func TestModules(t *testing.T) {
	reportFindings(t, findKubernetesUsers(t, "."), kubernetesModules)
}

func TestModulesCatchPlantedKubernetes(t *testing.T) {
	var found []string
	for _, f := range findKubernetesUsers(t, plantedModule) {
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

// findKubernetesUsers returns the modules below dir that name Kubernetes, and the code in them. A
// module that does not require Kubernetes can neither import it nor depend on its internals.
func findKubernetesUsers(t *testing.T, dir string) []finding {
	t.Helper()
	var found []finding
	root := os.DirFS(dir)
	for _, file := range findFiles(t, root, "go.mod") {
		data, err := fs.ReadFile(root, file)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.ContainsFunc(strings.Fields(string(data)), func(word string) bool {
			return isWithin(word, kubernetes)
		}) {
			continue
		}
		found = append(found, finding{file, file, "names " + kubernetes})
		module, err := fs.Sub(root, path.Dir(file))
		if err != nil {
			t.Fatal(err)
		}
		for _, code := range findFiles(t, module, ".go") {
			at := path.Join(path.Dir(file), code)
			found = append(found, finding{at, at, "code in a module that names " + kubernetes})
		}
	}
	slices.SortFunc(found, func(a, b finding) int { return strings.Compare(a.at, b.at) })
	return found
}

// findFiles returns the files whose names have one of the suffixes, without hidden folders and
// testdata.
func findFiles(t *testing.T, root fs.FS, suffixes ...string) []string {
	t.Helper()
	var found []string
	err := fs.WalkDir(root, ".", func(at string, entry fs.DirEntry, err error) error {
		hidden := at != "." && strings.HasPrefix(path.Base(at), ".")
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (hidden || entry.Name() == "testdata"):
			return fs.SkipDir
		case !entry.IsDir() && slices.ContainsFunc(suffixes, func(suffix string) bool {
			return strings.HasSuffix(at, suffix)
		}):
			found = append(found, at)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

package seedlet_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// wall says what the packages of a folder may import. The first folder that fits counts.
type wall struct {
	folder string
	ours   []string // folders of this module; nil allows none but the folder itself
	pure   bool     // only pureStd and pureModules from elsewhere
}

var everything = []string{"world", "core", "sim", "realworld", "cmd", "scenarios"}

// walls are the import column of the design.
var walls = []wall{
	{"world", []string{"world"}, true},
	{"core", []string{"world"}, true},
	{"sim", []string{"core", "world", "scenarios"}, false}, // scenarios are data, for its tests
	{"realworld", []string{"world"}, false},
	{"scenarios", []string{"core", "sim", "world"}, false},
	{"cmd/seedsim", []string{"core", "sim", "scenarios", "world"}, false},
	{"cmd", everything, false},
	{"", nil, false}, // the tests in this folder
}

// pureStd is what core and world may use of the standard library: packages that compute. Not in
// it, because they reach the machine or another goroutine: os, net, syscall, context, log, sync,
// runtime, unsafe and all the rest.
var pureStd = []string{
	"bytes", "cmp", "container/heap", "crypto/sha256", "encoding", "encoding/base64",
	"encoding/binary", "encoding/hex", "encoding/json", "encoding/pem", "errors", "fmt", "hash",
	"hash/fnv", "io", "iter", "maps", "math", "math/bits", "math/rand/v2", "net/netip", "path",
	"reflect", "regexp", "slices", "sort", "strconv", "strings", "time", "unicode", "unicode/utf8",
}

// pureModules are what core and world may use of others: types, and functions of their
// arguments.
var pureModules = []string{
	"github.com/distribution/reference", // image names
	"github.com/go-logr/logr",           // what tolerations want told, to nobody
	"go.yaml.in/yaml/v2",                // counting documents
	"google.golang.org/protobuf/proto",  // the canonical form of CRI messages
	"k8s.io/api",
	"k8s.io/apimachinery/pkg/api",
	"k8s.io/apimachinery/pkg/apis/meta/v1",
	"k8s.io/apimachinery/pkg/labels", // what selectors are matched with
	"k8s.io/apimachinery/pkg/types",
	"k8s.io/apimachinery/pkg/util/intstr",
	"k8s.io/apimachinery/pkg/util/resourceversion",
	"k8s.io/apimachinery/pkg/util/sets",
	"k8s.io/apimachinery/pkg/util/validation",
	"k8s.io/component-base/logs/api/v1", // a part of KubeletConfiguration
	"k8s.io/component-helpers/resource",
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity",
	"k8s.io/cri-api/pkg/apis/runtime/v1",
	"k8s.io/kubelet/config/v1beta1",
	"k8s.io/utils/cpuset",
	"sigs.k8s.io/json",
	"sigs.k8s.io/yaml",
}

// nobody may import these.
var forbidden = []struct{ path, reason string }{
	{kubernetes, "it is no library, and the kubelet in it is what this replaces"},
}

// listed is what `go list -json` says of a package.
type listed struct {
	ImportPath                         string
	Imports, TestImports, XTestImports []string
}

func TestWalls(t *testing.T) {
	packages := list(t, ".")
	if len(packages) < 5 {
		t.Fatalf("only %d packages: is this the module's root?", len(packages))
	}
	var found []finding
	for _, pkg := range packages {
		found = append(found, breaches(pkg)...)
	}
	judge(t, found, impurePackages)
}

func TestWallsCatchPlantedImports(t *testing.T) {
	var found []string
	for _, pkg := range list(t, planted) {
		for _, f := range breaches(pkg) {
			found = append(found, f.at+": "+f.message)
		}
	}
	slices.Sort(found)
	want := []string{
		"seedlet.dev/cmd/seedsim: cmd/seedsim may not import seedlet.dev/realworld",
		"seedlet.dev/core/walls (test): core may not import seedlet.dev/sim",
		"seedlet.dev/core/walls: core may not import github.com/spf13/cobra",
		"seedlet.dev/core/walls: core may not import k8s.io/client-go/kubernetes",
		"seedlet.dev/core/walls: core may not import os",
		"seedlet.dev/core/walls: core may not import seedlet.dev/realworld",
		"seedlet.dev/core/walls: core may not import sync",
		"seedlet.dev/realworld: realworld may not import seedlet.dev/core",
		"seedlet.dev/sim: nobody may import k8s.io/kubernetes/pkg/kubelet: it is no library, " +
			"and the kubelet in it is what this replaces",
		"seedlet.dev/sim: sim may not import seedlet.dev/realworld",
		"seedlet.dev/world: world may not import seedlet.dev/core",
	}
	if !slices.Equal(found, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(found, "\n"), strings.Join(want, "\n"))
	}
}

// list asks the go command for all packages of the module in dir.
func list(t *testing.T, dir string) []listed {
	t.Helper()
	cmd := exec.Command("go", "list", "-e", "-json=ImportPath,Imports,TestImports,XTestImports",
		"./...")
	cmd.Dir = dir
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, &stderr)
	}
	var all []listed
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		var pkg listed
		if err := decoder.Decode(&pkg); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, pkg)
	}
}

// breaches returns the imports of a package that its wall does not let through. Tests may use
// what they like of others, but of this module no more than the code they test.
func breaches(pkg listed) []finding {
	w := wallOf(pkg.ImportPath)
	var found []finding
	for _, path := range pkg.Imports {
		if problem := w.breach(path, w.pure); problem != "" {
			found = append(found, finding{pkg.ImportPath, pkg.ImportPath, problem})
		}
	}
	for _, path := range slices.Concat(pkg.TestImports, pkg.XTestImports) {
		if problem := w.breach(path, false); problem != "" {
			found = append(found, finding{pkg.ImportPath + " (test)", pkg.ImportPath, problem})
		}
	}
	return found
}

func wallOf(path string) wall {
	folder := strings.TrimPrefix(strings.TrimPrefix(path, module), "/")
	for _, w := range walls {
		if within(folder, w.folder) {
			return w
		}
	}
	panic("no wall for " + path)
}

// breach says what is wrong with an import, nothing if it is allowed.
func (w wall) breach(path string, pure bool) string {
	for _, f := range forbidden {
		if within(path, f.path) {
			return fmt.Sprintf("nobody may import %s: %s", path, f.reason)
		}
	}
	refused := fmt.Sprintf("%s may not import %s", w.folder, path)
	inside := func(folder string) bool { return within(path, folder) }
	first, _, _ := strings.Cut(path, "/")
	switch {
	case first == module:
		ours := strings.TrimPrefix(path, module+"/")
		for _, folder := range append([]string{w.folder}, w.ours...) {
			if within(ours, folder) {
				return ""
			}
		}
		return refused
	case !pure:
		return ""
	case strings.Contains(first, "."):
		if slices.ContainsFunc(pureModules, inside) {
			return ""
		}
		return refused
	case slices.Contains(pureStd, path):
		return ""
	}
	return refused
}

// within says whether a path is a folder or below it.
func within(path, folder string) bool {
	return folder == "" || path == folder || strings.HasPrefix(path, folder+"/")
}

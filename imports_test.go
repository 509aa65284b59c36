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

// importRule lists what the packages of a folder may import. The first rule whose folder contains a
// package applies.
type importRule struct {
	folder  string
	allowed []string // folders of this module; the folder itself is always allowed
	std     []string // packages of the standard library; nil: all
	modules []string // packages of other modules; nil: all
}

var allFolders = []string{"world", "core", "sim", "realworld", "cmd", "scenarios"}

// importRules are the import rules of the design.
var importRules = []importRule{
	{"world", []string{"world"}, pureStd, pureModules},
	{"core", []string{"world"}, pureStd, pureModules},
	// The judge shares no code with the judged.
	{"sim/oracle", []string{"sim/truth", "world"}, append(keyStd, pureStd...), nil},
	{"sim/truth", []string{"world"}, pureStd, nil},
	// For tests: scenarios, which are data, and mutants of the source.
	{"sim", []string{"core", "world", "scenarios", "hack/mutants/mutation"}, simStd, nil},
	{"realworld", []string{"world"}, nil, nil},
	{"scenarios", []string{"core", "sim", "world"}, simStd, nil},
	{"cmd/seedsim", []string{"core", "sim", "scenarios", "world"}, nil, nil},
	{"cmd", allFolders, nil, nil},
	{"", nil, nil, nil}, // the tests in this folder
}

// pureStd are the packages of the standard library that core and world may import: packages that
// only compute. Not listed, because they access the machine or another goroutine: os, net, syscall,
// context, log, sync, runtime, unsafe and all others.
var pureStd = []string{
	"bytes", "cmp", "container/heap", "crypto/sha256", "encoding", "encoding/base64",
	"encoding/binary", "encoding/hex", "encoding/json", "encoding/pem", "errors", "fmt", "hash",
	"hash/fnv", "io", "iter", "maps", "math", "math/bits", "math/rand/v2", "net/netip", "path",
	"reflect", "regexp", "slices", "sort", "strconv", "strings", "time", "unicode", "unicode/utf8",
}

// simStd are the packages of the standard library that the simulator may import: those that only
// compute, those that write what a run has found, and a few by name. A run depends on its plan
// alone, so neither the machine nor another goroutine may have a say.
var simStd = append([]string{
	"bufio", "compress/gzip", "embed", "html/template", "io/fs", "net/url", "text/tabwriter",
	"context",                  // ends a search between two runs
	"runtime", "runtime/debug", // a panic is recognized, and its trace is shown
	"crypto/elliptic", "crypto/sha512",
	"math/big", // serial numbers of certificates
}, append(keyStd, pureStd...)...)

// keyStd are packages that decode keys and certificates. They only compute, unless they are given
// a source of randomness; the simulator gives them none.
var keyStd = []string{"crypto", "crypto/ecdsa", "crypto/ed25519", "crypto/rsa", "crypto/x509"}

// pureModules are the packages of other modules that core and world may import: types, and
// functions of their arguments.
var pureModules = []string{
	"github.com/distribution/reference", // image names
	"github.com/go-logr/logr",           // a parameter of tolerations; logs nothing
	"go.yaml.in/yaml/v2",                // counting documents
	"google.golang.org/protobuf/proto",  // canonical encoding of CRI messages
	"k8s.io/api",
	"k8s.io/apimachinery/pkg/api",
	"k8s.io/apimachinery/pkg/apis/meta/v1",
	"k8s.io/apimachinery/pkg/labels", // matching of selectors
	"k8s.io/apimachinery/pkg/types",
	"k8s.io/apimachinery/pkg/util/intstr",
	"k8s.io/apimachinery/pkg/util/resourceversion",
	"k8s.io/apimachinery/pkg/util/sets",
	"k8s.io/apimachinery/pkg/util/validation",
	"k8s.io/apimachinery/pkg/util/version",
	"k8s.io/component-base/logs/api/v1", // a part of KubeletConfiguration
	"k8s.io/component-helpers/nodedeclaredfeatures",
	"k8s.io/component-helpers/resource",
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity",
	"k8s.io/cri-api/pkg/apis/runtime/v1",
	"k8s.io/csi-translation-lib", // volumes of in-tree kinds; logs to the logger that it is given
	"k8s.io/kubelet/config/v1",   // of the plugins that provide credentials
	"k8s.io/kubelet/config/v1beta1",
	"k8s.io/kubelet/pkg/apis/credentialprovider/v1",
	"k8s.io/utils/cpuset",
	"sigs.k8s.io/json",
	"sigs.k8s.io/yaml",
}

// forbidden are the packages that nothing may import.
var forbidden = []struct{ path, reason string }{
	{kubernetes, "it is no library, and the kubelet in it is what this replaces"},
}

// goListPackage is a package in the output of `go list -json`.
type goListPackage struct {
	ImportPath                         string
	Imports, TestImports, XTestImports []string
}

func TestImports(t *testing.T) {
	packages := goList(t, ".")
	if len(packages) < 5 {
		t.Fatalf("only %d packages: is this the module's root?", len(packages))
	}
	var found []finding
	for _, pkg := range packages {
		found = append(found, forbiddenImports(pkg)...)
	}
	reportFindings(t, found, impurePackages)
}

func TestImportsCatchPlantedImports(t *testing.T) {
	var found []string
	for _, pkg := range goList(t, plantedModule) {
		for _, f := range forbiddenImports(pkg) {
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
		"seedlet.dev/sim/oracle: sim/oracle may not import seedlet.dev/core/walls",
		"seedlet.dev/sim: nothing may import k8s.io/kubernetes/pkg/kubelet: it is no library, " +
			"and the kubelet in it is what this replaces",
		"seedlet.dev/sim: sim may not import os",
		"seedlet.dev/sim: sim may not import seedlet.dev/realworld",
		"seedlet.dev/world: world may not import seedlet.dev/core",
	}
	if !slices.Equal(found, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(found, "\n"), strings.Join(want, "\n"))
	}
}

// goList lists all packages of the module in dir.
func goList(t *testing.T, dir string) []goListPackage {
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
	var all []goListPackage
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		var pkg goListPackage
		if err := decoder.Decode(&pkg); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, pkg)
	}
}

// forbiddenImports returns the imports of a package that its rule forbids. Tests may import any
// other module, but of this module only what the code they test may import.
func forbiddenImports(pkg goListPackage) []finding {
	w := importRuleFor(pkg.ImportPath)
	var found []finding
	for _, path := range pkg.Imports {
		if problem := w.problemWith(path); problem != "" {
			found = append(found, finding{pkg.ImportPath, pkg.ImportPath, problem})
		}
	}
	tests := w
	tests.std, tests.modules = nil, nil
	for _, path := range slices.Concat(pkg.TestImports, pkg.XTestImports) {
		if problem := tests.problemWith(path); problem != "" {
			found = append(found, finding{pkg.ImportPath + " (test)", pkg.ImportPath, problem})
		}
	}
	return found
}

func importRuleFor(path string) importRule {
	folder := strings.TrimPrefix(strings.TrimPrefix(path, module), "/")
	for _, w := range importRules {
		if isWithin(folder, w.folder) {
			return w
		}
	}
	panic("no wall for " + path)
}

// problemWith returns what is wrong with an import; empty if it is allowed.
func (w importRule) problemWith(path string) string {
	for _, f := range forbidden {
		if isWithin(path, f.path) {
			return fmt.Sprintf("nothing may import %s: %s", path, f.reason)
		}
	}
	refused := fmt.Sprintf("%s may not import %s", w.folder, path)
	inside := func(folder string) bool { return isWithin(path, folder) }
	first, _, _ := strings.Cut(path, "/")
	switch {
	case first == module:
		ours := strings.TrimPrefix(path, module+"/")
		for _, folder := range append([]string{w.folder}, w.allowed...) {
			if isWithin(ours, folder) {
				return ""
			}
		}
		return refused
	}
	others, isAllowed := w.std, func(p string) bool { return path == p }
	if strings.Contains(first, ".") {
		others, isAllowed = w.modules, inside
	}
	if others == nil || slices.ContainsFunc(others, isAllowed) {
		return ""
	}
	return refused
}

// isWithin reports whether a path is a folder or below it.
func isWithin(path, folder string) bool {
	return folder == "" || path == folder || strings.HasPrefix(path, folder+"/")
}

// Package seedlet_test checks the architecture: the imports of each folder (imports_test.go), the
// modules that may name Kubernetes (modules_test.go), that the core is a deterministic function of
// its events (purity_test.go), that its state is plain data (state_test.go), the size of
// functions and lines (shape_test.go), comments of packages and exported names (comments_test.go),
// and words that are not used any more (words_test.go).
//
// Each check is a table of rules with a list of exemptions, each with a reason. An exemption that
// is not needed any more fails. Each check also runs on testdata/planted, a module with one
// violation of every rule, and must find them all: a check that finds nothing proves nothing.
package seedlet_test

import (
	"slices"
	"testing"

	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/packages"
)

const module = "seedlet.dev"

// plantedModule is the module with the violations.
const plantedModule = "testdata/planted"

// purePackages are the folders of the deterministic state machine and of the simulator.
var purePackages = []string{"./core/...", "./world/...", "./sim/..."}

// exemption exempts a package, or another subject of a check, from the check.
type exemption struct{ path, reason string }

// impurePackages are exempt from the checks of pure code.
var impurePackages = []exemption{
	{module + "/world/parity", "a test suite that ports run against themselves, not part of core"},
}

// load type-checks packages of the module in dir, without their tests.
func load(t *testing.T, dir string, patterns ...string) []*packages.Package {
	t.Helper()
	pkgs, err := packages.Load(&packages.Config{Mode: packages.LoadSyntax, Dir: dir}, patterns...)
	if err != nil {
		t.Fatal(err)
	}
	for _, pkg := range pkgs {
		for _, err := range pkg.Errors {
			t.Error(err)
		}
	}
	if len(pkgs) == 0 {
		t.Fatalf("no package matches %v", patterns)
	}
	return pkgs
}

// diagnose runs an analyzer that needs no facts over a package.
func diagnose(t *testing.T, a *analysis.Analyzer, pkg *packages.Package) []finding {
	t.Helper()
	var found []finding
	pass := &analysis.Pass{
		Analyzer: a, Fset: pkg.Fset, Files: pkg.Syntax, Pkg: pkg.Types, TypesInfo: pkg.TypesInfo,
		Report: func(d analysis.Diagnostic) {
			found = append(found, finding{pkg.Fset.Position(d.Pos).String(), pkg.PkgPath, d.Message})
		},
	}
	if _, err := a.Run(pass); err != nil {
		t.Fatal(err)
	}
	return found
}

// finding is one violation: its place, its subject (usually a package) and a message.
type finding struct{ at, subject, message string }

// reportFindings fails the test for each problem.
func reportFindings(t *testing.T, found []finding, exemptions []exemption) {
	t.Helper()
	for _, problem := range problemsOf(found, exemptions) {
		t.Error(problem)
	}
}

// problemsOf returns a line for each finding without an exemption, for each exemption that nothing
// needs, and for each exemption without a reason.
func problemsOf(found []finding, exemptions []exemption) []string {
	var problems []string
	used := map[string]bool{}
	for _, f := range found {
		covers := func(e exemption) bool { return e.path == f.subject }
		if slices.ContainsFunc(exemptions, covers) {
			used[f.subject] = true
		} else {
			problems = append(problems, f.at+": "+f.message)
		}
	}
	for _, e := range exemptions {
		if !used[e.path] {
			problems = append(problems, "the exemption of "+e.path+" is not needed: remove it")
		}
		if e.reason == "" {
			problems = append(problems, "the exemption of "+e.path+" has no reason")
		}
	}
	return problems
}

func TestProblemsOf(t *testing.T) {
	got := problemsOf(
		[]finding{{"a.go:1", "a", "bad"}, {"b.go:2", "b", "worse"}},
		[]exemption{{"b", "it has to be"}, {"c", "there was one"}, {"b", ""}})
	want := []string{
		"a.go:1: bad",
		"the exemption of c is not needed: remove it",
		"the exemption of b has no reason",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

package seedlet_test

import (
	"fmt"
	"go/types"
	"strings"
	"testing"

	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/analysis/analysistest"
)

// plainState reports fields that cannot be written to a snapshot and read back, in the type State
// of a package and in all types of this module that State contains.
var plainState = &analysis.Analyzer{
	Name: "plainstate",
	Doc:  "reports behaviour in the agent's state, and fields that a snapshot leaves out",
	Run: func(pass *analysis.Pass) (any, error) {
		state := pass.Pkg.Scope().Lookup("State")
		if state == nil {
			return nil, fmt.Errorf("package %s has no type State", pass.Pkg.Path())
		}
		s := stateWalker{seen: map[types.Type]bool{}}
		s.walk(state.Type(), "State")
		for _, problem := range s.problems {
			pass.Reportf(state.Pos(), "not plain data: %s is %s", problem.subject, problem.message)
		}
		return nil, nil
	},
}

// snapshotExemptions are fields that a snapshot leaves out because nothing is lost without them.
var snapshotExemptions = []exemption{
	{"State.Pods[].Sandboxes[].seenIn", "scratch of one relist, written and read in one step"},
	{"State.Pods[].index", "derived from the spec, and made again when it is missing"},
	{"State.Pods[].held", "computed from the resources, and again if missing"},
	{"State.Pods[].images", "computed from the spec, and again if it is another one"},
	{"State.Pods[].pulls", "computed from the image pull secrets, and again if missing"},
	{"State.Pods[].checks", "computed from the spec and its objects, and again if missing"},
	{"State.Objects.Watches[].changes", "compared with numbers that a snapshot leaves out as well"},
	{"State.Objects.Watches[].memo", "computed from the objects, and again when it is missing"},
	{"State.Allocation.Allocated.Pods[].encoded", "computed from the resources, and again if missing"},
	{"State.Pods[].Containers[].seenIn", "scratch of one relist, written and read in one step"},
}

func TestStateIsPlainData(t *testing.T) {
	for _, pkg := range load(t, ".", "./core") {
		s := stateWalker{seen: map[types.Type]bool{}}
		s.walk(pkg.Types.Scope().Lookup("State").Type(), "State")
		reportFindings(t, s.problems, snapshotExemptions)
	}
}

func TestStateCatchesPlantedBehaviour(t *testing.T) {
	analysistest.Run(t, plantedDir(t), plainState, "./core/stateful")
}

type stateWalker struct {
	seen     map[types.Type]bool
	problems []finding
}

// walk checks a type and, if this module declares them, the types in it. Types of other modules
// (API objects, messages) are taken to be plain data.
func (s *stateWalker) walk(t types.Type, path string) {
	if s.seen[t] {
		return
	}
	s.seen[t] = true
	if named, ok := types.Unalias(t).(*types.Named); ok {
		pkg := named.Obj().Pkg()
		if pkg != nil && !strings.HasPrefix(pkg.Path()+"/", module+"/") {
			if _, behaves := named.Underlying().(*types.Interface); behaves {
				s.report(path, "an interface, "+named.Obj().Name())
			}
			return
		}
	}
	if method, _, _ := types.LookupFieldOrMethod(t, true, nil, "MarshalJSON"); method != nil {
		return // it has its own JSON form
	}
	switch u := t.Underlying().(type) {
	case *types.Struct:
		s.walkFields(u, path)
	case *types.Map:
		s.walk(u.Key(), path+"[key]")
		s.walk(u.Elem(), path+"[]")
	case *types.Slice:
		s.walk(u.Elem(), path+"[]")
	case *types.Array:
		s.walk(u.Elem(), path+"[]")
	case *types.Pointer:
		s.walk(u.Elem(), path)
	case *types.Signature:
		s.report(path, "a function")
	case *types.Chan:
		s.report(path, "a channel")
	case *types.Interface:
		if u.NumMethods() > 0 { // an empty interface holds a body, which is data
			s.report(path, "an interface")
		}
	}
}

func (s *stateWalker) walkFields(u *types.Struct, path string) {
	for i := range u.NumFields() {
		field := u.Field(i)
		name := path + "." + field.Name()
		if !field.Exported() || strings.Contains(u.Tag(i), `json:"-"`) {
			s.report(name, "not in the snapshot")
			continue
		}
		s.walk(field.Type(), name)
	}
}

func (s *stateWalker) report(path, what string) {
	s.problems = append(s.problems, finding{at: path, subject: path, message: what})
}

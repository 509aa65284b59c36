package seedlet_test

import (
	"go/ast"
	"go/token"
	"go/types"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/analysis/analysistest"
	"golang.org/x/tools/go/ast/astutil"
)

// purity reports code that could make two runs with the same events differ. Packages that the
// import rules forbid (os, sync, context, ...) need no rule here.
var purity = &analysis.Analyzer{
	Name: "purity",
	Doc: "reports goroutines, clocks, global randomness, output, globals, unordered maps and " +
		"products of floats that may not be rounded",
	Run: func(pass *analysis.Pass) (any, error) {
		for _, file := range pass.Files {
			p := purityChecker{pass: pass, file: file, markers: findOrderMarkers(pass.Fset, file)}
			ast.Inspect(file, p.visit)
			for _, marker := range p.markers {
				if !marker.used {
					pass.Reportf(marker.pos, "no map is walked on this line: remove the marker")
				} else if marker.reason == "" {
					pass.Reportf(marker.pos, "say why the order does not matter")
				}
			}
		}
		return nil, nil
	},
}

func TestPurity(t *testing.T) {
	var found []finding
	for _, pkg := range load(t, ".", purePackages...) {
		found = append(found, diagnose(t, purity, pkg)...)
	}
	reportFindings(t, found, nil)
}

func TestPurityCatchesPlantedCode(t *testing.T) {
	analysistest.Run(t, plantedDir(t), purity, "./core/impure")
}

func plantedDir(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs(plantedModule)
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// impureFuncs are functions of allowed packages that depend on more than their arguments, by the
// path of their package. For math/rand/v2 the allowed names are listed instead: see
// seededRandomFuncs.
var impureFuncs = map[string][]string{
	"time": {"Now", "Since", "Until", "After", "AfterFunc", "Tick", "NewTimer", "NewTicker",
		"Sleep", "LoadLocation", "Local"},
	"fmt":                                  {"Print", "Printf", "Println", "Scan", "Scanf", "Scanln"},
	"k8s.io/apimachinery/pkg/apis/meta/v1": {"Now", "NowMicro"},
}

// seededRandomFuncs are the names of math/rand/v2 that do not use its global generator.
var seededRandomFuncs = []string{"New", "NewPCG", "NewChaCha8", "NewZipf", "Rand", "PCG",
	"ChaCha8", "Zipf", "Source"}

type purityChecker struct {
	pass    *analysis.Pass
	file    *ast.File
	markers map[int]*marker
}

func (p *purityChecker) visit(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.GoStmt:
		p.report(n, "goroutine")
	case *ast.SelectStmt:
		p.report(n, "select")
	case *ast.SendStmt:
		p.report(n, "send to a channel")
	case *ast.ChanType:
		p.report(n, "channel")
	case *ast.RangeStmt:
		p.checkRange(n)
	case *ast.SelectorExpr:
		p.checkSelector(n)
	case *ast.CallExpr:
		p.checkCall(n)
	case *ast.BinaryExpr:
		p.checkProduct(n)
	case *ast.AssignStmt:
		if n.Tok != token.DEFINE {
			for _, left := range n.Lhs {
				p.checkWrite(left, "assignment to")
			}
		}
	case *ast.IncDecStmt:
		p.checkWrite(n.X, "assignment to")
	case *ast.UnaryExpr:
		if n.Op == token.AND {
			p.checkWrite(n.X, "address of")
		}
		if n.Op == token.ARROW {
			p.report(n, "receive from a channel")
		}
	}
	return true
}

func (p *purityChecker) report(n ast.Node, what string) {
	p.pass.Reportf(n.Pos(), "impure: %s", what)
}

// checkRange reports a range over a map, unless its line has a marker with the reason why the order
// does not matter.
func (p *purityChecker) checkRange(n *ast.RangeStmt) {
	if n.X == nil {
		return
	}
	if _, isMap := p.pass.TypesInfo.TypeOf(n.X).Underlying().(*types.Map); !isMap {
		return
	}
	if marker := p.markers[p.pass.Fset.Position(n.Pos()).Line]; marker != nil {
		marker.used = true
		return
	}
	p.report(n, "range over a map without //ordered: reason")
}

// checkSelector reports uses of impure functions of other packages.
func (p *purityChecker) checkSelector(n *ast.SelectorExpr) {
	object := p.pass.TypesInfo.Uses[n.Sel]
	if object == nil || object.Pkg() == nil || object.Parent() != object.Pkg().Scope() {
		if object != nil && object.Pkg() != nil && object.Pkg().Path() == "reflect" &&
			(object.Name() == "MapRange" || object.Name() == "MapKeys") {
			p.report(n, "reflect."+object.Name()+" walks a map in no order")
		}
		return
	}
	path, name := object.Pkg().Path(), object.Name()
	switch {
	case slices.Contains(impureFuncs[path], name):
		p.report(n, path+"."+name)
	case path == "math/rand/v2" && !slices.Contains(seededRandomFuncs, name):
		p.report(n, path+"."+name+" draws from the global generator")
	case path == "maps" && (name == "Keys" || name == "Values" || name == "All"):
		if !p.isSorted(n) {
			p.report(n, "maps."+name+" outside slices.Sorted")
		}
	}
}

// checkProduct reports a product of floating-point numbers that some processors may add to another
// number without rounding it before, also in another statement ("Floating-point operators" in the
// specification of Go): its value is neither converted, multiplied, divided nor compared at once.
func (p *purityChecker) checkProduct(n *ast.BinaryExpr) {
	basic, isBasic := p.pass.TypesInfo.TypeOf(n).Underlying().(*types.Basic)
	if n.Op != token.MUL || !isBasic || basic.Info()&types.IsFloat == 0 ||
		p.pass.TypesInfo.Types[n].Value != nil {
		return
	}
	path, _ := astutil.PathEnclosingInterval(p.file, n.Pos(), n.End())
	at := slices.Index(path, ast.Node(n)) + 1
	for _, isParenthesis := path[at].(*ast.ParenExpr); isParenthesis; {
		at++
		_, isParenthesis = path[at].(*ast.ParenExpr)
	}
	switch parent := path[at].(type) {
	case *ast.CallExpr:
		if p.pass.TypesInfo.Types[parent.Fun].IsType() {
			return
		}
	case *ast.BinaryExpr:
		if parent.Op != token.ADD && parent.Op != token.SUB {
			return
		}
	}
	p.report(n, "product of floats that is not converted: some processors would not round it")
}

// isSorted reports whether the call of a function is itself the argument of slices.Sorted….
func (p *purityChecker) isSorted(n ast.Node) bool {
	path, _ := astutil.PathEnclosingInterval(p.file, n.Pos(), n.End())
	calls := 0
	for _, node := range path {
		call, ok := node.(*ast.CallExpr)
		if !ok {
			continue
		}
		if calls++; calls < 2 {
			continue // the call of the function itself
		}
		callee, ok := call.Fun.(*ast.SelectorExpr)
		return ok && strings.HasPrefix(callee.Sel.Name, "Sorted") &&
			p.packageOf(callee) == "slices"
	}
	return false
}

func (p *purityChecker) packageOf(n *ast.SelectorExpr) string {
	if object := p.pass.TypesInfo.Uses[n.Sel]; object != nil && object.Pkg() != nil {
		return object.Pkg().Path()
	}
	return ""
}

// checkCall reports the builtins that print, and changes of globals by builtins and methods.
func (p *purityChecker) checkCall(n *ast.CallExpr) {
	switch fun := ast.Unparen(n.Fun).(type) {
	case *ast.Ident:
		if _, builtin := p.pass.TypesInfo.Uses[fun].(*types.Builtin); !builtin {
			return
		}
		switch fun.Name {
		case "print", "println":
			p.report(n, fun.Name)
		case "delete", "clear", "copy":
			p.checkWrite(n.Args[0], fun.Name+" of")
		}
	case *ast.SelectorExpr:
		method := p.pass.TypesInfo.Selections[fun]
		if method == nil || method.Kind() != types.MethodVal {
			return
		}
		receiver := method.Obj().(*types.Func).Signature().Recv()
		_, byPointer := receiver.Type().(*types.Pointer)
		_, isPointer := method.Recv().Underlying().(*types.Pointer)
		if byPointer && !isPointer {
			p.checkWrite(fun.X, "address of")
		}
	}
}

// checkWrite reports a change of a package-level variable. Such a variable is state that no
// snapshot contains, and that two agents in one process would share.
func (p *purityChecker) checkWrite(n ast.Expr, what string) {
	for {
		switch x := ast.Unparen(n).(type) {
		case *ast.IndexExpr:
			n = x.X
		case *ast.StarExpr:
			n = x.X
		case *ast.SelectorExpr:
			if p.isGlobal(x.Sel) {
				p.report(x, what+" the global "+x.Sel.Name)
				return
			}
			n = x.X
		case *ast.Ident:
			if p.isGlobal(x) {
				p.report(x, what+" the global "+x.Name)
			}
			return
		default:
			return
		}
	}
}

func (p *purityChecker) isGlobal(name *ast.Ident) bool {
	object, ok := p.pass.TypesInfo.Uses[name].(*types.Var)
	return ok && object.Pkg() != nil && object.Parent() == object.Pkg().Scope()
}

// marker is a comment of the form "//ordered: reason" on the line of a range over a map.
type marker struct {
	pos    token.Pos
	reason string
	used   bool
}

func findOrderMarkers(fset *token.FileSet, file *ast.File) map[int]*marker {
	markers := map[int]*marker{}
	for _, group := range file.Comments {
		for _, comment := range group.List {
			reason, ok := strings.CutPrefix(comment.Text, "//ordered:")
			if ok {
				line := fset.Position(comment.Pos()).Line
				markers[line] = &marker{pos: comment.Pos(), reason: strings.TrimSpace(reason)}
			}
		}
	}
	return markers
}

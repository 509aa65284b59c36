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

// purity reports what could make two runs with the same events differ. What the walls keep out
// (os, sync, context, ...) it need not know.
var purity = &analysis.Analyzer{
	Name: "purity",
	Doc:  "reports goroutines, clocks, global randomness, output, globals and unordered maps",
	Run: func(pass *analysis.Pass) (any, error) {
		for _, file := range pass.Files {
			p := purist{pass: pass, file: file, orders: orderMarkers(pass.Fset, file)}
			ast.Inspect(file, p.visit)
			for _, marker := range p.orders {
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
	judge(t, found, nil)
}

func TestPurityCatchesPlantedCode(t *testing.T) {
	analysistest.Run(t, plantedDir(t), purity, "./core/impure")
}

func plantedDir(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs(planted)
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// worldly are functions of allowed packages that depend on more than their arguments, by the
// full name of their package. For math/rand/v2 it is the other way round: see seeded.
var worldly = map[string][]string{
	"time": {"Now", "Since", "Until", "After", "AfterFunc", "Tick", "NewTimer", "NewTicker",
		"Sleep", "LoadLocation", "Local"},
	"fmt":                                  {"Print", "Printf", "Println", "Scan", "Scanf", "Scanln"},
	"k8s.io/apimachinery/pkg/apis/meta/v1": {"Now", "NowMicro"},
}

// seeded are what math/rand/v2 has beside its global generator.
var seeded = []string{"New", "NewPCG", "NewChaCha8", "NewZipf", "Rand", "PCG", "ChaCha8", "Zipf",
	"Source"}

type purist struct {
	pass   *analysis.Pass
	file   *ast.File
	orders map[int]*marker
}

func (p *purist) visit(n ast.Node) bool {
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
		p.ranging(n)
	case *ast.SelectorExpr:
		p.use(n)
	case *ast.CallExpr:
		p.call(n)
	case *ast.AssignStmt:
		if n.Tok != token.DEFINE {
			for _, left := range n.Lhs {
				p.write(left, "assignment to")
			}
		}
	case *ast.IncDecStmt:
		p.write(n.X, "assignment to")
	case *ast.UnaryExpr:
		if n.Op == token.AND {
			p.write(n.X, "address of")
		}
		if n.Op == token.ARROW {
			p.report(n, "receive from a channel")
		}
	}
	return true
}

func (p *purist) report(n ast.Node, what string) { p.pass.Reportf(n.Pos(), "impure: %s", what) }

// ranging reports a walk over a map, unless its line says why the order does not matter.
func (p *purist) ranging(n *ast.RangeStmt) {
	if n.X == nil {
		return
	}
	if _, isMap := p.pass.TypesInfo.TypeOf(n.X).Underlying().(*types.Map); !isMap {
		return
	}
	if marker := p.orders[p.pass.Fset.Position(n.Pos()).Line]; marker != nil {
		marker.used = true
		return
	}
	p.report(n, "range over a map without //ordered: reason")
}

// use reports names of other packages that reach the world.
func (p *purist) use(n *ast.SelectorExpr) {
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
	case slices.Contains(worldly[path], name):
		p.report(n, path+"."+name)
	case path == "math/rand/v2" && !slices.Contains(seeded, name):
		p.report(n, path+"."+name+" draws from the global generator")
	case path == "maps" && (name == "Keys" || name == "Values" || name == "All"):
		if !p.sorted(n) {
			p.report(n, "maps."+name+" outside slices.Sorted")
		}
	}
}

// sorted says whether the call of a function is itself the argument of a sorting one.
func (p *purist) sorted(n ast.Node) bool {
	path, _ := astutil.PathEnclosingInterval(p.file, n.Pos(), n.End())
	calls := 0
	for _, node := range path {
		call, ok := node.(*ast.CallExpr)
		if !ok {
			continue
		}
		if calls++; calls < 2 {
			continue // the call of the function
		}
		callee, ok := call.Fun.(*ast.SelectorExpr)
		return ok && strings.HasPrefix(callee.Sel.Name, "Sorted") &&
			p.packageOf(callee) == "slices"
	}
	return false
}

func (p *purist) packageOf(n *ast.SelectorExpr) string {
	if object := p.pass.TypesInfo.Uses[n.Sel]; object != nil && object.Pkg() != nil {
		return object.Pkg().Path()
	}
	return ""
}

// call reports the builtins that print, and changes of globals by builtins and methods.
func (p *purist) call(n *ast.CallExpr) {
	switch fun := ast.Unparen(n.Fun).(type) {
	case *ast.Ident:
		if _, builtin := p.pass.TypesInfo.Uses[fun].(*types.Builtin); !builtin {
			return
		}
		switch fun.Name {
		case "print", "println":
			p.report(n, fun.Name)
		case "delete", "clear", "copy":
			p.write(n.Args[0], fun.Name+" of")
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
			p.write(fun.X, "address of")
		}
	}
}

// write reports a change of a variable of a package. Such a variable is state that no snapshot
// holds, and that two agents in one process would share.
func (p *purist) write(n ast.Expr, what string) {
	for {
		switch x := ast.Unparen(n).(type) {
		case *ast.IndexExpr:
			n = x.X
		case *ast.StarExpr:
			n = x.X
		case *ast.SelectorExpr:
			if p.global(x.Sel) {
				p.report(x, what+" the global "+x.Sel.Name)
				return
			}
			n = x.X
		case *ast.Ident:
			if p.global(x) {
				p.report(x, what+" the global "+x.Name)
			}
			return
		default:
			return
		}
	}
}

func (p *purist) global(name *ast.Ident) bool {
	object, ok := p.pass.TypesInfo.Uses[name].(*types.Var)
	return ok && object.Pkg() != nil && object.Parent() == object.Pkg().Scope()
}

// marker is a comment of the form "//ordered: reason" on the line that walks a map.
type marker struct {
	pos    token.Pos
	reason string
	used   bool
}

func orderMarkers(fset *token.FileSet, file *ast.File) map[int]*marker {
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

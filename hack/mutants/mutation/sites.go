package mutation

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Site is one change that can be made in one place of the source.
type Site struct {
	File     string // relative to the module
	Function string
	Line     int
	Operator string // such as "negate"
	Old, New string // the changed text, and what it becomes
	edit     Edit   // of the whole body of the function, which occurs once
}

// String returns the site as a table has it: the place, the operator and the change.
func (s *Site) String() string {
	return fmt.Sprintf("%s:%d %s: %s: %s → %s", s.File, s.Line, s.Function, s.Operator,
		shortened(s.Old), shortened(s.New))
}

// Key names the change by what does not move with the lines above it.
func (s *Site) Key() string {
	return strings.Join([]string{s.File, s.Function, s.Operator, shortened(s.Old)}, " | ")
}

// Edits returns the change for an Overlay.
func (s *Site) Edits() []Edit { return []Edit{s.edit} }

// shortened returns a text on one line.
func shortened(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	if text == "" {
		return "(nothing)"
	}
	return text
}

// Sites returns the changes that can be made in the Go files of a folder of the module and of the
// folders below it, without tests, for the files that a filter accepts. They are sorted by file and
// place. Functions with type parameters and calls of panic and of loggers are left out.
func Sites(root, folder string, accepts func(name string) bool) ([]Site, error) {
	var sites []Site
	err := filepath.WalkDir(filepath.Join(root, folder), func(path string, d os.DirEntry,
		err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, err := filepath.Rel(root, path)
		if err != nil || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") ||
			!accepts(name) {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		found, err := sitesOf(name, string(text))
		sites = append(sites, found...)
		return err
	})
	return sites, err
}

// sitesOf returns the changes that can be made in a file.
func sitesOf(name, text string) ([]Site, error) {
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, name, text, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	var sites []Site
	for _, declaration := range file.Decls {
		f, isFunction := declaration.(*ast.FuncDecl)
		if !isFunction || f.Body == nil || f.Type.TypeParams != nil || callsRecover(f) ||
			f.Name.Name == "init" {
			continue
		}
		finder := &siteFinder{fset: fset, text: text, name: name, function: f}
		ast.Inspect(f.Body, finder.visit)
		sites = append(sites, finder.sites...)
	}
	slices.SortStableFunc(sites, func(a, b Site) int { return a.Line - b.Line })
	return sites, nil
}

// siteFinder finds the changes that can be made in one function.
type siteFinder struct {
	fset     *token.FileSet
	text     string
	name     string
	function *ast.FuncDecl
	sites    []Site
}

func (s *siteFinder) offset(at token.Pos) int { return s.fset.Position(at).Offset }

func (s *siteFinder) source(n ast.Node) string {
	return s.text[s.offset(n.Pos()):s.offset(n.End())]
}

// add adds the replacement of a node by a text.
func (s *siteFinder) add(n ast.Node, operator, replacement string) {
	start, end := s.offset(s.function.Body.Lbrace)+1, s.offset(s.function.Body.Rbrace)
	from, to := s.offset(n.Pos()), s.offset(n.End())
	s.sites = append(s.sites, Site{
		File: s.name, Function: s.function.Name.Name, Line: s.fset.Position(n.Pos()).Line,
		Operator: operator, Old: s.source(n), New: replacement,
		edit: Edit{File: s.name, Old: s.text[start:end],
			New: s.text[start:from] + replacement + s.text[to:end]},
	})
}

func (s *siteFinder) visit(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.IfStmt:
		s.negate(n.Cond)
	case *ast.ForStmt:
		if n.Cond != nil {
			s.negate(n.Cond)
		}
	case *ast.SwitchStmt:
		if n.Tag == nil {
			s.negateCases(n.Body)
		}
	case *ast.BinaryExpr:
		s.changeOperator(n)
	case *ast.ExprStmt:
		if call, isCall := n.X.(*ast.CallExpr); isCall && !isSilent(call) {
			s.add(n, "delete-call", "")
		}
	case *ast.AssignStmt:
		s.deleteAssignment(n)
	case *ast.IncDecStmt:
		s.add(n, "delete-assign", "")
	}
	return true
}

func (s *siteFinder) negate(condition ast.Expr) {
	if not, isNot := condition.(*ast.UnaryExpr); isNot && not.Op == token.NOT {
		s.add(condition, "negate", s.source(not.X))
		return
	}
	s.add(condition, "negate", "!("+s.source(condition)+")")
}

func (s *siteFinder) negateCases(body *ast.BlockStmt) {
	for _, clause := range body.List {
		for _, condition := range clause.(*ast.CaseClause).List {
			s.negate(condition)
		}
	}
}

// moved are the comparisons with the bound moved by one.
var moved = map[token.Token]token.Token{token.LSS: token.LEQ, token.LEQ: token.LSS,
	token.GTR: token.GEQ, token.GEQ: token.GTR}

func (s *siteFinder) changeOperator(n *ast.BinaryExpr) {
	switch n.Op {
	case token.LAND, token.LOR:
		s.add(n, "drop-left", s.source(n.Y))
		s.add(n, "drop-right", s.source(n.X))
	case token.LSS, token.LEQ, token.GTR, token.GEQ:
		s.add(n, "shift-bound", s.source(n.X)+" "+moved[n.Op].String()+" "+s.source(n.Y))
	}
}

// deleteAssignment evaluates what is assigned, and drops it.
func (s *siteFinder) deleteAssignment(n *ast.AssignStmt) {
	if n.Tok == token.DEFINE || len(n.Rhs) == 0 {
		return
	}
	blanks := make([]string, len(n.Lhs))
	for i := range blanks {
		if name, isName := n.Lhs[i].(*ast.Ident); isName && name.Name == "_" && len(blanks) == 1 {
			return
		}
		blanks[i] = "_"
	}
	var values []string
	for _, value := range n.Rhs {
		values = append(values, s.source(value))
	}
	s.add(n, "delete-assign", strings.Join(blanks, ", ")+" = "+strings.Join(values, ", "))
}

// isSilent reports whether a call changes nothing that a test looks at: a panic, whose condition
// never holds, or a line of the log.
func isSilent(call *ast.CallExpr) bool {
	switch f := call.Fun.(type) {
	case *ast.Ident:
		return f.Name == "panic"
	case *ast.SelectorExpr:
		return f.Sel.Name == "Log"
	}
	return false
}

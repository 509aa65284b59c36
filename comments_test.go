package seedlet_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// commentsExemptions are packages and files that do not keep to the rules of comments.
var commentsExemptions = []exemption{}

func TestComments(t *testing.T) {
	reportFindings(t, findUncommented(t, "."), commentsExemptions)
}

func TestCommentsCatchPlantedLacks(t *testing.T) {
	var found []string
	for _, f := range findUncommented(t, plantedModule+"/core/words") {
		found = append(found, f.at+": "+f.message)
	}
	want := []string{
		"words.go:10: the comment of Count does not begin with its name",
		"words.go:13: Bare has no comment",
		".: package words has no package comment",
	}
	if !slices.Equal(found, want) {
		t.Errorf("got %q, want %q", found, want)
	}
}

// findUncommented returns the packages below dir without a package comment, and the exported names
// whose comment is missing or does not begin with the name. Methods need no comment.
func findUncommented(t *testing.T, dir string) []finding {
	t.Helper()
	var found []finding
	described := map[string]bool{} // by folder
	names := map[string]string{}   // of packages, by folder
	for _, file := range findFiles(t, os.DirFS(dir), ".go") {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		fset := token.NewFileSet()
		parsed, err := parser.ParseFile(fset, filepath.Join(dir, file), nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		folder := path.Dir(file)
		names[folder] = parsed.Name.Name
		described[folder] = described[folder] || parsed.Doc != nil
		for _, decl := range parsed.Decls {
			for _, problem := range findUncommentedIn(decl) {
				at := fmt.Sprintf("%s:%d", file, fset.Position(problem.at).Line)
				found = append(found, finding{at, file, problem.message})
			}
		}
	}
	for _, folder := range slices.Sorted(maps.Keys(names)) {
		if !described[folder] {
			found = append(found, finding{folder, folder,
				"package " + names[folder] + " has no package comment"})
		}
	}
	return found
}

type commentProblem struct {
	at      token.Pos
	message string
}

func findUncommentedIn(decl ast.Decl) []commentProblem {
	switch d := decl.(type) {
	case *ast.FuncDecl:
		return checkComment(d.Name, d.Doc, d.Recv == nil)
	case *ast.GenDecl:
		var all []commentProblem
		for _, spec := range d.Specs {
			switch s := spec.(type) {
			case *ast.TypeSpec:
				doc := s.Doc
				if doc == nil && len(d.Specs) == 1 {
					doc = d.Doc
				}
				all = append(all, checkComment(s.Name, doc, true)...)
			case *ast.ValueSpec:
				// One comment may be for a whole block of values.
				if d.Doc == nil || len(d.Specs) == 1 {
					doc := s.Doc
					if doc == nil {
						doc = d.Doc
					}
					if doc == nil {
						doc = s.Comment
					}
					if doc == nil {
						all = append(all, checkComment(s.Names[0], doc, true)...)
					}
				}
			}
		}
		return all
	}
	return nil
}

// checkComment holds the comment of a name against the rules. A method may do without one: it
// may be there for an interface only.
func checkComment(name *ast.Ident, doc *ast.CommentGroup, needed bool) []commentProblem {
	switch {
	case !name.IsExported():
		return nil
	case doc == nil && needed:
		return []commentProblem{{name.Pos(), name.Name + " has no comment"}}
	case doc == nil:
		return nil
	}
	first, _, _ := strings.Cut(strings.Join(strings.Fields(doc.Text()), " "), " ")
	if strings.TrimRight(first, ",.:;") != name.Name {
		return []commentProblem{{doc.Pos(),
			"the comment of " + name.Name + " does not begin with its name"}}
	}
	return nil
}

package seedlet_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// The measure of code that fits on a screen, beside its diff.
const (
	functionLinesMax = 70
	lineColumnsMax   = 100
)

// shapeExemptions are files that do not keep to the measure.
var shapeExemptions = []exemption{}

// columns counts a tab as one: how wide it looks is the reader's choice.
func columns(line string) int { return utf8.RuneCountInString(line) }

func TestShape(t *testing.T) {
	judge(t, misshapen(t, "."), shapeExemptions)
}

func TestShapeCatchesPlantedSprawl(t *testing.T) {
	var found []string
	for _, f := range misshapen(t, planted+"/core/sprawl") {
		found = append(found, f.at+": "+f.message)
	}
	want := []string{
		"sprawl.go:5: a line of 101 columns",
		"sprawl.go:8: function sprawl has 71 lines",
	}
	if !slices.Equal(found, want) {
		t.Errorf("got %q, want %q", found, want)
	}
}

// misshapen returns what does not keep to the measure in the Go files below dir.
func misshapen(t *testing.T, dir string) []finding {
	t.Helper()
	var found []finding
	root := os.DirFS(dir)
	err := fs.WalkDir(root, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		hidden := path != "." && strings.HasPrefix(entry.Name(), ".")
		if entry.IsDir() && (hidden || entry.Name() == "testdata" || entry.Name() == "bin") {
			return fs.SkipDir
		}
		if filepath.Ext(path) != ".go" {
			return nil
		}
		data, err := fs.ReadFile(root, path)
		if err != nil {
			return err
		}
		found = append(found, longLines(path, string(data))...)
		long, err := longFunctions(path, data)
		found = append(found, long...)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func longLines(path, text string) []finding {
	var found []finding
	for i, line := range strings.Split(text, "\n") {
		if n := columns(line); n > lineColumnsMax {
			at := fmt.Sprintf("%s:%d", path, i+1)
			found = append(found, finding{at, path, fmt.Sprintf("a line of %d columns", n)})
		}
	}
	return found
}

func longFunctions(path string, data []byte) ([]finding, error) {
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, path, data, 0)
	if err != nil {
		return nil, err
	}
	var found []finding
	for _, decl := range file.Decls {
		function, ok := decl.(*ast.FuncDecl)
		if !ok {
			continue
		}
		first := fset.Position(function.Pos()).Line
		if n := fset.Position(function.End()).Line - first + 1; n > functionLinesMax {
			found = append(found, finding{fmt.Sprintf("%s:%d", path, first), path,
				fmt.Sprintf("function %s has %d lines", function.Name.Name, n)})
		}
	}
	return found, nil
}

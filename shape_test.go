package seedlet_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// The limits of code that fits on a screen, beside its diff.
const (
	functionLinesMax = 70
	lineColumnsMax   = 100
)

// shapeExemptions are files that exceed the limits.
var shapeExemptions = []exemption{}

// columnsOf counts a tab as one column, because its width is the reader's choice.
func columnsOf(line string) int { return utf8.RuneCountInString(line) }

func TestShape(t *testing.T) {
	reportFindings(t, findOversized(t, "."), shapeExemptions)
}

func TestShapeCatchesPlantedSprawl(t *testing.T) {
	var found []string
	for _, f := range findOversized(t, plantedModule+"/core/sprawl") {
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

// findOversized returns the functions and lines of the Go files below dir that exceed the limits.
func findOversized(t *testing.T, dir string) []finding {
	t.Helper()
	var found []finding
	for _, file := range findFiles(t, os.DirFS(dir), ".go") {
		data, err := os.ReadFile(filepath.Join(dir, file))
		if err != nil {
			t.Fatal(err)
		}
		found = append(found, findLongLines(file, string(data))...)
		long, err := findLongFunctions(file, data)
		if err != nil {
			t.Fatal(err)
		}
		found = append(found, long...)
	}
	return found
}

func findLongLines(path, text string) []finding {
	var found []finding
	for i, line := range strings.Split(text, "\n") {
		if n := columnsOf(line); n > lineColumnsMax {
			at := fmt.Sprintf("%s:%d", path, i+1)
			found = append(found, finding{at, path, fmt.Sprintf("a line of %d columns", n)})
		}
	}
	return found
}

func findLongFunctions(path string, data []byte) ([]finding, error) {
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

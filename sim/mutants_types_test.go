package sim_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Every edit applies to the source as it is, and the changed source compiles. This check is quick:
// nothing is built. Only the changed files are type-checked in full, against the export data of the
// imported packages.
func TestMutantsApply(t *testing.T) {
	sources := loadSources(t)
	for _, m := range mutants {
		if err := sources.check(editsOf(&m)); err != nil {
			t.Errorf("%s: %v", m.name, err)
		}
	}
}

// A text that does not compile is found in the changed file.
func TestMutantsThatDoNotCompile(t *testing.T) {
	sources := loadSources(t)
	for _, text := range []string{
		"return 0", "return t.LastID, missing", "return t.LastID, !r.Refused)",
		"unused := 0\n	return t.LastID, true",
	} {
		broken := edit{"core/op/table.go", "return t.LastID, !r.Refused", text}
		if err := sources.check([]edit{broken}); err == nil {
			t.Errorf("%q compiles", text)
		}
	}
}

// sources are the packages of the module that mutants change, as far as they have been needed.
type sources struct {
	fset     *token.FileSet
	exports  map[string]string // import path: the file of export data
	packages map[string]*sourcePackage
	importer types.Importer
}

// sourcePackage is one package: its files, of which the bodies of functions are left out.
type sourcePackage struct {
	importPath string
	names      []string // of the files, relative to the module
	files      []*ast.File
}

// loadSources lists the packages of the module and of what they import, with their export data,
// which the build cache has.
func loadSources(t *testing.T) *sources {
	list := exec.Command("go", "list", "-export", "-deps",
		"-json=ImportPath,Dir,GoFiles,Export,Standard", "./core/...", "./world/...")
	list.Dir = ".."
	out, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	s := &sources{fset: token.NewFileSet(), exports: map[string]string{},
		packages: map[string]*sourcePackage{}}
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	for decoder := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p struct {
			ImportPath, Dir, Export string
			GoFiles                 []string
		}
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		s.exports[p.ImportPath] = p.Export
		if dir, err := filepath.Rel(root, p.Dir); err == nil && !strings.HasPrefix(dir, "..") {
			source := &sourcePackage{importPath: p.ImportPath}
			for _, name := range p.GoFiles {
				source.names = append(source.names, filepath.ToSlash(filepath.Join(dir, name)))
			}
			s.packages[filepath.ToSlash(dir)] = source
		}
	}
	s.importer = importer.ForCompiler(s.fset, "gc", func(path string) (io.ReadCloser, error) {
		return os.Open(s.exports[path])
	})
	return s
}

// check applies edits, and type-checks the packages that they change.
func (s *sources) check(edits []edit) error {
	changed := map[string][]edit{} // by package
	for _, e := range edits {
		dir := filepath.ToSlash(filepath.Dir(e.file))
		changed[dir] = append(changed[dir], e)
	}
	for dir, edits := range changed { //ordered: one error is enough
		if s.packages[dir] == nil {
			return fmt.Errorf("there is no package in %s", dir)
		}
		if err := s.checkPackage(s.packages[dir], edits); err != nil {
			return err
		}
	}
	return nil
}

func (s *sources) checkPackage(p *sourcePackage, edits []edit) error {
	if err := s.parse(p); err != nil {
		return err
	}
	files, replaced := slices.Clone(p.files), map[string]bool{}
	for _, e := range edits {
		text, err := e.apply()
		if err != nil {
			return err
		}
		file, err := parser.ParseFile(s.fset, "mutant of "+e.file, text, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		files[slices.Index(p.names, e.file)] = file
		replaced["mutant of "+e.file] = true
	}
	var first error
	config := types.Config{Importer: s.importer, Error: func(err error) {
		var problem types.Error
		// The other files lack the bodies of their functions, so they have unused imports.
		if errors.As(err, &problem) && replaced[s.fset.Position(problem.Pos).Filename] && first == nil {
			first = err
		}
	}}
	_, _ = config.Check(p.importPath, s.fset, files, nil)
	return first
}

// parse parses the files of a package, and leaves out the bodies of functions. The language wants
// those of generic functions.
func (s *sources) parse(p *sourcePackage) error {
	if p.files != nil {
		return nil
	}
	for _, name := range p.names {
		file, err := parser.ParseFile(s.fset, filepath.Join("..", name), nil,
			parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		for _, declaration := range file.Decls {
			f, isFunction := declaration.(*ast.FuncDecl)
			if isFunction && f.Type.TypeParams == nil && f.Name.Name != "init" {
				f.Body = nil
			}
		}
		p.files = append(p.files, file)
	}
	return nil
}

package mutation

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
)

// Sources are the packages of the module that mutants change, as far as they have been needed.
type Sources struct {
	root     string // the folder of the module
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

// LoadSources lists packages of the module in a folder, and what they import, with their export
// data, which the build cache has.
func LoadSources(root string, patterns ...string) (*Sources, error) {
	list := exec.Command("go", "list", "-export", "-deps",
		"-json=ImportPath,Dir,GoFiles,Export,Standard")
	list.Args = append(list.Args, patterns...)
	list.Dir = root
	out, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	s := &Sources{root: root, fset: token.NewFileSet(), exports: map[string]string{},
		packages: map[string]*sourcePackage{}}
	root, err = filepath.Abs(root)
	if err != nil {
		return nil, err
	}
	for decoder := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p struct {
			ImportPath, Dir, Export string
			GoFiles                 []string
		}
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, err
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
	return s, nil
}

// Check applies edits to the files as they are, and type-checks the packages that they change.
func (s *Sources) Check(edits []Edit) error {
	changed := map[string][]Edit{} // by package
	for _, e := range edits {
		dir := filepath.ToSlash(filepath.Dir(e.File))
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

func (s *Sources) checkPackage(p *sourcePackage, edits []Edit) error {
	if err := s.parse(p); err != nil {
		return err
	}
	files, replaced := slices.Clone(p.files), map[string]bool{}
	for _, e := range edits {
		text, err := e.apply(s.root)
		if err != nil {
			return err
		}
		file, err := parser.ParseFile(s.fset, "mutant of "+e.File, text, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		files[slices.Index(p.names, e.File)] = file
		replaced["mutant of "+e.File] = true
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
func (s *Sources) parse(p *sourcePackage) error {
	if p.files != nil {
		return nil
	}
	for _, name := range p.names {
		file, err := parser.ParseFile(s.fset, filepath.Join(s.root, name), nil,
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

// apply returns the content of the file with the text replaced, which must occur once.
func (e Edit) apply(root string) (string, error) {
	text, err := os.ReadFile(filepath.Join(root, e.File))
	if err != nil {
		return "", err
	}
	if n := strings.Count(string(text), e.Old); n != 1 {
		return "", fmt.Errorf("%s has %d occurrences of %q, want one", e.File, n, e.Old)
	}
	return strings.Replace(string(text), e.Old, e.New, 1), nil
}

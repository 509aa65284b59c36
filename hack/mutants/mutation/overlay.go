// Package mutation makes mutants of the source: copies of the module that have one bug each. Files
// do not change, since the compiler gets an overlay, and the source needs no switches. Mutants that
// change only the bodies of functions share one binary, in which an environment variable selects
// one.
//
// Start reading at Overlay; sources.go checks that mutants compile, and sites.go finds what can be
// changed.
package mutation

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// The environment variables of a binary with mutants.
const (
	// SelectVariable has the number of the mutant that is selected; absent: none.
	SelectVariable = "SEEDLET_MUTANT"
	// ReachedVariable names a file that gets the number of each mutant, a line each, whose function is
	// called; absent: none.
	ReachedVariable = "SEEDLET_MUTANTS_REACHED"
)

// Edit replaces a text in a file of the module.
type Edit struct{ File, Old, New string }

// Overlay is what the compiler reads in place of files of the module.
type Overlay struct {
	root    string            // the folder of the module
	changed map[string]string // the content of files, by name relative to the module
}

// NewOverlay returns an overlay of the module in a folder.
func NewOverlay(root string) *Overlay {
	return &Overlay{root: root, changed: map[string]string{}}
}

// ErrNeedsOwnBinary is returned for a mutant with an edit that no copy of a function can have.
var ErrNeedsOwnBinary = errors.New("an edit is outside of the bodies of functions, or in " +
	"one that calls recover itself")

// text returns the content of a file, with the changes so far.
func (o *Overlay) text(name string) (string, error) {
	if changed, ok := o.changed[name]; ok {
		return changed, nil
	}
	source, err := os.ReadFile(filepath.Join(o.root, name))
	return string(source), err
}

// Add makes a mutant selectable by a number above zero. Every function that it edits gets a changed
// copy, to which the original branches if the mutant is selected. It returns ErrNeedsOwnBinary for
// a mutant that cannot be one of several.
func (o *Overlay) Add(number int, edits []Edit) error {
	byFile := map[string][]Edit{}
	for _, e := range edits {
		byFile[e.File] = append(byFile[e.File], e)
	}
	added := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(byFile)) {
		text, err := o.text(name)
		if err != nil {
			return err
		}
		changed, err := withMutant(text, number, byFile[name])
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		added[name] = changed
	}
	maps.Copy(o.changed, added)
	return nil
}

// withMutant returns the text of a file in which a mutant can be selected. The edited text is
// looked for in the original functions only, not in the copies of other mutants.
func withMutant(text string, number int, edits []Edit) (string, error) {
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, "", text, parser.SkipObjectResolution)
	if err != nil {
		return "", err
	}
	offset := func(at token.Pos) int { return fset.Position(at).Offset }
	type change struct {
		function *ast.FuncDecl
		body     string // of the copy
	}
	var changes []*change
	for _, e := range edits {
		at := strings.Index(text, e.Old) // the originals are in front of the copies
		var in *ast.FuncDecl
		for _, declaration := range file.Decls {
			f, isFunction := declaration.(*ast.FuncDecl)
			if isFunction && f.Body != nil && offset(f.Body.Lbrace) < at &&
				at+len(e.Old) <= offset(f.Body.Rbrace) {
				in = f
			}
		}
		if at < 0 {
			return "", fmt.Errorf("there is no %q", e.Old)
		}
		if in == nil || in.Type.TypeParams != nil || callsRecover(in) ||
			strings.Contains(e.New, "recover()") {
			return "", ErrNeedsOwnBinary
		}
		i := slices.IndexFunc(changes, func(c *change) bool { return c.function == in })
		if i < 0 {
			i = len(changes)
			body := text[offset(in.Body.Lbrace) : offset(in.Body.Rbrace)+1]
			changes = append(changes, &change{in, body})
		}
		changes[i].body = strings.Replace(changes[i].body, e.Old, e.New, 1)
	}
	slices.SortFunc(changes, func(a, b *change) int { // from the end of the file to its start
		return int(b.function.Pos() - a.function.Pos())
	})
	for _, c := range changes {
		f := c.function
		signature, call, err := signatureAndCall(fset, f, number)
		if err != nil {
			return "", err
		}
		head, _, err := signatureAndCall(fset, f, 0)
		if err != nil {
			return "", err
		}
		branch := fmt.Sprintf("{\nif isSelectedMutant(%d) {\n%s\n}\n", number, call)
		start, brace, end := offset(f.Pos()), offset(f.Body.Lbrace), offset(f.End())
		text = text[:start] + head + " " + branch + text[brace+1:end] + text[end:] +
			"\n" + signature + " " + c.body + "\n"
	}
	return text, nil
}

// callsRecover reports whether a function calls recover itself, not in a function literal. Recover
// has an effect only in the deferred function, and a copy would be called by that one.
func callsRecover(f *ast.FuncDecl) bool {
	found := false
	ast.Inspect(f.Body, func(n ast.Node) bool {
		if _, isLiteral := n.(*ast.FuncLit); isLiteral {
			return false
		}
		if call, isCall := n.(*ast.CallExpr); isCall {
			name, isName := call.Fun.(*ast.Ident)
			found = found || isName && name.Name == "recover"
		}
		return true
	})
	return found
}

// signatureAndCall returns the head of a copy of a function, whose name has a number, and the
// statements that call the copy instead. Number 0 is the function itself. Parameters get names if
// they have none.
func signatureAndCall(fset *token.FileSet, f *ast.FuncDecl, number int) (head, call string,
	err error) {
	name := f.Name.Name
	if number > 0 {
		name = fmt.Sprintf("%sMutant%d", name, number)
	}
	var text bytes.Buffer
	write := func(field *ast.Field, names []string) {
		text.WriteString(strings.Join(names, ", ") + " ")
		if err == nil {
			err = format.Node(&text, fset, field.Type)
		}
		text.WriteString(", ")
	}
	count := 0
	named := func(field *ast.Field) (names []string) {
		for range max(1, len(field.Names)) {
			count++
			names = append(names, fmt.Sprintf("unnamed%d", count))
		}
		for i, n := range field.Names {
			if n.Name != "_" {
				names[i] = n.Name
			}
		}
		return names
	}
	text.WriteString("func ")
	if f.Recv != nil {
		text.WriteString("(")
		names := named(f.Recv.List[0])
		write(f.Recv.List[0], names)
		text.WriteString(") ")
		call = names[0] + "."
	}
	text.WriteString(name + "(")
	var arguments []string
	for _, field := range f.Type.Params.List {
		names := named(field)
		write(field, names)
		arguments = append(arguments, names...)
		if _, variadic := field.Type.(*ast.Ellipsis); variadic {
			arguments[len(arguments)-1] += "..."
		}
	}
	text.WriteString(")")
	call += name + "(" + strings.Join(arguments, ", ") + ")"
	if f.Type.Results == nil {
		return text.String(), call + "\nreturn", err
	}
	text.WriteString(" (")
	for _, field := range f.Type.Results.List {
		var names []string
		for _, n := range field.Names {
			names = append(names, n.Name)
		}
		write(field, names)
	}
	text.WriteString(")")
	return text.String(), "return " + call, err
}

// Replace applies edits to the files themselves, for a mutant that needs a binary of its own.
func (o *Overlay) Replace(edits []Edit) error {
	for _, e := range edits {
		text, err := o.text(e.File)
		if err != nil {
			return err
		}
		o.changed[e.File] = strings.Replace(text, e.Old, e.New, 1)
	}
	return nil
}

// selection is the file of each package with mutants that can be selected.
const selection = `package %s

import (
	"os"
	"strconv"
	"sync"
)

var (
	selectedMutant, _ = strconv.Atoi(os.Getenv(%q))
	reachedMutants    = os.Getenv(%q)
	reachedMutant     sync.Map
)

func isSelectedMutant(number int) bool {
	if reachedMutants != "" {
		if _, known := reachedMutant.LoadOrStore(number, true); !known {
			f, _ := os.OpenFile(reachedMutants, os.O_APPEND|os.O_WRONLY|os.O_CREATE, 0o644)
			_, _ = f.WriteString(strconv.Itoa(number) + "\n")
			_ = f.Close()
		}
	}
	return number == selectedMutant
}
`

// Write writes the overlay to a folder, and returns the name of the file for the flag -overlay of
// the go command.
func (o *Overlay) Write(dir string) (string, error) {
	root, err := filepath.Abs(o.root)
	if err != nil {
		return "", err
	}
	replace, folders := map[string]string{}, map[string]bool{}
	write := func(name, text string) {
		file := filepath.Join(dir, fmt.Sprintf("%d.go", len(replace)))
		if err == nil {
			err = os.WriteFile(file, []byte(text), 0o644)
		}
		replace[filepath.Join(root, name)] = file
	}
	for _, name := range slices.Sorted(maps.Keys(o.changed)) {
		write(name, o.changed[name])
		if strings.Contains(o.changed[name], "isSelectedMutant") {
			folders[filepath.Dir(name)] = true
		}
	}
	for _, folder := range slices.Sorted(maps.Keys(folders)) {
		write(filepath.Join(folder, "selected_mutant.go"), fmt.Sprintf(selection,
			filepath.Base(folder), SelectVariable, ReachedVariable))
	}
	text, jsonErr := json.Marshal(map[string]any{"Replace": replace})
	if err = errors.Join(err, jsonErr); err != nil {
		return "", err
	}
	file := filepath.Join(dir, "overlay.json")
	return file, os.WriteFile(file, text, 0o644)
}

// Build builds seedsim with the overlay in a folder, and returns the binary's path.
func (o *Overlay) Build(dir string) (string, error) {
	file, err := o.Write(dir)
	if err != nil {
		return "", err
	}
	bin := filepath.Join(dir, "seedsim")
	command := exec.Command("go", "build", "-overlay", file, "-ldflags", "-s -w", "-o", bin,
		"./cmd/seedsim")
	command.Dir = o.root
	command.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := command.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building mutants: %w\n%s", err, out)
	}
	return bin, nil
}

package sim_test

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
	"testing"
)

// mutantVariable is the environment variable that selects a mutant in a binary of several.
const mutantVariable = "SEEDLET_MUTANT"

// overlay is one for the compiler: the changed content of files of the module, by name.
type overlay map[string]string

// errNeedsOwnBinary is returned for a mutant with an edit that no copy of a function can have.
var errNeedsOwnBinary = errors.New("an edit is outside of the bodies of functions, or in " +
	"one that calls recover itself")

// text returns the content of a file, with the changes so far.
func (o overlay) text(name string) (string, error) {
	if changed, ok := o[name]; ok {
		return changed, nil
	}
	source, err := os.ReadFile(filepath.Join("..", name))
	return string(source), err
}

// add makes a mutant selectable. Every function that it edits gets a changed copy, to which the
// original branches if the mutant is selected.
func (o overlay) add(number int, edits []edit) error {
	byFile := map[string][]edit{}
	for _, e := range edits {
		byFile[e.file] = append(byFile[e.file], e)
	}
	added := overlay{}
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
	maps.Copy(o, added)
	return nil
}

// withMutant returns the text of a file in which a mutant can be selected. The edited text is
// looked for in the original functions only, not in the copies of other mutants.
func withMutant(text string, number int, edits []edit) (string, error) {
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
		at := strings.Index(text, e.old) // the originals are in front of the copies
		var in *ast.FuncDecl
		for _, declaration := range file.Decls {
			f, isFunction := declaration.(*ast.FuncDecl)
			if isFunction && f.Body != nil && offset(f.Body.Lbrace) < at &&
				at+len(e.old) <= offset(f.Body.Rbrace) {
				in = f
			}
		}
		if at < 0 {
			return "", fmt.Errorf("there is no %q", e.old)
		}
		if in == nil || in.Type.TypeParams != nil || callsRecover(in) ||
			strings.Contains(e.new, "recover()") {
			return "", errNeedsOwnBinary
		}
		i := slices.IndexFunc(changes, func(c *change) bool { return c.function == in })
		if i < 0 {
			i = len(changes)
			body := text[offset(in.Body.Lbrace) : offset(in.Body.Rbrace)+1]
			changes = append(changes, &change{in, body})
		}
		changes[i].body = strings.Replace(changes[i].body, e.old, e.new, 1)
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
		branch := fmt.Sprintf("{\nif selectedMutant == \"%d\" {\n%s\n}\n", number, call)
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

// compile builds seedsim with the changed files.
func (o overlay) compile(dir string) (string, error) {
	root, err := filepath.Abs("..")
	if err != nil {
		return "", err
	}
	replace, written := map[string]string{}, 0
	write := func(name, text string) {
		changed := filepath.Join(dir, fmt.Sprintf("%d.go", written))
		written++
		if err == nil {
			err = os.WriteFile(changed, []byte(text), 0o644)
		}
		replace[filepath.Join(root, name)] = changed
	}
	folders := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(o)) {
		write(name, o[name])
		if strings.Contains(o[name], "selectedMutant") {
			folders[filepath.Dir(name)] = true
		}
	}
	for _, folder := range slices.Sorted(maps.Keys(folders)) {
		write(filepath.Join(folder, "selected_mutant.go"), fmt.Sprintf("package %s\n\n"+
			"import \"os\"\n\nvar selectedMutant = os.Getenv(%q)\n",
			filepath.Base(folder), mutantVariable))
	}
	overlay, jsonErr := json.Marshal(map[string]any{"Replace": replace})
	overlayFile := filepath.Join(dir, "overlay.json")
	if err = errors.Join(err, jsonErr); err == nil {
		err = os.WriteFile(overlayFile, overlay, 0o644)
	}
	if err != nil {
		return "", err
	}
	bin := filepath.Join(dir, "seedsim")
	command := exec.Command("go", "build", "-overlay", overlayFile, "-ldflags", "-s -w",
		"-o", bin, "./cmd/seedsim")
	command.Dir = root
	if out, err := command.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building mutants: %w\n%s", err, out)
	}
	return bin, nil
}

// mutantBinary is a binary of seedsim with mutants, one of which is selected.
type mutantBinary struct {
	path   string
	number string
}

func (b mutantBinary) command(arguments ...string) *exec.Cmd {
	command := exec.Command(b.path, arguments...)
	command.Env = append(os.Environ(), mutantVariable+"="+b.number)
	return command
}

// buildMutants builds one binary for the mutants that can be selected. It returns its path, and the
// binary of each mutant in the order of the list; a mutant that needs one of its own has no path.
func buildMutants(t *testing.T) (shared string, binaries []mutantBinary) {
	changed, selectable := overlay{}, map[int]bool{}
	for i := range mutants {
		err := changed.add(i+1, editsOf(&mutants[i]))
		if err != nil && !errors.Is(err, errNeedsOwnBinary) {
			t.Fatalf("%s: %v", mutants[i].name, err)
		}
		selectable[i] = err == nil
	}
	shared, err := changed.compile(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for i := range mutants {
		b := mutantBinary{number: fmt.Sprint(i + 1)}
		if selectable[i] {
			b.path = shared
		}
		binaries = append(binaries, b)
	}
	return shared, binaries
}

// buildAlone builds a binary of one mutant.
func buildAlone(t *testing.T, edits []edit) string {
	changed := overlay{}
	for _, e := range edits {
		text, err := changed.text(e.file)
		if err != nil {
			t.Fatal(err)
		}
		changed[e.file] = strings.Replace(text, e.old, e.new, 1)
	}
	path, err := changed.compile(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return path
}

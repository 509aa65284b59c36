package seedlet_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
)

// forbiddenWords are words of a vocabulary that only this tree had, and the field's own term for
// each. They are not used in names and comments, nor in pages. A name is held against single words
// only, a comment against phrases as well.
var forbiddenWords = []struct{ word, instead string }{
	{"anew", "again"},
	{"begun", "started"},
	{"called over", "reported as terminal"},
	{"former", "encoder"},
	{"heed", "obey, follow"},
	{"hurry", "request now"},
	{"is over", "has reached a terminal phase, has ended"},
	{"meant", "resolved"},
	{"mend", "fix"},
	{"nobody", "no, none, with the noun"},
	{"of no use", "unused"},
	{"remind", "repeat"},
	{"says whether", "reports whether"},
	{"somebody", "the actor by its noun"},
	{"struck", "affected by a fault"},
	{"tally", "metrics, counters"},
	{"telling", "an event, reporting"},
	{"told", "reported"},
	{"unheard", "not reported"},
	{"untold", "not reported"},
	{"unwant", "no longer desired"},
	{"whoever", "the actor by its noun"},
	{"whom", "the actor by its noun"},
}

// wordsExemptions are files that use a forbidden word, each with its reason.
var wordsExemptions = []exemption{}

func TestWords(t *testing.T) {
	reportFindings(t, findForbiddenWords(t, "."), wordsExemptions)
}

func TestWordsCatchPlantedOnes(t *testing.T) {
	var found []string
	for _, f := range findForbiddenWords(t, plantedModule+"/core/words") {
		found = append(found, f.at+": "+f.message)
	}
	want := []string{
		`words.go:3: "says whether" in a comment: use reports whether`,
		`words.go:3: "told" in a comment: use reported`,
		`words.go:5: "told" in the name Told: use reported`,
		`words.go:8: "telling" in the name tellingApart: use an event, reporting`,
	}
	if !slices.Equal(found, want) {
		t.Errorf("got %q, want %q", found, want)
	}
}

// findForbiddenWords returns the forbidden words in the Go files, pages and plans below dir.
func findForbiddenWords(t *testing.T, dir string) []finding {
	t.Helper()
	var found []finding
	for _, file := range findFiles(t, os.DirFS(dir), ".go", ".md", ".yaml") {
		data, err := os.ReadFile(filepath.Join(dir, file))
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range passages(t, file, data) {
			for i, f := range forbiddenWords {
				if p.has(i) {
					found = append(found, finding{fmt.Sprintf("%s:%d", file, p.line), file,
						fmt.Sprintf("%q in %s: use %s", f.word, p.what, f.instead)})
				}
			}
		}
	}
	return found
}

// passage is a text that people read: a name, a comment, a paragraph of a page.
type passage struct {
	line       int
	what, text string
	name       bool // text is the words of one name, with spaces between them
}

// forbiddenPatterns match the forbidden words as whole words, in the order of forbiddenWords.
var forbiddenPatterns = func() []*regexp.Regexp {
	var all []*regexp.Regexp
	for _, f := range forbiddenWords {
		all = append(all, regexp.MustCompile(`\b`+f.word+`\b`))
	}
	return all
}()

// has reports whether a passage has the forbidden word of a number.
func (p passage) has(i int) bool {
	if p.name && strings.Contains(forbiddenWords[i].word, " ") {
		return false
	}
	return forbiddenPatterns[i].MatchString(p.text)
}

// passages returns what people read in a file: names and comments of Go, comments of YAML, all of
// a page but its code.
func passages(t *testing.T, file string, data []byte) []passage {
	t.Helper()
	var all []passage
	base := strings.TrimSuffix(path.Base(file), path.Ext(file))
	all = append(all, passage{1, "the name of the file", words(base), true})
	switch path.Ext(file) {
	case ".go":
		all = append(all, passagesOfGo(t, file, data)...)
	case ".yaml":
		for i, line := range strings.Split(string(data), "\n") {
			if text, is := strings.CutPrefix(strings.TrimSpace(line), "#"); is {
				all = append(all, passage{i + 1, "a comment", plain(text), false})
			}
		}
	case ".md":
		all = append(all, passagesOfPage(string(data))...)
	}
	return all
}

func passagesOfGo(t *testing.T, file string, data []byte) []passage {
	t.Helper()
	fset := token.NewFileSet()
	parsed, err := parser.ParseFile(fset, file, data, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	line := func(at token.Pos) int { return fset.Position(at).Line }
	var all []passage
	for _, group := range parsed.Comments {
		all = append(all, passage{line(group.Pos()), "a comment", plain(group.Text()), false})
	}
	name := func(id *ast.Ident) {
		what := "the name " + id.Name
		all = append(all, passage{line(id.Pos()), what, words(id.Name), true})
	}
	for id := range declared(parsed) {
		name(id)
	}
	slices.SortStableFunc(all, func(x, y passage) int { return x.line - y.line })
	return all
}

// declared are the names that a file declares: of functions, types, fields, variables, parameters.
func declared(file *ast.File) map[*ast.Ident]bool {
	names := map[*ast.Ident]bool{file.Name: true}
	add := func(list ...*ast.Ident) {
		for _, id := range list {
			names[id] = true
		}
	}
	ast.Inspect(file, func(node ast.Node) bool {
		switch n := node.(type) {
		case *ast.FuncDecl:
			add(n.Name)
		case *ast.TypeSpec:
			add(n.Name)
		case *ast.ValueSpec:
			add(n.Names...)
		case *ast.Field:
			add(n.Names...)
		case *ast.AssignStmt:
			for _, left := range n.Lhs {
				if id, ok := left.(*ast.Ident); ok && n.Tok == token.DEFINE {
					add(id)
				}
			}
		case *ast.RangeStmt:
			for _, left := range []ast.Expr{n.Key, n.Value} {
				if id, ok := left.(*ast.Ident); ok && n.Tok == token.DEFINE {
					add(id)
				}
			}
		}
		return true
	})
	return names
}

// passagesOfPage returns the paragraphs of a Markdown page. Blocks of code and code within a line
// are left out.
func passagesOfPage(text string) []passage {
	var all []passage
	code := false
	inline := regexp.MustCompile("`[^`]*`")
	for i, line := range strings.Split(text, "\n") {
		if strings.HasPrefix(strings.TrimSpace(line), "```") {
			code = !code
			continue
		}
		if !code {
			all = append(all, passage{i + 1, "a page", plain(inline.ReplaceAllString(line, "")), false})
		}
	}
	return all
}

// plain is a text in lower case, on one line.
func plain(text string) string { return strings.ToLower(strings.Join(strings.Fields(text), " ")) }

// words are the words of a name in mixed caps or with underscores or dashes, in lower case.
func words(name string) string {
	var b strings.Builder
	runes := []rune(name)
	for i, r := range runes {
		switch {
		case r == '_' || r == '-' || r == '.':
			b.WriteRune(' ')
			continue
		case i > 0 && unicode.IsUpper(r) && (unicode.IsLower(runes[i-1]) ||
			i+1 < len(runes) && unicode.IsLower(runes[i+1])):
			b.WriteRune(' ')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}

func TestWordsOfNames(t *testing.T) {
	for name, want := range map[string]string{
		"podUIDs": "pod ui ds", "newHTTPClient": "new http client", "was_told-of": "was told of",
	} {
		if got := words(name); got != want {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
}

package core

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// The package comment names every file of the package, and every package below.
func TestPackageCommentIsComplete(t *testing.T) {
	source, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	comment, packages, found := strings.Cut(string(source), "// # The packages below")
	if !found {
		t.Fatal("doc.go has no part about the packages below")
	}
	entries, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		name, within := e.Name(), comment
		word := `\b` + regexp.QuoteMeta(name) + `\b`
		switch {
		case name == "testdata" || name == "doc.go" || strings.HasSuffix(name, "_test.go"):
			continue
		case e.IsDir():
			word, within = `(?m)^//\t`+name+` `, packages
		}
		if !regexp.MustCompile(word).MatchString(within) {
			t.Errorf("doc.go does not name %s", name)
		}
	}
}

package world

import (
	"fmt"
	"strings"
	"testing"
)

// describeFiles returns which files have a document (d), are left to a later request (o), or fail
// (e).
func describeFiles(d Documents, texts ...string) string {
	var files []File
	for i, text := range texts {
		files = append(files, File{Name: fmt.Sprint(i), Data: []byte(text)})
	}
	d.Convert(files, true)
	var got strings.Builder
	for i := range files {
		switch f := &files[i]; {
		case f.Omitted && f.Doc == nil && f.Err == nil:
			got.WriteString("o")
		case f.Err.Has(KindExhausted) && f.Doc == nil:
			got.WriteString("e")
		case f.Err == nil && f.Doc != nil:
			got.WriteString("d")
		default:
			fmt.Fprintf(&got, "(%+v)", *f)
		}
	}
	return got.String()
}

// The documents of one response are within both bounds, unless there is only one. A document that
// was converted in vain ends the response, or each request would convert all files again.
func TestDocumentsAreBounded(t *testing.T) {
	const nine = `{"a":[1]}` // 9 bytes, 3 values
	long := nine + strings.Repeat(" ", 11)
	for _, c := range []struct {
		name          string
		bytes, values int
		texts         []string
		want          string
	}{
		{"at the bound of bytes", 9, 100, []string{nine}, "d"},
		{"above it", 8, 100, []string{nine}, "e"},
		{"at the bound of values", 100, 3, []string{nine}, "d"},
		{"above it", 100, 2, []string{nine}, "e"},
		{"two, at the bound of bytes", 18, 100, []string{nine, nine}, "dd"},
		{"two, above it", 17, 100, []string{nine, nine}, "do"},
		{"two, at the bound of values", 100, 6, []string{nine, nine}, "dd"},
		{"two, above it", 100, 5, []string{nine, nine}, "do"},
		{"a document that is shorter than its file", 20, 100, []string{long, nine}, "do"},
		{"a long file after others", 28, 100, []string{nine, long}, "do"},
		{"a short one after a long one", 28, 100, []string{nine, long, nine}, "dod"},
		{"one after a document in vain", 100, 5, []string{nine, nine, "{}"}, "doo"},
		{"one after a document that fails", 20, 3, []string{`{"a":[1,2]}`, nine, nine}, "edo"},
	} {
		got := describeFiles(Documents{BytesMax: c.bytes, ValuesMax: c.values}, c.texts...)
		if got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

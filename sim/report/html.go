package report

import (
	"crypto/sha256"
	_ "embed" // the page
	"encoding/base64"
	"html/template"
	"io"
)

//go:embed page/report.html
var pageText string

//go:embed page/report.js
var script string

//go:embed page/report.css
var style string

var page = template.Must(template.New("report").Parse(pageText))

// WriteHTML writes the page of a run. It needs no other file, and its policy lets it load none:
// only its own script and style are allowed, by their hashes.
func (run *Run) WriteHTML(w io.Writer) error {
	return page.Execute(w, map[string]any{
		"Policy": "default-src 'none'; script-src '" + hash(script) + "'; style-src '" + hash(style) +
			"'; base-uri 'none'; form-action 'none'",
		"Style": template.CSS(style), "Script": template.JS(script), "Run": run,
		"States": stateNames[1:],
	})
}

// hash is how a Content-Security-Policy names a script or style.
func hash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "sha256-" + base64.StdEncoding.EncodeToString(sum[:])
}

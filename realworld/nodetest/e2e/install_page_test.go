package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// installPage is docs/install.md: its sections, in their order.
type installPage []pageSection

// pageSection is a section with its commands, and with the files that it has the reader write.
type pageSection struct {
	heading  string
	commands []pageCommand
	files    []pageFile
}

// pageCommand is a line of a console, and the output that the page shows for it; none if the output
// is not shown.
type pageCommand struct{ line, output string }

// pageFile is a file that the reader is to write: the code after a line that ends with its path.
type pageFile struct{ path, content string }

var writtenPath = regexp.MustCompile("`(/[^`]+)`:$")

// parseInstallPage returns the sections of the page.
func parseInstallPage(text string) installPage {
	var page installPage
	var fence, path, code string
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		switch {
		case fence == "" && strings.HasPrefix(line, "## "):
			page = append(page, pageSection{heading: line[3:]})
		case fence == "" && strings.HasPrefix(line, "```"):
			fence, code = line[3:], ""
		case fence == "" && line != "":
			path = ""
			if match := writtenPath.FindStringSubmatch(line); match != nil {
				path = match[1]
			}
		case line == "```":
			section := &page[len(page)-1]
			if fence == "console" {
				section.commands = append(section.commands, parseConsole(code)...)
			} else if path != "" {
				section.files = append(section.files, pageFile{path, code})
			}
			fence = ""
		case fence != "":
			code += line + "\n"
		}
	}
	return page
}

// parseConsole returns the commands of a console.
func parseConsole(code string) []pageCommand {
	var commands []pageCommand
	continued := regexp.MustCompile(`\\\n *`)
	for line := range strings.Lines(continued.ReplaceAllString(code, "")) {
		if command, is := strings.CutPrefix(line, "$ "); is {
			commands = append(commands, pageCommand{line: strings.TrimSuffix(command, "\n")})
		} else if len(commands) > 0 {
			commands[len(commands)-1].output += line
		}
	}
	return commands
}

// readInstallPage returns the page of a checkout.
func readInstallPage(t *testing.T, checkout string) installPage {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(checkout, "docs", "install.md"))
	if err != nil {
		t.Fatal(err)
	}
	return parseInstallPage(string(text))
}

// writeFiles writes the files of a section.
func (s pageSection) writeFiles(t *testing.T) {
	t.Helper()
	for _, f := range s.files {
		if err := os.MkdirAll(filepath.Dir(f.path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(f.path, []byte(f.content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// reader follows the page on a machine.
type reader struct {
	checkout string
	env      []string          // of the commands
	instead  map[string]string // commands that are replaced
}

// follow runs the commands of a section, and then calls check with each.
func (r *reader) follow(t *testing.T, s pageSection, check func(line string)) {
	t.Helper()
	for _, command := range s.commands {
		line := command.line
		if other, has := r.instead[line]; has {
			line = other
		}
		cmd := exec.Command("sh", "-ec", `sudo() { "$@"; }`+"\n"+line)
		cmd.Dir, cmd.Env = r.checkout, append(os.Environ(), r.env...)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %s: %v\n%s", s.heading, line, err, out)
		}
		t.Logf("$ %s\n%s", line, out)
		if command.output != "" && strings.TrimSpace(string(out)) != strings.TrimSpace(command.output) {
			t.Errorf("%s: %s prints\n%s\nthe page has\n%s", s.heading, line, out, command.output)
		}
		check(command.line)
	}
}

func TestParseInstallPage(t *testing.T) {
	page := parseInstallPage("# A\n\ntext\n\n## B\n\n```console\n$ one\nits\noutput\n" +
		"$ two \\\n    more\n```\n\n" +
		"Write `x` to `/a/b`:\n\n```yaml\na: 1\n```\n\n## C\n\ntext:\n\n```sh\nnot written\n```\n")
	if len(page) != 2 || page[0].heading != "B" || len(page[1].commands)+len(page[1].files) != 0 {
		t.Fatalf("got %+v", page)
	}
	if c := page[0].commands; len(c) != 2 || c[0] != (pageCommand{"one", "its\noutput\n"}) ||
		c[1] != (pageCommand{line: "two more"}) {
		t.Errorf("commands %+v", c)
	}
	if f := page[0].files; len(f) != 1 || f[0] != (pageFile{"/a/b", "a: 1\n"}) {
		t.Errorf("files %+v", f)
	}
}

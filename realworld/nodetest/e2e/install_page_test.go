package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// installPage is docs/install.md: its sections, in their order.
type installPage []pageSection

// pageSection is a section with what it has the reader do, in its order.
type pageSection struct {
	heading string
	steps   []pageStep
}

// pageStep is a line of a console, and the output that the page shows for it, none if the output is
// not shown; or a file that the reader is to write: the code after a line that ends with its path.
type pageStep struct{ line, output, path, content string }

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
				section.steps = append(section.steps, parseConsole(code)...)
			} else if path != "" {
				section.steps = append(section.steps, pageStep{path: path, content: code})
			}
			fence = ""
		case fence != "":
			code += line + "\n"
		}
	}
	return page
}

// parseConsole returns the commands of a console.
func parseConsole(code string) []pageStep {
	var commands []pageStep
	continued := regexp.MustCompile(`\\\n *`)
	for line := range strings.Lines(continued.ReplaceAllString(code, "")) {
		if command, is := strings.CutPrefix(line, "$ "); is {
			commands = append(commands, pageStep{line: strings.TrimSuffix(command, "\n")})
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

// reader follows the page on a machine.
type reader struct {
	checkout string
	env      []string          // of the commands
	instead  map[string]string // commands that are replaced
	flags    string            // more flags of the agent, where the page writes them
}

// writeFile writes a file of the page.
func (r *reader) writeFile(t *testing.T, path, content string) {
	t.Helper()
	if before, is := strings.CutSuffix(content, "\"\n"); is && path == flagsFile {
		content = before + " " + r.flags + "\"\n"
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

// follow does the steps of a section, and calls check with each command after it.
func (r *reader) follow(t *testing.T, s pageSection, check func(line string)) {
	t.Helper()
	for _, command := range s.steps {
		if command.path != "" {
			r.writeFile(t, command.path, command.content)
			continue
		}
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
	page := parseInstallPage("# A\n\ntext\n\n## B\n\n```console\n$ one\nits\noutput\n```\n\n" +
		"Write `x` to `/a/b`:\n\n```yaml\na: 1\n```\n\n```console\n$ two \\\n    more\n```\n\n" +
		"## C\n\ntext:\n\n```sh\nnot written\n```\n")
	if len(page) != 2 || page[0].heading != "B" || len(page[1].steps) != 0 {
		t.Fatalf("got %+v", page)
	}
	want := []pageStep{{line: "one", output: "its\noutput\n"}, {path: "/a/b", content: "a: 1\n"},
		{line: "two more"}}
	if !slices.Equal(page[0].steps, want) {
		t.Errorf("steps %+v, want %+v", page[0].steps, want)
	}
}

package main

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

const whatifPage = "../../docs/whatif.md"

var (
	pageFile    = regexp.MustCompile("(?s)```yaml\n# (\\S+)\n(.*?)```")
	pageCommand = regexp.MustCompile("(?s)```console\n\\$ seedsim (.*?)\n(.*?)```")
)

// The page's commands print what the page has, given the page's files.
func TestWhatifPage(t *testing.T) {
	data, err := os.ReadFile(whatifPage)
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(t.TempDir())
	for _, file := range pageFile.FindAllStringSubmatch(string(data), -1) {
		if err := os.WriteFile(file[1], []byte(file[2]), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	commands := pageCommand.FindAllStringSubmatch(string(data), -1)
	if len(commands) != 6 {
		t.Fatalf("the page has %d commands, want 6", len(commands))
	}
	for _, command := range commands {
		out, err := call(strings.Fields(command[1])...)
		if err != nil || out != command[2] {
			t.Errorf("seedsim %s: %v\n%s\nwant\n%s", command[1], err, out, command[2])
		}
	}
	page, err := os.ReadFile("worst.html")
	if err != nil || !strings.Contains(string(page), "orders-") {
		t.Errorf("worst.html: %v, want a page with the pods", err)
	}
}

func TestWhatifDoesNotDependOnJobs(t *testing.T) {
	dir := t.TempDir()
	manifest := "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\n" +
		"spec: {containers: [{name: c, image: \"registry.test/c:1\"}]}\n"
	if err := os.WriteFile(dir+"/a.yml", []byte(manifest), 0o644); err != nil {
		t.Fatal(err)
	}
	var outs []string
	for _, jobs := range []string{"1", "3"} {
		out, err := call("whatif", "-f", dir, "--event", "reboot", "--runs", "7", "--jobs", jobs)
		if err != nil {
			t.Fatal(err)
		}
		outs = append(outs, out)
	}
	if outs[0] != outs[1] || !strings.Contains(outs[0], "Pod/a") {
		t.Errorf("with one job:\n%s\nwith three:\n%s", outs[0], outs[1])
	}
}

func TestWhatifBadInput(t *testing.T) {
	dir := t.TempDir()
	for _, test := range []struct{ args, want string }{
		{"whatif --event drain", "-f: want a file or a folder of manifests"},
		{"whatif -f x --event drain --runs 0", "--runs 0: must be at least 1"},
		{"whatif -f x --event drain --jobs 0", "--jobs 0: must be at least 1"},
		{"whatif -f x", "--event: want one of runtime-restart, reboot, drain, node-shutdown"},
		{"whatif -f /no/such/file --event drain", "-f: stat /no/such/file: no such file"},
		{"whatif -f " + dir + " --event drain", "the folder has no .yaml, .yml or .json file"},
		{"whatif x -f x --event drain", "usage: seedsim whatif"},
	} {
		_, err := call(strings.Fields(test.args)...)
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("seedsim %s: %v, want an error with %q", test.args, err, test.want)
		}
	}
}

package main

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"

	"seedlet.dev/core/config"
)

// kubeletFlags are the flags of the kubelet, as the program realworld/cluster/tools/kubeletflags
// prints them.
const kubeletFlags = "testdata/kubelet-flags.txt"

// ownDefaults are flags whose defaults differ from the kubelet's; docs/differences.md has the
// reasons.
var ownDefaults = []string{"fail-cgroupv1", "eviction-hard"}

// addedFlags are flags that the kubelet does not have.
var addedFlags = []string{"container-log-links-dir", "kernel-settings-root"}

// describe returns the line of a flag in the list of the kubelet's flags.
func describe(f *pflag.Flag) string {
	shorthand, stays := "-", "stays"
	if f.Shorthand != "" {
		shorthand = f.Shorthand
	}
	if f.Deprecated != "" {
		stays = "deprecated"
	}
	return strings.TrimSpace(fmt.Sprintf("%s %s %s %s %s", f.Name, shorthand, f.Value.Type(), stays,
		f.DefValue))
}

// The flags have the names, types and defaults of the kubelet's, and are deprecated where it says
// so.
func TestFlagsAreTheKubelets(t *testing.T) {
	data, err := os.ReadFile(kubeletFlags)
	if err != nil {
		t.Fatal(err)
	}
	want := strings.Split(strings.TrimSpace(string(data)), "\n")
	var have []string
	newCommandLine(defaultConfig()).set.VisitAll(func(f *pflag.Flag) {
		if slices.Contains(addedFlags, f.Name) {
			return
		}
		have = append(have, describe(f))
		if f.Hidden {
			t.Errorf("--%s is not in --help", f.Name)
		}
	})
	differ := func(line string) bool {
		name, _, _ := strings.Cut(line, " ")
		return slices.Contains(ownDefaults, name)
	}
	if diff := cmp.Diff(slices.DeleteFunc(want, differ), slices.DeleteFunc(have, differ)); diff != "" {
		t.Error(diff)
	}
}

// Each flag can be given the text of its default, which changes nothing.
func TestFlagsTakeTheirDefaults(t *testing.T) {
	newCommandLine(defaultConfig()).set.VisitAll(func(f *pflag.Flag) {
		if f.DefValue == "" || f.DefValue == "[]" {
			return
		}
		c := defaultConfig()
		line := newCommandLine(c)
		line.set.SetOutput(io.Discard)
		value := strings.TrimSuffix(strings.TrimPrefix(f.DefValue, "["), "]")
		if err := line.set.Set(f.Name, value); err != nil {
			t.Errorf("--%s=%s: %v", f.Name, value, err)
		}
		if diff := cmp.Diff(defaultConfig(), c); diff != "" {
			t.Errorf("--%s=%s: %s", f.Name, value, diff)
		}
	})
}

const flagsPath = "../../docs/flags.md"

const flagsHead = `# Flags

The flags of Seedlet are those of the kubelet 1.36, with its names, types, defaults and
deprecations, and two that a second agent on a machine needs. A flag overrides its field in the file
of ` + "`--config`" + ` and in the drop-ins of ` + "`--config-dir`" + `. An underscore in a name
counts as a hyphen. A flag that the kubelet calls deprecated works, and a line on standard error
says so.

A flag or field that the agent does not act on either has no effect on anything that a user can see,
and a warning at the start names it with the reason; or the agent does not start with a value other
than the default. ` + "`core/config/fields.go`" + ` has the fields, ` + "`cmd/seedlet`" + ` the
flags without a field. A feature gate that the kubelet does not know, or that is locked to another
value, keeps the agent from starting; a warning names the gates that are set without an effect.

` + "`go test ./cmd/seedlet -run TestFlagsPage -update`" + ` generates this page, and the same test
compares it with the agent.

| flag | type | default | field | what Seedlet does |
|---|---|---|---|---|
`

const fieldsHead = `
## Fields without a flag

| field | what Seedlet does |
|---|---|
`

// The page has what the agent does with each flag, and with each field that has none.
func TestFlagsPage(t *testing.T) {
	var page strings.Builder
	page.WriteString(flagsHead)
	fields := map[string]string{}
	for _, f := range slices.Concat(configFlags, loggingFlags) {
		fields[f.name] = f.field
	}
	withFlag := map[string]bool{}
	newCommandLine(defaultConfig()).set.VisitAll(func(f *pflag.Flag) {
		field, name := fields[f.Name], "`--"+f.Name+"`"
		withFlag[field] = true
		if f.Deprecated != "" {
			name += " (deprecated)"
		}
		fmt.Fprintf(&page, "| %s | %s | %s | %s | %s |\n", name, f.Value.Type(), code(f.DefValue),
			code(field), strings.ReplaceAll(effectOf(f, field), "|", "\\|"))
	})
	page.WriteString(fieldsHead)
	for _, f := range config.Fields {
		if !withFlag[f.Path] {
			fmt.Fprintf(&page, "| `%s` | %s |\n", f.Path, describeEffect(f))
		}
	}
	if *update {
		if err := os.WriteFile(flagsPath, []byte(page.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	written, err := os.ReadFile(flagsPath)
	if err != nil {
		t.Fatal(err)
	}
	if string(written) != page.String() {
		t.Error("docs/flags.md is not what the agent does: run the test with -update")
	}
}

func code(text string) string {
	if text == "" || text == "[]" {
		return ""
	}
	return "`" + text + "`"
}

// effectOf returns what the agent does with a flag.
func effectOf(f *pflag.Flag, field string) string {
	if reason := immaterialReason(f.Name); reason != "" {
		return "nothing: " + reason
	}
	for _, known := range config.Fields {
		if known.Path == field && known.Effect != config.Acted {
			return describeEffect(known)
		}
	}
	return f.Usage
}

func describeEffect(f config.FieldEffect) string {
	switch f.Effect {
	case config.Immaterial:
		return "nothing: " + f.Reason
	case config.Refused:
		return "does not start with another value than the default: " + f.Reason
	}
	return "acts on it"
}

package mutation

import (
	"errors"
	"strings"
	"testing"
)

// A function that calls recover itself gets no copy: in a copy, recover would be one call too deep.
func TestMutantsOfRecover(t *testing.T) {
	for name, c := range map[string]struct {
		function, replacement string
		alone                 bool
	}{
		"no recover":            {"x := 1", "x := 2", false},
		"in a function literal": {"x := 1\n\tdefer func() { recover() }()", "x := 2", false},
		"in the function":       {"x := 1\n\tif r := recover(); r != nil {\n\t}", "x := 2", true},
		"only in the mutant":    {"x := 1", "x := recover()", true},
	} {
		text := "package p\n\nfunc f() {\n\t" + c.function + "\n\t_ = x\n}\n"
		changed, err := withMutant(text, 1, []Edit{{Old: "x := 1", New: c.replacement}})
		switch {
		case c.alone != errors.Is(err, ErrNeedsOwnBinary):
			t.Errorf("%s: %v", name, err)
		case !c.alone && !strings.Contains(changed, "func fMutant1"):
			t.Errorf("%s: there is no copy in\n%s", name, changed)
		}
	}
}

// A text that does not compile is found in the changed file.
func TestMutantsThatDoNotCompile(t *testing.T) {
	sources, err := LoadSources("../../..", "./core/op")
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{
		"return 0", "return t.LastID, missing", "return t.LastID, !r.Refused)",
		"unused := 0\n	return t.LastID, true",
	} {
		broken := Edit{"core/op/table.go", "return t.LastID, !r.Refused", text}
		if err := sources.Check([]Edit{broken}); err == nil {
			t.Errorf("%q compiles", text)
		}
	}
}

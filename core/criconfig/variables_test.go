package criconfig

import (
	"slices"
	"strconv"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/core/budget"
)

// doubling returns n variables, each of which holds the one before twice. The first has a length.
func doubling(n, length int) []v1.EnvVar {
	env := []v1.EnvVar{{Name: "A0", Value: strings.Repeat("x", length)}}
	for i := range n {
		before := "$(A" + strconv.Itoa(i) + ")"
		env = append(env, v1.EnvVar{Name: "A" + strconv.Itoa(i+1), Value: before + before})
	}
	return env
}

// No text is expanded beyond a bound, even if its references would make it grow without end.
func TestExpansionIsBounded(t *testing.T) {
	half := strings.Repeat("x", budget.VariableBytesMax/2-len("A=\x00"))
	for _, c := range []struct {
		name      string
		container v1.Container
		want      string // empty: no error
	}{
		{"the longest variable", v1.Container{Env: []v1.EnvVar{
			{Name: "A", Value: half + half + "xxx"}}}, ""},
		{"one more", v1.Container{Env: []v1.EnvVar{{Name: "A", Value: half + half + "xxxx"}}},
			"environment variable A is longer than 131072 bytes"},
		{"doubling", v1.Container{Env: doubling(40, 1)},
			"environment variable A17 is longer than 131072 bytes"},
		{"all together", v1.Container{Env: append(doubling(1, 60_000),
			slices.Repeat([]v1.EnvVar{{Name: "B", Value: "$(A1)"}}, 30)...)},
			"environment variables longer than 2097152 bytes together, with B"},
		{"command", v1.Container{Env: doubling(16, 1), Command: []string{"sh", "$(A16)$(A16)"}},
			"command[1] is longer than 131072 bytes"},
		{"args", v1.Container{Env: doubling(16, 1), Command: []string{"$(A16)"},
			Args: slices.Repeat([]string{"$(A16)"}, 40)},
			"command and args are longer than 2097152 bytes together, with args[30]"},
		{"sub-path", v1.Container{Env: doubling(16, 1), VolumeMounts: []v1.VolumeMount{
			{Name: "data", MountPath: "/d", SubPathExpr: "$(A16)"}}},
			`subPathExpr of volume mount "data" is longer than 4096 bytes`},
	} {
		p := withVolume(v1.VolumeMount{MountPath: "/d"})
		got := ""
		if _, err := p.CheckContainer(&c.container, budget.ExpandedMax); err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
		if _, err := p.ContainerConfig(&c.container, &Run{}, Images{}); (err != nil) != (got != "") {
			t.Errorf("%s: %v, after the check found %q", c.name, err, got)
		}
	}
}

// Commands of probes refer to what the spec gives as values, and to nothing else.
func TestProbeCommand(t *testing.T) {
	container := &v1.Container{Env: []v1.EnvVar{
		{Name: "PORT", Value: "1"}, {Name: "PORT", Value: "8080"}, {Name: "SELF", Value: "$(PORT)"},
		{Name: "IP", ValueFrom: &v1.EnvVarSource{}}}}
	for text, want := range map[string]string{
		"nc -z localhost $(PORT)": "nc -z localhost 8080",
		"$(SELF)":                 "$(PORT)", // values are not expanded
		"[$(IP)]":                 "[]",
		"$(DB_SERVICE_HOST)":      "$(DB_SERVICE_HOST)",
		"$$(PORT) $HOME $$":       "$(PORT) $HOME $",
	} {
		got, err := ProbeCommand(container, []string{"sh", text})
		if err != nil || !slices.Equal(got, []string{"sh", want}) {
			t.Errorf("%s: %q, %v, want %q", text, got, err, want)
		}
	}
}

// The command of a probe has a bound on what it is expanded to, and is not built beyond it.
func TestLongProbeCommand(t *testing.T) {
	container := v1.Container{Name: "web", Env: []v1.EnvVar{
		{Name: "A", Value: strings.Repeat("\x01", 4<<10)}}}
	within, over := []string{strings.Repeat("$(A)", 7), "$(B)$$"}, []string{}
	for range 12 {
		over = append(over, strings.Repeat("$(A)", 31))
	}
	got, err := ProbeCommand(&container, within)
	if err != nil || len(got[0]) != 7*4096 || got[1] != "$(B)$" {
		t.Errorf("%d arguments, %v", len(got), err)
	}
	want := "the command of a probe of container web has 1523724 bytes, and one may have 32768"
	allocations := testing.AllocsPerRun(1, func() {
		if _, err := ProbeCommand(&container, over); err == nil || err.Error() != want {
			t.Errorf("%v", err)
		}
	})
	if allocations > 30 {
		t.Errorf("%v allocations", allocations)
	}
	probe := func(command []string) *v1.Probe {
		return &v1.Probe{ProbeHandler: v1.ProbeHandler{Exec: &v1.ExecAction{Command: command}}}
	}
	for name, c := range map[string]struct{ startup, liveness, readiness *v1.Probe }{
		"":          {probe(within), probe(within), probe(within)},
		"startup":   {startup: probe(over)},
		"liveness":  {liveness: probe(over)},
		"readiness": {readiness: probe(over)},
	} {
		container.StartupProbe, container.LivenessProbe = c.startup, c.liveness
		container.ReadinessProbe = c.readiness
		app := &v1.PodSpec{Containers: []v1.Container{container}}
		init := &v1.PodSpec{InitContainers: []v1.Container{container}}
		for _, spec := range []*v1.PodSpec{app, init} {
			if err := CheckProbes(spec); budget.NameOf(err) != "probe_command_bytes" != (name == "") {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

// A run of a probe copies the variables that its command refers to, and no others.
func TestProbeCommandCopiesFewVariables(t *testing.T) {
	container := &v1.Container{}
	for i := range 10_000 {
		container.Env = append(container.Env, v1.EnvVar{Name: "V" + strconv.Itoa(i), Value: "x"})
	}
	allocations := testing.AllocsPerRun(10, func() {
		got, err := ProbeCommand(container, []string{"$(V9999)", "$HOME"})
		if err != nil || !slices.Equal(got, []string{"x", "$HOME"}) {
			t.Errorf("%q, %v", got, err)
		}
	})
	if allocations > 100 {
		t.Errorf("%v allocations", allocations)
	}
}

// A sub-path that refers to a long variable very often copies no value, one that is very long is
// refused before it is expanded, and an error names few of many variables.
func TestLongSubPathExpr(t *testing.T) {
	long := newVariables(nil)
	long.set("A", make([]byte, budget.VariableBytesMax))
	mount := &v1.VolumeMount{Name: "data", SubPathExpr: strings.Repeat("$(A)", 10_000)}
	allocations := testing.AllocsPerRun(1, func() {
		if names := missingVariables(mount.SubPathExpr, long); names != nil {
			t.Errorf("missing: %.100q", names)
		}
	})
	if allocations > 100 {
		t.Errorf("%v allocations", allocations)
	}
	for text, want := range map[string]string{
		mount.SubPathExpr: `subPathExpr of volume mount "data" is longer than 4096 bytes`,
		strings.Repeat("$(A)", 20_000): `subPathExpr of volume mount "data" has 80000 bytes before it ` +
			"is expanded, at most 65536",
		"$(B)$(C)$(D)$(E)$(F)":         "missing value for B, C, D, E, F",
		"$(H)$(B)$(C)$(D)$(E)$(F)$(G)": "missing value for B, C, D, E, F and 2 others",
	} {
		mount.SubPathExpr = text
		if _, err := subPath(mount, long); err == nil || err.Error() != want {
			t.Errorf("%.40s: %.200v, want %s", text, err, want)
		}
	}
}

// A text with many beginnings of references takes time in proportion to its length.
func TestUnendedReferences(t *testing.T) {
	for _, part := range []string{"$(", "$a"} {
		text := strings.Repeat(part, 1<<20)
		if got, fits := expand(text, 1<<22, &Variables{}); got != text || !fits {
			t.Errorf("%s: %d bytes", part, len(got))
		}
	}
}

// largePod returns a pod whose container takes its variables n times from an object of 12,000 keys.
func largePod(n int, prefix func(i int) string) *Pod {
	data := map[string]string{}
	for i := range 12_000 {
		data["K"+strconv.Itoa(i)] = "v"
	}
	p := newPod()
	p.serve(configMap("c", data))
	for i := range n {
		p.web().EnvFrom = append(p.web().EnvFrom, v1.EnvFromSource{Prefix: prefix(i),
			ConfigMapRef: &v1.ConfigMapEnvSource{
				LocalObjectReference: v1.LocalObjectReference{Name: "c"}}})
	}
	return p
}

func noPrefix(int) string { return "" }

// An object that is named repeatedly takes no longer than the bound on variables allows.
func TestRepeatedObjectsAreBounded(t *testing.T) {
	for name, prefix := range map[string]func(int) string{"one name": noPrefix,
		"other names": func(i int) string { return strconv.Itoa(i) + "_" }} {
		p := largePod(100, prefix)
		if _, err := p.Environment(p.web()); err == nil ||
			!strings.HasPrefix(err.Error(), "more than 16384 environment variables, with ") {
			t.Errorf("%s: %v", name, err)
		}
	}
	p := largePod(1, noPrefix)
	p.web().Env = slices.Repeat([]v1.EnvVar{{Name: "A", ValueFrom: keyRef("c", "K1", nil)},
		{Name: "B", Value: "$(K11999)$(NONE)"}}, 2_000)
	got, err := p.Environment(p.web())
	if err != nil || len(got.List) != 12_002 || string(got.List[12_001].Value) != "v$(NONE)" {
		t.Errorf("%v", err)
	}
}

func BenchmarkEnvironment(b *testing.B) {
	p := largePod(1, noPrefix)
	for b.Loop() {
		if got, err := p.newEnvironment(p.web()); err != nil || len(got.List) != 12_000 {
			b.Fatal(err)
		}
	}
}

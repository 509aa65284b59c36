package plan

import (
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"seedlet.dev/sim/truth"
)

// specWithPod is a spec with one pod and with the given happening.
func specWithPod(h Happening) *Spec {
	return &Spec{Duration: Duration(time.Minute), Happenings: []Happening{h}, Pods: []Pod{{Name: "web",
		Manifest: map[string]any{"spec": map[string]any{
			"containers": []any{map[string]any{"name": "app"}}}}}}}
}

// An error names the happening and the field.
func TestInvalidHappenings(t *testing.T) {
	second := Duration(time.Second)
	for _, test := range []struct {
		happening Happening
		want      string
	}{
		{Happening{}, ": want one of manifest, act, killAgent, restartRuntime, reboot, killContainer, " +
			"killSandbox, setRuntimeClock, loseContainer, removeSandbox, removeImage, fault, request, " +
			"shutDown, loseBus, pressure, plugin, have none"},
		{Happening{Reboot: &Reboot{}, KillAgent: &AgentKill{}}, ": want one of manifest, act, " +
			"killAgent, restartRuntime, reboot, killContainer, killSandbox, setRuntimeClock, " +
			"loseContainer, removeSandbox, removeImage, fault, request, shutDown, loseBus, " +
			"pressure, plugin, have killAgent, reboot"},
		{Happening{KillAgent: &AgentKill{}}, ".at: want a time after the start of the agent, or when"},
		{Happening{At: second, When: &Anchor{}, Reboot: &Reboot{}}, ": want either at or when"},
		{Happening{At: 61 * second, Reboot: &Reboot{}}, ".at: 1m1s is after spec.duration, 1m0s"},
		{Happening{LoseContainer: &LostContainer{Pod: "web", Container: "other"}},
			`.loseContainer.container: pod web has no container "other"`},
		{Happening{LoseContainer: &LostContainer{Pod: "other", Container: "app"}},
			`.loseContainer.pod: no pod is called "other"`},
		{Happening{KillContainer: &ContainerKill{Pod: "web", Container: "app", ExitCode: 256}},
			".killContainer.exitCode: want 0 to 255, have 256"},
		{Happening{RemoveSandbox: &SandboxRemoval{Pod: "other"}},
			`.removeSandbox.pod: no pod is called "other"`},
		{Happening{Act: &Act{Verb: VerbDelete, Pod: "web"}},
			".act.do: want no act without spec.node.api"},
		{Happening{When: &Anchor{}, Reboot: &Reboot{}}, ".when.fact: want either a fact or an effect"},
		{Happening{When: &Anchor{Fact: truth.SandboxReady, Pod: "x"}, Reboot: &Reboot{}},
			`.when.pod: no pod is called "x"`},
		{Happening{When: &Anchor{Fact: truth.SandboxReady, Container: "app"}, Reboot: &Reboot{}},
			".when.container: want one only with the fact of a pod"},
		{Happening{When: &Anchor{Effect: AnyEffect, Nth: -1}, Reboot: &Reboot{}},
			".when.nth: want 1 or more, have -1"},
	} {
		err := specWithPod(test.happening).validateHappenings()
		if want := "spec.happenings[0]" + test.want; err == nil || err.Error() != want {
			t.Errorf("have %v\nwant %s", err, want)
		}
	}
	for _, on := range []Anchor{{Fact: "Nonsense"}, {Effect: "Nonsense"}} {
		err := specWithPod(Happening{When: &on, Reboot: &Reboot{}}).validateHappenings()
		if err == nil || !strings.Contains(err.Error(), `have "Nonsense"`) {
			t.Errorf("%+v: %v", on, err)
		}
	}
}

func TestValidHappenings(t *testing.T) {
	for _, h := range []Happening{
		{LoseContainer: &LostContainer{Pod: "web", Container: "app"}},
		{RemoveSandbox: &SandboxRemoval{Pod: "web"}},
		{When: &Anchor{Fact: truth.ContainerExited, Pod: "web", Container: "app", Nth: 2},
			KillAgent: &AgentKill{}},
		{When: &Anchor{Effect: "StopContainer", Pod: "web"}, Fault: &FaultWindow{ID: "a",
			Class: FaultDiskFull}},
	} {
		if err := specWithPod(h).validateHappenings(); err != nil {
			t.Error(err)
		}
	}
}

// The calls that change something are calls.
func TestChangesAreCalls(t *testing.T) {
	for _, call := range changes {
		if !slices.Contains(faultableCalls, call) {
			t.Errorf("no call is named %s", call)
		}
	}
}

// An anchor can name every kind of fact.
func TestKindsOfFacts(t *testing.T) {
	packages, err := parser.ParseDir(token.NewFileSet(), "../truth", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	constants := map[truth.Kind]bool{}
	ast.Inspect(packages["truth"], func(n ast.Node) bool {
		spec, isValue := n.(*ast.ValueSpec)
		if !isValue {
			return true
		}
		if is, named := spec.Type.(*ast.Ident); named && is.Name == "Kind" {
			text, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
			if err != nil {
				t.Fatal(err)
			}
			constants[truth.Kind(text)] = true
		}
		return true
	})
	for _, kind := range truth.Kinds() {
		if !constants[kind] {
			t.Errorf("%s is in the list twice, or no constant", kind)
		}
		delete(constants, kind)
	}
	if len(constants) > 0 {
		t.Errorf("not in the list: %v", constants)
	}
}

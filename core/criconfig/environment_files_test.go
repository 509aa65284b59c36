package criconfig

import (
	"fmt"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/core/budget"
)

// fromFile returns a variable from a key of a file "f" in the volume "data".
func fromFile(name, key string, optional bool) v1.EnvVar {
	return v1.EnvVar{Name: name, ValueFrom: &v1.EnvVarSource{FileKeyRef: &v1.FileKeySelector{
		VolumeName: "data", Path: "f", Key: key, Optional: &optional}}}
}

var fileF = EnvFileKey{Volume: "data", Path: "f"}

// The values of key K of files, and whether they can be parsed up to it, as kubelet/util/env does.
func TestParseEnvFile(t *testing.T) {
	const fails = "couldn't parse env file"
	long := strings.Repeat("x", 64<<10)
	for _, c := range []struct{ text, want, problem string }{
		{"K='v'", "v", ""},
		{"K='v'\r\n", "v", ""},
		{"\n# a comment\n \t\n  K='v' # another\n", "v", ""},
		{"OTHER='1'\nK='2'\nK='3'\n", "2", ""},
		{"K='one\n# two\n\n three'\n", "one\n# two\n\n three", ""},
		{"K='$(A) ${A} \\n =\"'", "$(A) ${A} \\n =\"", ""},
		{"K= 'v'", "", ""},
		{"K=''", "", ""},
		{"", "none", ""},
		{"OTHER='1'", "none", ""},
		{"K='v'\nno format", "v", ""},
		{"no format\nK='v'", "none", fails},
		{"K ='v'", "none", fails},
		{"='v'", "none", fails},
		{"K=v", "none", fails},
		{"K=", "none", fails},
		{`K="v"`, "none", fails},
		{"K='v' x", "none", fails},
		{"K='v''w'", "none", fails},
		{"K='v", "none", fails},
		{"K='v\n", "none", fails},
		{"# " + long + "\nK='v'", "none", fails},
		{"\x00K='v'", "none", ""},
	} {
		container := &v1.Container{Env: []v1.EnvVar{{Name: "A"}, fromFile("B", "K", false),
			fromFile("C", "K", false)}}
		got := ParseEnvFile(fileF, container, []byte(c.text))
		value := "none"
		for _, v := range got.Env {
			if v.Name != "K" {
				t.Errorf("%.40q: has the value of %s", c.text, v.Name)
			}
			value = v.Value
		}
		if value != c.want || got.Problem != c.problem || got.EnvFileKey != fileF {
			t.Errorf("%.40q: %q, %q; want %q, %q", c.text, value, got.Problem, c.want, c.problem)
		}
	}
}

func TestVariablesFromFiles(t *testing.T) {
	for _, c := range []struct {
		name string
		file string // "missing": it could not be read
		env  []v1.EnvVar
		want string
		err  string
	}{
		{"a key", "K='v $(A)'", []v1.EnvVar{fromFile("A", "K", false), {Name: "B", Value: "<$(A)>"}},
			"A=v $(A) B=<v $(A)>", ""},
		{"two keys", "J='1'\nK='2'", []v1.EnvVar{fromFile("A", "K", false), fromFile("B", "J", true)},
			"A=2 B=1", ""},
		{"an optional key", "J='1'", []v1.EnvVar{fromFile("A", "K", true), fromFile("B", "J", false)},
			"B=1", ""},
		{"an empty optional key", "K=''", []v1.EnvVar{fromFile("A", "K", true)}, "", ""},
		{"no such key", "J='1'", []v1.EnvVar{fromFile("A", "K", false)}, "", `environment variable ` +
			`key "K" not found in file "/pods/u/volumes/kubernetes.io~empty-dir/data/f"`},
		{"an empty key", "K=''", []v1.EnvVar{fromFile("A", "K", false)}, "",
			`environment variable key "K" not found`},
		{"the file is missing", "missing", []v1.EnvVar{fromFile("A", "K", true)}, "",
			"couldn't parse env file"},
		{"an error after the key", "K='v'\nx", []v1.EnvVar{fromFile("A", "K", true)}, "A=v", ""},
		{"an error before the key", "x\nK='v'", []v1.EnvVar{fromFile("A", "K", true)}, "",
			"couldn't parse env file"},
	} {
		p := withVolume(v1.VolumeMount{})
		p.web().Env = c.env
		file := UnreadableEnvFile(fileF)
		if c.file != "missing" {
			file = ParseEnvFile(fileF, p.web(), []byte(c.file))
		}
		p.EnvFiles = map[string][]EnvFile{"web": {file}}
		env, err := p.Environment(p.web())
		text := ""
		if err != nil {
			text = err.Error()
		}
		if shell(env) != c.want || !strings.Contains(text, c.err) || (c.err == "") != (err == nil) {
			t.Errorf("%s: %q, %v; want %q, %q", c.name, shell(env), err, c.want, c.err)
		}
	}
}

func TestVariablesFromFilesFail(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*Pod)
		want   string
	}{
		{"not read yet", func(p *Pod) { p.EnvFiles = nil }, "has not been read"},
		{"no volume", func(p *Pod) { p.setVolumes() },
			`cannot find the volume "data" referenced by FileKeyRef`},
		{"an image", func(p *Pod) {
			p.Spec.Spec.Volumes[0].VolumeSource = v1.VolumeSource{Image: &v1.ImageVolumeSource{}}
		}, `failed to get host path for volume "data"`},
		{"many files", func(p *Pod) {
			for i := range budget.EnvFilesMax {
				p.web().Env = append(p.web().Env, fromFile("A", "K", true))
				p.web().Env[i+1].ValueFrom.FileKeyRef.Path = fmt.Sprint(i)
			}
		}, "variables of 101 files, at most 100"},
	} {
		p := withVolume(v1.VolumeMount{})
		p.web().Env = []v1.EnvVar{fromFile("A", "K", true)}
		p.EnvFiles = map[string][]EnvFile{"web": {ParseEnvFile(fileF, p.web(), []byte("K='v'"))}}
		c.change(p)
		if _, err := p.Environment(p.web()); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", c.name, err, c.want)
		}
	}
}

// Without the feature gate EnvFiles a variable from a file is empty, as in the kubelet.
func TestVariablesFromFilesWithoutTheGate(t *testing.T) {
	p := newPod()
	p.Node.NoEnvFiles = true
	for range budget.EnvFilesMax + 1 {
		p.web().Env = append(p.web().Env, fromFile("A", "K", false))
	}
	environment, err := p.Environment(p.web())
	if err != nil || len(environment.List) != 1 || len(environment.List[0].Value) > 0 {
		t.Errorf("%v, %v", environment, err)
	}
}

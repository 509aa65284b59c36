package criconfig

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/core/budget"
)

// Environment variables from files in volumes, which an init container has written (KEP-3721).

// EnvFileBytesMax bounds a file that variables are taken from. Variables cannot be longer together.
const EnvFileBytesMax = budget.EnvironmentMax

// EnvFileKey identifies a file that variables are taken from.
type EnvFileKey struct {
	Volume string `json:"volume"`
	Path   string `json:"path"` // in the volume
}

// EnvFile is the part of a file that a container's variables are taken from.
type EnvFile struct {
	EnvFileKey
	// Env has the values of the keys that the container refers to, sorted by key.
	Env []v1.EnvVar `json:"env,omitempty"`
	// Problem is why the file could not be read, or be parsed after the keys in Env.
	Problem string `json:"problem,omitempty"`
	// OverBudget reports whether the variables were dropped because of what all files of the pod hold.
	OverBudget bool `json:"overBudget,omitempty"`
}

// envFileOf returns the file that a variable is taken from; false if it is taken from none.
func envFileOf(v *v1.EnvVar) (EnvFileKey, bool) {
	if v.ValueFrom == nil || v.ValueFrom.FileKeyRef == nil {
		return EnvFileKey{}, false
	}
	return EnvFileKey{v.ValueFrom.FileKeyRef.VolumeName, v.ValueFrom.FileKeyRef.Path}, true
}

// EnvFileKeys returns the files that a container's variables are taken from, each once.
func EnvFileKeys(container *v1.Container) []EnvFileKey {
	var keys []EnvFileKey
	known := map[EnvFileKey]bool{}
	for i := range container.Env {
		if key, ok := envFileOf(&container.Env[i]); ok && !known[key] {
			known[key] = true
			keys = append(keys, key)
		}
	}
	return keys
}

// checkEnvFiles returns an error if the variables of a container are taken from too many files.
func checkEnvFiles(container *v1.Container) error {
	if n := len(EnvFileKeys(container)); n > budget.EnvFilesMax {
		return budget.EnvFiles.Errorf("variables of %d files, at most %d", n, budget.EnvFilesMax)
	}
	return nil
}

// VolumePath returns the path on the node of the volume that a file is in. It fails if the pod has
// no such volume, or the volume is an image.
func (p *Pod) VolumePath(file EnvFileKey) (string, error) {
	v := p.Volumes[file.Volume]
	if v == nil {
		return "", fmt.Errorf("cannot find the volume %q referenced by FileKeyRef", file.Volume)
	}
	at := p.place(v).Path
	if at == "" {
		return "", fmt.Errorf("failed to get host path for volume %q", file.Volume)
	}
	return at, nil
}

// fileKeyValue returns the value of one key of a file. As in the kubelet, an empty value counts as
// not found, and a file that cannot be parsed up to the key is an error even if the key is
// optional.
func (p *Pod) fileKeyValue(v *v1.EnvVar, container string) (value []byte, found bool, err error) {
	ref := v.ValueFrom.FileKeyRef
	file, _ := envFileOf(v)
	at, err := p.VolumePath(file)
	if err != nil {
		return nil, false, err
	}
	all := p.EnvFiles[container]
	i := slices.IndexFunc(all, func(f EnvFile) bool { return f.EnvFileKey == file })
	if i < 0 {
		return nil, false, fmt.Errorf("file %q of volume %q has not been read", file.Path, file.Volume)
	}
	k, hasKey := slices.BinarySearchFunc(all[i].Env, ref.Key, compareName)
	switch {
	case all[i].OverBudget:
		return nil, false, budget.EnvFileBytes.Errorf(
			"variables of files of the pod's containers hold more than %d bytes together, with %q",
			budget.EnvFileBytesMax, file.Path)
	case !hasKey && all[i].Problem != "":
		return nil, false, errors.New(all[i].Problem)
	case hasKey && all[i].Env[k].Value != "":
		return []byte(all[i].Env[k].Value), true, nil
	case isTrue(ref.Optional):
		return nil, false, nil
	}
	return nil, false, fmt.Errorf("environment variable key %q not found in file %q", ref.Key,
		at+"/"+ref.Path)
}

func compareName(v v1.EnvVar, name string) int { return strings.Compare(v.Name, name) }

// messageUnparsable is the kubelet's message about a file that cannot be read or parsed.
const messageUnparsable = "couldn't parse env file"

// UnreadableEnvFile returns a file that could not be read.
func UnreadableEnvFile(file EnvFileKey) EnvFile {
	return EnvFile{EnvFileKey: file, Problem: messageUnparsable}
}

// ParseEnvFile parses a file, and returns the values of the keys that a container refers to. A key
// has the first of its values. The result does not refer to the file's text, which would stay in
// memory as a whole.
func ParseEnvFile(file EnvFileKey, container *v1.Container, data []byte) EnvFile {
	parsed, wanted := EnvFile{EnvFileKey: file}, map[string]bool{}
	for i := range container.Env {
		if of, ok := envFileOf(&container.Env[i]); ok && of == file {
			wanted[container.Env[i].ValueFrom.FileKeyRef.Key] = true
		}
	}
	lines := envLines{rest: string(data)}
	for len(wanted) > 0 && parsed.Problem == "" {
		key, value, err := lines.nextAssignment()
		switch {
		case err != nil:
			parsed.Problem = err.Error()
		case key == "": // the end
			clear(wanted)
		case wanted[key]:
			delete(wanted, key)
			parsed.Env = append(parsed.Env, v1.EnvVar{
				Name: strings.Clone(key), Value: strings.Clone(value)})
		}
	}
	slices.SortFunc(parsed.Env, func(a, b v1.EnvVar) int { return compareName(a, b.Name) })
	return parsed
}

// lineMax bounds a line of a file, as the kubelet's reader does.
const lineMax = 64 << 10

// envLines are the lines of a file of variables that have not been parsed yet.
type envLines struct{ rest string }

// next returns the next line without its end; false at the end of the file.
func (l *envLines) next() (line string, found bool, err error) {
	if l.rest == "" {
		return "", false, nil
	}
	line, l.rest, _ = strings.Cut(l.rest, "\n")
	if len(line) >= lineMax {
		return "", false, errUnparsable
	}
	return strings.TrimSuffix(line, "\r"), true, nil
}

var errUnparsable = errors.New(messageUnparsable)

// blanks are the characters that may precede a name, and follow a value.
const blanks = " \t"

// nextAssignment returns the next variable of the file; an empty key at its end. The format is a
// part of the syntax of shells that leaves no choice (kubelet/util/env): KEY='value', where the
// value may have several lines and any character but a quote, and a comment may follow. As in a
// shell, a blank after the equals sign makes the value empty.
func (l *envLines) nextAssignment() (key, value string, err error) {
	for {
		line, found, err := l.next()
		if err != nil || !found {
			return "", "", err
		}
		line = strings.TrimLeft(line, blanks)
		if line == "" || line[0] == '#' {
			continue
		}
		key, value, found := strings.Cut(line, "=")
		switch {
		case !found, key == "", strings.TrimRight(key, blanks) != key:
			return "", "", errUnparsable
		case strings.TrimLeft(value, blanks) != value:
			return key, "", nil
		case !strings.HasPrefix(value, "'"):
			return "", "", errUnparsable
		}
		value, err = l.quoted(value[1:])
		return key, value, err
	}
}

// quoted returns the value whose first line, after the opening quote, is given.
func (l *envLines) quoted(line string) (string, error) {
	var value strings.Builder
	for {
		part, after, closed := strings.Cut(line, "'")
		value.WriteString(part)
		if closed {
			if after = strings.TrimLeft(after, blanks); after != "" && after[0] != '#' {
				return "", errUnparsable
			}
			return value.String(), nil
		}
		value.WriteByte('\n')
		var found bool
		var err error
		if line, found, err = l.next(); err != nil || !found {
			return "", errUnparsable
		}
	}
}

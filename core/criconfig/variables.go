package criconfig

import (
	"fmt"
	"iter"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/core/budget"
)

// The bounds of what a container gets are in package budget. References of references can double
// the length of a value with every variable, so a text is never expanded beyond its bound. Whatever
// is replaced counts as well, because that takes memory and time too.

// Variables are the environment variables of a container, each name once.
type Variables struct {
	List        []*runtimeapi.KeyValue
	index       map[string]int        // into List, by name
	unused      []runtimeapi.KeyValue // allocated together: there may be tens of thousands
	services    *Variables            // where names are looked up that are not in index; nil for none
	bound       budget.Item           // of added
	added       int                   // variables that were added, those that were replaced included
	bytes       int                   // their length
	expanded    int                   // what they count for budget.ExpandedBytesOfPod
	expandedMax int                   // of expanded, with the command line; zero: no bound
}

// add adds a variable. Another value of the same name is replaced in its place. It fails if that
// exceeds a bound.
func (v *Variables) add(name string, value []byte) error {
	length := len(name) + len(value) + len("=\x00")
	v.expanded += length + budget.ExpandedVariable
	if length > budget.VariableBytesMax {
		return tooLong("environment variable " + name)
	}
	v.added++
	v.bytes += length
	if err := v.checkBounds(0, "with ", name); err != nil {
		return err
	}
	v.set(name, value)
	return nil
}

// checkBounds returns an error if the variables, with so many more, exceed a bound. Which says, in
// parts, which of them did: they are joined only then, since there may be tens of thousands.
func (v *Variables) checkBounds(more int, which ...string) error {
	switch {
	case v.bytes > budget.EnvironmentMax:
		return budget.EnvironmentBytes.Errorf(
			"environment variables longer than %d bytes together, %s", budget.EnvironmentMax,
			strings.Join(which, ""))
	case v.added+more > budget.Table[v.bound].Max:
		return v.bound.Errorf("more than %d environment variables, %s", budget.Table[v.bound].Max,
			strings.Join(which, ""))
	case v.exceedsExpanded(more * budget.ExpandedVariable):
		return tooMuchExpanded()
	}
	return nil
}

// exceedsExpanded reports whether so many bytes more are too many for the containers of a pod.
func (v *Variables) exceedsExpanded(more int) bool {
	return v.expandedMax > 0 && v.expanded+more > v.expandedMax
}

func tooMuchExpanded() error {
	return budget.ExpandedBytesOfPod.Errorf("the containers of the pod that wait to be created have "+
		"more than %d bytes of environment variables and arguments together", budget.ExpandedMax)
}

// set is add without bounds.
func (v *Variables) set(name string, value []byte) {
	if i, found := v.index[name]; found {
		v.List[i].Value = value
		return
	}
	if v.index == nil {
		v.index = map[string]int{}
	}
	if len(v.unused) == 0 {
		v.unused = make([]runtimeapi.KeyValue, min(max(len(v.List), 8), 1024))
	}
	variable := &v.unused[0]
	v.unused = v.unused[1:]
	variable.Key, variable.Value = name, value
	v.index[name] = len(v.List)
	v.List = append(v.List, variable)
}

// servicesHint says in an error which variables are too many, and what helps.
const servicesHint = "with those of services, which enableServiceLinks: false leaves out"

// countServices counts the variables of services. It fails if that exceeds a bound.
func (v *Variables) countServices() error {
	v.bound = budget.Variables
	v.added += v.services.added
	v.bytes += v.services.bytes
	return v.checkBounds(0, servicesHint)
}

// addServices adds the variables of services to the list, except those whose names exist. Lookups
// find them without that.
func (v *Variables) addServices() {
	services := v.services
	if len(v.List) == 0 {
		v.List = slices.Clip(services.List)
		return
	}
	v.List = slices.Grow(v.List, len(services.List))
	for _, s := range services.List {
		if _, found := v.index[s.Key]; !found {
			v.List = append(v.List, s)
		}
	}
}

// grow makes space for a number of variables. It fails if they exceed the bound.
func (v *Variables) grow(n int, which string) error {
	if err := v.checkBounds(n, which); err != nil {
		return err
	}
	if v.index == nil {
		v.index = make(map[string]int, n)
	}
	v.List = slices.Grow(v.List, n)
	v.unused = make([]runtimeapi.KeyValue, n)
	return nil
}

// lookup returns the value of a variable, or of a service's.
func (v *Variables) lookup(name string) (value []byte, found bool) {
	if i, found := v.index[name]; found {
		return v.List[i].Value, true
	}
	if v.services == nil {
		return nil, false
	}
	return v.services.lookup(name)
}

func tooLong(what string) error {
	return budget.VariableBytes.Errorf("%s is longer than %d bytes", what, budget.VariableBytesMax)
}

// arguments are expanded texts of a command line. Command and arguments share the bound.
type arguments struct {
	variables *Variables
	bytes     int
}

// expandAll expands the texts of a field.
func (a *arguments) expandAll(field string, texts []string) ([]string, error) {
	var expanded []string
	for i, text := range texts {
		text, fits := expand(text, budget.VariableBytesMax-len("\x00"), a.variables)
		a.bytes += len(text) + len("\x00")
		switch {
		case !fits:
			a.bytes += budget.VariableBytesMax // as much was built at most
			return nil, tooLong(fmt.Sprintf("%s[%d]", field, i))
		case a.bytes > budget.ArgumentsMax:
			return nil, budget.ArgumentBytes.Errorf(
				"command and args are longer than %d bytes together, with %s[%d]", budget.ArgumentsMax,
				field, i)
		case a.variables.exceedsExpanded(a.bytes):
			return nil, tooMuchExpanded()
		}
		expanded = append(expanded, text)
	}
	return expanded, nil
}

// length returns how many bytes texts have when they are expanded, without expanding them.
func (a *arguments) length(texts []string) int {
	sum := 0
	for _, text := range texts {
		sum += len("\x00")
		for part, isReference := range parts(text) {
			value, found := []byte(nil), false
			if isReference {
				value, found = a.variables.lookup(part)
			}
			switch {
			case found:
				sum += len(value)
			case isReference:
				sum += len("$()") + len(part)
			default:
				sum += len(part)
			}
		}
	}
	return sum
}

// ProbeCommand returns the command of an exec probe of a container. References are expanded by the
// values that the container's spec gives, as they are there: a variable with a source is empty, and
// one of a service stays a reference. The command is built for each run of the probe, so only the
// variables that it refers to are copied. Upstream: ExpandContainerCommandOnlyStatic in
// pkg/kubelet/container/helpers.go. It fails if the command exceeds its bound, before it is built.
func ProbeCommand(container *v1.Container, command []string) ([]string, error) {
	all := arguments{variables: probeVariables(container, command)}
	if err := all.checkProbe(container, command); err != nil {
		return nil, err
	}
	return all.expandAll("command", command)
}

// CheckProbes returns an error if the command of a probe of a pod exceeds its bound. No command is
// built.
func CheckProbes(spec *v1.PodSpec) error {
	for _, containers := range [][]v1.Container{spec.InitContainers, spec.Containers} {
		for i := range containers {
			c := &containers[i]
			for _, probe := range []*v1.Probe{c.StartupProbe, c.LivenessProbe, c.ReadinessProbe} {
				if probe == nil || probe.Exec == nil {
					continue
				}
				all := arguments{variables: probeVariables(c, probe.Exec.Command)}
				if err := all.checkProbe(c, probe.Exec.Command); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// checkProbe returns an error if the command of a probe exceeds its bound.
func (a *arguments) checkProbe(container *v1.Container, command []string) error {
	if n := a.length(command); n > budget.ProbeCommandMax {
		return budget.ProbeCommand.Errorf("the command of a probe of container %s has %d bytes, and "+
			"one may have %d", container.Name, n, budget.ProbeCommandMax)
	}
	return nil
}

// probeVariables returns the variables that the command of a probe refers to.
func probeVariables(container *v1.Container, command []string) *Variables {
	needed := map[string]bool{}
	for _, text := range command {
		for part, isReference := range parts(text) {
			if isReference {
				needed[part] = true
			}
		}
	}
	variables := &Variables{}
	for i := 0; i < len(container.Env) && len(needed) > 0; i++ {
		if v := &container.Env[i]; needed[v.Name] {
			variables.set(v.Name, []byte(v.Value))
		}
	}
	return variables
}

// expand replaces $(NAME) by the variable's value. An unknown name stays as it is, and $$ is a
// dollar sign that begins no reference. It reports whether the result fits into a number of bytes;
// if it does not, expand stops there.
func expand(text string, bytesMax int, variables *Variables) (expanded string, fits bool) {
	var b strings.Builder
	for part, isReference := range parts(text) {
		if isReference {
			part = resolveReference(part, variables)
		}
		if b.Len()+len(part) > bytesMax {
			return "", false
		}
		b.WriteString(part)
	}
	return b.String(), true
}

// resolveReference returns the value of a variable, or the reference itself if there is none.
func resolveReference(name string, variables *Variables) string {
	if value, found := variables.lookup(name); found {
		return string(value)
	}
	return "$(" + name + ")"
}

// missingVariables returns the variables that a text refers to and that do not exist or are empty,
// sorted and each once.
func missingVariables(text string, variables *Variables) []string {
	var missing []string
	for part, isReference := range parts(text) {
		if !isReference {
			continue
		}
		if value, _ := variables.lookup(part); len(value) == 0 {
			missing = append(missing, part)
		}
	}
	slices.Sort(missing)
	return slices.Compact(missing)
}

// parts returns the parts of a text: the names that it refers to, and the text between them as it
// is when expanded.
func parts(text string) iter.Seq2[string, bool] {
	return func(yield func(part string, isReference bool) bool) {
		hasEnd := true // a reference may still end: false saves a search for each beginning
		for {
			before, after, found := strings.Cut(text, "$")
			if !yield(before, false) || !found {
				return
			}
			part, rest, isReference := "$", after, false
			switch {
			case strings.HasPrefix(after, "$"):
				rest = after[1:]
			case hasEnd && strings.HasPrefix(after, "("):
				part, rest, isReference = strings.Cut(after[1:], ")")
				if hasEnd = isReference; !hasEnd {
					part, rest = "$", after
				}
			}
			if !yield(part, isReference) {
				return
			}
			text = rest
		}
	}
}

package config

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// allFields returns the paths of all fields, in the form of setFields.
func allFields(t reflect.Type, prefix string) []string {
	var all []string
	for i := range t.NumField() {
		name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		typ := t.Field(i).Type
		switch {
		case name == "-":
		case name == "":
			all = append(all, allFields(typ, prefix)...)
		case typ.Kind() == reflect.Pointer && isGroup(typ.Elem()):
			all = append(all, allFields(typ.Elem(), prefix+name+".")...)
		case isGroup(typ):
			all = append(all, allFields(typ, prefix+name+".")...)
		default:
			all = append(all, prefix+name)
		}
	}
	return all
}

// setFields returns the paths of the fields that are not zero; a pointer to zero is not zero.
func setFields(v reflect.Value, prefix string) []string {
	var set []string
	for i := range v.NumField() {
		field, value := v.Type().Field(i), v.Field(i)
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if value.IsZero() || name == "-" {
			continue
		}
		if value.Kind() == reflect.Pointer {
			value = value.Elem()
		}
		switch {
		case name == "": // inlined
			set = append(set, setFields(value, prefix)...)
		case isGroup(value.Type()):
			set = append(set, setFields(value, prefix+name+".")...)
		default:
			set = append(set, prefix+name)
		}
	}
	return set
}

// Every field of the type is in the table exactly once, so that none is without an effect silently.
func TestEveryFieldHasAnEffect(t *testing.T) {
	var listed []string
	for _, f := range Fields {
		listed = append(listed, f.Path)
		if (f.Reason == "") != (f.Effect == Acted) {
			t.Errorf("%s: the reason is %q", f.Path, f.Reason)
		}
	}
	if !slices.IsSorted(listed) {
		t.Error("the fields are not sorted")
	}
	all := allFields(reflect.TypeFor[configuration](), "")
	slices.Sort(all)
	if diff := cmp.Diff(all, listed); diff != "" {
		t.Error(diff)
	}
}

// A field that the agent does not act on either has no effect, which is a warning, or keeps the
// agent from starting.
func TestFieldsWithoutEffect(t *testing.T) {
	for text, want := range map[string]string{
		"hairpinMode: none": "configuration fields that are set and have no effect: hairpinMode (the ",
		"iptablesDropBit: 3\nhairpinMode: promiscuous-bridge": "configuration fields that are set and " +
			"have no effect: iptablesDropBit (the ",
		"cpuManagerPolicy: static": "invalid configuration: cpuManagerPolicy: Forbidden: " +
			noResourceManagers,
		"reservedMemory: [{numaNode: 0, limits: {memory: 1Gi}}]": "invalid configuration: " +
			"reservedMemory: Forbidden: " + noResourceManagers,
		"runOnce: true": "invalid configuration: runOnce: Forbidden: the kubelet refuses it as well",
	} {
		base := configFile("/c", text+"\n")
		l, err := Load(&base, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		if err := l.Finish(); err != nil {
			got = err.Error()
		} else if len(l.Warnings) == 1 {
			got = l.Warnings[0]
		}
		if !strings.HasPrefix(got, want) {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}

// The gate is on unless it is set to false, and setting it gives no warning.
func TestRestartAllContainersEnabled(t *testing.T) {
	for text, want := range map[string]bool{
		"": true, "RestartAllContainersOnContainerExits: true": true,
		"RestartAllContainersOnContainerExits: false": false,
	} {
		base := configFile("/c", "staticPodPath: /a\nfeatureGates: {"+text+"}\n")
		l := loadAndFinish(t, &base)
		if RestartAllContainersEnabled(l.Config) != want || len(l.Warnings) > 0 {
			t.Errorf("%q: %v, warnings %q", text, RestartAllContainersEnabled(l.Config), l.Warnings)
		}
	}
}

// A threshold for the file system of the writable layers is valid, and has no effect.
func TestContainerfsThresholdsWarn(t *testing.T) {
	base := configFile("/c", `
evictionHard: {memory.available: 100Mi, containerfs.available: 5%}
evictionSoft: {containerfs.inodesFree: 5%}
evictionSoftGracePeriod: {containerfs.inodesFree: 1m}
`)
	const want = "thresholds that are set but have no effect: evictionHard[containerfs.available], " +
		"evictionSoft[containerfs.inodesFree]: "
	l := loadAndFinish(t, &base)
	if len(l.Warnings) != 1 || !strings.HasPrefix(l.Warnings[0], want) {
		t.Errorf("warnings %q", l.Warnings)
	}
}

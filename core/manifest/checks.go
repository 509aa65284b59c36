package manifest

import (
	"path"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// The checks common to many fields. Each takes the path of a field and its value, and adds an error
// if the value is invalid.

func (v *validator) add(err *field.Error) { v.errs = append(v.errs, err) }

func (v *validator) invalid(p *field.Path, value any, detail string) {
	v.add(field.Invalid(p, value, detail))
}

// addInvalid adds an error for each problem of a value.
func (v *validator) addInvalid(p *field.Path, value any, problems []string) {
	for _, problem := range problems {
		v.invalid(p, value, problem)
	}
}

func oneOf[T ~string](v *validator, p *field.Path, value T, allowed ...T) {
	if !slices.Contains(allowed, value) {
		v.add(field.NotSupported(p, value, slices.DeleteFunc(allowed,
			func(a T) bool { return a == "" })))
	}
}

func (v *validator) notNegative(p *field.Path, value int64) {
	if value < 0 {
		v.invalid(p, value, "must not be negative")
	}
}

func (v *validator) inRange(p *field.Path, value, least, most int64) {
	if value < least || value > most {
		v.add(field.Invalid(p, value, "must be between "+decimal(least)+" and "+decimal(most)))
	}
}

// exactlyOne checks that exactly one of several alternatives is set.
func (v *validator) exactlyOne(p *field.Path, what string, given ...bool) {
	n := 0
	for _, set := range given {
		if set {
			n++
		}
	}
	switch {
	case n == 0:
		v.add(field.Required(p, "must have "+what))
	case n > 1:
		v.add(field.Forbidden(p, "must have only one of "+what))
	}
}

func (v *validator) required(p *field.Path, value string) {
	if value == "" {
		v.add(field.Required(p, ""))
	}
}

// relativePath checks a path that has to stay below a directory.
func (v *validator) relativePath(p *field.Path, value string) {
	if path.IsAbs(value) {
		v.invalid(p, value, "must be a relative path")
	}
	v.noParent(p, value)
}

// noParent checks that a path has no element "..".
func (v *validator) noParent(p *field.Path, value string) {
	if slices.Contains(strings.Split(value, "/"), "..") {
		v.invalid(p, value, "must not contain '..'")
	}
	if strings.ContainsRune(value, 0) {
		v.invalid(p, value, "must not contain a zero byte")
	}
}

// trimTrailingDot returns a domain name without the dot of the root.
func trimTrailingDot(domain string) string { return strings.TrimSuffix(domain, ".") }

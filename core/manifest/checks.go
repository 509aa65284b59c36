package manifest

import (
	"path"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// The checks that rules are made of. Each takes the path of a field and its value, and adds an
// error unless the value is good.

func (v *rules) add(err *field.Error) { v.errs = append(v.errs, err) }

func (v *rules) invalid(p *field.Path, value any, detail string) {
	v.add(field.Invalid(p, value, detail))
}

// each adds an error for each of the problems that a validation found.
func (v *rules) each(p *field.Path, value any, problems []string) {
	for _, problem := range problems {
		v.invalid(p, value, problem)
	}
}

func oneOf[T ~string](v *rules, p *field.Path, value T, allowed ...T) {
	if !slices.Contains(allowed, value) {
		v.add(field.NotSupported(p, value, slices.DeleteFunc(allowed,
			func(a T) bool { return a == "" })))
	}
}

func (v *rules) notNegative(p *field.Path, value int64) {
	if value < 0 {
		v.invalid(p, value, "must not be negative")
	}
}

func (v *rules) within(p *field.Path, value, least, most int64) {
	if value < least || value > most {
		v.add(field.Invalid(p, value, "must be between "+decimal(least)+" and "+decimal(most)))
	}
}

// exactlyOne checks that one of several alternatives is given.
func (v *rules) exactlyOne(p *field.Path, what string, given ...bool) {
	n := 0
	for _, is := range given {
		if is {
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

// inside checks a path that must lead to somewhere inside a directory.
func (v *rules) inside(p *field.Path, value string) {
	if path.IsAbs(value) {
		v.invalid(p, value, "must be a relative path")
	}
	v.noParent(p, value)
}

// noParent checks that a path does not step up.
func (v *rules) noParent(p *field.Path, value string) {
	if slices.Contains(strings.Split(value, "/"), "..") {
		v.invalid(p, value, "must not contain '..'")
	}
	if strings.ContainsRune(value, 0) {
		v.invalid(p, value, "must not contain a zero byte")
	}
}

// trimDot takes the root's dot off a domain name.
func trimDot(domain string) string { return strings.TrimSuffix(domain, ".") }

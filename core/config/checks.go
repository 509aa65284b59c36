package config

import (
	"fmt"
	"net/netip"
	"path"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"seedlet.dev/core/document"
)

// The checks of single fields. Each takes the path of a field and its value, and adds an error
// unless the value is valid.

func (v *validator) add(err *field.Error) { v.errs = append(v.errs, err) }

func (v *validator) invalid(name string, value any, format string, args ...any) {
	v.add(field.Invalid(fieldPath(name), value, fmt.Sprintf(format, args...)))
}

// fieldPath returns the path of a field that is named with dots, such as "logging.format".
func fieldPath(name string) *field.Path {
	names := strings.Split(name, ".")
	return field.NewPath(names[0], names[1:]...)
}

// oneOf checks that a value is in a list.
func (v *validator) oneOf(name, value string, allowed ...string) {
	if !slices.Contains(allowed, value) {
		v.add(field.NotSupported(fieldPath(name), value, allowed))
	}
}

func (v *validator) inRange(name string, value, least, most int64) {
	if value < least || value > most {
		v.invalid(name, value, "must be between %d and %d", least, most)
	}
}

func (v *validator) atLeast(name string, value, least int64) {
	if value < least {
		v.invalid(name, value, "must be at least %d", least)
	}
}

func (v *validator) durationWithin(name string, d metav1.Duration, least, most time.Duration) {
	if d.Duration < least || d.Duration > most {
		v.invalid(name, d.Duration.String(), "must be between %v and %v", least, most)
	}
}

func (v *validator) durationAtLeast(name string, d metav1.Duration, least time.Duration) {
	if d.Duration < least {
		v.invalid(name, d.Duration.String(), "must be at least %v", least)
	}
}

func (v *validator) durationPositive(name string, d metav1.Duration) {
	if d.Duration <= 0 {
		v.invalid(name, d.Duration.String(), "must be more than 0")
	}
}

func (v *validator) ip(name, value string) {
	if _, err := netip.ParseAddr(value); err != nil {
		v.invalid(name, value, "must be an IP address")
	}
}

// absolute checks that a path is absolute or empty.
func (v *validator) absolute(name, value string) {
	if value != "" && !path.IsAbs(value) {
		v.invalid(name, value, "must be an absolute path")
	}
}

// endpoint checks the address of the runtime, which is a Unix socket on Linux.
func (v *validator) endpoint(name, value string) {
	socket, isURL := strings.CutPrefix(value, "unix://")
	if !path.IsAbs(socket) {
		v.invalid(name, value, "must be a Unix socket, as unix:///run/containerd/containerd.sock")
	} else if !isURL && strings.Contains(value, "://") {
		v.invalid(name, value, "must have the scheme unix")
	}
}

// quantity checks that a value is a quantity that is not negative.
func (v *validator) quantity(p *field.Path, value string) {
	if q, err := document.ParseQuantity(value); err != nil {
		v.add(field.Invalid(p, value, "must be a quantity, as 500Mi"))
	} else if q.Sign() < 0 {
		v.add(field.Invalid(p, value, "must not be negative"))
	}
}

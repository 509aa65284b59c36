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

// The checks that rules are made of. Each takes the path of a field and its value, and adds an
// error unless the value is good.

func (v *rules) add(err *field.Error) { v.errs = append(v.errs, err) }

func (v *rules) wrong(name string, value any, format string, args ...any) {
	v.add(field.Invalid(at(name), value, fmt.Sprintf(format, args...)))
}

// at makes a path of a name with dots, as "logging.format".
func at(name string) *field.Path {
	names := strings.Split(name, ".")
	return field.NewPath(names[0], names[1:]...)
}

// oneOf checks a value against the closed list of those that are allowed.
func (v *rules) oneOf(name, value string, allowed ...string) {
	if !slices.Contains(allowed, value) {
		v.add(field.NotSupported(at(name), value, allowed))
	}
}

func (v *rules) within(name string, value, least, most int64) {
	if value < least || value > most {
		v.wrong(name, value, "must be between %d and %d", least, most)
	}
}

func (v *rules) atLeast(name string, value, least int64) {
	if value < least {
		v.wrong(name, value, "must be at least %d", least)
	}
}

func (v *rules) durationWithin(name string, d metav1.Duration, least, most time.Duration) {
	if d.Duration < least || d.Duration > most {
		v.wrong(name, d.Duration.String(), "must be between %v and %v", least, most)
	}
}

func (v *rules) durationAtLeast(name string, d metav1.Duration, least time.Duration) {
	if d.Duration < least {
		v.wrong(name, d.Duration.String(), "must be at least %v", least)
	}
}

func (v *rules) durationPositive(name string, d metav1.Duration) {
	if d.Duration <= 0 {
		v.wrong(name, d.Duration.String(), "must be more than 0")
	}
}

func (v *rules) ip(name, value string) {
	if _, err := netip.ParseAddr(value); err != nil {
		v.wrong(name, value, "must be an IP address")
	}
}

// absolute checks a path that may be empty.
func (v *rules) absolute(name, value string) {
	if value != "" && !path.IsAbs(value) {
		v.wrong(name, value, "must be an absolute path")
	}
}

// endpoint checks the address of a runtime: a Unix socket is all there is on Linux.
func (v *rules) endpoint(name, value string) {
	socket, isURL := strings.CutPrefix(value, "unix://")
	if !path.IsAbs(socket) {
		v.wrong(name, value, "must be a Unix socket, as unix:///run/containerd/containerd.sock")
	} else if !isURL && strings.Contains(value, "://") {
		v.wrong(name, value, "must have the scheme unix")
	}
}

// quantity checks an amount.
func (v *rules) quantity(p *field.Path, value string) {
	if q, err := document.ParseQuantity(value); err != nil {
		v.add(field.Invalid(p, value, "must be a quantity, as 500Mi"))
	} else if q.Sign() < 0 {
		v.add(field.Invalid(p, value, "must not be negative"))
	}
}

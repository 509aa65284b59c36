package plugins

import (
	"cmp"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/version"

	"seedlet.dev/core/budget"
	"seedlet.dev/world"
)

// The bounds of what is kept of an answer.
const (
	endpointMax = 4096 // of a path (PATH_MAX)
	versionsMax = 64   // that a driver supports
	versionMax  = 64
	shownMax    = 64   // of what is wrong, in a refusal
	refusalMax  = 1024 // of a refusal
)

// check returns the answer of a plugin, checked, and the plugin if it is refused because another
// one holds its name.
func (r *Registry) check(path string, info *world.PluginInfo) (answer *Answer, heldBack *Plugin) {
	switch info.Type {
	case world.PluginTypeCSI:
	case world.PluginTypeDevice, world.PluginTypeDRA:
		return refuse("RegisterPlugin error -- plugins of type %s are not supported by seedlet yet, "+
			"at socket %s", info.Type, path), nil
	default:
		return refuse("RegisterPlugin error -- no handler registered for plugin type: %s at socket %s",
			budget.Cut(info.Type, shownMax), path), nil
	}
	p := Plugin{Type: info.Type, Name: info.Name, Endpoint: cmp.Or(info.Endpoint, path)}
	err := checkDriver(&p, info.Versions)
	if err == nil {
		if holder := r.holderOf(&p); holder != "" {
			heldBack = &p
			err = fmt.Errorf("another driver of this name is registered with version %s, at socket %s",
				r.Sockets[holder].Answer.Plugin.Version, holder)
		}
	}
	if err != nil {
		return refuse("RegisterPlugin error -- plugin validation failed with err: validation failed "+
			"for CSI Driver %s at endpoint %s: %v", budget.Cut(info.Name, shownMax),
			budget.Cut(p.Endpoint, 4*shownMax), err), heldBack
	}
	return &Answer{Plugin: p}, nil
}

func refuse(format string, args ...any) *Answer {
	return &Answer{Refusal: budget.Cut(fmt.Sprintf(format, args...), refusalMax)}
}

// checkDriver checks the answer of a CSI driver, and sets the version that it is used with: the
// highest 1.x (validateVersions in pkg/volume/csi). A kubelet learns of an invalid name when it
// writes the CSINode.
func checkDriver(p *Plugin, versions []string) error {
	if len(p.Name) > world.CSIDriverNameMax {
		return fmt.Errorf("the name has %d characters, and may have %d", len(p.Name),
			world.CSIDriverNameMax)
	}
	if wrong := validation.IsDNS1123Subdomain(strings.ToLower(p.Name)); len(wrong) > 0 {
		return fmt.Errorf("the name %q is invalid: %s", p.Name, strings.Join(wrong, ", "))
	}
	if len(p.Endpoint) > endpointMax || strings.ContainsRune(p.Endpoint, 0) {
		return fmt.Errorf("the endpoint is no path of at most %d bytes", endpointMax)
	}
	if n := len(versions); n == 0 || n > versionsMax {
		return fmt.Errorf("the list of supported versions has %d entries, want 1 to %d", n, versionsMax)
	}
	highest, err := version.HighestSupportedVersion(versions)
	if err != nil {
		return fmt.Errorf("none of the versions is supported: %w", err)
	}
	if p.Version = highest.String(); len(p.Version) > versionMax {
		return fmt.Errorf("the version has more than %d characters", versionMax)
	}
	return nil
}

// holderOf returns which socket holds the name of a plugin that does not, with the same version or
// a higher one; empty if none does. A higher version replaces a lower one, as two may run while a
// driver is updated.
func (r *Registry) holderOf(p *Plugin) string {
	for _, other := range r.paths() {
		s := r.Sockets[other]
		if s.holdsName() && compareNames(s.Answer.Plugin, *p) == 0 &&
			!isLower(s.Answer.Plugin.Version, p.Version) {
			return other
		}
	}
	return ""
}

// isLower reports whether a version is lower than another one. Both have been parsed before.
func isLower(x, y string) bool {
	return version.MustParseGeneric(x).LessThan(version.MustParseGeneric(y))
}

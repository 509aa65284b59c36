// Package config reads the kubelet's configuration file (KubeletConfiguration v1beta1) and its
// drop-ins, and returns the configuration of the agent.
//
// The order is fixed, and the kubelet's: Load decodes and merges the files, and adds defaults; the
// caller applies the flags that the user has set to Loaded.Config; Finish validates. The package
// opens no files; the caller reads them. Start reading at Load and Finish. The tables are in
// fields.go (what has an effect), defaults.go, validate.go and gatetable.go.
package config

import (
	"encoding/json"
	"fmt"
	"path"
	"strings"

	kubeletconfigv1beta1 "k8s.io/kubelet/config/v1beta1"

	"seedlet.dev/core/document"
)

const (
	apiVersion = "kubelet.config.k8s.io/v1beta1"
	kind       = "KubeletConfiguration"
)

// File is a configuration file that the caller has read.
type File struct {
	Name string // the path; its directory is the base of relative paths in the file
	Data []byte
}

// Loaded is a configuration that was loaded from files.
type Loaded struct {
	// Config has the fields that the files set, and defaults for the others.
	Config *kubeletconfigv1beta1.KubeletConfiguration
	// Warnings are for the operator at start-up, one line each.
	Warnings []string
}

// Load decodes base, and merges the drop-ins over it in the order given, which is that of their
// names. Without base there are the defaults that kubelets had before they had a file, and the
// drop-ins change those. A value of the wrong type or another kind is an error of one line that
// names the file and the field. An unknown field and a duplicate key are warnings: a file may be
// for a later release. Only in a drop-in a duplicate key is an error, as for the kubelet. Gates are
// the feature gates of the command line: defaults follow from them unless the file sets them.
// Beside an error it returns the warnings until then.
func Load(base *File, dropIns []File, gates map[string]bool) (*Loaded, error) {
	l := &Loaded{Config: &kubeletconfigv1beta1.KubeletConfiguration{}}
	if base != nil {
		fields, err := l.decodeFile(*base)
		if err != nil {
			return l, err
		}
		if l.Config, err = decodeMerged(fields); err != nil {
			return l, fmt.Errorf("%s: %w", base.Name, err)
		}
	}
	SetMissingGates(l.Config, gates)
	SetDefaults(l.Config)
	if base == nil {
		setLegacyDefaults(l.Config)
	}
	if len(dropIns) == 0 {
		return l, nil
	}
	return l, l.merge(dropIns)
}

// merge merges drop-ins over the configuration, which has its defaults already: a default that
// depends on another field depends on that of the base file, as it does for the kubelet.
func (l *Loaded) merge(dropIns []File) error {
	var merged map[string]any
	text, err := json.Marshal(l.Config)
	if err == nil {
		err = json.Unmarshal(text, &merged)
	}
	if err != nil {
		return err
	}
	for _, file := range dropIns {
		if _, err := document.Parse(file.Data); err != nil {
			return fmt.Errorf("%s: %w", file.Name, err)
		}
		patch, err := l.decodeFile(file)
		if err != nil {
			return err
		}
		mergePatch(merged, patch)
	}
	config, err := decodeMerged(merged)
	if err != nil {
		return fmt.Errorf("merging configuration files: %w", err)
	}
	if config.EvictionHard == nil { // taken away, so the defaults do not come back
		config.EvictionHard = map[string]string{}
	}
	setDefaults(config)
	l.Config = config
	return nil
}

// Finish validates a configuration with its flags, and adds warnings of what is set without effect.
// The error is one line that names every invalid field.
func (l *Loaded) Finish() error {
	l.Warnings = append(l.Warnings, gateWarnings(l.Config)...)
	if texts := immaterialFields(l.Config); len(texts) > 0 {
		l.Warnings = append(l.Warnings, "configuration fields that are set and have no effect: "+
			strings.Join(texts, ", "))
	}
	if thresholds := containerfsThresholds(l.Config); len(thresholds) > 0 {
		l.Warnings = append(l.Warnings, "thresholds that are set but have no effect: "+
			strings.Join(thresholds, ", ")+": the writable layers of containers have those of the node's "+
			"file system, or of the images' if they are on it")
	}
	if isOpen(l.Config) {
		l.Warnings = append(l.Warnings, fmt.Sprintf("authentication.anonymous and authorization.mode: "+
			"any client that reaches port %d can run commands in every container of the node",
			l.Config.Port))
	}
	if own, around := l.Config.KubeletCgroups, l.Config.KubeReservedCgroup; own != "" &&
		!strings.HasPrefix(own, around) {
		l.Warnings = append(l.Warnings, fmt.Sprintf("kubeletCgroups: %s is not in kubeReservedCgroup, "+
			"%s: what the agent uses does not count there", own, around))
	}
	if strings.HasPrefix(strings.ToLower(l.Config.StaticPodURL), "http://") {
		l.Warnings = append(l.Warnings, "staticPodURL: the connection is not encrypted: whoever is "+
			"on the path to the server can run anything on this node")
	}
	if errs := Validate(l.Config); len(errs) > 0 {
		return fmt.Errorf("invalid configuration: %w", errs.ToAggregate())
	}
	setGatesOfStages(l.Config)
	return nil
}

// isOpen reports whether the secure port accepts every request, as by the defaults without a file.
func isOpen(c *configuration) bool {
	return *c.EnableServer && *c.EnableDebuggingHandlers && *c.Authentication.Anonymous.Enabled &&
		c.Authorization.Mode == kubeletconfigv1beta1.KubeletAuthorizationModeAlwaysAllow
}

// decodeFile decodes one file, and returns its fields in the form that files are merged in. What is
// not as a strict decoder wants it becomes a warning.
func (l *Loaded) decodeFile(file File) (map[string]any, error) {
	doc, problem, err := document.ParseLeniently(file.Data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file.Name, err)
	}
	if doc == nil {
		return nil, fmt.Errorf("%s: the file is empty, want kind %s", file.Name, kind)
	}
	if problem != "" {
		l.Warnings = append(l.Warnings, fmt.Sprintf("%s: %s: the last value counts, of the first "+
			"document", file.Name, problem))
	}
	var config kubeletconfigv1beta1.KubeletConfiguration
	unknown, err := document.Decode(doc, &config)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s: %w", file.Name, err)
	case config.APIVersion != apiVersion || config.Kind != kind:
		return nil, fmt.Errorf("%s: want apiVersion %s, kind %s; have apiVersion %q, kind %q",
			file.Name, apiVersion, kind, config.APIVersion, config.Kind)
	case len(unknown) > 0:
		l.Warnings = append(l.Warnings, fmt.Sprintf("%s: unknown fields, which are ignored: %s",
			file.Name, strings.Join(unknown, ", ")))
	}
	var fields map[string]any
	if err := json.Unmarshal(doc, &fields); err != nil {
		return nil, fmt.Errorf("%s: %w", file.Name, err)
	}
	makeAbsolute(fields, path.Dir(file.Name))
	return fields, nil
}

// decodeMerged decodes the merged files.
func decodeMerged(fields map[string]any) (*kubeletconfigv1beta1.KubeletConfiguration, error) {
	doc, err := json.Marshal(fields)
	if err != nil {
		return nil, err
	}
	config := &kubeletconfigv1beta1.KubeletConfiguration{}
	_, err = document.Decode(doc, config)
	return config, err
}

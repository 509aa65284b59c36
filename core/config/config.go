// Package config reads the kubelet's configuration file (KubeletConfiguration v1beta1) and its
// drop-ins, and makes of them the configuration that the agent runs with.
//
// The order is fixed: Load reads and merges the files; the caller puts the flags that the user
// has set over Loaded.Config; Finish adds defaults and validates. The package opens no files, so
// the caller reads them. Start reading at Load and Finish; the facts are in the tables of
// defaults.go, validate.go and inert.go.
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
	Name string // its path; relative paths in the file start at its directory
	Data []byte
}

// Loaded is a configuration on its way from files to the agent.
type Loaded struct {
	// Config is what the files say and nothing else, until Finish adds the defaults.
	Config *kubeletconfigv1beta1.KubeletConfiguration
	// Warnings are what the operator should read at start-up, one line each. Set by Finish.
	Warnings []string
}

// Load reads base, which may be nil, and merges the drop-ins over it in the order given, which
// should be that of their names. An unknown field, a duplicate key, a value of the wrong type or
// a foreign kind is an error of one line that names the file and the field.
func Load(base *File, dropIns []File) (*Loaded, error) {
	merged := map[string]any{"apiVersion": apiVersion, "kind": kind}
	if base != nil {
		var err error
		if merged, err = read(*base); err != nil {
			return nil, err
		}
	}
	for _, file := range dropIns {
		over, err := read(file)
		if err != nil {
			return nil, err
		}
		if base != nil {
			keepDefaultThresholds(merged, over)
		}
		mergePatch(merged, over)
	}
	config, err := typed(merged)
	if err != nil {
		return nil, fmt.Errorf("merging configuration files: %w", err)
	}
	return &Loaded{Config: config}, nil
}

// Finish makes a loaded configuration ready for use: it notes what will have no effect, adds the
// defaults and validates. The error is one line with every field that is wrong.
func (l *Loaded) Finish() error {
	if inert := Inert(l.Config); len(inert) > 0 {
		l.Warnings = append(l.Warnings, "configuration fields that are set but have no effect yet: "+
			strings.Join(inert, ", "))
	}
	SetDefaults(l.Config)
	if errs := Validate(l.Config); len(errs) > 0 {
		return fmt.Errorf("invalid configuration: %w", errs.ToAggregate())
	}
	return nil
}

// read decodes one file strictly, into the form that files are merged in.
func read(file File) (map[string]any, error) {
	doc, err := document.Parse(file.Data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file.Name, err)
	}
	if doc == nil {
		return nil, fmt.Errorf("%s: the file is empty, want kind %s", file.Name, kind)
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
		return nil, fmt.Errorf("%s: unknown field %s", file.Name, strings.Join(unknown, ", "))
	}
	var fields map[string]any
	if err := json.Unmarshal(doc, &fields); err != nil {
		return nil, fmt.Errorf("%s: %w", file.Name, err)
	}
	makeAbsolute(fields, path.Dir(file.Name))
	return fields, nil
}

// typed turns merged files into a configuration.
func typed(fields map[string]any) (*kubeletconfigv1beta1.KubeletConfiguration, error) {
	doc, err := json.Marshal(fields)
	if err != nil {
		return nil, err
	}
	config := &kubeletconfigv1beta1.KubeletConfiguration{}
	_, err = document.Decode(doc, config)
	return config, err
}

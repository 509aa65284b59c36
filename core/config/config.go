// Package config reads the kubelet's configuration file (KubeletConfiguration v1beta1) and its
// drop-ins, and returns the configuration of the agent.
//
// The order is fixed: Load decodes and merges the files; the caller applies the flags that the user
// has set to Loaded.Config; Finish adds defaults and validates. The package opens no files; the
// caller reads them. Start reading at Load and Finish. The tables of fields are in defaults.go,
// validate.go and ineffective.go.
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
	// Config has the fields that the files set; Finish adds the defaults.
	Config *kubeletconfigv1beta1.KubeletConfiguration
	// Warnings are for the operator at start-up, one line each. Finish sets them.
	Warnings []string
}

// Load decodes base, which may be nil, and merges the drop-ins over it in the order given, which is
// that of their names. An unknown field, a duplicate key, a value of the wrong type or another kind
// is an error of one line that names the file and the field.
func Load(base *File, dropIns []File) (*Loaded, error) {
	merged := map[string]any{"apiVersion": apiVersion, "kind": kind}
	if base != nil {
		var err error
		if merged, err = decodeFile(*base); err != nil {
			return nil, err
		}
	}
	for _, file := range dropIns {
		patch, err := decodeFile(file)
		if err != nil {
			return nil, err
		}
		if base != nil {
			addDefaultThresholds(merged, patch)
		}
		mergePatch(merged, patch)
	}
	config, err := decodeMerged(merged)
	if err != nil {
		return nil, fmt.Errorf("merging configuration files: %w", err)
	}
	return &Loaded{Config: config}, nil
}

// Finish completes a loaded configuration: it warns of fields without effect, adds the defaults and
// validates. The error is one line that names every invalid field.
func (l *Loaded) Finish() error {
	if fields := IneffectiveFields(l.Config); len(fields) > 0 {
		l.Warnings = append(l.Warnings, "configuration fields that are set but have no effect yet: "+
			strings.Join(fields, ", "))
	}
	if thresholds := containerfsThresholds(l.Config); len(thresholds) > 0 {
		l.Warnings = append(l.Warnings, "thresholds that are set but have no effect: "+
			strings.Join(thresholds, ", ")+": the writable layers of containers have those of the node's "+
			"file system, or of the images' if they are on it")
	}
	if strings.HasPrefix(strings.ToLower(l.Config.StaticPodURL), "http://") {
		l.Warnings = append(l.Warnings, "staticPodURL: the connection is not encrypted: whoever is "+
			"on the path to the server can run anything on this node")
	}
	SetDefaults(l.Config)
	if errs := Validate(l.Config); len(errs) > 0 {
		return fmt.Errorf("invalid configuration: %w", errs.ToAggregate())
	}
	return nil
}

// decodeFile decodes one file strictly, and returns its fields in the form that files are merged
// in.
func decodeFile(file File) (map[string]any, error) {
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

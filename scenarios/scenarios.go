// Package scenarios holds the scenario files, and the plans of every run that ever failed. It is
// data; see README.md for what is in a file.
package scenarios

import "embed"

// Files are the scenario files, *.yaml, and what they refer to.
//
//go:embed *.yaml
var Files embed.FS

// Bugs are the plans that once failed, bugs/*.yaml.
//
//go:embed bugs
var Bugs embed.FS

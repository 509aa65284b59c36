// Package scenarios embeds the scenario files, and the plans of runs that failed because of bugs
// that are fixed now. The formats are those of sim/plan: a new scenario is a new file here, whose
// fields are described at plan.ScenarioSpec.
package scenarios

import "embed"

// Files are the scenario files.
//
//go:embed *.yaml
var Files embed.FS

// Bugs are the plans that once failed, bugs/*.yaml. Each begins with a comment that describes the
// bug.
//
//go:embed bugs
var Bugs embed.FS

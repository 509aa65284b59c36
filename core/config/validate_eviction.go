package config

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// evictionSignals are the signals that can have thresholds.
var evictionSignals = []string{
	"allocatableMemory.available", "containerfs.available", "containerfs.inodesFree",
	"imagefs.available", "imagefs.inodesFree", "memory.available", "nodefs.available",
	"nodefs.inodesFree", "pid.available",
}

// containerfsThresholds returns the thresholds of a configuration for the file system of writable
// layers, by field and signal. They are ignored: the kubelet replaces them in the same way, with a
// warning (UpdateContainerFsThresholds in pkg/kubelet/eviction/helpers.go).
func containerfsThresholds(c *configuration) []string {
	var ignored []string
	for _, thresholds := range []struct {
		field  string
		values map[string]string
	}{{"evictionHard", c.EvictionHard}, {"evictionSoft", c.EvictionSoft},
		{"evictionMinimumReclaim", c.EvictionMinimumReclaim}} {
		for _, signal := range slices.Sorted(maps.Keys(thresholds.values)) {
			if strings.HasPrefix(signal, "containerfs.") {
				ignored = append(ignored, thresholds.field+"["+signal+"]")
			}
		}
	}
	return ignored
}

// checkEviction checks the thresholds: a quantity or a percentage for each signal.
func (v *validator) checkEviction() {
	c := v.config
	v.checkThresholds("evictionHard", c.EvictionHard)
	v.checkThresholds("evictionSoft", c.EvictionSoft)
	v.checkThresholds("evictionMinimumReclaim", c.EvictionMinimumReclaim)
	for _, signal := range slices.Sorted(maps.Keys(c.EvictionSoft)) {
		if _, ok := c.EvictionSoftGracePeriod[signal]; !ok {
			v.add(field.Required(fieldPath("evictionSoftGracePeriod").Key(signal),
				"every soft threshold needs a grace period"))
		}
	}
	for _, signal := range slices.Sorted(maps.Keys(c.EvictionSoftGracePeriod)) {
		text := c.EvictionSoftGracePeriod[signal]
		p := fieldPath("evictionSoftGracePeriod").Key(signal)
		if !slices.Contains(evictionSignals, signal) {
			v.add(field.NotSupported(p, signal, evictionSignals))
		}
		if d, err := time.ParseDuration(text); err != nil || d < 0 {
			v.add(field.Invalid(p, text, "must be a duration that is not negative, as 90s"))
		}
	}
	v.durationPositive("evictionPressureTransitionPeriod", c.EvictionPressureTransitionPeriod)
}

func (v *validator) checkThresholds(name string, thresholds map[string]string) {
	for _, signal := range slices.Sorted(maps.Keys(thresholds)) {
		p := fieldPath(name).Key(signal)
		if !slices.Contains(evictionSignals, signal) {
			v.add(field.NotSupported(p, signal, evictionSignals))
			continue
		}
		percent, isPercent := strings.CutSuffix(thresholds[signal], "%")
		if !isPercent {
			v.quantity(p, thresholds[signal])
			continue
		}
		if n, err := strconv.ParseFloat(percent, 64); err != nil || !(n >= 0 && n <= 100) {
			v.add(field.Invalid(p, thresholds[signal], "must be between 0% and 100%"))
		}
	}
}

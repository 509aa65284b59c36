package config

import (
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"seedlet.dev/core/document"
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
	const threshold = "must be a positive quantity, as 500Mi, or between 0% and 100%"
	v.checkAmounts("evictionHard", c.EvictionHard, isThreshold, threshold)
	v.checkAmounts("evictionSoft", c.EvictionSoft, isThreshold, threshold)
	v.checkAmounts("evictionMinimumReclaim", c.EvictionMinimumReclaim, isMinimumReclaim,
		"must be a quantity that is not negative, as 500Mi, or more than 0%")
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

// checkAmounts checks the signals of a field, and that each has an amount that is right.
func (v *validator) checkAmounts(name string, amounts map[string]string,
	isRight func(text string) bool, want string) {
	for _, signal := range slices.Sorted(maps.Keys(amounts)) {
		p := fieldPath(name).Key(signal)
		switch {
		case !slices.Contains(evictionSignals, signal):
			v.add(field.NotSupported(p, signal, evictionSignals))
		case !isRight(amounts[signal]):
			v.add(field.Invalid(p, amounts[signal], want))
		}
	}
}

// isThreshold reports whether a text is a threshold: a share, of which 0% and 100% mean none, or a
// quantity that is not zero (parseThresholdStatement in pkg/kubelet/eviction/helpers.go).
func isThreshold(text string) bool {
	percent, sign := amountOf(text)
	return percent >= 0 && percent <= 100 || sign > 0
}

// isMinimumReclaim reports whether a text is an amount to reclaim beyond a threshold: a share above
// zero, or any quantity that is not negative (parseMinimumReclaims, in the same file).
func isMinimumReclaim(text string) bool {
	percent, sign := amountOf(text)
	return percent > 0 && percent < math.Inf(1) || sign >= 0
}

// amountOf returns the percentage of a share, or the sign of a quantity. The other one, and both of
// a text that is neither, are not a number and -1.
func amountOf(text string) (percent float64, sign int) {
	if share, isShare := strings.CutSuffix(text, "%"); isShare {
		percent, err := strconv.ParseFloat(share, 64)
		if err != nil {
			percent = math.NaN()
		}
		return percent, -1
	}
	q, err := document.ParseQuantity(text)
	if err != nil {
		return math.NaN(), -1
	}
	return math.NaN(), q.Sign()
}

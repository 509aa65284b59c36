package selinux

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Canonical returns a label as the mount table has it (mls_sid_to_context in
// security/selinux/ss/mls.c of Linux): its categories are sorted, three or more in a row are a
// range, and a range of one level is that level. A label of another form is returned as it is.
func Canonical(label string) string {
	parts := strings.SplitN(label, ":", 4) // user, role, type, level
	if len(parts) < 4 {
		return label
	}
	low, high, isRange := strings.Cut(parts[3], "-")
	low, ok := canonicalLevel(low)
	if isRange && ok {
		if high, ok = canonicalLevel(high); high != low {
			low += "-" + high
		}
	}
	if !ok {
		return label
	}
	return strings.Join(append(parts[:3], low), ":")
}

// categoriesMax is more than the 1024 categories of the usual policies.
const categoriesMax = 4096

// canonicalLevel returns a sensitivity with its categories.
func canonicalLevel(level string) (text string, ok bool) {
	text, categories, hasCategories := strings.Cut(level, ":")
	if !hasCategories {
		return text, true
	}
	var has []int
	for part := range strings.SplitSeq(categories, ",") {
		first, last, isRange := strings.Cut(part, ".")
		from, okFrom := category(first)
		to, okTo := from, true
		if isRange {
			to, okTo = category(last)
		}
		if !okFrom || !okTo || to < from {
			return "", false
		}
		for c := from; c <= to; c++ {
			has = append(has, c)
		}
		if len(has) > categoriesMax {
			return "", false
		}
	}
	slices.Sort(has)
	separator := ":"
	for has = slices.Compact(has); len(has) > 0; separator = "," {
		n := 1
		for n < len(has) && has[n] == has[0]+n {
			n++
		}
		text += fmt.Sprintf("%sc%d", separator, has[0])
		switch {
		case n == 2:
			text += fmt.Sprintf(",c%d", has[1])
		case n > 2:
			text += fmt.Sprintf(".c%d", has[n-1])
		}
		has = has[n:]
	}
	return text, true
}

// category returns the number of a category, as c12.
func category(name string) (number int, ok bool) {
	digits, isCategory := strings.CutPrefix(name, "c")
	number, err := strconv.Atoi(digits)
	return number, isCategory && err == nil && number >= 0 && number < categoriesMax
}

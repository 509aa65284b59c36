#!/bin/bash
# Runs every fuzz target of the checkout, one after the other: hack/fuzz.sh 20s
set -euo pipefail
cd "$(dirname "$0")/.."
time=${1:?the duration of each target, as in 20s}
for package in $(hack/packages-with.sh Fuzz); do
	for target in $(grep -hoE '^func Fuzz[A-Za-z0-9_]+' "$package"/*_test.go | sed 's/^func //'); do
		echo "== $package $target"
		go test -run '^$' -fuzz "^$target\$" -fuzztime "$time" -fuzzminimizetime 1s "$package"
	done
done

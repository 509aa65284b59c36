#!/bin/bash
# Prints the packages with test functions of a prefix: hack/packages-with.sh Benchmark
set -euo pipefail
cd "$(dirname "$0")/.."
grep -rlE --include='*_test.go' "^func $1[A-Z]" cmd core realworld scenarios sim world 2>/dev/null |
	xargs -r -n1 dirname | sort -u | sed 's|^|./|'

#!/bin/bash
# What `make test` runs: set-up, vet, format, all tests, and determinism under the race detector.
# Ends with "ok", or with what failed. Each part runs even if one before it failed, so that one
# run tells everything.
set -euo pipefail
cd "$(dirname "$0")/.."

# Property tests draw the same at every run, so that one commit has one verdict.
export RAPID_SEED=${RAPID_SEED:-1} RAPID_NOFAILFILE=${RAPID_NOFAILFILE:-true}

failed=()
log=$(mktemp)
trap 'rm -f "$log" "$log.race"' EXIT

# part NAME COMMAND... runs a part and notes whether it failed.
part() {
	local name=$1
	shift
	echo "== $name"
	"$@" || failed+=("$name")
}

setup() {
	go build -o .cache/playground ./cmd/playground && .cache/playground setup
}

unformatted() {
	local files
	files=$(gofmt -l $(git ls-files --cached --others --exclude-standard '*.go'))
	[[ -z $files ]] || { echo "not in gofmt's form:"; echo "$files"; return 1; }
}

# quiet drops what go test -v says about tests that passed. What stays: failures with their
# output, each skipped test with its reason, and a line for each package.
quiet() {
	awk '
		/^=== RUN +[^\/]+$/ { held = "" }
		/^=== / || /^PASS$/ || /^ *--- PASS/ || /\[no test files\]$/ { next }
		/^ +[A-Za-z0-9_]+\.go:[0-9]+: / { held = held $0 "\n"; next }
		/^        / && held != "" { held = held $0 "\n"; next } # it goes on
		/^ *--- (FAIL|SKIP)/ { printf "%s", held; held = "" }
		{ print }
	'
}

# Never from the cache: the real-runtime tests depend on more than Go knows of. Two packages at a
# time, for they share two cores and each starts a runtime.
tests() {
	go test -count=1 -timeout 20m -p 2 -v ./... 2>&1 | tee "$log" | quiet
}

# The race detector needs a C compiler, and so does not come with Go alone.
race() {
	if ! command -v "${CC:-gcc}" >/dev/null; then
		echo "skipped: the race detector needs a C compiler, there is no ${CC:-gcc}"
		return
	fi
	CGO_ENABLED=1 go test -count=1 -timeout 15m -race -short -v -run Determinis ./sim/... 2>&1 |
		tee "$log.race" | quiet || return 1
	grep -q '^--- PASS: Test.*Determinis' "$log.race" ||
		{ echo 'no test named *Determinis* passed in sim/'; return 1; }
}

part set-up setup
part vet go vet ./...
part format unformatted
part tests tests
part race race

if ((${#failed[@]} == 0)); then
	echo "skipped tests: $(grep -c -- '^ *--- SKIP' "$log" || true)"
	echo ok
	exit 0
fi
echo "failed: ${failed[*]}"
grep -E '^ *--- FAIL|^FAIL' "$log" | sort -u || true
exit 1

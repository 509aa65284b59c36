#!/bin/bash
# The steps of `make test`: set-up, vet, format, all tests, and determinism under the race detector.
# The last line is "ok" or the names of the failed steps. A step runs even if an earlier one failed,
# so that one run finds all failures. hack/testoutput says what tests print, and what is under way.
set -euo pipefail
cd "$(dirname "$0")/.."

# Property tests use the same seed in every run, so that a commit either passes or fails.
export RAPID_SEED=${RAPID_SEED:-1} RAPID_NOFAILFILE=${RAPID_NOFAILFILE:-true}

# One in ten of the mutants of the simulator's tests; all of them with MUTANTS=all.
export MUTANTS=${MUTANTS:-sample}

# One in three of the parts of TestPods on the older containerd; all of them with RUNTIMES=all.
export RUNTIMES=${RUNTIMES:-sample}

failed=()

# step NAME COMMAND... runs a step and records whether it failed.
step() {
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
	files=$(git ls-files --cached --others --exclude-standard -z '*.go' | xargs -0 gofmt -l --) || return 1
	[[ -z $files ]] || { echo "not formatted with gofmt:"; echo "$files"; return 1; }
}

# A package that hangs ends with a trace of its goroutines well before CI's limit of 90 minutes.
# The longest one, sim, takes 15 minutes on two cores, and several times as long beside other load.
limit=75m

# -count=1 disables the test cache, because tests on a real runtime depend on more than their inputs
# in Go. -p 2, because each package starts a runtime, and all of them share two cores. The two longest
# packages come first, beside each other: one computes, the other one waits. A tenth of the processor
# time goes into 130 test binaries: they are vetted above, and need no tables for a debugger.
tests() {
	go build -o .cache/testoutput ./hack/testoutput || return 1
	go test -json -count=1 -timeout "$limit" -exec "$PWD/hack/run-test.sh" -p 2 \
		-vet=off -ldflags='-s -w' ./sim ./realworld/nodetest/e2e ./... |
		.cache/testoutput
}

# The driver of the browser is a dependency of a module of its own.
browser() {
	(cd sim/report/browser && go vet . && go test -json -count=1 -timeout "$limit" .) | .cache/testoutput
}

# The conformance suite of CSI drivers is a dependency of a module of its own, too. It says itself how
# many of its specs passed, and which were skipped.
sanity() {
	local out
	if ! out=$(cd realworld/csi/sanity && go vet . && go test -v -count=1 -timeout "$limit" . 2>&1); then
		echo "$out"
		return 1
	fi
	grep -E '^csi-sanity|SKIP' <<<"$out"
}

# The race detector needs a C compiler, which is not part of Go: set-up installs gcc.
race() {
	if ! command -v "${CC:-gcc}" >/dev/null; then
		echo "the race detector needs a C compiler: there is no ${CC:-gcc}"
		return 1
	fi
	local packages
	packages=$(grep -rlE --include='*_test.go' '^func Test.*Determinis' sim | xargs -n1 dirname |
		sort -u | sed 's|^|./|')
	CGO_ENABLED=1 go test -json -count=1 -timeout "$limit" -race -short -run Determinis \
		$packages |
		.cache/testoutput -require Determinis
}

step set-up setup
# Without the folder in what is compiled, a clean clone uses what another one has compiled. Set-up is
# before that: it would compile Kubernetes once more.
export GOFLAGS=-trimpath
step vet go vet ./...
step format unformatted
step tests tests
step browser browser
step sanity sanity
step race race

if ((${#failed[@]} == 0)); then
	echo ok
	exit 0
fi
echo "failed: ${failed[*]}"
exit 1

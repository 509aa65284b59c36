#!/bin/bash
# Runs a test binary, as go test -exec does. What computes yields to tests of real runtimes, API
# servers and processes, whose timeouts go on while they wait for a processor, and collects garbage
# less often: runs of the simulator take two thirds of the processor time then. Processes keep their
# own setting, since what they use is measured.
set -euo pipefail
case $PWD in
*/realworld/* | */cmd/*) exec "$@" ;;
esac
GOGC=400 exec nice -n 10 "$@"

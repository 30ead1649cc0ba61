#!/usr/bin/env bash
# Every test of the command: run_cli_tests.sh <kgen program>
set -uo pipefail
program=${1:?usage: run_cli_tests.sh <kgen program>}
status=0
for script in "$(dirname "$0")"/test_*.sh; do
    code=0
    bash "$script" "$program" || code=$?
    ((code == 0 || code == 77)) || status=1
done
exit $status

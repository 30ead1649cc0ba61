#!/usr/bin/env bash
# A test that needs torch: KGEN_ENGINE_PYTHON names a Python that has it (./run test --engines
# makes one). Without it the test is skipped.
# usage: with_torch.sh <test> [arguments]
set -euo pipefail
if [[ -z ${KGEN_ENGINE_PYTHON:-} ]]; then
    echo "skipped: needs torch; ./run test --engines"
    exit 77
fi
exec "$KGEN_ENGINE_PYTHON" -W ignore "$@"

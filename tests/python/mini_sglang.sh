#!/usr/bin/env bash
# mini-sglang on the cpu device: greedy tokens as with plain attention. KGEN_MINI_SGLANG names a checkout.
here=$(cd "$(dirname "$0")" && pwd)
if [[ -z ${KGEN_MINI_SGLANG:-} ]]; then
    echo "skipped: KGEN_MINI_SGLANG names no checkout of mini-sglang"
    exit 77
fi
exec "$here/with_torch.sh" "$here/../../examples/engines/mini_sglang/serve_mini_sglang.py" "$KGEN_MINI_SGLANG"

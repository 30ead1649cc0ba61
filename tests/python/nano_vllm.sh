#!/usr/bin/env bash
# nano-vllm on the cpu device: greedy tokens as with plain attention. KGEN_NANO_VLLM names a checkout.
here=$(cd "$(dirname "$0")" && pwd)
if [[ -z ${KGEN_NANO_VLLM:-} ]]; then
    echo "skipped: KGEN_NANO_VLLM names no checkout of nano-vllm"
    exit 77
fi
exec "$here/with_torch.sh" "$here/../../examples/engines/nano_vllm/serve_nano_vllm.py" "$KGEN_NANO_VLLM"

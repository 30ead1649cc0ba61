#!/usr/bin/env bash
# vLLM's plugin under vLLM's own classes. KGEN_VLLM names a folder with the package of vLLM 0.33 and what it imports.
here=$(cd "$(dirname "$0")" && pwd)
if [[ -z ${KGEN_VLLM:-} ]]; then
    echo "skipped: KGEN_VLLM names no folder with vLLM's package"
    exit 77
fi
exec "$here/with_torch.sh" "$here/under_vllm.py"

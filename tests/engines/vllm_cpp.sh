#!/usr/bin/env bash
# vllm.cpp on the cpu device: greedy tokens as by its own kernels. KGEN_VLLM_CPP names a checkout whose folder build has
# libvllm.a (examples/engines/vllm_cpp/build_vllm_cpp.sh says how), KGEN_VLLM_CPP_BUILD another folder.
# usage: vllm_cpp.sh <folder of libkgen>
set -euo pipefail
library=${1:?usage: vllm_cpp.sh <folder of libkgen>}
example=$(cd "$(dirname "$0")/../../examples/engines/vllm_cpp" && pwd)
if [[ -z ${KGEN_VLLM_CPP:-} ]]; then
    echo "skipped: KGEN_VLLM_CPP names no checkout of vllm.cpp"
    exit 77
fi
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
bash "$example/build_vllm_cpp.sh" "$KGEN_VLLM_CPP" "${KGEN_VLLM_CPP_BUILD:-$KGEN_VLLM_CPP/build}" "$library" "$folder/serve"
"$folder/serve" --device cpu:cdna3
if "$folder/serve" --device cpu:none; then
    echo "a device that does not exist was opened"
    exit 1
fi

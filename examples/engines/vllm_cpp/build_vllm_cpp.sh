#!/usr/bin/env bash
# Links the example with vllm.cpp and kgen.
# usage: build_vllm_cpp.sh <checkout of vllm.cpp> <its build folder> <folder of libkgen> <program to write>
#
# The build folder has libvllm.a: cmake -B <folder> -DVLLM_CPP_CUDA=OFF -DVLLM_CPP_BUILD_TESTS=OFF
# -DVLLM_CPP_BUILD_EXAMPLES=OFF -DVLLM_CPP_SERVER=OFF; cmake --build <folder> --target vllm. GCC 12 also wants
# -DCMAKE_CXX_FLAGS=-Wno-error=volatile.
set -euo pipefail
checkout=${1:?usage: build_vllm_cpp.sh <checkout> <build folder> <folder of libkgen> <program>}
build=$2 library=$3 program=$4
here=$(cd "$(dirname "$0")" && pwd)
exec "${CXX:-c++}" -std=c++20 -O1 -Wall -Wextra -I"$here/../../../include" -I"$checkout/include" -I"$build/include" \
    -isystem "$checkout/third_party" "$here/kgen_providers.cpp" "$here/serve_vllm_cpp.cpp" \
    -Wl,--whole-archive "$build/libvllm.a" -Wl,--no-whole-archive "$build/libblake3_vendored.a" \
    -L"$library" -lkgen -Wl,-rpath,"$library" -lpthread -ldl -o "$program"

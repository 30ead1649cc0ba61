/* kgen's kernels as providers of vllm.cpp's operations. */
#ifndef KGEN_EXAMPLES_ENGINES_VLLM_CPP_KGEN_PROVIDERS_H
#define KGEN_EXAMPLES_ENGINES_VLLM_CPP_KGEN_PROVIDERS_H

namespace kgen_providers {

constexpr const char *NAME = "kgen";

/* Registers the providers before vllm.cpp's own kernels of its CPU device. `device` is
 * what kgen_open takes: "cpu:cdna3". Throws where it cannot be opened. */
void install(const char *device);

} // namespace kgen_providers

#endif

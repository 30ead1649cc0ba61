/* kgen: specialised GPU kernels, generated at run time, compiled once, cached
 * by what was compiled, launched without a compiler in sight.
 *
 *   kgen_spec   which kernel             spec.h
 *   source      its text                 source.h
 *   build       its code object          build.h
 *   cache       where that is kept       cache.h
 *   tuning      what was measured        tuning.h
 *   runtime     open, prepare, launch    runtime.h, args.h
 *   capture     launches kept in files   capture.h
 *   plan        model config -> specs    plan.h
 *
 * Structs that callers fill and later versions may extend (*_options,
 * kgen_request) begin with their size:
 *
 *   kgen_open_options options = {.size = sizeof options, .device = "hip:0"};
 *
 * What is not set is 0: the default, but where a field says what it must be. A
 * library takes a shorter struct, of a program built with an earlier header, and
 * a longer one when the bytes that it does not know are 0. Everything else
 * (specs, tensors, arguments, what the library fills) is laid out by the version
 * alone.
 *
 * One rule for versions: while the major number is 0, programs and library need
 * the same major and minor number; from 1.0 on the same major number, and a
 * library not older than the headers. SONAME (libkgen.so.0.<minor>, then
 * libkgen.so.<major>) and find_package(kgen) both say that. */
#ifndef KGEN_KGEN_H
#define KGEN_KGEN_H

#include "args.h"
#include "build.h"
#include "bundle.h"
#include "cache.h"
#include "capture.h"
#include "plan.h"
#include "runtime.h"
#include "source.h"
#include "spec.h"
#include "status.h"
#include "target.h"
#include "tuning.h"

#define KGEN_VERSION "0.1.0" /* of the headers */

#ifdef __cplusplus
extern "C" {
#endif

/* Of the library that runs. Static storage. */
KGEN_API const char *kgen_version(void);

#ifdef __cplusplus
}
#endif

#endif

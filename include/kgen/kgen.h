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
 *   plan        model config -> specs    plan.h */
#ifndef KGEN_KGEN_H
#define KGEN_KGEN_H

#include "args.h"
#include "build.h"
#include "cache.h"
#include "capture.h"
#include "plan.h"
#include "runtime.h"
#include "source.h"
#include "spec.h"
#include "status.h"
#include "target.h"
#include "tuning.h"

#define KGEN_VERSION "0.1.0"

#endif

/* A kernel's shared object, loaded from memory. */
#ifndef KGEN_DEVICE_CPU_MODULE_H
#define KGEN_DEVICE_CPU_MODULE_H

#include <kgen/cache.h>

/* *module: for kgen__cpu_module_unload. *body: a lane's body (kgen__cpu_body). */
kgen_status kgen__cpu_module_load(const kgen_entry *entry, void **module, void **body,
                                  kgen_error *err);
void kgen__cpu_module_unload(void *module);

#endif

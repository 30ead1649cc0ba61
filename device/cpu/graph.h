/* What a capturing stream recorded: launches, fills, and what the graph holds. */
#ifndef KGEN_DEVICE_CPU_GRAPH_H
#define KGEN_DEVICE_CPU_GRAPH_H

#include "crew.h"

typedef struct kgen__cpu_graph kgen__cpu_graph;

kgen_status kgen__cpu_graph_create(kgen__cpu_graph **out, kgen_error *err);
void kgen__cpu_graph_free(kgen__cpu_graph *graph);
/* Copies the parameters. */
kgen_status kgen__cpu_graph_add_launch(kgen__cpu_graph *graph, const kgen__cpu_work *work,
                                       size_t params_bytes, kgen_error *err);
kgen_status kgen__cpu_graph_add_fill(kgen__cpu_graph *graph, void *dst, int value, size_t bytes,
                                     kgen_error *err);
/* gone(held) is called when the graph is freed, or at once where this fails. */
kgen_status kgen__cpu_graph_add_hold(kgen__cpu_graph *graph, void (*gone)(void *held), void *held,
                                     kgen_error *err);
kgen_status kgen__cpu_graph_run(const kgen__cpu_graph *graph, kgen__crew *crew, kgen_error *err);

#endif

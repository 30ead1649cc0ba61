/* A graph is a list of what was recorded. Running it is walking the list. */
#include "graph.h"

#include <stdlib.h>
#include <string.h>

typedef struct node {
    kgen__cpu_work work; /* work.body NULL: a fill */
    void *params;
    void (*gone)(void *held); /* not NULL: nothing runs */
    void *held;
    void *dst;
    int value;
    size_t bytes;
} node;

struct kgen__cpu_graph {
    node *nodes;
    size_t count, capacity;
};

static kgen_status no_memory(const kgen__cpu_graph *graph, kgen_error *err) {
    return kgen_fail(err, KGEN_E_NOMEM, "cpu device: no memory to record call %zu of a graph",
                     graph ? graph->count : 0);
}

kgen_status kgen__cpu_graph_create(kgen__cpu_graph **out, kgen_error *err) {
    *out = calloc(1, sizeof **out);
    return *out ? KGEN_OK : no_memory(NULL, err);
}

void kgen__cpu_graph_free(kgen__cpu_graph *graph) {
    if (!graph) return;
    for (size_t i = 0; i < graph->count; i++) {
        free(graph->nodes[i].params);
        if (graph->nodes[i].gone) graph->nodes[i].gone(graph->nodes[i].held);
    }
    free(graph->nodes);
    free(graph);
}

static node *add(kgen__cpu_graph *graph) {
    if (graph->count == graph->capacity) {
        size_t capacity = graph->capacity ? 2 * graph->capacity : 16;
        node *nodes = realloc(graph->nodes, capacity * sizeof *nodes);
        if (!nodes) return NULL;
        graph->nodes = nodes;
        graph->capacity = capacity;
    }
    return memset(&graph->nodes[graph->count++], 0, sizeof(node));
}

kgen_status kgen__cpu_graph_add_launch(kgen__cpu_graph *graph, const kgen__cpu_work *work,
                                       size_t params_bytes, kgen_error *err) {
    void *params = malloc(params_bytes ? params_bytes : 1);
    node *n = params ? add(graph) : NULL;
    if (!n) {
        free(params);
        return no_memory(graph, err);
    }
    if (params_bytes) memcpy(params, work->params, params_bytes);
    n->work = *work;
    n->work.params = n->params = params;
    return KGEN_OK;
}

kgen_status kgen__cpu_graph_add_fill(kgen__cpu_graph *graph, void *dst, int value, size_t bytes,
                                     kgen_error *err) {
    node *n = add(graph);
    if (!n) return no_memory(graph, err);
    n->dst = dst;
    n->value = value;
    n->bytes = bytes;
    return KGEN_OK;
}

kgen_status kgen__cpu_graph_add_hold(kgen__cpu_graph *graph, void (*gone)(void *held), void *held,
                                     kgen_error *err) {
    node *n = add(graph);
    if (!n) {
        gone(held);
        return no_memory(graph, err);
    }
    n->gone = gone;
    n->held = held;
    return KGEN_OK;
}

kgen_status kgen__cpu_graph_run(const kgen__cpu_graph *graph, kgen__crew *crew, kgen_error *err) {
    for (size_t i = 0; i < graph->count; i++) {
        const node *n = &graph->nodes[i];
        if (n->work.body)
            KGEN_TRY(kgen__crew_launch(crew, &n->work, err));
        else if (!n->gone)
            memset(n->dst, n->value, n->bytes);
    }
    return KGEN_OK;
}

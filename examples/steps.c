/* An engine's steps as captured graphs: a decode loop of a hybrid model (attention and
 * Gated DeltaNet), then speculative steps (drafts are verified, some are accepted).
 *
 *   steps [--device NAME]     "hip:0", "cuda:0"; cpu:cdna3 without
 *
 * A graph is captured once. Between its replays the host writes lengths, slots and rows
 * where the kernels read them; no launch is made again.
 *
 * The value of key k is k everywhere and every query matches every key alike, so an
 * output of attention is the mean of the keys that it sees. In the recurrent layer beta
 * is one half and nothing decays: its output halves the distance to the value, 64. */
#include <kgen/kgen.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { S = 2, HQ = 8, HKV = 2, D = 128, PAGE = 16, NB = 8, COLUMNS = 4, T = 4, ROWS = S * T };
enum { DECODES = 6, SPECULATIONS = 3, LAUNCHES = 3 };

#define ATTENTION "d=128,g=4,page=16,layout=nhd"
#define WRITE "kv_write:d=128,page=16,layout=nhd,slots=i32"
#define DECODE "attn:phase=decode," ATTENTION
#define DELTA "gdn:fuse=a,layout=presplit,qkv=split,raw=1,hk=1,hv=2,pad=neg"
#define VERIFY "attn:phase=verify,t=4," ATTENTION
#define REJECT "scatter:op=reject,token=i32,target=i32"

/* What the device holds. */
typedef struct memory {
    uint16_t q[ROWS][HQ][D], k[ROWS][HKV][D], v[ROWS][HKV][D], out[ROWS][HQ][D];
    uint16_t k_cache[NB][PAGE][HKV][D], v_cache[NB][PAGE][HKV][D];
    int32_t table[S][COLUMNS], lens[S], slots[ROWS], starts[S + 1];
    _Alignas(16) uint16_t delta_q[S][D], delta_k[S][D], delta_v[S][2][D], delta_out[S][2][D];
    uint16_t beta[S][8], decay[S][8]; /* rows of 16 bytes */
    _Alignas(16) float state[S][2][D][D];
    int32_t state_slots[S];
    int32_t draft_ends[S], drafts[S * (T - 1)], targets[S * (T - 1)], bonus[S];
    int32_t predicts[S][T], accepted[S];
} memory;

typedef struct launch {
    kgen_kernel *kernel;
    kgen_args args;
    kgen_args_room room;
} launch;

typedef struct engine {
    kgen_context *ctx;
    kgen_stream stream;
    memory host, *device;
    void *workspace;
    launch decode[LAUNCHES], verify[LAUNCHES];
    int wrong;
} engine;

static uint16_t to_bf16(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return (uint16_t)(bits >> 16);
}

static float from_bf16(uint16_t x) {
    uint32_t bits = (uint32_t)x << 16;
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

/* ---- the tensors of each launch --------------------------------------------------- */

#define BF16(rank, ...) \
    KGEN_DTYPE_BF16, rank, (int64_t[]) { __VA_ARGS__ }
#define I32(rank, ...) \
    KGEN_DTYPE_I32, rank, (int64_t[]) { __VA_ARGS__ }

static kgen_tensor cache_of(void *pages) {
    kgen_tensor t = kgen_tensor_dense(pages, BF16(4, NB, PAGE, HKV, D));
    t.layout = KGEN_LAYOUT_NHD;
    return t;
}

static void bind_write(kgen_kv_write_args *a, memory *d, int64_t rows) {
    a->k = kgen_tensor_dense(d->k, BF16(3, rows, HKV, D));
    a->v = kgen_tensor_dense(d->v, BF16(3, rows, HKV, D));
    a->slots = kgen_tensor_dense(d->slots, I32(1, rows));
    a->k_cache = cache_of(d->k_cache);
    a->v_cache = cache_of(d->v_cache);
}

static void bind_attention(kgen_attn_args *a, memory *d, int64_t rows) {
    a->q = kgen_tensor_dense(d->q, BF16(3, rows, HQ, D));
    a->out = kgen_tensor_dense(d->out, BF16(3, rows, HQ, D));
    a->k = cache_of(d->k_cache);
    a->v = cache_of(d->v_cache);
    a->block_table = kgen_tensor_dense(d->table, I32(2, S, COLUMNS));
    a->seq_lens = kgen_tensor_dense(d->lens, I32(1, S));
    if (rows > S) a->cu_seqlens_q = kgen_tensor_dense(d->starts, I32(1, S + 1));
    a->softmax_scale = 1.0f / sqrtf(D);
}

static void bind_delta(kgen_gdn_args *a, memory *d) {
    a->q = kgen_tensor_dense(d->delta_q, BF16(3, S, 1, D));
    a->k = kgen_tensor_dense(d->delta_k, BF16(3, S, 1, D));
    a->v = kgen_tensor_dense(d->delta_v, BF16(3, S, 2, D));
    a->out = kgen_tensor_dense(d->delta_out, BF16(3, S, 2, D));
    a->b = kgen_tensor_dense(d->beta, BF16(2, S, 2));
    a->a = kgen_tensor_dense(d->decay, BF16(2, S, 2));
    a->a.stride[0] = a->b.stride[0] = 8;
    a->state = kgen_tensor_dense(d->state, KGEN_DTYPE_F32, 4, (int64_t[]){S, 2, D, D});
    a->state.layout = KGEN_STATE_VK;
    a->slots = kgen_tensor_dense(d->state_slots, I32(1, S));
    a->q_scale = 1;
    a->l2_eps = 1e-6f;
}

static void bind_reject(kgen_reject_args *a, memory *d) {
    a->draft_ends = kgen_tensor_dense(d->draft_ends, I32(1, S));
    a->drafts = kgen_tensor_dense(d->drafts, I32(1, S * (T - 1)));
    a->targets_in = kgen_tensor_dense(d->targets, I32(1, S * (T - 1)));
    a->bonus = kgen_tensor_dense(d->bonus, I32(1, S));
    a->predicts = kgen_tensor_dense(d->predicts, I32(2, S, T));
    a->accept_count = kgen_tensor_dense(d->accepted, I32(1, S));
}

/* ---- prepare, once ------------------------------------------------------------------ */

static kgen_status prepare(engine *e, launch *l, const char *line, kgen_error *err) {
    kgen_spec spec;
    KGEN_TRY(kgen_spec_parse(&spec, line, err));
    KGEN_TRY(kgen_prepare(e->ctx, &spec, 1, &l->kernel, err)); /* may compile */
    kgen_args_init(&l->args, &l->room, &spec);
    return KGEN_OK;
}

/* One workspace serves all launches of a stream: the largest that one of them wants. */
static kgen_status make_workspace(engine *e, kgen_error *err) {
    size_t most = 0, bytes;
    for (int n = 0; n < 2 * LAUNCHES; n++) {
        launch *l = n < LAUNCHES ? &e->decode[n] : &e->verify[n - LAUNCHES];
        KGEN_TRY(kgen_workspace_size(l->kernel, &l->args, &bytes, err));
        if (bytes > most) most = bytes;
    }
    KGEN_TRY(kgen_memory_alloc(e->ctx, &e->workspace, most, err));
    KGEN_TRY(kgen_workspace_init(e->ctx, e->workspace, most, e->stream, err));
    for (int n = 0; n < 2 * LAUNCHES; n++) {
        launch *l = n < LAUNCHES ? &e->decode[n] : &e->verify[n - LAUNCHES];
        l->args.workspace = e->workspace;
        l->args.workspace_bytes = most;
    }
    return KGEN_OK;
}

static kgen_status prepare_all(engine *e, kgen_error *err) {
    static const char *const decode[] = {WRITE, DECODE, DELTA}, *const verify[] = {WRITE, VERIFY,
                                                                                   REJECT};
    for (int n = 0; n < LAUNCHES; n++) {
        KGEN_TRY(prepare(e, &e->decode[n], decode[n], err));
        KGEN_TRY(prepare(e, &e->verify[n], verify[n], err));
    }
    bind_write(e->decode[0].args.kv_write, e->device, S);
    bind_attention(e->decode[1].args.attn, e->device, S);
    bind_delta(e->decode[2].args.gdn, e->device);
    bind_write(e->verify[0].args.kv_write, e->device, ROWS);
    bind_attention(e->verify[1].args.attn, e->device, ROWS);
    bind_reject(&e->verify[2].args.scatter->reject, e->device);
    return make_workspace(e, err);
}

static kgen_status capture(engine *e, const launch *launches, kgen_graph **graph, kgen_error *err) {
    KGEN_TRY(kgen_graph_begin(e->ctx, e->stream, err));
    kgen_status status = KGEN_OK;
    for (int n = 0; n < LAUNCHES && status == KGEN_OK; n++)
        status = kgen_launch(launches[n].kernel, &launches[n].args, e->stream, err);
    kgen_status ended = kgen_graph_end(e->ctx, e->stream, graph, status == KGEN_OK ? err : NULL);
    return status == KGEN_OK ? ended : status;
}

/* ---- the steps ---------------------------------------------------------------------- */

/* The next `count` keys of each sequence, and where they go. */
static void add_keys(memory *b, int count) {
    for (int s = 0; s < S; s++) {
        for (int i = 0; i < count; i++) {
            int key = b->lens[s] + i, row = s * count + i;
            b->slots[row] = b->table[s][key / PAGE] * PAGE + key % PAGE;
            for (int d = 0; d < HKV * D; d++) b->v[row][d / D][d % D] = to_bf16((float)key);
        }
        b->lens[s] += count;
    }
}

static kgen_status replay(engine *e, kgen_graph *graph, kgen_error *err) {
    /* The caches and states are the device's. */
    size_t rows = offsetof(memory, k_cache), at = offsetof(memory, table);
    size_t facts = offsetof(memory, state) - at, tokens = offsetof(memory, state_slots);
    char *device = (char *)e->device, *host = (char *)&e->host;
    KGEN_TRY(kgen_memory_write(e->ctx, device, host, rows, err));
    KGEN_TRY(kgen_memory_write(e->ctx, device + at, host + at, facts, err));
    KGEN_TRY(
        kgen_memory_write(e->ctx, device + tokens, host + tokens, sizeof(memory) - tokens, err));
    KGEN_TRY(kgen_graph_launch(graph, e->stream, err)); /* every step: only this */
    KGEN_TRY(kgen_stream_sync(e->ctx, e->stream, err));
    return kgen_memory_read(e->ctx, host, device, sizeof(memory), err);
}

static void expect(engine *e, const char *what, int s, float got, float want) {
    if (got == want) return;
    printf("%s of sequence %d: %g, expected %g\n", what, s, got, want);
    e->wrong++;
}

static kgen_status decode(engine *e, kgen_error *err) {
    kgen_graph *graph = NULL;
    kgen_status status = capture(e, e->decode, &graph, err);
    float delta = 64;
    for (int step = 0; step < DECODES && status == KGEN_OK; step++) {
        add_keys(&e->host, 1);
        status = replay(e, graph, err);
        delta /= 2;
        for (int s = 0; s < S && status == KGEN_OK; s++) {
            float mean = (float)(e->host.lens[s] - 1) / 2;
            expect(e, "attention", s, from_bf16(e->host.out[s][0][0]), mean);
            expect(e, "the recurrent layer", s, from_bf16(e->host.delta_out[s][1][0]), 64 - delta);
        }
    }
    kgen_graph_free(graph);
    return status;
}

/* Sequence s of step n keeps (n + s) % T of its drafts. What is not kept stays in the cache,
 * behind the length, until it is written over. */
static kgen_status speculate(engine *e, kgen_error *err) {
    kgen_graph *graph = NULL;
    kgen_status status = capture(e, e->verify, &graph, err);
    memory *b = &e->host;
    for (int step = 0; step < SPECULATIONS && status == KGEN_OK; step++) {
        for (int i = 0; i < S * (T - 1); i++) {
            int kept = i % (T - 1) < (step + i / (T - 1)) % T;
            b->drafts[i] = 100 + i;
            b->targets[i] = kept ? 100 + i : 7;
        }
        add_keys(b, T);
        status = replay(e, graph, err);
        for (int s = 0; s < S && status == KGEN_OK; s++) {
            int kept = (step + s) % T, before = b->lens[s] - T;
            for (int i = 0; i < T; i++)
                expect(e, "attention", s, from_bf16(b->out[s * T + i][0][0]),
                       (float)(before + i) / 2);
            expect(e, "accepted", s, (float)b->accepted[s], (float)kept);
            expect(e, "the token behind them", s, (float)b->predicts[s][kept],
                   kept < T - 1 ? 7 : 50);
            b->lens[s] = before + b->accepted[s] + 1;
        }
    }
    kgen_graph_free(graph);
    return status;
}

/* ---- all ---------------------------------------------------------------------------- */

static void fill(memory *b) {
    static const int32_t table[S][COLUMNS] = {{5, 2, 7, 1}, {3, 0, 4, 6}};
    memcpy(b->table, table, sizeof table);
    for (int i = 0; i < ROWS * HQ * D; i++) b->q[i / (HQ * D)][i / D % HQ][i % D] = to_bf16(1);
    for (int s = 0; s < S; s++) {
        b->starts[s + 1] = (s + 1) * T;
        b->state_slots[s] = s;
        b->draft_ends[s] = (s + 1) * (T - 1);
        b->bonus[s] = 50;
        b->delta_q[s][3] = b->delta_k[s][3] = to_bf16(1);
        for (int i = 0; i < 2 * D; i++) b->delta_v[s][i / D][i % D] = to_bf16(64);
        b->beta[s][0] = b->beta[s][1] = to_bf16(0.5f);
    }
}

static kgen_status run(engine *e, kgen_error *err) {
    KGEN_TRY(kgen_memory_alloc(e->ctx, (void **)&e->device, sizeof(memory), err));
    KGEN_TRY(kgen_memory_write(e->ctx, e->device, &e->host, sizeof(memory), err));
    KGEN_TRY(kgen_stream_create(e->ctx, &e->stream, err));
    KGEN_TRY(prepare_all(e, err));
    KGEN_TRY(decode(e, err));
    return speculate(e, err);
}

int main(int argc, char **argv) {
    static engine e;
    kgen_error err = {KGEN_OK, ""};
    kgen_open_options options = {.size = sizeof options, .device = "cpu:cdna3"};
    if (argc == 3 && !strcmp(argv[1], "--device")) {
        options.device = argv[2];
    } else if (argc > 1) {
        fprintf(stderr, "usage: steps [--device NAME]\n");
        return kgen_status_exit_code(KGEN_E_ARG);
    }
    fill(&e.host);
    kgen_status status = kgen_open(&e.ctx, &options, &err);
    if (status == KGEN_OK) status = run(&e, &err);
    if (status != KGEN_OK) fprintf(stderr, "steps: %s\n", err.text);
    if (status == KGEN_OK && !e.wrong)
        printf("%d decodes and %d speculative steps, each a replay of one graph: right\n", DECODES,
               SPECULATIONS);
    if (e.ctx) {
        kgen_memory_free(e.ctx, e.workspace);
        kgen_memory_free(e.ctx, e.device);
        if (e.stream) kgen_stream_destroy(e.ctx, e.stream);
        kgen_close(e.ctx);
    }
    return kgen_status_exit_code(e.wrong ? KGEN_E_MISMATCH : status);
}

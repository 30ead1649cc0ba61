/* Tuning keys of mla by the size of the problem: tables of what was measured, and the rules that
 * read them. */
#include "attn.h"
#include "mla_needs.h"
#include "mla_suit.h"
#include "templates/kg/attn/attn_shape.h"

/* By half the number of sequences. */
static int has_few_keys(const kgen_problem *problem, int64_t most) {
    int64_t keys = (int64_t)problem->batch * problem->context;
    return keys && keys <= most / (((int64_t)problem->batch + 1) / 2);
}

/* Few keys are soon read, as often as it may be: row blocks of fewer rows then have more
 * workgroups merge, which many sequences do without. Measured on sm_90, predicted on CDNA
 * (docs/performance.md). */
static int32_t row_blocks_of(const kgen_problem *problem) {
    static const struct {
        int64_t keys;
        int32_t row_blocks;
    } rows[] = {{4096, 16}, {16384, 8}, {98304, 4}, {262144, 2}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (has_few_keys(problem, rows[i].keys)) return rows[i].row_blocks;
    return 0;
}

/* Where a cluster shares each row block and merges in LDS, and longer ones are cut among clusters:
 * few are soon read. Measured on sm_90 (docs/performance.md); the first row that fits. One without
 * a cluster: workgroups by themselves are faster; without row tiles: as is chosen below. */
typedef struct cluster_row {
    int32_t codes;    /* of 8-bit caches, with so many workgroups a unit; 0: of 16 bits, one */
    int64_t rows[2];  /* heads x tokens, least and most */
    int32_t batch[2]; /* least and most */
    int32_t context;  /* most; KNOWN, ANY */
    int32_t row_tiles, cluster;
} cluster_row;
enum { KNOWN = KGEN__KNOWN_CONTEXT, ANY = KGEN__ANY_CONTEXT };
static const cluster_row cluster_rows[] = {
    {0, {1, 16}, {1, 3}, 8192, 1, 16},     {0, {1, 16}, {1, 1}, 32768, 1, 8},
    {0, {1, 16}, {2, 3}, KNOWN, 2, 8},     {0, {1, 16}, {1, 3}, ANY, 2, 16},
    {0, {1, 16}, {4, 4}, 2048, 1, 8},      {0, {1, 16}, {5, 7}, 1024, 1, 8},
    {0, {1, 16}, {4, 7}, 8192, 2, 16},     {0, {1, 16}, {5, 7}, 24576, 2, 16},
    {0, {1, 16}, {4, 7}, KNOWN, 2, 8},     {0, {1, 16}, {4, 7}, ANY, 2, 16},
    {0, {1, 16}, {8, 14}, ANY, 2, 8},      {0, {1, 16}, {15, 30}, ANY, 2, 4},
    {0, {1, 16}, {31, 66}, ANY, 2, 2},

    {0, {17, 32}, {1, 3}, 8192, 2, 16},    {0, {17, 32}, {1, 2}, 24576, 2, 8},
    {0, {17, 32}, {1, 3}, ANY, 4, 16},     {0, {17, 32}, {5, 7}, 1024, 2, 8},
    {0, {17, 32}, {4, 7}, 8192, 4, 16},    {0, {17, 32}, {4, 14}, ANY, 4, 8},
    {0, {17, 32}, {15, 30}, ANY, 4, 4},    {0, {17, 32}, {31, 66}, 1024, 4, 2},
    {0, {17, 32}, {40, 66}, 8192, 4, 2},

    {0, {33, 64}, {1, 1}, 2048, 1, 8},     {0, {33, 64}, {1, 1}, 8192, 2, 16},
    {0, {33, 64}, {1, 1}, KNOWN, 4, 8},    {0, {33, 64}, {2, 3}, 24576, 4, 16},
    {0, {33, 64}, {2, 3}, KNOWN, 8, 8},    {0, {33, 64}, {1, 3}, ANY, 4, 16},
    {0, {33, 64}, {4, 7}, 6144, 4, 8},     {0, {33, 64}, {4, 7}, 24576, 8, 16},
    {0, {33, 64}, {4, 4}, 49152, 8, 0},    {0, {33, 64}, {4, 7}, KNOWN, 8, 4},
    {0, {33, 64}, {4, 4}, ANY, 4, 8},      {0, {33, 64}, {5, 7}, ANY, 8, 16},
    {0, {33, 64}, {8, 14}, 2048, 4, 4},    {0, {33, 64}, {8, 11}, 12288, 8, 8},
    {0, {33, 64}, {8, 8}, 24576, 8, 0},    {0, {33, 64}, {8, 8}, KNOWN, 8, 2},
    {0, {33, 64}, {12, 14}, 24576, 8, 8},  {0, {33, 64}, {9, 14}, KNOWN, 8, 0},
    {0, {33, 64}, {8, 14}, ANY, 8, 8},     {0, {33, 64}, {18, 33}, 1024, 4, 2},
    {0, {33, 64}, {15, 17}, 6144, 8, 4},   {0, {33, 64}, {15, 17}, 8192, 8, 0},
    {0, {33, 64}, {15, 17}, KNOWN, 8, 2},  {0, {33, 64}, {18, 26}, 12288, 8, 4},
    {0, {33, 64}, {23, 26}, 24576, 8, 4},  {0, {33, 64}, {18, 26}, KNOWN, 8, 0},
    {0, {33, 64}, {15, 30}, ANY, 8, 4},    {0, {33, 64}, {29, 32}, 4096, 4, 2},
    {0, {33, 64}, {33, 36}, 3072, 4, 0},   {0, {33, 64}, {37, 56}, 8192, 8, 2},
    {0, {33, 64}, {37, 56}, KNOWN, 8, 0},  {0, {33, 64}, {57, 66}, 1024, 4, 0},
    {0, {33, 64}, {31, 32}, KNOWN, 8, 0},  {0, {33, 64}, {31, 66}, ANY, 8, 2},

    {0, {65, 128}, {1, 1}, 3072, 2, 8},    {0, {65, 128}, {1, 1}, 12288, 4, 16},
    {0, {65, 128}, {1, 1}, KNOWN, 8, 0},   {0, {65, 128}, {1, 1}, ANY, 4, 16},
    {0, {65, 128}, {2, 2}, 6144, 4, 8},    {0, {65, 128}, {3, 7}, 1024, 4, 4},
    {0, {65, 128}, {2, 3}, 24576, 8, 16},  {0, {65, 128}, {3, 3}, 49152, 8, 2},
    {0, {65, 128}, {2, 3}, KNOWN, 8, 0},   {0, {65, 128}, {2, 3}, ANY, 8, 16},
    {0, {65, 128}, {4, 4}, 4096, 8, 8},    {0, {65, 128}, {4, 4}, 12288, 8, 0},
    {0, {65, 128}, {4, 7}, 12288, 8, 8},   {0, {65, 128}, {4, 7}, 24576, 8, 0},
    {0, {65, 128}, {4, 4}, KNOWN, 8, 2},   {0, {65, 128}, {5, 7}, KNOWN, 0, 0},
    {0, {65, 128}, {4, 7}, ANY, 8, 8},     {0, {65, 128}, {8, 8}, 1024, 0, 0},
    {0, {65, 128}, {8, 8}, 2048, 8, 4},    {0, {65, 128}, {8, 8}, 24576, 8, 0},
    {0, {65, 128}, {9, 16}, 2048, 4, 2},   {0, {65, 128}, {9, 14}, 6144, 8, 4},
    {0, {65, 128}, {13, 14}, 8192, 8, 4},  {0, {65, 128}, {8, 14}, KNOWN, 0, 0},
    {0, {65, 128}, {8, 14}, ANY, 8, 4},    {0, {65, 128}, {17, 33}, 1024, 8, 2},
    {0, {65, 128}, {24, 33}, 4096, 8, 2},  {0, {65, 128}, {29, 33}, 8192, 8, 2},
    {0, {65, 128}, {29, 32}, KNOWN, 0, 0}, {0, {65, 128}, {29, 32}, ANY, 8, 2},

    {1, {1, 16}, {1, 3}, 6144, 1, 16},     {1, {1, 16}, {1, 1}, 24576, 1, 8},
    {1, {1, 16}, {2, 3}, KNOWN, 2, 8},     {1, {1, 16}, {1, 3}, ANY, 2, 16},
    {1, {1, 16}, {4, 7}, 8192, 2, 16},     {1, {1, 16}, {5, 7}, 24576, 2, 16},
    {1, {1, 16}, {4, 7}, KNOWN, 2, 8},     {1, {1, 16}, {4, 7}, ANY, 2, 16},
    {1, {1, 16}, {8, 14}, 1024, 2, 8},     {2, {1, 16}, {8, 14}, 8192, 2, 16},
    {2, {1, 16}, {8, 14}, ANY, 2, 8},      {2, {1, 16}, {15, 30}, 1024, 2, 4},
    {2, {1, 16}, {15, 30}, 8192, 2, 8},    {2, {1, 16}, {31, 62}, 1024, 2, 4},
    {2, {1, 16}, {48, 62}, 4096, 2, 4},    {2, {1, 16}, {54, 62}, 8192, 2, 4},
    {1, {1, 16}, {15, 30}, KNOWN, 0, 0},   {2, {1, 16}, {15, 30}, ANY, 2, 8},

    {1, {17, 32}, {1, 2}, 3072, 1, 8},     {1, {17, 32}, {1, 3}, 4096, 2, 16},
    {1, {17, 32}, {3, 3}, 8192, 2, 16},    {1, {17, 32}, {4, 4}, 3072, 2, 8},
    {1, {17, 32}, {4, 7}, 4096, 4, 16},    {1, {17, 32}, {5, 7}, 8192, 4, 16},
    {2, {17, 32}, {9, 12}, 1024, 2, 8},    {1, {17, 32}, {5, 14}, 4096, 4, 8},
    {1, {17, 32}, {9, 14}, 8192, 4, 8},    {1, {17, 32}, {15, 30}, 2048, 4, 4},
    {1, {17, 32}, {17, 30}, 4096, 4, 4},   {1, {17, 32}, {31, 66}, 1024, 4, 2},

    {1, {33, 64}, {1, 1}, 2048, 1, 8},     {1, {33, 64}, {1, 1}, 6144, 2, 16},
    {1, {33, 64}, {1, 1}, 24576, 4, 16},   {1, {33, 64}, {2, 3}, 8192, 4, 16},
    {1, {33, 64}, {1, 1}, KNOWN, 0, 0},    {1, {33, 64}, {2, 3}, KNOWN, 8, 0},
    {1, {33, 64}, {1, 3}, ANY, 4, 16},     {1, {33, 64}, {5, 7}, 1024, 4, 4},
    {1, {33, 64}, {4, 7}, 6144, 4, 8},     {1, {33, 64}, {5, 7}, 8192, 8, 16},
    {1, {33, 64}, {8, 14}, 1024, 4, 4},    {1, {33, 64}, {8, 14}, 12288, 8, 8},
    {1, {33, 64}, {8, 14}, 24576, 8, 0},   {1, {33, 64}, {8, 9}, KNOWN, 8, 2},
    {1, {33, 64}, {4, 14}, KNOWN, 8, 0},   {1, {33, 64}, {4, 7}, ANY, 4, 8},
    {1, {33, 64}, {8, 14}, ANY, 8, 8},     {1, {33, 64}, {29, 32}, 1024, 4, 2},
    {1, {33, 64}, {15, 30}, 6144, 8, 4},   {1, {33, 64}, {15, 17}, KNOWN, 8, 2},
    {1, {33, 64}, {24, 24}, 8192, 8, 4},   {1, {33, 64}, {25, 30}, 12288, 8, 4},
    {1, {33, 64}, {18, 28}, KNOWN, 0, 0},  {1, {33, 64}, {15, 28}, ANY, 8, 4},
    {1, {33, 64}, {29, 32}, KNOWN, 8, 2},  {1, {33, 64}, {33, 36}, 1024, 8, 2},
    {1, {33, 64}, {37, 56}, 8192, 8, 2},   {1, {33, 64}, {57, 66}, ANY, 8, 2},

    {1, {65, 128}, {1, 1}, 1024, 2, 8},    {1, {65, 128}, {1, 1}, 8192, 4, 16},
    {1, {65, 128}, {3, 7}, 1024, 4, 4},    {1, {65, 128}, {2, 3}, 3072, 4, 8},
    {1, {65, 128}, {3, 3}, 6144, 8, 16},   {1, {65, 128}, {2, 3}, 6144, 4, 8},
    {1, {65, 128}, {2, 3}, 8192, 8, 16},   {1, {65, 128}, {1, 1}, 24576, 0, 0},
    {1, {65, 128}, {1, 1}, KNOWN, 8, 0},   {1, {65, 128}, {2, 3}, KNOWN, 8, 0},
    {1, {65, 128}, {1, 1}, ANY, 4, 16},    {1, {65, 128}, {2, 3}, ANY, 4, 8},
    {1, {65, 128}, {4, 4}, 4096, 8, 8},    {1, {65, 128}, {4, 4}, 24576, 8, 0},
    {1, {65, 128}, {4, 7}, 12288, 8, 8},   {1, {65, 128}, {4, 7}, KNOWN, 8, 2},
    {1, {65, 128}, {4, 7}, ANY, 8, 8},     {1, {65, 128}, {8, 14}, 6144, 8, 4},
    {1, {65, 128}, {15, 16}, 1024, 4, 2},  {1, {65, 128}, {15, 16}, 2048, 8, 0},
    {1, {65, 128}, {12, 15}, 8192, 8, 4},  {1, {65, 128}, {8, 16}, KNOWN, 8, 2},
    {1, {65, 128}, {8, 14}, ANY, 8, 4},    {1, {65, 128}, {17, 33}, 8192, 8, 2},
    {1, {65, 128}, {29, 32}, ANY, 8, 2},
};

/* As many row tiles as that many rows fill: of eight heads one, where 16 rows have two. */
static int32_t tiles_for(int64_t rows, int32_t most, const kgen__mla_isa *isa) {
    int32_t tiles = 1;
    while (tiles < most && rows > tiles * isa->columns) tiles *= 2;
    return smaller(tiles, most);
}

static int suit_cluster(kgen_mla_spec *s, const kgen_problem *p, const kgen_target *target) {
    int64_t rows = (int64_t)s->heads * s->q_tokens;
    const kgen__mla_isa *isa = kgen__mla_isa_of(target);
    int open = !s->cluster && !s->row_tiles && !s->occupancy && p->batch;
    if (!isa->matrices || !open) return 0;
    for (size_t i = 0; i < sizeof cluster_rows / sizeof cluster_rows[0]; i++) {
        const cluster_row *r = &cluster_rows[i];
        if ((r->codes > 0) != kgen__mla_has_codes(s) || rows < r->rows[0] || rows > r->rows[1])
            continue;
        if (p->batch < r->batch[0] || p->batch > r->batch[1]) continue;
        if (!kgen__fits_context(r->context, p->context)) continue;
        kgen_mla_spec next = *s;
        next.cluster = r->cluster;
        int32_t tiles = tiles_for(rows, r->row_tiles, isa);
        if (tiles && !kgen__mla_has_tiles(&next, tiles, target)) continue;
        if (r->codes > 1 && !kgen__mla_holds_two(&next, tiles, target)) continue;
        s->row_tiles = tiles;
        s->cluster = r->cluster;
        s->occupancy = r->cluster ? larger(r->codes, 1) : 0;
        return s->row_tiles != 0;
    }
    return 0;
}

/* `invariant` has one kernel for all sizes. */
void kgen__mla_suit(kgen_spec *spec, const kgen_problem *problem, const kgen_target *target) {
    enum { FEW_SEQUENCES = 4, LATENCY_SEQUENCES = 8, FEW_TILES = 4 };
    enum { FEW_TILES_KEYS = 512 << 10, FEW_TILES_CODES = 3 << 20 };
    kgen_mla_spec *s = &spec->mla;
    const kgen__mla_isa *isa = kgen__mla_isa_of(target);
    int32_t row_blocks = row_blocks_of(problem);
    int32_t tiles = ceil_div(s->heads * s->q_tokens, isa->columns);
    int32_t few = kgen__mla_has_codes(s) ? FEW_TILES_CODES : FEW_TILES_KEYS;
    /* Eight tiles merge twice what four do. */
    if (isa->direct && !row_blocks && tiles > FEW_TILES && has_few_keys(problem, few))
        row_blocks = tiles / FEW_TILES;
    if (!isa->many || s->invariant || suit_cluster(s, problem, target)) return;
    if (!s->occupancy && problem->batch && problem->batch <= LATENCY_SEQUENCES) s->occupancy = 1;
    if (s->row_tiles || !row_blocks) return;
    int32_t each = smaller(tiles / row_blocks, larger(FEW_TILES, tiles / 4));
    int32_t most =
        larger(problem->batch > FEW_SEQUENCES && tiles > 1 ? 2 : 1, smaller(each, isa->waves));
    for (int32_t next = 1; next <= most; next *= 2)
        if (next == 1 || kgen__mla_has_tiles(s, next, target)) s->row_tiles = next;
}

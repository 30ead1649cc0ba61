/* Tuning keys of attention by the size of the problem: tables of what was measured, and the rules
 * that read them. */
#include "attn.h"
#include "attn_keys.h"
#include "attn_needs.h"
#include "family.h"
#include "templates/kg/attn/attn_shape.h"

/* By the size of the problem: what hides latency where a launch has little to do, and keeps memory
 * busy where items are many. Measured (docs/performance.md); the first row that fits. */
typedef struct size_row {
    int32_t bits, lds, dims; /* of a cached value; a way: 0, 1 by LDS, or below; least head_dim */
    int64_t pairs[2];        /* sequences x KV heads, least and most */
    int64_t context[2];      /* of a sequence, least and most */
    int64_t work;            /* least pairs x context */
    int64_t products;        /* most pairs x pairs x rows x context */
    int32_t waves, row_tiles, v_split, occupancy;
} size_row;

/* Pairs: few; less than one for most of 132 compute units; one for each; less than two for most. */
enum { FEW_PAIRS = 16, UNITS_IDLE = 112, ONE_EACH = 132, TWO_EACH = 199 };
enum { TWO_OF_EACH = 2 * ONE_EACH, THREE_OF_EACH = 3 * ONE_EACH, FOUR_OF_EACH = 4 * ONE_EACH };
enum { SHORT = 512 };  /* window, which has a rule of its own (attn_fill.c) */
enum { USUAL = 8192 }; /* keys of a sequence, where nobody says */
/* Floats with scales of tokens have no cluster where keys, or pairs, are so many. */
enum { LONG = 4096, MANY_PAIRS = 96 };
/* Codes of up to 32 rows, those with scales of tokens, integers of these, which have registers for
 * clusters, and what more waves of a unit than else have registers for: twelve over
 * 16 bits, over codes sixteen, in two workgroups or in four as well, of two row tiles twelve. What
 * no row says of these is as of others, as matrices and not. */
enum { QUEUED = 2, LEAN = 3, LEANEST = 4, TWO_TILES = 5, OWN_KEYS = 6, OWN_SHARED = 7 };
#define ANY INT64_MAX
static const size_row size_rows[] = {
    /* eight waves that convert for themselves, unless there is much to multiply */
    {8, 0, 16, {1, FEW_PAIRS}, {1, ANY}, 1, ANY, 8, 0, 0, 0},
    {8, 1, 16, {1, FEW_PAIRS}, {1, ANY}, 1, 1 << 26, 8, 0, 0, 0},
    /* sixteen waves of a unit convert faster than twelve, unless those have an item each; in four
     * workgroups where the last round of items fills most of these */
    {8, LEAN, 16, {TWO_OF_EACH + 1, THREE_OF_EACH}, {1, 2048}, 1, ANY, 4, 1, 1, 3},
    {8, LEANEST, 16, {THREE_OF_EACH + 1, FOUR_OF_EACH}, {1, 1024}, 1, ANY, 4, 1, 1, 4},
    {8, LEANEST, 16, {449, FOUR_OF_EACH}, {1, 4096}, 1, ANY, 4, 1, 1, 4},
    {8, LEANEST, 16, {6 * ONE_EACH + 1, ANY}, {1, 512}, 1, ANY, 4, 1, 1, 4},
    {8, LEANEST, 16, {913, 2 * FOUR_OF_EACH}, {1, 4096}, 1, ANY, 4, 1, 1, 4},
    {8, LEANEST, 16, {1401, 3 * FOUR_OF_EACH}, {1, 4096}, 1, ANY, 4, 1, 1, 4},
    {8, LEANEST, 16, {1761, ANY}, {1, 4096}, 1, ANY, 4, 1, 1, 4},
    {8, LEAN, 16, {FEW_PAIRS + 1, ANY}, {1, ANY}, 1, ANY, 8, 1, 1, 2},
    /* a set of keys more under way */
    {16, 1, 16, {1, FEW_PAIRS}, {1, ANY}, 1, ANY, 4, 2, 1, 1},
    /* two heads have a line of memory, which parts of items would read twice: whole ones */
    {4, 0, 16, {UNITS_IDLE + 1, ONE_EACH}, {1, ANY}, 1, ANY, 8, 0, 1, 1},
    /* smaller workgroups */
    {16, 0, 128, {FEW_PAIRS + 1, UNITS_IDLE}, {1, ANY}, 32768, ANY, 4, 0, 1, 2},
    {16, 0, 128, {ONE_EACH + 1, TWO_EACH}, {1, 768}, 32768, ANY, 4, 0, 1, 2},
    {16, 0, 16, {TWO_EACH + 1, ANY}, {129, ANY}, 32768, ANY, 4, 0, 1, 2},
};
#undef ANY

/* Few items are soon read; finding them, and merging parts through memory, takes as long. A cluster
 * of workgroups shares each then and merges in LDS, and longer ones are cut among clusters. 7 of
 * sixteen and 15 of eight find room where units hold one workgroup; of two 14 of sixteen, 30 of
 * eight, 32 of seven, 39 of six, 47 of five, 62 of four, 79 of three, 132 of two; 198 of two where
 * they hold three, 264 where four. Measured (docs/performance.md); the first row that fits. One
 * without a cluster: workgroups by themselves are faster. */
typedef struct cluster_row {
    int32_t bits, lds, dims; /* 8: also fewer, ANY_BITS, JUST_8; as above; most head_dim */
    int32_t rows[2];         /* of a KV head, least and most */
    int64_t items[2];        /* sequences x KV heads x row blocks, least and most */
    int32_t context;         /* most keys of one; KNOWN, ANY_KEYS */
    int32_t waves, row_tiles, v_split, occupancy, cluster;
} cluster_row;
enum { ANY_BITS = 0, JUST_8 = -8, KNOWN = KGEN__KNOWN_CONTEXT, ANY_KEYS = KGEN__ANY_CONTEXT };
static const cluster_row cluster_rows[] = {
    {8, TWO_TILES, 128, {9, 16}, {4, 7}, 1024, 4, 2, 1, 3, 16},
    {8, TWO_TILES, 128, {9, 16}, {8, 8}, 2048, 4, 2, 1, 3, 8},
    {8, TWO_TILES, 128, {9, 16}, {8, 8}, KNOWN, 4, 2, 1, 3, 16},
    {8, TWO_TILES, 128, {9, 16}, {9, 16}, 3072, 4, 2, 1, 3, 8},
    {8, TWO_TILES, 128, {9, 16}, {9, 16}, 16384, 4, 2, 1, 3, 16},
    {8, TWO_TILES, 128, {9, 16}, {17, 30}, 4096, 4, 2, 1, 3, 8},
    {8, TWO_TILES, 128, {9, 16}, {31, 32}, 2048, 4, 2, 1, 3, 6},
    {8, TWO_TILES, 128, {9, 16}, {64, 64}, 2048, 4, 2, 1, 3, 4},
    {8, TWO_TILES, 128, {9, 16}, {80, 99}, 1024, 4, 2, 1, 3, 2},
    {8, TWO_TILES, 128, {9, 16}, {128, 128}, 1024, 4, 2, 1, 3, 2},
    {8, TWO_TILES, 128, {9, 16}, {133, 198}, KNOWN, 4, 2, 1, 3, 2},
    {ANY_BITS, 0, 128, {9, 16}, {9, 16}, 8192, 4, 2, 1, 1, 8},
    {ANY_BITS, 0, 128, {9, 16}, {17, 30}, 16384, 4, 2, 1, 2, 8},
    {ANY_BITS, 0, 128, {9, 16}, {31, 32}, 2048, 4, 2, 1, 2, 6},
    {ANY_BITS, 0, 128, {9, 16}, {31, 32}, ANY_KEYS, 4, 2, 1, 2, 7},
    {ANY_BITS, 0, 128, {9, 16}, {33, 47}, 16384, 4, 2, 1, 2, 5},
    {ANY_BITS, 0, 128, {9, 16}, {48, 60}, 8192, 4, 2, 1, 2, 4},
    {ANY_BITS, 0, 128, {9, 16}, {61, 72}, 8192, 4, 2, 1, 2, 3},
    {ANY_BITS, 0, 128, {9, 16}, {73, 99}, 2048, 4, 2, 1, 2, 2},
    {ANY_BITS, 0, 128, {9, 16}, {100, 128}, 4096, 4, 2, 1, 2, 2},
    {ANY_BITS, 0, 128, {9, 16}, {9, 128}, KNOWN, 0, 0, 0, 0, 0},
    {ANY_BITS, 0, 128, {9, 16}, {9, 30}, ANY_KEYS, 4, 2, 1, 2, 8},
    {ANY_BITS, 0, 128, {9, 16}, {33, 47}, ANY_KEYS, 4, 2, 1, 2, 5},
    {ANY_BITS, 0, 128, {9, 16}, {48, 60}, ANY_KEYS, 4, 2, 1, 2, 4},
    {ANY_BITS, 0, 128, {9, 16}, {61, 72}, ANY_KEYS, 4, 2, 1, 2, 3},
    {ANY_BITS, 0, 128, {9, 16}, {73, 128}, ANY_KEYS, 4, 2, 1, 2, 2},

    {16, 0, 128, {1, 8}, {1, 7}, 1024, 4, 1, 1, 2, 16},
    {16, 0, 128, {1, 16}, {1, 7}, 32768, 8, 0, 1, 1, 16},
    {16, 0, 128, {1, 16}, {1, 7}, KNOWN, 8, 0, 1, 1, 8},
    {16, 0, 128, {1, 16}, {1, 7}, ANY_KEYS, 8, 0, 1, 1, 16},
    {16, LEAN, 128, {1, 8}, {8, 8}, 5120, 8, 0, 1, 1, 8},
    {16, LEAN, 128, {1, 8}, {8, 8}, 20480, 6, 1, 1, 2, 16},
    {16, 0, 128, {1, 16}, {8, 8}, 12288, 8, 0, 1, 1, 8},
    {16, 0, 128, {1, 8}, {9, 16}, 2048, 4, 1, 1, 2, 8},
    {16, 0, 128, {1, 8}, {9, 16}, 8192, 4, 1, 1, 2, 16},
    {16, 0, 128, {1, 8}, {17, 32}, 32768, 4, 1, 1, 2, 8},
    {16, 0, 128, {1, 8}, {33, 40}, ANY_KEYS, 4, 1, 1, 2, 6},
    {16, 0, 128, {1, 8}, {33, 64}, 16384, 4, 1, 1, 2, 4},
    {16, LEAN, 64, {1, 8}, {65, 96}, 8192, 4, 1, 1, 3, 4},
    {16, LEAN, 128, {1, 8}, {65, 88}, 2048, 4, 1, 1, 3, 4},
    {16, LEAN, 128, {1, 8}, {81, 96}, 8192, 4, 1, 1, 3, 3},
    {16, 0, 128, {1, 8}, {65, 80}, 8192, 4, 1, 1, 2, 3},
    {16, 0, 128, {1, 8}, {81, 99}, 2048, 4, 1, 1, 2, 2},
    {16, 0, 128, {1, 8}, {100, 128}, 4096, 4, 1, 1, 2, 2},
    {16, 0, 128, {1, 8}, {65, 128}, KNOWN, 0, 0, 0, 0, 0},
    {16, LEAN, 128, {1, 8}, {133, 198}, ANY_KEYS, 4, 1, 1, 3, 2},
    {16, LEAN, 64, {1, 8}, {265, 396}, 4096, 4, 1, 1, 3, 0},
    {16, LEAN, 128, {1, 8}, {265, 396}, 4096, 4, 1, 1, 3, 2},
    {16, 0, 256, {1, 16}, {1, 2}, ANY_KEYS, 4, 0, 2, 1, 16},
    {16, 0, 256, {1, 16}, {3, 7}, 16384, 4, 0, 2, 1, 16},
    {16, 0, 256, {1, 16}, {8, 8}, 6144, 4, 0, 2, 1, 8},
    {16, 0, 256, {1, 8}, {9, 16}, 3072, 2, 1, 2, 2, 8},
    {16, 0, 256, {1, 16}, {3, 64}, KNOWN, 0, 0, 0, 0, 0},
    {16, 0, 128, {1, 16}, {8, 8}, ANY_KEYS, 8, 0, 1, 1, 8},
    {16, 0, 256, {1, 16}, {3, 8}, ANY_KEYS, 4, 0, 2, 1, 8},
    {16, 0, 128, {1, 8}, {9, 32}, ANY_KEYS, 4, 1, 1, 2, 8},
    {16, 0, 128, {1, 8}, {33, 64}, ANY_KEYS, 4, 1, 1, 2, 4},
    {16, 0, 128, {1, 8}, {65, 80}, ANY_KEYS, 4, 1, 1, 2, 3},
    {16, 0, 128, {1, 8}, {81, 128}, ANY_KEYS, 4, 1, 1, 2, 2},

    {JUST_8, LEAN, 128, {1, 8}, {1, 7}, 1024, 8, 1, 1, 2, 8},
    {JUST_8, LEAN, 128, {1, 8}, {1, 7}, 6144, 8, 1, 1, 2, 16},
    {JUST_8, LEAN, 128, {1, 8}, {8, 8}, 2048, 8, 1, 1, 2, 8},
    {JUST_8, LEAN, 128, {1, 8}, {8, 8}, 24576, 8, 1, 1, 2, 16},
    {JUST_8, LEAN, 128, {1, 8}, {8, 8}, KNOWN, 8, 1, 1, 2, 8},
    {JUST_8, LEAN, 128, {1, 8}, {9, 15}, 6144, 8, 1, 1, 2, 8},
    {JUST_8, LEAN, 128, {1, 8}, {9, 14}, 24576, 8, 1, 1, 2, 16},
    {8, LEAN, 128, {1, 8}, {17, 30}, 1024, 4, 1, 1, 2, 8},
    {8, LEAN, 128, {1, 8}, {17, 30}, 8192, 8, 1, 1, 2, 8},
    {8, LEAN, 128, {1, 8}, {31, 32}, 2048, 4, 1, 1, 2, 8},
    {8, LEAN, 128, {1, 8}, {31, 32}, 8192, 8, 1, 1, 2, 7},
    {8, LEAN, 128, {1, 8}, {32, 32}, 20480, 8, 1, 1, 2, 0},
    {8, LEAN, 128, {1, 8}, {33, 40}, 1024, 4, 1, 1, 2, 6},
    {8, LEAN, 128, {1, 8}, {33, 39}, 8192, 8, 1, 1, 2, 6},
    {8, LEAN, 128, {1, 8}, {41, 47}, 1024, 8, 1, 1, 2, 4},
    {8, LEAN, 128, {1, 8}, {40, 47}, 32768, 8, 1, 1, 2, 5},
    {8, LEAN, 128, {1, 8}, {48, 60}, 16384, 8, 1, 1, 2, 4},
    {8, LEAN, 128, {1, 8}, {53, 60}, 32768, 8, 1, 1, 2, 4},
    {8, LEAN, 128, {1, 8}, {61, 66}, 2048, 8, 1, 1, 2, 2},
    {8, LEAN, 128, {1, 8}, {61, 66}, 16384, 8, 1, 1, 2, 3},
    {8, LEAN, 128, {1, 8}, {67, 79}, ANY_KEYS, 8, 1, 1, 2, 3},
    {8, LEAN, 128, {1, 8}, {80, 88}, 4096, 8, 1, 1, 2, 2},
    {8, LEAN, 128, {1, 8}, {89, 132}, ANY_KEYS, 8, 1, 1, 2, 2},
    {8, LEANEST, 64, {1, 8}, {133, 232}, 8192, 4, 1, 1, 4, 2},
    {8, LEANEST, 128, {1, 8}, {133, 224}, 1024, 4, 1, 1, 4, 2},
    {8, LEANEST, 128, {1, 8}, {133, 216}, 2048, 4, 1, 1, 4, 2},
    {8, LEANEST, 128, {1, 8}, {165, 216}, 3072, 4, 1, 1, 4, 2},
    {8, LEANEST, 128, {1, 8}, {189, 232}, 4096, 4, 1, 1, 4, 2},
    {8, LEANEST, 128, {1, 8}, {217, 232}, 6144, 4, 1, 1, 4, 2},
    {4, LEAN, 128, {1, 8}, {133, 199}, ANY_KEYS, 8, 1, 1, 2, 2},
    {8, 0, 256, {1, 16}, {1, 7}, 1024, 8, 0, 1, 1, 8},
    {8, 0, 256, {1, 16}, {1, 2}, 8192, 8, 0, 1, 1, 16},
    {8, 0, 256, {1, 16}, {3, 7}, 24576, 8, 0, 1, 1, 16},
    {JUST_8, LEAN, 128, {1, 8}, {1, 2}, 24576, 8, 1, 1, 2, 8},
    {JUST_8, LEAN, 128, {1, 8}, {2, 7}, KNOWN, 8, 1, 1, 2, 16},
    {8, 0, 256, {1, 16}, {1, 2}, KNOWN, 8, 0, 1, 1, 8},
    {8, 0, 128, {1, 8}, {3, 7}, KNOWN, 4, 1, 1, 3, 8},
    {8, 0, 256, {1, 16}, {1, 7}, ANY_KEYS, 8, 0, 1, 1, 16},
    {8, 0, 256, {1, 16}, {8, 8}, 8192, 8, 0, 1, 1, 8},
    {8, 0, 128, {1, 8}, {9, 16}, 1024, 4, 1, 1, 3, 8},
    {8, 0, 128, {1, 8}, {9, 16}, 24576, 4, 1, 1, 3, 16},
    {8, LEAN, 128, {1, 8}, {16, 16}, KNOWN, 8, 1, 1, 2, 0},
    {8, 0, 128, {1, 8}, {9, 16}, KNOWN, 4, 1, 1, 3, 8},
    {8, 0, 128, {1, 8}, {17, 32}, 16384, 4, 1, 1, 2, 8},
    {8, 0, 128, {1, 8}, {33, 40}, 16384, 4, 1, 1, 2, 6},
    {8, 0, 128, {1, 8}, {33, 64}, 4096, 4, 1, 1, 2, 4},
    {8, 0, 128, {1, 8}, {65, 99}, 1024, 4, 1, 1, 2, 2},
    {8, 0, 128, {1, 8}, {100, 119}, 2048, 4, 1, 1, 2, 2},
    {8, 0, 128, {1, 8}, {120, 128}, 4096, 4, 1, 1, 2, 2},
    {8, 0, 256, {1, 16}, {1, 64}, KNOWN, 0, 0, 0, 0, 0},
    {8, 0, 128, {1, 8}, {8, 16}, ANY_KEYS, 4, 1, 1, 3, 16},
    {8, 0, 128, {1, 8}, {17, 32}, ANY_KEYS, 4, 1, 1, 3, 8},
    {8, 0, 128, {1, 8}, {33, 40}, ANY_KEYS, 4, 1, 1, 2, 6},
    {8, 0, 128, {1, 8}, {33, 64}, ANY_KEYS, 4, 1, 1, 3, 4},

    {16, 1, 128, {1, 128}, {1, 2}, ANY_KEYS, 4, 2, 1, 1, 16},
    {16, 1, 128, {1, 128}, {3, 4}, 32768, 4, 2, 1, 1, 16},
    {16, 1, 128, {1, 128}, {5, 8}, 1024, 4, 2, 1, 1, 8},
    {16, 1, 128, {1, 128}, {5, 8}, 24576, 4, 2, 1, 1, 16},
    {16, 1, 128, {1, 128}, {3, 8}, KNOWN, 4, 2, 1, 2, 8},
    {16, 1, 128, {1, 128}, {3, 8}, ANY_KEYS, 4, 2, 1, 2, 16},
    {16, 1, 128, {1, 128}, {9, 16}, 2048, 4, 2, 1, 2, 8},
    {16, 1, 128, {1, 128}, {9, 15}, ANY_KEYS, 8, 2, 1, 1, 8},
    {16, 1, 128, {1, 128}, {16, 16}, ANY_KEYS, 8, 2, 1, 1, 6},
    {16, 1, 128, {1, 128}, {17, 30}, 1024, 4, 2, 1, 2, 4},
    {16, 1, 128, {1, 128}, {17, 30}, ANY_KEYS, 4, 2, 1, 2, 8},
    {16, 1, 128, {1, 128}, {31, 32}, 2048, 4, 2, 1, 2, 6},
    {16, 1, 128, {1, 128}, {31, 32}, ANY_KEYS, 4, 2, 1, 2, 7},
    {16, 1, 128, {1, 128}, {33, 47}, ANY_KEYS, 4, 2, 1, 2, 5},
    {16, 1, 128, {1, 128}, {48, 60}, ANY_KEYS, 4, 2, 1, 2, 4},
    {16, 1, 128, {1, 128}, {61, 66}, ANY_KEYS, 8, 2, 1, 1, 2},
    {16, 1, 128, {1, 128}, {67, 72}, ANY_KEYS, 4, 2, 1, 2, 3},
    {16, 1, 128, {1, 128}, {73, 94}, 4096, 4, 2, 1, 2, 2},
    {16, 1, 128, {1, 128}, {95, 109}, 16384, 4, 2, 1, 2, 2},
    {16, 1, 128, {1, 128}, {73, 109}, KNOWN, 0, 0, 0, 0, 0},
    {16, 1, 128, {1, 128}, {73, 128}, ANY_KEYS, 4, 2, 1, 2, 2},
    {16, 1, 256, {1, 128}, {1, 2}, ANY_KEYS, 4, 2, 1, 1, 16},
    {16, 1, 256, {1, 128}, {3, 14}, 4096, 4, 2, 1, 1, 8},
    {16, 1, 256, {1, 128}, {3, 14}, ANY_KEYS, 8, 2, 1, 1, 8},
    {16, 1, 256, {1, 128}, {15, 16}, 4096, 4, 2, 1, 2, 8},
    {16, 1, 256, {1, 128}, {16, 16}, 16384, 8, 2, 1, 1, 6},
    {16, 1, 256, {1, 128}, {15, 16}, KNOWN, 8, 2, 1, 1, 8},
    {16, 1, 256, {1, 128}, {15, 30}, 8192, 4, 2, 1, 2, 8},
    {16, 1, 256, {1, 128}, {31, 32}, 16384, 4, 2, 1, 2, 7},
    {16, 1, 256, {1, 128}, {33, 47}, 16384, 4, 2, 1, 2, 5},
    {16, 1, 256, {1, 128}, {48, 60}, 16384, 4, 2, 1, 2, 4},
    {16, 1, 256, {1, 128}, {61, 66}, ANY_KEYS, 8, 2, 1, 1, 2},
    {16, 1, 256, {1, 128}, {95, 132}, ANY_KEYS, 4, 2, 1, 2, 2},

    {8, QUEUED, 128, {17, 32}, {8, 8}, 2048, 4, 4, 1, 2, 8},
    {8, QUEUED, 128, {17, 32}, {8, 8}, 6144, 8, 4, 1, 1, 8},
    {8, QUEUED, 128, {17, 32}, {1, 8}, 16384, 4, 4, 1, 2, 16},
    {8, QUEUED, 128, {25, 32}, {8, 8}, 65536, 4, 4, 1, 2, 4},
    {8, QUEUED, 128, {17, 32}, {8, 8}, KNOWN, 8, 4, 1, 1, 0},
    {8, QUEUED, 128, {17, 32}, {9, 30}, 1024, 4, 4, 1, 2, 8},
    {8, QUEUED, 128, {17, 32}, {9, 15}, ANY_KEYS, 8, 4, 1, 1, 8},
    {8, QUEUED, 128, {17, 32}, {16, 16}, 2048, 4, 4, 1, 2, 8},
    {8, QUEUED, 128, {25, 32}, {16, 16}, 24576, 8, 4, 1, 1, 6},
    {8, QUEUED, 128, {25, 32}, {16, 16}, KNOWN, 8, 4, 1, 1, 0},
    {8, QUEUED, 128, {17, 32}, {16, 16}, ANY_KEYS, 8, 4, 1, 1, 6},
    {8, QUEUED, 128, {17, 32}, {17, 30}, 16384, 4, 4, 1, 2, 8},
    {8, QUEUED, 128, {17, 32}, {31, 32}, ANY_KEYS, 4, 4, 1, 2, 7},
    {8, QUEUED, 128, {17, 32}, {33, 47}, 16384, 4, 4, 1, 2, 5},
    {8, QUEUED, 128, {17, 32}, {48, 60}, 16384, 4, 4, 1, 2, 4},
    {8, QUEUED, 128, {17, 32}, {61, 66}, ANY_KEYS, 8, 4, 1, 1, 2},
    {8, QUEUED, 128, {17, 32}, {67, 72}, 16384, 4, 4, 1, 2, 3},
    {8, QUEUED, 128, {17, 32}, {73, 103}, 2048, 4, 4, 1, 2, 2},
    {8, QUEUED, 128, {17, 32}, {104, 132}, ANY_KEYS, 4, 4, 1, 2, 2},
    {8, QUEUED, 128, {17, 32}, {17, 103}, KNOWN, 0, 0, 0, 0, 0},
    {8, QUEUED, 128, {17, 32}, {17, 30}, ANY_KEYS, 4, 4, 1, 2, 8},
    {8, QUEUED, 128, {17, 32}, {33, 47}, ANY_KEYS, 4, 4, 1, 2, 5},
    {8, QUEUED, 128, {17, 32}, {48, 60}, ANY_KEYS, 4, 4, 1, 2, 4},
    {8, QUEUED, 128, {17, 32}, {67, 72}, ANY_KEYS, 4, 4, 1, 2, 3},
    {8, QUEUED, 128, {17, 32}, {17, 103}, ANY_KEYS, 0, 0, 0, 0, 0},

    {8, OWN_SHARED, 128, {17, 32}, {1, 7}, 1024, 4, 2, 1, 2, 16},
    {4, OWN_SHARED, 128, {17, 32}, {1, 7}, ANY_KEYS, 8, 4, 1, 1, 16},
    {8, OWN_SHARED, 128, {17, 32}, {1, 7}, 12288, 8, 4, 1, 1, 8},
    {8, OWN_SHARED, 128, {17, 32}, {8, 15}, 8192, 8, 4, 1, 1, 8},
    {8, OWN_SHARED, 128, {17, 32}, {16, 16}, 8192, 8, 4, 1, 1, 6},
    {8, OWN_SHARED, 128, {17, 32}, {17, 30}, 8192, 8, 4, 1, 1, 4},
    {8, OWN_SHARED, 128, {17, 32}, {31, 39}, 8192, 8, 4, 1, 1, 3},
    {8, OWN_SHARED, 128, {17, 32}, {40, 47}, ANY_KEYS, 8, 4, 1, 1, 2},
    {8, OWN_SHARED, 128, {17, 32}, {48, 56}, 8192, 8, 4, 1, 1, 2},
    {8, OWN_SHARED, 128, {17, 32}, {57, 66}, ANY_KEYS, 8, 4, 1, 1, 2},
    {8, OWN_SHARED, 128, {17, 32}, {8, 128}, ANY_KEYS, 0, 0, 0, 0, 0},

    {8, 1, 128, {1, 128}, {1, 2}, ANY_KEYS, 4, 2, 1, 2, 16},
    {8, 1, 128, {1, 128}, {3, 8}, 8192, 4, 2, 1, 2, 16},
    {8, 1, 128, {1, 128}, {9, 16}, 6144, 4, 2, 1, 2, 8},
    {8, 1, 128, {1, 128}, {17, 30}, 8192, 4, 2, 1, 2, 8},
    {4, 1, 128, {1, 128}, {31, 32}, 6144, 4, 2, 1, 2, 6},
    {4, 1, 128, {1, 128}, {31, 32}, ANY_KEYS, 0, 0, 0, 0, 0},
    {8, 1, 128, {1, 128}, {31, 32}, 2048, 4, 2, 1, 2, 6},
    {8, 1, 128, {1, 128}, {31, 32}, 16384, 4, 2, 1, 2, 7},
    {8, 1, 128, {1, 128}, {33, 47}, 2048, 4, 2, 1, 2, 4},
    {8, 1, 128, {1, 128}, {33, 47}, 4096, 4, 2, 1, 2, 5},
    {8, 1, 128, {1, 128}, {48, 60}, 4096, 4, 2, 1, 2, 4},
    {8, 1, 128, {1, 128}, {61, 66}, ANY_KEYS, 8, 2, 1, 1, 2},
    {8, 1, 128, {1, 128}, {67, 103}, 1024, 4, 2, 1, 2, 2},
    {8, 1, 128, {1, 128}, {104, 119}, 2048, 4, 2, 1, 2, 2},
    {8, 1, 128, {1, 128}, {120, 124}, 8192, 4, 2, 1, 2, 2},
    {8, 1, 128, {1, 128}, {125, 128}, ANY_KEYS, 4, 2, 1, 2, 2},
    {8, 1, 64, {1, 128}, {3, 16}, 24576, 0, 0, 0, 0, 0},
    {4, 1, 128, {1, 128}, {3, 16}, 24576, 0, 0, 0, 0, 0},
    {8, 1, 128, {1, 128}, {8, 8}, 24576, 4, 2, 1, 2, 4},
    {4, 1, 128, {1, 128}, {9, 16}, KNOWN, 0, 0, 0, 0, 0},
    {8, 1, 128, {1, 128}, {9, 15}, ANY_KEYS, 8, 2, 1, 1, 8},
    {8, 1, 128, {1, 128}, {16, 16}, ANY_KEYS, 8, 2, 1, 1, 6},
    {8, 1, 128, {1, 128}, {3, 7}, 24576, 0, 0, 0, 0, 0},
    {8, 1, 128, {1, 128}, {3, 8}, ANY_KEYS, 4, 2, 1, 2, 8},
    {8, 1, 256, {1, 128}, {3, 14}, 2048, 8, 2, 1, 1, 8},
    {8, 1, 256, {1, 128}, {15, 30}, 2048, 4, 2, 1, 2, 8},
    {8, 1, 256, {1, 128}, {61, 66}, 2048, 8, 2, 1, 1, 2},
};

/* Sequences x KV heads. */
static int64_t pairs_of(const kgen_problem *p) { return (int64_t)p->batch * p->heads; }

/* As what a way goes where no row says anything of it; -1: nothing else. */
/* clang-format off */
static const int32_t else_as[] = {-1, -1, [QUEUED] = 1, [LEAN] = 0, [LEANEST] = LEAN,
                                  [TWO_TILES] = 0, [OWN_KEYS] = 1, [OWN_SHARED] = OWN_KEYS};
/* clang-format on */

/* Whether a row of the rule is of what goes some way. */
static int goes_as(int32_t of_row, int32_t lds) {
    while (lds >= 0 && lds != of_row) lds = else_as[lds];
    return lds == of_row;
}

/* As many as there are, where a row says the most. */
static int32_t tiles_of(int32_t of_row, const kgen_attn_spec *s, const kgen__attn_isa *isa) {
    enum { MOST_TILES = 4 };
    int32_t queued = kgen__attn_queued_tiles(s, isa);
    if (of_row != MOST_TILES) return of_row;
    return queued ? queued : kgen__attn_own_tiles(s, isa);
}

static int suit_cluster(kgen_attn_spec *s, const kgen_problem *p, const kgen__attn_isa *isa,
                        int lds, int bits) {
    enum { MATRIX_ROWS = 64 }; /* of a row block */
    int64_t rows = (int64_t)s->group * s->q_tokens;
    int64_t blocks = lds ? (rows + MATRIX_ROWS - 1) / MATRIX_ROWS : 1;
    int64_t pairs = pairs_of(p);
    int64_t items = pairs > INT64_MAX / blocks ? INT64_MAX : pairs * blocks;
    int32_t dims = larger(s->head_dim, s->v_dim);
    if (s->cascade || !items) return 0;
    for (size_t i = 0; i < sizeof cluster_rows / sizeof cluster_rows[0]; i++) {
        const cluster_row *r = &cluster_rows[i];
        int fits = r->bits == bits || (r->bits == 8 && bits < 8) || r->bits == -bits ||
                   r->bits == ANY_BITS;
        if (!fits || !goes_as(r->lds, lds) || dims > r->dims) continue;
        if (rows < r->rows[0] || rows > r->rows[1] || items < r->items[0] || items > r->items[1])
            continue;
        if (!kgen__fits_context(r->context, p->context)) continue;
        if (!r->waves) return 0;
        s->waves = r->waves;
        s->row_tiles = tiles_of(r->row_tiles, s, isa);
        s->v_split = r->v_split;
        s->occupancy = r->occupancy;
        s->cluster = r->cluster;
        return 1;
    }
    return 0;
}

/* Prompts that have row blocks enough for large workgroups, by the keys of a sequence, or, where
 * the waves that multiply convert, too, of all KV heads. Measured. */
static int has_long_prompts(const kgen_problem *p, int brings) {
    enum { LEAST = 1 << 9, CONVERTED = 1 << 16 };
    if (brings) return p->context >= LEAST;
    return pairs_of(p) > (CONVERTED - 1) / p->context;
}

/* Rows that boxes of 128 bytes bring without a rest, or of codes, which small workgroups convert
 * for half as many rows. */
static int suits_decodes(const kgen_attn_spec *s) {
    enum { WIDE = 96 };
    return kgen__is_8bit(s->kv) ? s->head_dim >= WIDE : s->head_dim % 64 == 0;
}

/* Prompts: groups of four waves that share keys, which a third brings. Where sequences are many
 * some may be decodes beside a prompt, which not all rows suit. */
static void suit_long(kgen_attn_spec *s, const kgen_problem *p, const kgen__attn_isa *isa) {
    enum { MOST_SEQUENCES = 16, LEAST_WINDOW = 512 };
    kgen_attn_spec groups = *s;
    groups.waves = 8, groups.row_tiles = 2, groups.v_split = 1, groups.occupancy = 1;
    int floats = kgen__is_8bit(s->kv) && !kgen__attn_is_integer(s->kv) && !s->cascade;
    int brings = kgen__attn_bringers_of(&groups, isa) != 0;
    int32_t seen = kgen__attn_seen_keys(s);
    if (!brings && !floats) return;
    if (s->head_dim > 128 || s->v_dim > 128 || s->invariant) return;
    if (p->batch > MOST_SEQUENCES && !(brings && suits_decodes(s))) return;
    if ((seen > 0 && seen < LEAST_WINDOW) || !p->context) return;
    if (has_long_prompts(p, brings)) *s = groups;
}

static int is_of_size(const size_row *f, const kgen_attn_spec *s, const kgen_problem *p) {
    int64_t pairs = pairs_of(p), rows = (int64_t)s->group * s->q_tokens;
    if (pairs < f->pairs[0] || pairs > f->pairs[1] || s->head_dim < f->dims) return 0;
    if (p->context < f->context[0] || p->context > f->context[1]) return 0;
    return pairs > (f->work - 1) / p->context && pairs <= f->products / rows / p->context / pairs;
}

/* LEAN, LEANEST, TWO_TILES or none, by what has registers: tried on some hundred specs. */
static int leanness(const kgen_attn_spec *s, const kgen__attn_isa *isa) {
    int small = kgen__is_small_page(s->page), bits = kgen__bits_of(s->kv);
    int scales = s->descale == KGEN_DESCALE_TOKEN || bits < 8;
    if (kgen__attn_queued_tiles(s, isa) == 2) return TWO_TILES;
    if (s->group * s->q_tokens > isa->columns) return 0;
    if (bits == 16) return small && (s->alibi || s->softcap) ? 0 : LEAN;
    int native = bits <= 8 && s->kv != KGEN_DTYPE_E4M3FNUZ;
    if (!native || s->phase != KGEN_PHASE_DECODE || s->cascade) return 0;
    int packed = kgen__is_packed(s->layout) && (scales || s->softcap || s->gate);
    int crowded = (s->alibi != 0) + packed + (small && scales);
    if (crowded > (bits == 8)) return 0;
    return crowded ? LEAN : LEANEST;
}

/* Of many rows. */
static int way_of_rows(const kgen_attn_spec *s, const kgen__attn_isa *isa) {
    if (kgen__attn_queued_tiles(s, isa)) return QUEUED;
    if (!kgen__attn_own_tiles(s, isa)) return 1;
    return kgen__attn_is_integer(s->kv) ? OWN_SHARED : OWN_KEYS;
}

void kgen__attn_suit(kgen_spec *spec, const kgen_problem *problem, const kgen_target *target) {
    kgen_attn_spec *s = &spec->attn;
    const kgen__attn_isa *isa = kgen__attn_isa_of(target);
    int tuned = s->waves || s->row_tiles || s->v_split || s->occupancy || s->cluster;
    if (isa->by != KGEN__BY_MATRICES || tuned || !problem->batch) return;
    if (!kgen_attn_phase_of(s->phase)->bounded) suit_long(s, problem, isa);
    if (!kgen_attn_phase_of(s->phase)->bounded || s->invariant) return;
    int32_t most = kgen__attn_seen_keys(s);
    if (most > 0 && most < SHORT) return;
    kgen_problem seen = *problem;
    if (most > 0) seen.context = seen.context ? smaller(seen.context, most) : most;
    int lds = kgen__attn_has_many_rows(s, isa), bits = kgen__bits_of(s->kv);
    lds = lds ? way_of_rows(s, isa) : leanness(s, isa);
    int alone = lds == OWN_KEYS && (seen.context >= LONG || pairs_of(&seen) >= MANY_PAIRS);
    if (!alone && suit_cluster(s, &seen, isa, lds, bits)) return;
    if (lds >= OWN_KEYS || s->head_dim > 128 || s->v_dim > 128) return; /* one form by themselves */
    if (!seen.context) seen.context = USUAL;
    for (size_t i = 0; i < sizeof size_rows / sizeof size_rows[0]; i++) {
        const size_row *f = &size_rows[i];
        int fits = f->bits == bits || (f->lds >= LEAN && bits < 8);
        if (!fits || !goes_as(f->lds, lds) || !is_of_size(f, s, &seen)) continue;
        s->waves = f->waves;
        s->row_tiles = f->row_tiles;
        s->v_split = f->v_split;
        s->occupancy = f->occupancy;
        return;
    }
}

/* How large launches are, where nobody says. */
#include "tuner.h"

static const kgen_problem attn[] = {{1, 2048, 0}, {1, 8192, 0},  {8, 2048, 0},
                                    {8, 8192, 0}, {64, 2048, 0}, {64, 8192, 0}};
static const kgen_problem gdn[] = {{1, 0, 0}, {8, 0, 0}, {64, 0, 0}, {256, 0, 0}};
static const kgen_problem scatter[] = {{32, 32768, 0}, {256, 32768, 0}};
static const kgen_problem kv[] = {{64, 0, 0}, {2048, 0, 0}};

static const struct {
    const kgen_problem *list;
    size_t count;
    int32_t heads; /* 0: the spec says, or there are none */
} rows[KGEN_FAMILY_COUNT] = {
    [KGEN_FAMILY_ATTN] = {attn, sizeof attn / sizeof *attn, 8},
    [KGEN_FAMILY_GDN] = {gdn, sizeof gdn / sizeof *gdn, 0},
    [KGEN_FAMILY_SCATTER] = {scatter, sizeof scatter / sizeof *scatter, 0},
    [KGEN_FAMILY_KV_WRITE] = {kv, sizeof kv / sizeof *kv, 8},
    [KGEN_FAMILY_KV_GATHER] = {kv, sizeof kv / sizeof *kv, 8},
};

size_t kgen__tuner_problems(const kgen_problem **problems, kgen_family_id family) {
    *problems = rows[family].list;
    return rows[family].count;
}

int32_t kgen__tuner_heads(kgen_family_id family, int32_t heads) {
    return rows[family].heads && heads ? heads : rows[family].heads;
}

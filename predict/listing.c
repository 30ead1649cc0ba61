/* Disassembly -> instructions. What an opcode is and costs stands in one table;
 * the facts behind it are in docs/predict.md. */
#include "listing.h"

#include <stdlib.h>
#include <string.h>

/* CDNA1 to CDNA4, RDNA2 to RDNA4: those before SM90, whose text is not read. */
enum { ARCHS = KGEN_ISA_SM90 };
_Static_assert(ARCHS == 7 && (int)KGEN_ISA_COUNT == ARCHS + 1,
               "a new isa has its column of cycles in the rows below");

/* The first row whose prefix fits is the opcode's. cycles: of a SIMD, one
 * number for all architectures, or 0 and one each. */
typedef struct op_row {
    const char *prefix;
    kgen__op op;
    int16_t bytes;
    int16_t cycles[ARCHS];
} op_row;

#define SIMPLE {4, 4, 4, 4, 1, 1, 1}
#define QUARTER {16, 16, 16, 16, 4, 4, 4}

static const op_row rows[] = {
    /* matrix: 2 M N K flops over the SIMD's rate */
    {"v_mfma_f32_16x16x16", KGEN__OP_MATRIX, 0, {32, 32, 16, 16, 0, 0, 0}},
    {"v_mfma_f32_32x32x8", KGEN__OP_MATRIX, 0, {64, 64, 32, 32, 0, 0, 0}},
    {"v_mfma_f32_16x16x32", KGEN__OP_MATRIX, 0, {0, 0, 16, 16, 0, 0, 0}},
    {"v_mfma_f32_32x32x16", KGEN__OP_MATRIX, 0, {0, 0, 32, 32, 0, 0, 0}},
    {"v_mfma_f32_16x16x128", KGEN__OP_MATRIX, 0, {0, 0, 0, 32, 0, 0, 0}},
    {"v_mfma_f32_32x32x64", KGEN__OP_MATRIX, 0, {0, 0, 0, 64, 0, 0, 0}},
    {"v_mfma_scale_f32_16x16x128", KGEN__OP_MATRIX, 0, {0, 0, 0, 32, 0, 0, 0}},
    {"v_mfma_scale_f32_32x32x64", KGEN__OP_MATRIX, 0, {0, 0, 0, 64, 0, 0, 0}},
    {"v_mfma_f32_4x4x4", KGEN__OP_MATRIX, 0, {8, 8, 8, 8, 0, 0, 0}},
    {"v_mfma_f32_32x32", KGEN__OP_MATRIX, 0, {64, 64, 64, 64, 0, 0, 0}},
    {"v_mfma_", KGEN__OP_MATRIX, 0, {32, 32, 32, 32, 0, 0, 0}},
    {"v_smfmac_f32_32x32", KGEN__OP_MATRIX, 0, {0, 0, 32, 32, 0, 0, 0}},
    {"v_smfmac_", KGEN__OP_MATRIX, 0, {0, 0, 16, 16, 0, 0, 0}},
    {"v_wmma_f32_16x16x16_fp8", KGEN__OP_MATRIX, 0, {0, 0, 0, 0, 0, 0, 8}},
    {"v_wmma_f32_16x16x16_bf8", KGEN__OP_MATRIX, 0, {0, 0, 0, 0, 0, 0, 8}},
    {"v_wmma_", KGEN__OP_MATRIX, 0, {0, 0, 0, 0, 0, 32, 16}},
    {"v_swmmac_", KGEN__OP_MATRIX, 0, {0, 0, 0, 0, 0, 0, 16}},
    /* transcendental and 32-bit integer products: a quarter of the rate. The
       scalar ones of RDNA4 (v_s_exp_f32) take as long. Packed f32 and dual
       instructions do twice the work in the time of one. */
    {"v_exp_", KGEN__OP_VALU, 0, QUARTER},
    {"v_log_", KGEN__OP_VALU, 0, QUARTER},
    {"v_rcp_", KGEN__OP_VALU, 0, QUARTER},
    {"v_rsq_", KGEN__OP_VALU, 0, QUARTER},
    {"v_sqrt_", KGEN__OP_VALU, 0, QUARTER},
    {"v_sin_", KGEN__OP_VALU, 0, QUARTER},
    {"v_cos_", KGEN__OP_VALU, 0, QUARTER},
    {"v_s_", KGEN__OP_VALU, 0, QUARTER},
    {"v_mul_lo_u32", KGEN__OP_VALU, 0, QUARTER},
    {"v_mul_hi_u32", KGEN__OP_VALU, 0, QUARTER},
    {"v_mul_hi_i32", KGEN__OP_VALU, 0, QUARTER},
    {"v_mad_u64_u32", KGEN__OP_VALU, 0, QUARTER},
    {"v_mad_i64_i32", KGEN__OP_VALU, 0, QUARTER},
    {"v_mad_co_u64_u32", KGEN__OP_VALU, 0, QUARTER},
    {"v_mad_co_i64_i32", KGEN__OP_VALU, 0, QUARTER},
    {"v_nop", KGEN__OP_WAIT, 0, {0}},
    {"v_", KGEN__OP_VALU, 0, SIMPLE},
    /* LDS */
    {"ds_", KGEN__OP_LDS, 0, {0}},
    /* waits and hints. s_waitcnt_depctr and the like do not wait for loads. */
    {"s_waitcnt", KGEN__OP_WAIT, 0, {0}},
    {"s_wait_", KGEN__OP_WAIT, 0, {0}},
    {"s_nop", KGEN__OP_WAIT, 0, {0}},
    {"s_delay_alu", KGEN__OP_WAIT, 0, {0}},
    {"s_clause", KGEN__OP_WAIT, 0, {0}},
    {"s_sleep", KGEN__OP_WAIT, 0, {0}},
    {"s_barrier", KGEN__OP_WAIT, 0, {0}},
    {"s_setprio", KGEN__OP_WAIT, 0, {0}},
    {"s_set_inst_prefetch", KGEN__OP_WAIT, 0, {0}},
    {"s_code_end", KGEN__OP_PADDING, 0, {0}},
    {"s_endpgm", KGEN__OP_END, 0, {0}},
    {"s_", KGEN__OP_SCALAR, 0, {0}},
    /* cache control, which loads and stores nothing */
    {"buffer_wb", KGEN__OP_WAIT, 0, {0}},
    {"buffer_inv", KGEN__OP_WAIT, 0, {0}},
    {"buffer_gl", KGEN__OP_WAIT, 0, {0}},
    {"global_wb", KGEN__OP_WAIT, 0, {0}},
    {"global_inv", KGEN__OP_WAIT, 0, {0}},
};

/* What follows _load_ or _store_, and _lds_ or d16_ behind it. */
typedef struct width_row {
    const char *word;
    int16_t bytes;
} width_row;

static const width_row widths[] = {
    {"dwordx4", 16}, {"dwordx3", 12}, {"dwordx2", 8},  {"dword", 4},  {"b128", 16}, {"b96", 12},
    {"b64", 8},      {"b32", 4},      {"ushort", 2},   {"sshort", 2}, {"short", 2}, {"b16", 2},
    {"u16", 2},      {"i16", 2},      {"ubyte", 1},    {"sbyte", 1},  {"byte", 1},  {"b8", 1},
    {"u8", 1},       {"i8", 1},       {"format_x", 4},
};

static const char *const spaces[] = {"global_", "buffer_", "flat_", "scratch_", "tbuffer_"};

static int begins(const char *text, const char *prefix) {
    return strncmp(text, prefix, strlen(prefix)) == 0;
}

static const char *after(const char *text, const char *prefix) {
    return begins(text, prefix) ? text + strlen(prefix) : text;
}

static int16_t width_of(const char *word) {
    static const char *const marks[] = {"lds_", "tr_", "tr16_", "tr8_", "d16_", "hi_"};
    for (size_t i = 0; i < sizeof marks / sizeof marks[0]; i++) word = after(word, marks[i]);
    for (size_t i = 0; i < sizeof widths / sizeof widths[0]; i++)
        if (begins(word, widths[i].word)) return widths[i].bytes;
    return 4; /* no opcode that is known: a register */
}

/* 1: `opcode` is a memory instruction. A load into LDS is counted as a load. */
static int read_memory(kgen__instruction *i, const char *opcode) {
    const char *rest = NULL;
    for (size_t s = 0; s < sizeof spaces / sizeof spaces[0]; s++)
        if (begins(opcode, spaces[s])) rest = opcode + strlen(spaces[s]);
    if (!rest) return 0;
    int load = begins(rest, "load_"), store = begins(rest, "store_");
    if (!load && !store && !begins(rest, "atomic_")) return 0;
    i->op = load ? KGEN__OP_LOAD : KGEN__OP_STORE;
    i->bytes = load || store ? width_of(strchr(rest, '_') + 1) : 4;
    return 1;
}

static void read_class(kgen__instruction *i, const char *opcode, kgen_isa isa) {
    if (read_memory(i, opcode)) return;
    for (size_t r = 0; r < sizeof rows / sizeof rows[0]; r++) {
        if (!begins(opcode, rows[r].prefix)) continue;
        i->op = rows[r].op;
        i->bytes = rows[r].bytes;
        i->cycles = (size_t)isa < ARCHS ? rows[r].cycles[isa] : 0;
        return;
    }
}

/* gfx9, 10, 11: s_waitcnt vmcnt(N), one counter with stores on gfx9. gfx12:
 * s_wait_loadcnt N; in s_wait_loadcnt_dscnt the load counter is bits 8 to 13. */
static void read_wait(kgen__instruction *i, const char *opcode, const char *rest) {
    const char *count = strstr(rest, "vmcnt("), *end = rest + strcspn(rest, "\n");
    if (begins(opcode, "s_waitcnt ")) {
        if (count && count < end) i->allowed = (int32_t)strtol(count + 6, NULL, 10);
    } else if (begins(opcode, "s_wait_loadcnt_dscnt")) {
        i->allowed = (int32_t)(strtol(rest, NULL, 0) >> 8 & 63);
    } else if (begins(opcode, "s_wait_loadcnt")) {
        i->allowed = (int32_t)strtol(rest, NULL, 0);
    }
}

/* Where a branch goes, in bytes from the start: a signed number of words from
 * the next instruction. Stands in `target` until all offsets are known. */
static void read_branch(kgen__instruction *i, const char *opcode, const char *rest) {
    int always = begins(opcode, "s_branch ");
    if (!always && !begins(opcode, "s_cbranch_")) return;
    long words = strtol(rest, NULL, 0);
    if (words > INT16_MAX) words -= UINT16_MAX + 1;
    i->target = (int32_t)((long)i->offset + 4 + 4 * words);
    if (always) i->falls = 0;
}

/* "   a0: v_add_f32 ..." -> 1. Other lines -> 0. */
static int read_line(kgen__instruction *i, const char *line, kgen_isa isa) {
    char *end;
    unsigned long offset = strtoul(line, &end, 16);
    if (end == line || *end != ':' || offset > INT32_MAX / 2) return 0;
    const char *opcode = end + 1 + strspn(end + 1, " \t");
    const char *rest = opcode + strcspn(opcode, " \t\n");
    if (rest == opcode) return 0;
    *i = (kgen__instruction){(uint32_t)offset, KGEN__OP_SCALAR, 0, 0, 1, -1, -1};
    read_class(i, opcode, isa);
    if (i->op == KGEN__OP_WAIT) read_wait(i, opcode, rest);
    if (i->op == KGEN__OP_END) i->falls = 0;
    read_branch(i, opcode, rest);
    return 1;
}

static int by_offset(const void *a, const void *b) {
    uint32_t x = ((const kgen__instruction *)a)->offset, y = ((const kgen__instruction *)b)->offset;
    return x < y ? -1 : x > y;
}

static kgen_status find_targets(kgen__listing *l, kgen_error *err) {
    for (size_t i = 1; i < l->count; i++)
        if (l->code[i].offset <= l->code[i - 1].offset)
            return kgen_fail(err, KGEN_E_COMPILE, "listing: offset %x after %x: they must rise",
                             (unsigned)l->code[i].offset, (unsigned)l->code[i - 1].offset);
    for (size_t i = 0; i < l->count; i++) {
        kgen__instruction *from = &l->code[i];
        if (from->target == -1) continue;
        const kgen__instruction key = {.offset = (uint32_t)from->target};
        const kgen__instruction *to = bsearch(&key, l->code, l->count, sizeof *l->code, by_offset);
        if (!to)
            return kgen_fail(err, KGEN_E_COMPILE,
                             "listing: the branch at %x goes to %x, where no instruction begins",
                             (unsigned)from->offset, (unsigned)from->target);
        from->target = (int32_t)(to - l->code);
    }
    return KGEN_OK;
}

static size_t count_lines(const char *text) {
    size_t lines = 1;
    for (; *text; text++) lines += *text == '\n';
    return lines;
}

kgen_status kgen__listing_parse(kgen__listing *out, const char *text, kgen_isa isa,
                                kgen_error *err) {
    *out = (kgen__listing){.isa = isa};
    out->code = calloc(count_lines(text), sizeof *out->code);
    if (!out->code) return kgen_fail(err, KGEN_E_NOMEM, "listing: no memory for its instructions");
    for (const char *line = text; *line; line += *line == '\n') {
        kgen__instruction *i = &out->code[out->count];
        out->count += read_line(i, line, isa) && i->op != KGEN__OP_PADDING;
        line += strcspn(line, "\n");
    }
    kgen_status status = out->count ? find_targets(out, err)
                                    : kgen_fail(err, KGEN_E_COMPILE, "listing: no instruction");
    if (status == KGEN_OK) status = kgen__listing_find_loops(out, err);
    if (status != KGEN_OK) kgen__listing_free(out);
    return status;
}

void kgen__listing_free(kgen__listing *listing) {
    for (int32_t i = 0; i < listing->loop_count; i++) free(listing->loops[i].has);
    free(listing->loops);
    free(listing->blocks);
    free(listing->code);
    *listing = (kgen__listing){0};
}

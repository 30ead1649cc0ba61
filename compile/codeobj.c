/* What a code object says about its kernel, and whether that may be used. */
#include "unit.h"

#include <msgpack.h>
#include <string.h>

enum {
    EM_AMDGPU_ = 224,
    EM_CUDA_ = 190,
    NT_AMDGPU_METADATA_ = 32,
    AMDGPU_MACH_MASK = 0xff,
    AMDGPU_ONE_WAY = 0x200 | 0x800, /* for xnack, sramecc on alone, or off; clear: for any */
    OSABI_HSA = 64,
    ABI_FIRST = 2, /* code objects of version 4 to 6 */
    ABI_LAST = 4,
    METADATA_MAX = 1 << 20,
    LARGEST = 1 << 30, /* no number of a real kernel is larger; sums stay in int32_t */
};

static int32_t at_least(int32_t low, int32_t n) { return n < low ? low : n; }
static int32_t at_most(int32_t high, int32_t n) { return n > high ? high : n; }
static int32_t small_int(uint64_t n) { return n > LARGEST ? LARGEST : (int32_t)n; }
static int32_t round_up(int32_t n, int32_t step) { return (n + step - 1) / step * step; }

static kgen_status malformed(kgen_error *err, const char *what) {
    return kgen_fail(err, KGEN_E_COMPILE, "code object: %s is missing or malformed", what);
}

/* ---- occupancy ---- */

/* CDNA1 has a file for each kind, of which the fuller one counts. */
static int32_t register_waves(const kgen_resources *r, const kgen_target *t) {
    int32_t agprs = at_least(0, r->agprs);
    int32_t all = t->isa == KGEN_ISA_CDNA1 ? at_least(agprs, r->vgprs) : r->vgprs + agprs;
    int32_t used = round_up(at_least(1, all), t->vgpr_granule);
    return at_most(t->max_waves, t->vgpr_file / used);
}

/* Workgroups that the LDS of a compute unit holds, spread over its SIMDs. */
static int32_t lds_waves(const kgen_resources *r, const kgen_target *t, int32_t lanes) {
    int32_t total = t->unit_lds_bytes, used = at_least(0, r->lds_bytes) + t->group_lds_bytes;
    if (used == 0 || lanes <= 0) return t->max_waves;
    int32_t waves = round_up(lanes, t->wave_size) / t->wave_size;
    int64_t resident = (int64_t)(total / used) * waves;
    if (resident == 0) return 0;
    if (resident > (int64_t)t->max_waves * t->simds) return t->max_waves;
    return at_least(1, (int32_t)resident / t->simds);
}

static void set_occupancy(kgen_resources *r, const kgen_target *t, int32_t workgroup_size) {
    int32_t lanes = workgroup_size > 0 ? workgroup_size : r->workgroup_size;
    r->waves_per_simd = at_most(register_waves(r, t), lds_waves(r, t, lanes));
}

/* ---- AMD: the metadata note ---- */

typedef struct metadata_field {
    const char *key;
    size_t offset; /* in kgen_resources */
    int required;
} metadata_field;

#define FIELD(key, member, required) {key, offsetof(kgen_resources, member), required}
static const metadata_field metadata_fields[] = {
    FIELD(".vgpr_count", vgprs, 1),
    FIELD(".agpr_count", agprs, 0), /* only where there are any */
    FIELD(".sgpr_count", sgprs, 1),
    FIELD(".vgpr_spill_count", vgpr_spills, 0),
    FIELD(".sgpr_spill_count", sgpr_spills, 0),
    FIELD(".private_segment_fixed_size", scratch_bytes, 1),
    FIELD(".group_segment_fixed_size", lds_bytes, 1),
    FIELD(".max_flat_workgroup_size", workgroup_size, 1),
    FIELD(".wavefront_size", wave_size, 1),
    FIELD(".kernarg_segment_size", kernarg_bytes, 1),
};

/* msgpack-c allocates what an array or map claims to hold before it looks for
 * it. 1: every one in the note has at least a byte for each element. */
static int counts_fit(const uint8_t *p, size_t left) {
    /* by first byte from 0xc0: bytes of the length field, bytes besides */
    static const uint8_t shape[32][2] = {
        {0, 0}, {0, 0}, {0, 0},  {0, 0}, {1, 0}, {2, 0}, {4, 0}, {1, 1}, {2, 1}, {4, 1}, {0, 4},
        {0, 8}, {0, 1}, {0, 2},  {0, 4}, {0, 8}, {0, 1}, {0, 2}, {0, 4}, {0, 8}, {0, 2}, {0, 3},
        {0, 5}, {0, 9}, {0, 17}, {1, 0}, {2, 0}, {4, 0}, {2, 0}, {4, 0}, {2, 0}, {4, 0}};
    while (left) {
        uint8_t first = *p++;
        uint64_t skip = 0, count = 0;
        left--;
        if ((first & 0xe0) == 0xa0) skip = first & 0x1f;
        if (first >= 0xc0 && first < 0xe0) {
            const uint8_t *s = shape[first - 0xc0];
            if (s[0] + (size_t)s[1] > left) return 0;
            for (int i = 0; i < s[0]; i++) count = count << 8 | p[i];
            skip = (uint64_t)s[0] + s[1] + (first < 0xdc ? count : 0);
        }
        if (count > left || skip > left) return 0;
        p += skip;
        left -= skip;
    }
    return 1;
}

static int is_text(const msgpack_object *o, const char *text) {
    return o->type == MSGPACK_OBJECT_STR && o->via.str.size == strlen(text) &&
           memcmp(o->via.str.ptr, text, o->via.str.size) == 0;
}

static const msgpack_object *map_get(const msgpack_object *map, const char *key) {
    if (map->type != MSGPACK_OBJECT_MAP) return NULL;
    for (uint32_t i = 0; i < map->via.map.size; i++)
        if (is_text(&map->via.map.ptr[i].key, key)) return &map->via.map.ptr[i].val;
    return NULL;
}

static const msgpack_object *find_kernel(const msgpack_object *root, const char *symbol) {
    const msgpack_object *kernels = map_get(root, "amdhsa.kernels");
    if (!kernels || kernels->type != MSGPACK_OBJECT_ARRAY) return NULL;
    for (uint32_t i = 0; i < kernels->via.array.size; i++) {
        const msgpack_object *name = map_get(&kernels->via.array.ptr[i], ".name");
        if (name && is_text(name, symbol)) return &kernels->via.array.ptr[i];
    }
    return NULL;
}

static kgen_status read_kernel(kgen_resources *out, const msgpack_object *kernel, kgen_error *err) {
    for (size_t i = 0; i < sizeof metadata_fields / sizeof metadata_fields[0]; i++) {
        const metadata_field *f = &metadata_fields[i];
        const msgpack_object *value = map_get(kernel, f->key);
        int32_t number = 0;
        if (value && value->type == MSGPACK_OBJECT_POSITIVE_INTEGER && value->via.u64 <= LARGEST)
            number = (int32_t)value->via.u64;
        else if (value || f->required)
            return malformed(err, f->key);
        memcpy((char *)out + f->offset, &number, sizeof number);
    }
    return KGEN_OK;
}

static kgen_status read_metadata(kgen_resources *out, const kgen__elf *elf, const char *symbol,
                                 kgen_error *err) {
    const uint8_t *note;
    size_t size, offset = 0;
    if (!kgen__elf_note(elf, "AMDGPU", NT_AMDGPU_METADATA_, &note, &size) || size > METADATA_MAX ||
        !counts_fit(note, size))
        return malformed(err, "the AMDGPU metadata note");
    msgpack_unpacked unpacked;
    msgpack_unpacked_init(&unpacked);
    kgen_status status = KGEN_OK;
    const msgpack_object *kernel = NULL;
    if (msgpack_unpack_next(&unpacked, (const char *)note, size, &offset) == MSGPACK_UNPACK_SUCCESS)
        kernel = find_kernel(&unpacked.data, symbol);
    status = kernel ? read_kernel(out, kernel, err) : malformed(err, "the kernel's metadata");
    msgpack_unpacked_destroy(&unpacked);
    return status;
}

kgen_status kgen__amd_object_check(const kgen__elf *elf, const kgen_target *t, kgen_error *err) {
    if (elf->header.e_machine != EM_AMDGPU_ ||
        (int32_t)(elf->header.e_flags & AMDGPU_MACH_MASK) != t->elf_mach)
        return kgen_fail(err, KGEN_E_COMPILE,
                         "code object: machine %u, architecture 0x%x; %s is machine %d, 0x%x",
                         elf->header.e_machine, elf->header.e_flags & AMDGPU_MACH_MASK, t->name,
                         EM_AMDGPU_, (unsigned)t->elf_mach);
    return KGEN_OK;
}

/* What a driver of any setting loads. */
static kgen_status check_abi(const kgen__elf *elf, kgen_error *err) {
    const unsigned char *ident = elf->header.e_ident;
    if (ident[EI_OSABI] != OSABI_HSA || ident[EI_ABIVERSION] < ABI_FIRST ||
        ident[EI_ABIVERSION] > ABI_LAST)
        return kgen_fail(err, KGEN_E_COMPILE, "code object: ABI %d.%d; %d.%d to %d expected",
                         ident[EI_OSABI], ident[EI_ABIVERSION], OSABI_HSA, ABI_FIRST, ABI_LAST);
    if (elf->header.e_flags & AMDGPU_ONE_WAY)
        return kgen_fail(
            err, KGEN_E_COMPILE,
            "code object: flags 0x%x, for xnack or sramecc on or off alone; any expected",
            elf->header.e_flags);
    return KGEN_OK;
}

static kgen_status inspect_amd(kgen_resources *out, const kgen__elf *elf, const kgen_target *t,
                               const char *symbol, int32_t workgroup_size, kgen_error *err) {
    KGEN_TRY(kgen__amd_object_check(elf, t, err));
    KGEN_TRY(check_abi(elf, err));
    KGEN_TRY(read_metadata(out, elf, symbol, err));
    /* .vgpr_count is the whole of a unified file: AGPRs are in it. Of two files it is
     * the larger. */
    if (out->agprs > out->vgprs) return malformed(err, ".agpr_count");
    if (t->isa != KGEN_ISA_CDNA1) out->vgprs -= out->agprs;
    set_occupancy(out, t, workgroup_size);
    return KGEN_OK;
}

/* ---- NVIDIA: .nv.info is a list of (format, attribute, value) ---- */

enum {
    NV_FORMAT_SIZED = 4, /* a 16-bit size and that many bytes; others: 4 bytes in all */
    NV_MAX_THREADS = 0x05,
    NV_FRAME_SIZE = 0x11, /* symbol, bytes */
    NV_REGCOUNT = 0x2f,   /* symbol, registers */
};

static uint32_t u32_at(const uint8_t *p) {
    uint32_t n;
    memcpy(&n, p, sizeof n);
    return n;
}

static void read_attribute(kgen_resources *out, uint8_t attribute, const uint8_t *value,
                           size_t size, unsigned symbol) {
    if (attribute == NV_MAX_THREADS && size >= 12) out->workgroup_size = small_int(u32_at(value));
    if (size < 8 || u32_at(value) != symbol) return;
    if (attribute == NV_REGCOUNT) out->vgprs = small_int(u32_at(value + 4));
    if (attribute == NV_FRAME_SIZE) out->scratch_bytes = small_int(u32_at(value + 4));
}

static void read_nv_info(kgen_resources *out, const kgen__section *info, unsigned symbol) {
    const uint8_t *p = info->data;
    size_t left = p ? info->header.sh_size : 0;
    while (left >= 4) {
        size_t size = p[0] == NV_FORMAT_SIZED ? (size_t)(p[2] | p[3] << 8) : 0;
        if (size > left - 4) return;
        read_attribute(out, p[1], p + 4, size, symbol);
        p += 4 + size;
        left -= 4 + size;
    }
}

static int section_of_kernel(const kgen__elf *elf, const char *prefix, const char *symbol,
                             kgen__section *out) {
    char name[KGEN_SYMBOL_MAX + 32];
    snprintf(name, sizeof name, "%s.%s", prefix, symbol);
    return kgen__elf_section_named(elf, name, out);
}

static kgen_status inspect_cuda(kgen_resources *out, const kgen__elf *elf, const kgen_target *t,
                                const char *symbol, unsigned index, int32_t workgroup_size,
                                int32_t launch_lds, kgen_error *err) {
    kgen__section s;
    if (elf->header.e_machine != EM_CUDA_)
        return kgen_fail(err, KGEN_E_COMPILE, "code object: machine %u, %s is machine %d",
                         elf->header.e_machine, t->name, EM_CUDA_);
    out->wave_size = t->wave_size;
    out->agprs = out->lds_bytes = out->scratch_bytes = 0;
    if (kgen__elf_section_named(elf, ".nv.info", &s)) read_nv_info(out, &s, index);
    if (section_of_kernel(elf, ".nv.info", symbol, &s)) read_nv_info(out, &s, index);
    if (out->vgprs < 0) return malformed(err, "the register count");
    /* The section begins with the bytes that the driver reserves. */
    uint64_t reserved = (uint64_t)t->group_lds_bytes;
    if (section_of_kernel(elf, ".nv.shared", symbol, &s) && s.header.sh_size > reserved)
        out->lds_bytes = small_int(s.header.sh_size - reserved);
    out->lds_bytes += launch_lds;
    set_occupancy(out, t, workgroup_size);
    return KGEN_OK;
}

/* ---- all ---- */

kgen_status kgen__inspect(kgen_resources *out, const kgen_target *target, const char *symbol,
                          int32_t workgroup_size, int32_t launch_lds, const void *code,
                          size_t code_size, kgen_error *err) {
    kgen__elf elf;
    Elf64_Sym entry;
    unsigned index;
    memset(out, 0xff, sizeof *out); /* every field -1: unknown */
    if (!kgen__elf_open(&elf, code, code_size)) return malformed(err, "the ELF header");
    if (!kgen__elf_symbol(&elf, symbol, &entry, &index) || entry.st_shndx == SHN_UNDEF)
        return malformed(err, "the kernel's symbol");
    out->code_bytes = small_int(entry.st_size);
    if (target->vendor == KGEN_VENDOR_AMD)
        return inspect_amd(out, &elf, target, symbol, workgroup_size, err);
    if (target->vendor == KGEN_VENDOR_NVIDIA)
        return inspect_cuda(out, &elf, target, symbol, index, workgroup_size, launch_lds, err);
    return KGEN_OK;
}

static kgen_status spilled(const kgen_resources *r, const kgen_target *target, int32_t lanes,
                           int32_t groups, kgen_error *err) {
    int32_t waves = groups * (round_up(lanes, target->wave_size) / target->wave_size);
    char shared[80] = "";
    if (waves > 0)
        snprintf(shared, sizeof shared,
                 " where a compute unit holds %d workgroups of %d lanes (occ, waves)", groups,
                 lanes);
    return kgen_fail(err, KGEN_E_BUDGET,
                     "%d VGPRs and %d SGPRs spilled, %d bytes of scratch a lane; the kernel uses "
                     "%d registers, %s allows %d%s",
                     at_least(0, r->vgpr_spills), at_least(0, r->sgpr_spills),
                     at_least(0, r->scratch_bytes), r->vgprs + at_least(0, r->agprs), target->name,
                     kgen_target_lane_registers(target, waves), shared);
}

/* A spill of a few registers that found others (of accumulators, or a lane's for scalars) is a move
 * each way, and no memory. */
static int is_within_budget(const kgen_resources *r) {
    enum { MOST_MOVED = 8 };
    int32_t moved = at_least(0, r->vgpr_spills) + at_least(0, r->sgpr_spills);
    return r->scratch_bytes <= 0 && (!moved || (!r->scratch_bytes && moved <= MOST_MOVED));
}

kgen_status kgen__gate(const kgen_resources *r, const kgen_target *target, int32_t workgroup_size,
                       int32_t groups, int allow_spills, kgen_error *err) {
    int32_t most = target->unit_lds_bytes - target->group_lds_bytes;
    if (r->lds_bytes > most)
        return kgen_fail(err, KGEN_E_BUDGET, "%d bytes of LDS; %s allows %d", r->lds_bytes,
                         target->name, most);
    if (r->workgroup_size >= 0 && r->workgroup_size < workgroup_size)
        return kgen_fail(err, KGEN_E_BUDGET, "compiled for workgroups of %d lanes; needs %d",
                         r->workgroup_size, workgroup_size);
    if (allow_spills || is_within_budget(r)) return KGEN_OK;
    return spilled(r, target, workgroup_size, groups, err);
}

/* ---- same code ---- */

typedef struct side {
    kgen__elf elf;
    char text[KGEN_SYMBOL_MAX + 8], descriptor[KGEN_SYMBOL_MAX + 8]; /* sm_90's, AMD's */
} side;

static int open_side(side *s, const kgen_entry *entry) {
    snprintf(s->text, sizeof s->text, ".text.%s", entry->symbol);
    snprintf(s->descriptor, sizeof s->descriptor, "%s.kd", entry->symbol);
    return kgen__elf_open(&s->elf, entry->code, entry->code_size);
}

static int same_section(const side *a, const char *name_a, const side *b, const char *name_b,
                        int *found) {
    kgen__section x = {0}, y = {0};
    int in_a = kgen__elf_section_named(&a->elf, name_a, &x);
    int in_b = kgen__elf_section_named(&b->elf, name_b, &y);
    if (!in_a || !in_b) return in_a == in_b;
    if (x.header.sh_size != y.header.sh_size) return 0;
    *found += x.data != NULL;
    return !x.data || !y.data ? x.data == y.data : !memcmp(x.data, y.data, x.header.sh_size);
}

/* Where the descriptor says how far its code lies away: names in the file move
 * that. -1: there is none. */
static int64_t distance_at(const side *s, const kgen__section *rodata) {
    enum { DISTANCE_AT = 16, DISTANCE_BYTES = 8 };
    Elf64_Sym symbol;
    unsigned index;
    if (!kgen__elf_symbol(&s->elf, s->descriptor, &symbol, &index)) return -1;
    uint64_t at = symbol.st_value - rodata->header.sh_addr + DISTANCE_AT;
    uint64_t size = rodata->header.sh_size;
    return at < size && size - at >= DISTANCE_BYTES ? (int64_t)at : -1;
}

static int same_constants(const side *a, const side *b) {
    kgen__section x = {0}, y = {0};
    int in_a = kgen__elf_section_named(&a->elf, ".rodata", &x);
    int in_b = kgen__elf_section_named(&b->elf, ".rodata", &y);
    uint64_t size = x.header.sh_size;
    if (!in_a || !in_b) return in_a == in_b;
    if (size != y.header.sh_size) return 0;
    if (!x.data || !y.data) return x.data == y.data;
    int64_t at = distance_at(a, &x);
    if (at != distance_at(b, &y)) return 0;
    if (at < 0) return memcmp(x.data, y.data, size) == 0;
    uint64_t behind = (uint64_t)at + 8;
    return memcmp(x.data, y.data, (size_t)at) == 0 &&
           memcmp(x.data + behind, y.data + behind, size - behind) == 0;
}

int kgen_code_same(const kgen_entry *a, const kgen_entry *b) {
    side x, y;
    int code = 0;
    return open_side(&x, a) && open_side(&y, b) && same_section(&x, ".text", &y, ".text", &code) &&
           same_section(&x, x.text, &y, y.text, &code) && code > 0 && same_constants(&x, &y);
}

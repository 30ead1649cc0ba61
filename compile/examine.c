/* Is an entry what it says? Its code object is read again, and compiled again. */
#include "unit.h"

#include <stddef.h>
#include <string.h>

/* ---- its code object --------------------------------------------------------- */

/* by_launch: it also follows from lanes and LDS that a launch gives, which are known of a
 * source that this version writes. */
static const struct {
    const char *name;
    size_t offset;
    int by_launch;
} fields[] = {
#define FIELD(name, by_launch) {#name, offsetof(kgen_resources, name), by_launch}
    FIELD(vgprs, 0),         FIELD(agprs, 0),          FIELD(sgprs, 0),
    FIELD(vgpr_spills, 0),   FIELD(sgpr_spills, 0),    FIELD(scratch_bytes, 0),
    FIELD(kernarg_bytes, 0), FIELD(code_bytes, 0),     FIELD(wave_size, 0),
    FIELD(lds_bytes, 1),     FIELD(workgroup_size, 1), FIELD(waves_per_simd, 1),
#undef FIELD
};

static int32_t value_at(const kgen_resources *r, size_t field) {
    int32_t value;
    memcpy(&value, (const char *)r + fields[field].offset, sizeof value);
    return value;
}

static kgen_status compare(const kgen_resources *says, const kgen_resources *is, int current,
                           kgen_error *err) {
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++)
        if ((current || !fields[i].by_launch) && value_at(says, i) != value_at(is, i))
            return kgen_fail(err, KGEN_E_MISMATCH, "%s: the entry says %d, its code object %d",
                             fields[i].name, value_at(says, i), value_at(is, i));
    return KGEN_OK;
}

static kgen_status check_source(const kgen_entry *entry, kgen_error *err) {
    uint8_t digest[KGEN_SOURCE_DIGEST_BYTES];
    kgen_source_digest(digest, entry->source, entry->source_size);
    if (memcmp(digest, entry->source_digest, sizeof digest) == 0) return KGEN_OK;
    return kgen_fail(err, KGEN_E_MISMATCH, "source: it is not the one that the head names");
}

/* 1: *out is what this version writes for the entry, which is the source that it has. */
static int render_again(kgen_source *out, const kgen_entry *entry, const kgen_target *target) {
    uint8_t digest[KGEN_SOURCE_DIGEST_BYTES];
    kgen_spec spec;
    memset(out, 0, sizeof *out);
    if (kgen_spec_parse(&spec, entry->spec, NULL) != KGEN_OK ||
        kgen_source_render(out, &spec, target, NULL) != KGEN_OK)
        return 0;
    kgen_source_digest(digest, out->text, out->size);
    return memcmp(digest, entry->source_digest, sizeof digest) == 0;
}

kgen_status kgen_entry_examine(const kgen_entry *entry, int *current, kgen_error *err) {
    const kgen_target *target;
    kgen_source source;
    kgen_resources is;
    *current = 0;
    KGEN_TRY(kgen_target_find(&target, entry->target, err));
    KGEN_TRY(check_source(entry, err));
    *current = render_again(&source, entry, target);
    int32_t lanes = *current ? source.workgroup_size : 0, lds = *current ? source.lds_bytes : 0;
    int32_t groups = *current ? kgen_spec_occupancy(&source.spec) : 0;
    kgen_source_free(&source);
    KGEN_TRY(
        kgen__inspect(&is, target, entry->symbol, lanes, lds, entry->code, entry->code_size, err));
    KGEN_TRY(compare(&entry->resources, &is, *current, err));
    return kgen__gate(&is, target, lanes, groups, 0, err);
}

/* ---- the same bytes again ------------------------------------------------------ */

static kgen_status rebuild(const kgen_entry *entry, const kgen_job *job, kgen_error *err) {
    const kgen_build_options options = {.size = sizeof options, .workers = 1, .allow_spills = 1};
    kgen_job_result result = {0};
    kgen_status status = kgen_build(NULL, job, 1, &options, &result, err);
    if (status == KGEN_OK && (result.entry->code_size != entry->code_size ||
                              memcmp(result.entry->code, entry->code, entry->code_size) != 0))
        status = kgen_fail(err, KGEN_E_MISMATCH,
                           "code: %zu bytes, and other ones (%zu) when it is compiled again",
                           entry->code_size, result.entry->code_size);
    kgen_entry_free(result.entry);
    return status;
}

kgen_status kgen_entry_rebuild(const kgen_entry *entry, int *rebuilt, kgen_error *err) {
    kgen_job job;
    kgen_key key;
    *rebuilt = 0;
    KGEN_TRY(kgen_target_find(&job.target, entry->target, err));
    if (kgen_spec_parse(&job.spec, entry->spec, NULL) != KGEN_OK ||
        kgen_job_key(&key, &job, NULL) != KGEN_OK || memcmp(&key, &entry->key, sizeof key) != 0)
        return KGEN_OK;
    *rebuilt = 1;
    return rebuild(entry, &job, err);
}

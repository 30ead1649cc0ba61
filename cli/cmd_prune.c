/* kgen prune: the kernels that were not used for longest leave the cache. */
#include "cli.h"

typedef struct pruning {
    const char *cache_dir;
    double max_bytes, unused_s;
    uint64_t max_count;
    int dry_run, json;
} pruning;

static int print_counts(const pruning *p, const kgen_prune_counts *c) {
    if (p->json)
        return kgen__json_print(json_pack("{s:I, s:I, s:I, s:I, s:b}", "entries",
                                          (json_int_t)c->entries, "bytes", (json_int_t)c->bytes,
                                          "removed", (json_int_t)c->removed, "removed_bytes",
                                          (json_int_t)c->removed_bytes, "dry_run", p->dry_run));
    printf("%llu of %llu kernels %s, %.1f of %.1f kB\n", (unsigned long long)c->removed,
           (unsigned long long)c->entries, p->dry_run ? "would be removed" : "removed",
           (double)c->removed_bytes / 1000, (double)c->bytes / 1000);
    return 0;
}

static int prune(const pruning *p) {
    const kgen_prune_options options = {.size = sizeof options,
                                        .max_bytes = (uint64_t)p->max_bytes,
                                        .max_entries = p->max_count,
                                        .unused_s = (uint64_t)p->unused_s,
                                        .dry_run = p->dry_run};
    kgen_prune_counts counts;
    kgen_error err;
    kgen_cache *cache = NULL;
    kgen_status status = kgen_cache_open(&cache, p->cache_dir, &err);
    if (status == KGEN_OK) status = kgen_cache_prune(cache, &options, &counts, &err);
    kgen_cache_close(cache);
    return status == KGEN_OK ? print_counts(p, &counts) : kgen__cli_fail(&err);
}

int kgen__command_prune(int argc, char **argv) {
    pruning p = {0};
    int first, code;
    kgen__syntax s = {.command = "prune",
                      .arguments = "",
                      .about = "Removes the kernels that were not used for longest, until the rest "
                               "fits."};
    kgen__syntax_add(&s, (kgen__option){"max-size", 0, "BYTES", kgen__read_bytes, &p.max_bytes, 0,
                                        0, "keep at most so much: 500M, 2G"});
    kgen__syntax_add(&s, (kgen__option){"max-count", 0, "N", kgen__read_u64, &p.max_count, 0, 0,
                                        "keep at most so many kernels"});
    kgen__syntax_add(&s, (kgen__option){"unused", 0, "TIME", kgen__read_seconds, &p.unused_s, 0, 0,
                                        "remove what nobody used for so long: 720h"});
    kgen__syntax_add(&s, (kgen__option){"dry-run", 0, NULL, NULL, &p.dry_run, 0, 0,
                                        "only say what would be removed"});
    kgen__syntax_add_cache_dir(&s, &p.cache_dir);
    kgen__syntax_add_json(&s, &p.json);
    if (kgen__syntax_parse(&s, argc, argv, &first, &code) == KGEN__STOP) return code;
    if (!p.max_bytes && !p.max_count && !p.unused_s)
        return kgen__cli_usage("prune", "give --max-size, --max-count or --unused");
    return prune(&p);
}

/* kgen bench --host: what a kernel costs the host, in a cache of its own that is
 * gone afterwards. */
#include <errno.h>
#include <ftw.h>
#include <kgen/bundle.h>
#include <kgen/probe.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "workload/workload.h"
#include "cli.h"

enum { SAMPLES = 31, PAIRS = 401, FIRSTS = 5, LAUNCHES = 16, LOOKUPS = 16, FINDS = 1024 };

typedef struct costs {
    double render_us, cold_ms, warm_us, bundle_us, signed_us, memory_ns, load_us, prepare_us,
        prepare_driver_us, first_us, first_driver_us, find_ns, launch_ns;
} costs;

static const struct column {
    const char *key, *head;
    size_t at;
} columns[] = {
    {"render_us", "RENDER US", offsetof(costs, render_us)},
    {"cold_ms", "COLD MS", offsetof(costs, cold_ms)},
    {"warm_us", "WARM US", offsetof(costs, warm_us)},
    {"bundle_us", "BUNDLE US", offsetof(costs, bundle_us)},
    {"signed_us", "SIGNED US", offsetof(costs, signed_us)},
    {"memory_ns", "MEMORY NS", offsetof(costs, memory_ns)},
    {"load_us", "LOAD US", offsetof(costs, load_us)},
    {"prepare_us", "PREPARE US", offsetof(costs, prepare_us)},
    {"prepare_driver_us", "OF IT DRIVER", offsetof(costs, prepare_driver_us)},
    {"first_us", "FIRST US", offsetof(costs, first_us)},
    {"first_driver_us", "OF IT DRIVER", offsetof(costs, first_driver_us)},
    {"find_ns", "FIND NS", offsetof(costs, find_ns)},
    {"launch_ns", "LAUNCH NS", offsetof(costs, launch_ns)},
};
enum { COLUMNS = sizeof columns / sizeof columns[0] };

/* What no device was asked for. */
static const double NOT_MEASURED = -1;

/* A process that has done nothing yet: it forks one that prepares a row, whenever it is asked. */
typedef struct newborn {
    pid_t pid;
    int ask, answer;
} newborn;

/* One row's measurement. */
typedef struct host {
    const kgen__rows *rows;
    const kgen__row *row;
    const kgen_open_options *options;
    const newborn *newborn;
    kgen_context *ctx; /* NULL: no device is asked */
    const kgen_target *target;
    kgen_job job;
    kgen_key key;
    kgen_entry *entry;
    costs cost;
} host;

static double median_of(double *samples, int count) {
    kgen__timing timing;
    kgen__timing_of(&timing, samples, count);
    return timing.us;
}

static double median(double *samples) { return median_of(samples, SAMPLES); }

/* Kernels of other layers would be found there. */
static void keep_to_own_cache(void) {
    unsetenv("KGEN_CACHE_LAYERS");
    unsetenv("KGEN_CACHE_REMOTE");
    unsetenv("KGEN_BUNDLE_KEY");
}

/* ---- before the cache, and the cache ------------------------------------------- */

static kgen_status time_render(host *h, kgen_error *err) {
    double seconds[SAMPLES];
    for (int i = 0; i < SAMPLES; i++) {
        kgen_source source;
        double start = kgen__clock();
        KGEN_TRY(kgen_source_render(&source, &h->job.spec, h->job.target, err));
        seconds[i] = kgen__clock() - start;
        kgen_source_free(&source);
    }
    h->cost.render_us = median(seconds) * 1e6;
    return KGEN_OK;
}

/* From an empty cache, with the start of the helper process and the writing. */
static kgen_status time_cold(host *h, kgen_error *err) {
    const kgen_build_options options = {.size = sizeof options, .workers = 1};
    kgen_job_result result = {0};
    kgen_cache *cache;
    KGEN_TRY(kgen_cache_open(&cache, h->options->cache_dir, err));
    double start = kgen__clock();
    kgen_status status = kgen_build(cache, &h->job, 1, &options, &result, err);
    h->cost.cold_ms =
        result.outcome == KGEN_JOB_BUILT ? (kgen__clock() - start) * 1e3 : NOT_MEASURED;
    h->entry = result.entry;
    if (h->entry) h->key = h->entry->key;
    kgen_cache_close(cache);
    return status;
}

static kgen_status get(const host *h, kgen_cache *cache, int how, double *seconds,
                       kgen_error *err) {
    kgen_entry *entry = NULL;
    int found = 0;
    double start = kgen__clock();
    KGEN_TRY(kgen_cache_get_as(cache, &entry, &found, &h->key, how, err));
    *seconds = kgen__clock() - start;
    kgen_entry_free(entry);
    if (found) return KGEN_OK;
    return kgen_fail(err, KGEN_E_INTERNAL, "%s: an entry just built is not in the cache",
                     h->options->cache_dir);
}

/* A cache that has just been opened reads and checks the code in the file; after a look-up of
 * the whole entry that is in memory, and the next one copies it. */
static kgen_status time_cache(host *h, kgen_error *err) {
    double warm[SAMPLES], memory[SAMPLES], seconds = 0;
    kgen_status status = KGEN_OK;
    for (int i = 0; i < SAMPLES && status == KGEN_OK; i++) {
        kgen_cache *cache;
        KGEN_TRY(kgen_cache_open(&cache, h->options->cache_dir, err));
        status = get(h, cache, KGEN_GET_CODE, &warm[i], err);
        if (status == KGEN_OK) status = get(h, cache, 0, &seconds, err);
        memory[i] = 1e9;
        for (int n = 0; n < LOOKUPS && status == KGEN_OK; n++) {
            status = get(h, cache, KGEN_GET_CODE, &seconds, err);
            if (seconds < memory[i]) memory[i] = seconds;
        }
        kgen_cache_close(cache);
    }
    KGEN_TRY(status);
    h->cost.warm_us = median(warm) * 1e6;
    h->cost.memory_ns = median(memory) * 1e9;
    return KGEN_OK;
}

/* The code in a bundle that holds what the folder does, alone. */
static kgen_status time_bundle(const host *h, double *us, const char *key_file, kgen_error *err) {
    const kgen_bundle_options options = {.size = sizeof options, .key_file = key_file};
    kgen_bundle_counts counts;
    char path[600];
    double seconds[SAMPLES];
    kgen_status status = KGEN_OK;
    snprintf(path, sizeof path, "%s/bundle.kgb", h->options->cache_dir);
    KGEN_TRY(kgen_bundle_write(&counts, path, &h->options->cache_dir, 1, &options, err));
    setenv("KGEN_CACHE_LAYERS", path, 1);
    if (key_file) setenv("KGEN_BUNDLE_KEY", counts.public_key, 1);
    for (int i = 0; i < SAMPLES && status == KGEN_OK; i++) {
        kgen_cache *cache;
        status = kgen_cache_open(&cache, "", err);
        if (status != KGEN_OK) break;
        status = get(h, cache, KGEN_GET_CODE, &seconds[i], err);
        kgen_cache_close(cache);
    }
    keep_to_own_cache();
    if (status == KGEN_OK) *us = median(seconds) * 1e6;
    return status;
}

static kgen_status time_bundles(host *h, kgen_error *err) {
    char key_file[600], public_key[65];
    snprintf(key_file, sizeof key_file, "%s/bundle.key", h->options->cache_dir);
    KGEN_TRY(time_bundle(h, &h->cost.bundle_us, NULL, err));
    KGEN_TRY(kgen_bundle_key_make(public_key, key_file, err));
    kgen_status status = time_bundle(h, &h->cost.signed_us, key_file, err);
    unlink(key_file);
    return status;
}

/* ---- load and launch --------------------------------------------------------------- */

static kgen_status time_load(host *h, kgen_error *err) {
    double seconds[SAMPLES];
    for (int i = 0; i < SAMPLES; i++) {
        double start = kgen__clock();
        KGEN_TRY(kgen_probe_load(h->ctx, h->entry, err));
        seconds[i] = kgen__clock() - start;
    }
    h->cost.load_us = median(seconds) * 1e6;
    return KGEN_OK;
}

/* Of kgen_prepare, and of the driver in it. */
typedef struct preparation {
    double us, driver_us;
} preparation;

/* From the call to a kernel that can be launched, in a context that has none. */
static kgen_status prepare_anew(const kgen_open_options *options, const kgen__row *row,
                                preparation *took, kgen_error *err) {
    kgen_context *ctx;
    kgen_kernel *kernel;
    KGEN_TRY(kgen_open(&ctx, options, err));
    double start = kgen__clock();
    kgen_status status = kgen_prepare(ctx, &row->spec, 1, &kernel, err);
    took->us = (kgen__clock() - start) * 1e6;
    took->driver_us = status == KGEN_OK ? kgen_probe_load_us(kernel) : 0;
    kgen_close(ctx);
    return status;
}

static void set_medians(double *us, double *driver_us, const preparation *took, int count) {
    double all[SAMPLES], driver[SAMPLES];
    for (int i = 0; i < count; i++) all[i] = took[i].us, driver[i] = took[i].driver_us;
    *us = median_of(all, count);
    *driver_us = median_of(driver, count);
}

static kgen_status time_prepare(host *h, kgen_error *err) {
    preparation took[SAMPLES];
    for (int i = 0; i < SAMPLES; i++) KGEN_TRY(prepare_anew(h->options, h->row, &took[i], err));
    set_medians(&h->cost.prepare_us, &h->cost.prepare_driver_us, took, SAMPLES);
    return KGEN_OK;
}

/* What it answers is -1 where its child failed or died. */
static void serve_first(const kgen__rows *rows, const kgen_open_options *options, int ask,
                        int answer) {
    size_t index;
    while (read(ask, &index, sizeof index) == (ssize_t)sizeof index) {
        preparation took = {-1, 0};
        int code = 1;
        pid_t child = fork();
        if (child == 0) {
            kgen_status status = prepare_anew(options, &rows->list[index], &took, NULL);
            _exit(status != KGEN_OK || write(answer, &took, sizeof took) != (ssize_t)sizeof took);
        }
        if (child > 0) waitpid(child, &code, 0);
        if (code && write(answer, &took, sizeof took) < 0) break;
    }
    _exit(0);
}

/* Before this process does anything: no driver survives a fork. */
static kgen_status newborn_start(newborn *out, const kgen__rows *rows,
                                 const kgen_open_options *options, kgen_error *err) {
    int ask[2], answer[2];
    if (pipe(ask) != 0) return kgen_fail(err, KGEN_E_IO, "pipe: %s", strerror(errno));
    if (pipe(answer) != 0) {
        close(ask[0]), close(ask[1]);
        return kgen_fail(err, KGEN_E_IO, "pipe: %s", strerror(errno));
    }
    out->pid = fork();
    if (out->pid == 0) {
        close(ask[1]), close(answer[0]);
        serve_first(rows, options, ask[0], answer[1]);
    }
    close(ask[0]), close(answer[1]);
    out->ask = ask[1];
    out->answer = answer[0];
    return out->pid > 0 ? KGEN_OK : kgen_fail(err, KGEN_E_IO, "fork: %s", strerror(errno));
}

static void newborn_end(const newborn *n) {
    close(n->ask), close(n->answer);
    if (n->pid > 0) waitpid(n->pid, NULL, 0);
}

static kgen_status time_first(host *h, kgen_error *err) {
    preparation took[FIRSTS];
    const size_t index = (size_t)(h->row - h->rows->list);
    for (int i = 0; i < FIRSTS; i++)
        if (write(h->newborn->ask, &index, sizeof index) != (ssize_t)sizeof index ||
            read(h->newborn->answer, &took[i], sizeof took[i]) != (ssize_t)sizeof took[i] ||
            took[i].us < 0)
            return kgen_fail(err, KGEN_E_INTERNAL, "a new process could not prepare a kernel");
    set_medians(&h->cost.first_us, &h->cost.first_driver_us, took, FIRSTS);
    return KGEN_OK;
}

typedef struct launcher {
    const host *h;
    const kgen_kernel *kernel;
    kgen_args args;
    kgen_args_room room;
    kgen_stream stream;
    int captures; /* the cpu device runs what it launches, but records a graph */
} launcher;

static kgen_status launch_all(const launcher *l, int raw, kgen_error *err) {
    if (raw) return kgen_probe_launch(l->kernel, &l->args, l->stream, LAUNCHES, err);
    for (int i = 0; i < LAUNCHES; i++) KGEN_TRY(kgen_launch(l->kernel, &l->args, l->stream, err));
    return KGEN_OK;
}

static kgen_status time_launches(const launcher *l, int raw, double *seconds, kgen_error *err) {
    kgen_graph *graph = NULL;
    if (l->captures) KGEN_TRY(kgen_graph_begin(l->h->ctx, l->stream, err));
    double start = kgen__clock();
    kgen_status status = launch_all(l, raw, err);
    *seconds = (kgen__clock() - start) / LAUNCHES;
    if (!l->captures) {
        kgen_status ended = kgen_stream_sync(l->h->ctx, l->stream, err);
        return status != KGEN_OK ? status : ended;
    }
    kgen_status ended = kgen_graph_end(l->h->ctx, l->stream, &graph, err);
    kgen_graph_free(graph);
    return status != KGEN_OK ? status : ended;
}

/* The two in turn, either first, and the median of their differences: what slows one slows the
 * other. Short runs in many pairs: long ones vary by more than the difference. */
static kgen_status compare_launches(host *h, const launcher *l, kgen_error *err) {
    double apart[PAIRS], seconds[2];
    for (int i = 0; i < PAIRS; i++) {
        for (int n = 0; n < 2; n++) {
            const int raw = (i + n) % 2;
            KGEN_TRY(time_launches(l, raw, &seconds[raw], err));
        }
        apart[i] = seconds[0] - seconds[1];
    }
    h->cost.launch_ns = median_of(apart, PAIRS) * 1e9;
    return KGEN_OK;
}

/* As an engine asks, beside the row's other tuning keys or not. */
static kgen_status time_find(host *h, const kgen_kernel *kernel, kgen_error *err) {
    double seconds[SAMPLES];
    for (int i = 0; i < SAMPLES; i++) {
        int found = 0;
        double start = kgen__clock();
        for (int n = 0; n < FINDS; n++) found += kgen_find(h->ctx, &h->row->spec, NULL) == kernel;
        seconds[i] = (kgen__clock() - start) / FINDS;
        if (found != FINDS)
            return kgen_fail(err, KGEN_E_INTERNAL, "a kernel just prepared is not found");
    }
    h->cost.find_ns = median(seconds) * 1e9;
    return KGEN_OK;
}

static kgen_status with_workspace(host *h, launcher *l, kgen_error *err) {
    kgen_args *args = &l->args;
    KGEN_TRY(kgen_workspace_size(l->kernel, args, &args->workspace_bytes, err));
    if (args->workspace_bytes) {
        KGEN_TRY(kgen_memory_alloc(h->ctx, &args->workspace, args->workspace_bytes, err));
        KGEN_TRY(
            kgen_workspace_init(h->ctx, args->workspace, args->workspace_bytes, l->stream, err));
    }
    return compare_launches(h, l, err);
}

static kgen_status time_launch(host *h, kgen_error *err) {
    const kgen_problem problem = {.batch = 1, .context = 16, .heads = 1};
    const kgen__workload_options options = {.cold_bytes = 1};
    launcher l = {.h = h, .captures = h->job.target->vendor == KGEN_VENDOR_CPU};
    kgen_kernel *kernel;
    kgen__workload *work = NULL;
    KGEN_TRY(kgen_prepare(h->ctx, &h->row->spec, 1, &kernel, err));
    KGEN_TRY(time_find(h, kernel, err));
    l.kernel = kernel;
    KGEN_TRY(kgen__workload_make(&work, h->ctx, &h->row->spec, &problem, &options, err));
    kgen__workload_args(&l.args, &l.room, work, 0);
    kgen_status status = kgen_stream_create(h->ctx, &l.stream, err);
    if (status == KGEN_OK) status = with_workspace(h, &l, err);
    kgen_memory_free(h->ctx, l.args.workspace);
    if (l.stream) kgen_stream_destroy(h->ctx, l.stream);
    kgen__workload_free(work);
    return status;
}

static kgen_status measure(host *h, kgen_error *err) {
    for (int k = 0; k < COLUMNS; k++)
        memcpy((char *)&h->cost + columns[k].at, &NOT_MEASURED, sizeof NOT_MEASURED);
    h->job.target = h->target;
    KGEN_TRY(kgen_spec_resolve(&h->job.spec, &h->row->spec, h->target, err));
    KGEN_TRY(time_render(h, err));
    KGEN_TRY(time_cold(h, err));
    KGEN_TRY(time_cache(h, err));
    KGEN_TRY(time_bundles(h, err));
    if (!h->ctx) return KGEN_OK;
    KGEN_TRY(time_load(h, err));
    KGEN_TRY(time_prepare(h, err));
    KGEN_TRY(time_first(h, err));
    return time_launch(h, err);
}

/* ---- output ---------------------------------------------------------------------------- */

static json_t *row_json(const char *name, const costs *c) {
    json_t *row = json_pack("{s:s}", "row", name);
    for (int k = 0; k < COLUMNS; k++) {
        double value;
        memcpy(&value, (const char *)c + columns[k].at, sizeof value);
        json_object_set_new(row, columns[k].key, json_real(value));
    }
    return row;
}

static void print_table(const json_t *rows, int csv) {
    const char *heads[COLUMNS + 1] = {"ROW"};
    kgen__table table;
    for (int k = 0; k < COLUMNS; k++) heads[k + 1] = columns[k].head;
    kgen__table_init(&table, "lrrrrrrrrrrrrr", heads);
    if (csv) printf("row");
    for (int k = 0; k < COLUMNS && csv; k++) printf(",%s", columns[k].key);
    if (csv) putchar('\n');
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *row = json_array_get(rows, i);
        const char *name = json_string_value(json_object_get(row, "row"));
        kgen__table_cell(&table, "%s", name);
        if (csv) printf("\"%s\"", name);
        for (int k = 0; k < COLUMNS; k++) {
            double value = json_real_value(json_object_get(row, columns[k].key));
            if (csv) printf(",%.1f", value);
            if (value == NOT_MEASURED)
                kgen__table_cell(&table, "-");
            else
                kgen__table_cell(&table, "%.1f", value);
        }
        if (csv) putchar('\n');
    }
    if (!csv) {
        kgen__table_print(&table, stdout);
        puts(
            "\nAims: warm at most 50 us, prepare and first 2000 us, find 50 ns, launch 150 ns over "
            "the driver's own call, cold 1 s.");
    }
    kgen__table_free(&table);
}

/* ---- a folder that is gone afterwards ----------------------------------------------------- */

static int drop(const char *path, const struct stat *info, int kind, struct FTW *at) {
    (void)info, (void)kind, (void)at;
    return remove(path);
}

static kgen_status make_folder(char path[512], kgen_error *err) {
    const char *base = getenv("TMPDIR");
    snprintf(path, 512, "%s/kgen-bench-XXXXXX", base && *base ? base : "/tmp");
    if (mkdtemp(path)) return KGEN_OK;
    return kgen_fail(err, KGEN_E_IO, "%s: cannot make a folder", path);
}

static int measure_row(const host *all, size_t i, json_t *list) {
    host h = *all;
    kgen_error err, named;
    int code = 0;
    char name[KGEN_SPEC_LINE_MAX + 32];
    h.row = &all->rows->list[i];
    snprintf(name, sizeof name, "%s%s%s", h.row->name, h.ctx ? "" : " @",
             h.ctx ? "" : h.target->name);
    kgen_status status = measure(&h, &err);
    if (status == KGEN_OK) {
        json_array_append_new(list, row_json(name, &h.cost));
    } else {
        kgen_fail(&named, status, "%s: %s", name, err.text);
        code = kgen__cli_fail(&named);
    }
    kgen_entry_free(h.entry);
    return code;
}

/* On its device; without one for each arch. */
static int measure_rows(host *all, const kgen__archs *archs, json_t *list) {
    int code = 0;
    for (size_t a = 0; a < archs->count; a++)
        for (size_t i = 0; i < all->rows->count; i++) {
            all->target = archs->list[a];
            int failed = measure_row(all, i, list);
            if (!code) code = failed;
        }
    return code;
}

static int measure_and_print(host *all, const kgen__host_settings *set) {
    kgen_error err;
    kgen__archs archs = *set->archs;
    if (!archs.count) {
        if (kgen_open(&all->ctx, all->options, &err) != KGEN_OK) return kgen__cli_fail(&err);
        archs = (kgen__archs){.list = {kgen_context_target(all->ctx)}, .count = 1};
    }
    json_t *list = json_array();
    int code = measure_rows(all, &archs, list);
    if (set->json) {
        int printed = kgen__json_print(json_pack("{s:s, s:O}", "device",
                                                 all->ctx ? kgen_context_device(all->ctx) : "none",
                                                 "rows", list));
        if (!code) code = printed;
    } else {
        print_table(list, set->csv);
    }
    json_decref(list);
    kgen_close(all->ctx);
    return code;
}

int kgen__bench_host(const kgen__rows *rows, const kgen__host_settings *set) {
    char dir[512];
    kgen_error err;
    newborn born;
    keep_to_own_cache();
    if (make_folder(dir, &err) != KGEN_OK) return kgen__cli_fail(&err);
    const kgen_open_options options = {
        .size = sizeof options, .device = set->device, .cache_dir = dir, .log = kgen__cli_log};
    host all = {.rows = rows, .options = &options, .newborn = &born};
    kgen_status status = newborn_start(&born, rows, &options, &err);
    int code = status == KGEN_OK ? measure_and_print(&all, set) : kgen__cli_fail(&err);
    if (status == KGEN_OK) newborn_end(&born);
    nftw(dir, drop, 16, FTW_DEPTH | FTW_PHYS);
    return code;
}

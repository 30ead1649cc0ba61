/* What kgen build writes besides kernels: its results as JSON, or the jobs as a file for ninja,
 * whose distributed executors then run a kernel a machine. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"

/* ---- JSON ------------------------------------------------------------------------- */

static const char *const outcomes[] = {
    [KGEN_JOB_BUILT] = "compiled", [KGEN_JOB_CACHED] = "cached", [KGEN_JOB_FAILED] = "failed"};

static json_t *result_json(const kgen_job *job, const kgen_job_result *result) {
    char line[KGEN_SPEC_LINE_MAX], key[KGEN_KEY_HEX] = "";
    kgen_spec_print(line, &job->spec);
    if (result->entry) kgen_key_hex(key, &result->entry->key);
    return json_pack("{s:s, s:s, s:s, s:s?, s:s?}", "spec", line, "arch", job->target->name,
                     "outcome", kgen__is_left(result) ? "left" : outcomes[result->outcome], "key",
                     *key ? key : NULL, "error",
                     result->error.status != KGEN_OK ? result->error.text : NULL);
}

int kgen__build_json(const kgen__jobs *jobs, const kgen_job_result *results,
                     const kgen__build_counts *counts) {
    json_t *list = json_array();
    for (size_t i = 0; i < jobs->count; i++)
        json_array_append_new(list, result_json(&jobs->list[i], &results[i]));
    return kgen__json_print(
        json_pack("{s:I, s:I, s:I, s:I, s:f, s:o}", "compiled", (json_int_t)counts->compiled,
                  "cached", (json_int_t)counts->cached, "failed", (json_int_t)counts->failed,
                  "left", (json_int_t)counts->left, "seconds", counts->seconds, "kernels", list));
}

/* ---- ninja ------------------------------------------------------------------------- */

/* As ninja reads a path. */
static void put_path(FILE *file, const char *text) {
    for (; *text; text++) {
        if (strchr("$ :", *text)) fputc('$', file);
        fputc(*text, file);
    }
}

/* As the shell reads one word, in a value of ninja's. */
static void put_word(FILE *file, const char *text) {
    fputc('\'', file);
    for (; *text; text++)
        if (*text == '\'')
            fputs("'\\''", file);
        else
            fprintf(file, *text == '$' ? "$$" : "%c", *text);
    fputc('\'', file);
}

static void put_job(FILE *file, const kgen_job *job, const kgen_key *key, const char *dir) {
    char line[KGEN_SPEC_LINE_MAX], hex[KGEN_KEY_HEX];
    kgen_key_hex(hex, key);
    kgen_spec_print(line, &job->spec);
    fputs("build ", file);
    put_path(file, dir);
    fprintf(file, "/%.2s/%s.kgen: kernel\n  spec = %s@%s\n", hex, hex + 2, line, job->target->name);
}

/* Two specs may be one kernel, such as a default and the variant that says it: one output. */
static kgen_status put_jobs(FILE *file, const kgen__jobs *jobs, const char *dir, kgen_error *err) {
    kgen_key *keys = calloc(jobs->count + 1, sizeof *keys);
    size_t count = 0;
    kgen_status status =
        keys ? KGEN_OK : kgen_fail(err, KGEN_E_NOMEM, "no memory for %zu keys", jobs->count);
    for (size_t i = 0; i < jobs->count && status == KGEN_OK; i++) {
        size_t known = 0;
        status = kgen_job_key(&keys[count], &jobs->list[i], err);
        while (known < count && memcmp(&keys[known], &keys[count], sizeof *keys)) known++;
        if (status == KGEN_OK && known == count) put_job(file, &jobs->list[i], &keys[count++], dir);
    }
    free(keys);
    return status;
}

kgen_status kgen__build_ninja(const kgen__jobs *jobs, const char *path, const char *dir,
                              kgen_error *err) {
    char program[4096] = "kgen";
    ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
    if (length > 0) program[length] = 0;
    FILE *file = fopen(path, "w");
    if (!file) return kgen_fail(err, KGEN_E_IO, "%s: %s", path, strerror(errno));
    fputs("# Of kgen build --ninja: a kernel a build; its output is its entry of the cache.\n"
          "rule kernel\n  command = ",
          file);
    put_word(file, program);
    fputs(" build -q -j 1 --no-variants --cache-dir ", file);
    put_word(file, dir);
    /* generator: what is there counts as built, whatever built it */
    fputs(" '$spec'\n  description = $spec\n  generator = 1\n\n", file);
    kgen_status status = put_jobs(file, jobs, dir, err);
    int failed = ferror(file);
    failed |= fclose(file) != 0;
    if (status != KGEN_OK) unlink(path);
    if (status == KGEN_OK && failed)
        return kgen_fail(err, KGEN_E_IO, "%s: cannot write: %s", path, strerror(errno));
    return status;
}

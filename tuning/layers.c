/* The layers of a database: the user's file, the system's, what is shipped. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <kgen/cache.h>

#include "db.h"
#include "shipped.h"

enum { PATH_BYTES = 4096 };

static const char SYSTEM_FILE[] = "/etc/kgen/tuning.jsonl";

/* --- which file ------------------------------------------------------------ */

static kgen_status in_cache_dir(char *out, size_t size, kgen_error *err) {
    kgen_cache *cache;
    KGEN_TRY(kgen_cache_open(&cache, NULL, err));
    const char *dir = kgen_cache_dir(cache);
    int length = dir ? snprintf(out, size, "%s/tuning.jsonl", dir) : 0;
    kgen_cache_close(cache);
    if (!dir)
        return kgen_fail(err, KGEN_E_IO,
                         "tuning: no cache folder to keep tuning.jsonl in; set "
                         "KGEN_TUNING to a file");
    if ((size_t)length >= size) return kgen_fail(err, KGEN_E_IO, "%.80s...: path too long", out);
    return KGEN_OK;
}

static const char *named_file(const char *path) {
    return path ? path : secure_getenv("KGEN_TUNING");
}

kgen_status kgen_tuning_user_path(char *out, size_t size, const char *path, kgen_error *err) {
    path = named_file(path);
    if (!path) return in_cache_dir(out, size, err);
    if (!*path)
        return kgen_fail(err, KGEN_E_ARG, "tuning: the empty path means no tuning database");
    if ((size_t)snprintf(out, size, "%s", path) >= size)
        return kgen_fail(err, KGEN_E_IO, "%.80s...: path too long", path);
    return KGEN_OK;
}

char *kgen__tuning_file(const char *path) {
    char user[PATH_BYTES];
    kgen_error why;
    path = named_file(path);
    if (path && !*path) return strdup("");
    return kgen_tuning_user_path(user, sizeof user, path, &why) == KGEN_OK ? strdup(user) : NULL;
}

/* --- rows ------------------------------------------------------------------ */

static kgen_status no_memory(kgen_error *err) {
    return kgen_fail(err, KGEN_E_NOMEM, "tuning: no memory for rows");
}

static kgen_status add_row(kgen_tuning_layer *layer, const kgen_tuning_row *row, kgen_error *err) {
    size_t count = layer->count;
    if ((count & (count - 1)) == 0) { /* full at powers of two */
        kgen_tuning_row *rows = realloc(layer->rows, (count ? 2 * count : 1) * sizeof *rows);
        if (!rows) return no_memory(err);
        layer->rows = rows;
    }
    layer->rows[layer->count++] = *row;
    return KGEN_OK;
}

/* Bad lines cost their own row only; the first says why. */
static kgen_status add_rows(kgen_tuning_layer *layer, const char *file, const char *text,
                            size_t size, kgen_error *err) {
    kgen__lines lines = {.next = text, .end = text + size};
    const char *line;
    size_t length;
    while (kgen__lines_next(&lines, &line, &length)) {
        kgen_tuning_row row;
        kgen_error why;
        if (kgen__line_parse(&row, line, length, &why) == KGEN_OK) {
            KGEN_TRY(add_row(layer, &row, err));
            continue;
        }
        layer->bad++;
        if (!layer->why && asprintf(&layer->why, "%s:%zu: %s", file, lines.number, why.text) < 0)
            return no_memory(err);
    }
    return KGEN_OK;
}

/* --- layers ---------------------------------------------------------------- */

static kgen_status add_layer(kgen_tuning *db, const char *name, const char *path,
                             kgen_tuning_layer **out, kgen_error *err) {
    kgen_tuning_layer *layer = &db->layers[db->count];
    layer->name = name;
    layer->path = strdup(path);
    if (!layer->path) return no_memory(err);
    db->count++;
    *out = layer;
    return KGEN_OK;
}

/* A file that cannot be read is an empty layer: nobody's start depends on it. */
static kgen_status add_file(kgen_tuning *db, const char *name, const char *path, kgen_error *err) {
    kgen_tuning_layer *layer = NULL;
    kgen_error why = {KGEN_OK, ""};
    char *text;
    size_t size;
    KGEN_TRY(add_layer(db, name, path, &layer, err));
    if (access(path, F_OK) != 0 && errno == ENOENT) return KGEN_OK;
    if (kgen__rows_file_read(&text, &size, path, &why) != KGEN_OK) {
        layer->why = strdup(why.text);
        return layer->why ? KGEN_OK : no_memory(err);
    }
    kgen_status status = add_rows(layer, path, text, size, err);
    free(text);
    return status;
}

static kgen_status add_shipped(kgen_tuning *db, kgen_error *err) {
    kgen_tuning_layer *layer = NULL;
    KGEN_TRY(add_layer(db, "shipped", "in the library", &layer, err));
    for (size_t i = 0; i < kgen__shipped_count; i++) {
        const kgen__shipped_file *file = &kgen__shipped[i];
        KGEN_TRY(add_rows(layer, file->name, (const char *)file->text, file->size, err));
    }
    return KGEN_OK;
}

kgen_status kgen__tuning_open_files(kgen_tuning **out, const char *user, const char *system,
                                    kgen_error *err) {
    kgen_tuning *db = calloc(1, sizeof *db);
    if (!db) return no_memory(err);
    kgen_status status = user ? add_file(db, "user", user, err) : KGEN_OK;
    if (status == KGEN_OK && system) status = add_file(db, "system", system, err);
    if (status == KGEN_OK) status = add_shipped(db, err);
    if (status == KGEN_OK)
        *out = db;
    else
        kgen_tuning_close(db);
    return status;
}

kgen_status kgen_tuning_open(kgen_tuning **out, const char *path, kgen_error *err) {
    char user[PATH_BYTES];
    kgen_error why;
    path = named_file(path);
    if (path && !*path) {
        *out = calloc(1, sizeof **out);
        return *out ? KGEN_OK : no_memory(err);
    }
    int found = kgen_tuning_user_path(user, sizeof user, path, &why) == KGEN_OK;
    return kgen__tuning_open_files(out, found ? user : NULL, SYSTEM_FILE, err);
}

void kgen_tuning_close(kgen_tuning *db) {
    if (!db) return;
    for (size_t i = 0; i < db->count; i++) {
        free(db->layers[i].path);
        free(db->layers[i].rows);
        free(db->layers[i].why);
    }
    free(db);
}

size_t kgen_tuning_layers(const kgen_tuning_layer **layers, const kgen_tuning *db) {
    *layers = db->layers;
    return db->count;
}

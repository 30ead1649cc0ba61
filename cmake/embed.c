/* Writes the files of a folder into one C file, at build time: rows of tuning/ as they are,
 * templates cut into the pieces that a source is put together of (gen/templates.h), each with
 * its tokens as a digest takes them, so that a key reads no template.
 *
 *   kgen-embed templates|tuning FOLDER OUT */
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gen/tokens.h"

static void die(const char *what, const char *why) {
    fprintf(stderr, "kgen-embed: %s: %s\n", what, why);
    exit(1);
}

/* ---- bytes ------------------------------------------------------------------ */

typedef struct bytes {
    char *at;
    size_t size;
} bytes;

static void add(bytes *to, const char *from, size_t size) {
    to->at = realloc(to->at, to->size + size + 1);
    if (!to->at) die("file", "out of memory");
    memcpy(to->at + to->size, from, size);
    to->size += size;
    to->at[to->size] = 0;
}

static bytes read_file(const char *path) {
    char part[4096];
    bytes all = {NULL, 0};
    FILE *file = fopen(path, "rb");
    if (!file) die(path, "cannot be read");
    add(&all, "", 0);
    for (size_t got; (got = fread(part, 1, sizeof part, file)) > 0;) add(&all, part, got);
    if (ferror(file)) die(path, "cannot be read");
    fclose(file);
    return all;
}

static void write_array(FILE *out, const char *what, size_t file, size_t piece, bytes text) {
    fprintf(out, "static const unsigned char %s_%zu_%zu[] = {", what, file, piece);
    for (size_t i = 0; i < text.size; i++)
        fprintf(out, "%s%d,", i % 32 ? "" : "\n", (unsigned char)text.at[i]);
    fprintf(out, "0};\n");
}

/* ---- tokens ------------------------------------------------------------------- */

typedef struct tokens {
    bytes text, names;
    int ends_directive;
} tokens;

static int is_known(const bytes *names, const char *name, size_t length) {
    for (const char *at = names->at, *end = at + names->size; at < end; at += strlen(at) + 1)
        if (strlen(at) == length && memcmp(at, name, length) == 0) return 1;
    return 0;
}

static tokens tokens_of(const bytes *text) {
    tokens t = {.ends_directive = 0};
    kgen__tokens r = {.at = text->at, .end = text->at + text->size};
    const char *token;
    size_t length;
    add(&t.text, "", 0);
    add(&t.names, "", 0);
    while ((length = kgen__tokens_next(&r, &token)) != 0) {
        if (r.ended) add(&t.text, "\n", 1);
        add(&t.text, token, length);
        if (!kgen__tokens_touch(&r)) add(&t.text, " ", 1);
        if (!kgen__is_capital(*token) || is_known(&t.names, token, length)) continue;
        add(&t.names, token, length);
        add(&t.names, "", 1);
    }
    t.ends_directive = r.ended || r.in_directive;
    return t;
}

/* ---- templates ---------------------------------------------------------------- */

typedef struct cutting {
    FILE *out;
    size_t file, count;
    bytes text; /* of the piece so far */
    bytes rows; /* of the table of pieces */
} cutting;

/* `includes`: the quoted name, with its quotes, or NULL. */
static void end_piece(cutting *c, const char *includes, int length, int line) {
    char row[512];
    if (!c->text.at) add(&c->text, "", 0);
    tokens t = tokens_of(&c->text);
    write_array(c->out, "text", c->file, c->count, c->text);
    write_array(c->out, "tokens", c->file, c->count, t.text);
    fprintf(c->out, "static const char names_%zu_%zu[] =", c->file, c->count);
    for (size_t at = 0; at < t.names.size; at += strlen(t.names.at + at) + 1)
        fprintf(c->out, "\n    \"%s\\0\"", t.names.at + at);
    fprintf(c->out, " \"\";\n");
    int size =
        snprintf(row, sizeof row,
                 "    {text_%zu_%zu, %zu, tokens_%zu_%zu, %zu, %d, names_%zu_%zu, %.*s, %d},\n",
                 c->file, c->count, c->text.size, c->file, c->count, t.text.size, t.ends_directive,
                 c->file, c->count, includes ? length : 4, includes ? includes : "NULL", line);
    if (size < 0 || (size_t)size >= sizeof row) die(includes, "long name");
    add(&c->rows, row, (size_t)size);
    free(t.text.at);
    free(t.names.at);
    free(c->text.at);
    c->text = (bytes){NULL, 0};
    c->count++;
}

static int starts(const char *line, size_t length, const char *with) {
    return length >= strlen(with) && memcmp(line, with, strlen(with)) == 0;
}

/* A line that includes a template ends a piece. What stands for a file that is in every source
 * already, or tells a compiler to take a file once, leaves a blank line. */
static void cut_line(cutting *c, const char *line, size_t length, int number) {
    static const char include[] = "#include \"kg/", prelude[] = "#include \"kg/prelude/",
                      once[] = "#pragma once";
    const char *name = line + strlen("#include ");
    if (starts(line, length, prelude) || (starts(line, length, once) && length == sizeof once - 1))
        add(&c->text, "\n", 1);
    else if (starts(line, length, include) && memchr(name + 1, '"', length - (size_t)(name - line)))
        end_piece(c, name, (int)((const char *)strchr(name + 1, '"') - name) + 1, number + 1);
    else {
        add(&c->text, line, length);
        add(&c->text, "\n", 1);
    }
}

static void write_template(FILE *out, size_t file, const bytes *text) {
    cutting c = {.out = out, .file = file};
    const char *line = text->at, *end = line + text->size;
    for (int number = 1; line < end; number++) {
        const char *newline = memchr(line, '\n', (size_t)(end - line));
        size_t length = (size_t)((newline ? newline : end) - line);
        cut_line(&c, line, length, number);
        line += length + 1;
    }
    end_piece(&c, NULL, 0, 0);
    fprintf(out, "static const kgen__piece pieces_%zu[] = {\n%s};\n", file, c.rows.at);
    free(c.rows.at);
}

static void write_template_row(FILE *out, size_t file, const char *name, size_t size) {
    (void)size;
    fprintf(out, "    {\"%s\", pieces_%zu, sizeof pieces_%zu / sizeof *pieces_%zu},\n", name, file,
            file, file);
}

/* ---- tuning rows ---------------------------------------------------------------- */

static void write_rows(FILE *out, size_t file, const bytes *text) {
    write_array(out, "text", file, 0, *text);
}

static void write_rows_row(FILE *out, size_t file, const char *name, size_t size) {
    fprintf(out, "    {\"%s\", text_%zu_0, %zu},\n", name, file, size);
}

/* ---- the file --------------------------------------------------------------------- */

static const struct what {
    const char *name, *patterns[2], *header, *type, *table, *count;
    void (*file)(FILE *out, size_t file, const bytes *text);
    void (*row)(FILE *out, size_t file, const char *name, size_t size);
} whats[] = {
    {"templates",
     {"*.hip", "kg/*/*.h"},
     "gen/templates.h",
     "kgen__template",
     "kgen__templates",
     "kgen__template_count",
     write_template,
     write_template_row},
    {"tuning",
     {"*.jsonl", NULL},
     "tuning/shipped.h",
     "kgen__shipped_file",
     "kgen__shipped",
     "kgen__shipped_count",
     write_rows,
     write_rows_row},
};

static const struct what *what_of(const char *name) {
    for (size_t i = 0; i < sizeof whats / sizeof whats[0]; i++)
        if (strcmp(whats[i].name, name) == 0) return &whats[i];
    die(name, "neither templates nor tuning");
    return NULL;
}

static int by_name(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static glob_t find_files(const struct what *what, const char *folder) {
    char pattern[4096];
    glob_t found = {0};
    for (int i = 0; i < 2 && what->patterns[i]; i++) {
        snprintf(pattern, sizeof pattern, "%s/%s", folder, what->patterns[i]);
        if (glob(pattern, i ? GLOB_APPEND : 0, NULL, &found) != 0) die(pattern, "no file");
    }
    qsort(found.gl_pathv, found.gl_pathc, sizeof *found.gl_pathv, by_name);
    return found;
}

static void write_all(FILE *out, const struct what *what, const char *folder) {
    glob_t found = find_files(what, folder);
    bytes rows = {NULL, 0};
    fprintf(out, "/* Written by cmake/embed.c. */\n#include \"%s\"\n\n", what->header);
    FILE *table = open_memstream(&rows.at, &rows.size);
    if (!table) die("table", "out of memory");
    for (size_t i = 0; i < found.gl_pathc; i++) {
        bytes text = read_file(found.gl_pathv[i]);
        what->file(out, i, &text);
        what->row(table, i, found.gl_pathv[i] + strlen(folder) + 1, text.size);
        free(text.at);
    }
    fclose(table);
    fprintf(out, "const %s %s[] = {\n%s};\nconst size_t %s = %zu;\n", what->type, what->table,
            rows.at, what->count, found.gl_pathc);
    free(rows.at);
    globfree(&found);
}

int main(int argc, char **argv) {
    char fresh[4096];
    if (argc != 4) die("usage", "kgen-embed templates|tuning FOLDER OUT");
    snprintf(fresh, sizeof fresh, "%s.new", argv[3]);
    FILE *out = fopen(fresh, "w");
    if (!out) die(fresh, "cannot be written");
    write_all(out, what_of(argv[1]), argv[2]);
    if (fclose(out) != 0 || rename(fresh, argv[3]) != 0) die(argv[3], "cannot be written");
    return 0;
}

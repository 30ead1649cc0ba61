/* Options as tables: one row is the parser's entry and the help's line. */
#include <errno.h>
#include <getopt.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"

enum { LONG_BASE = 256, FLAG_HELP = 'h' };

/* Messages may quote a file or an argument: one line, nothing but text. */
static void print_error(const char *text) {
    fputs("kgen: error: ", stderr);
    for (const unsigned char *c = (const unsigned char *)text; *c; c++) {
        int visible = *c >= ' ' && *c != 127;
        fputc(visible ? *c : *c == '\n' && !c[1] ? ' ' : '?', stderr);
    }
    fputc('\n', stderr);
}

void kgen__cli_log(kgen_log_level level, const char *text, void *user) {
    (void)user;
    fprintf(stderr, "kgen: %s%s\n", level == KGEN_LOG_WARNING ? "warning: " : "", text);
}

int kgen__cli_fail(const kgen_error *err) {
    print_error(err->text);
    return kgen_status_exit_code(err->status);
}

int kgen__cli_usage(const char *command, const char *fmt, ...) {
    char text[512], line[600];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    snprintf(line, sizeof line, "%s: %s", command, text);
    print_error(line);
    return KGEN__EXIT_USAGE;
}

/* ---- readers ------------------------------------------------------------- */

kgen_status kgen__read_int(const kgen__option *option, const char *text, kgen_error *err) {
    char *end;
    errno = 0;
    long number = strtol(text, &end, 10);
    if (!*text || *end || errno || number < option->low || number > option->high)
        return kgen_fail(err, KGEN_E_ARG, "--%s %.60s: a number %ld to %ld expected", option->name,
                         text, option->low, option->high);
    *(int *)option->out = (int)number;
    return KGEN_OK;
}

kgen_status kgen__read_u64(const kgen__option *option, const char *text, kgen_error *err) {
    char *end;
    errno = 0;
    unsigned long long number = strtoull(text, &end, 10);
    if (!*text || *end || errno || *text == '-' || number > INT64_MAX) /* JSON's integers */
        return kgen_fail(err, KGEN_E_ARG, "--%s %.60s: a number 0 to 2^63-1 expected", option->name,
                         text);
    *(uint64_t *)option->out = number;
    return KGEN_OK;
}

kgen_status kgen__read_text(const kgen__option *option, const char *text, kgen_error *err) {
    if (!*text) return kgen_fail(err, KGEN_E_ARG, "--%s: must not be empty", option->name);
    *(const char **)option->out = text;
    return KGEN_OK;
}

typedef struct named_value {
    const char *name;
    int value;
} named_value;

static kgen_status read_word(const kgen__option *option, const named_value *words, const char *text,
                             int *out, kgen_error *err) {
    char known[160];
    size_t used = 0;
    for (const named_value *w = words; w->name; w++) {
        if (strcmp(w->name, text) == 0) {
            *out = w->value;
            return KGEN_OK;
        }
        used +=
            (size_t)snprintf(known + used, sizeof known - used, "%s%s", used ? ", " : "", w->name);
    }
    return kgen_fail(err, KGEN_E_ARG, "--%s %.60s: one of %s expected", option->name, text, known);
}

/* The words of every option that takes one, by the option's name. */
static const struct {
    const char *option;
    named_value words[11];
} choices[] = {
    {"kv-dtype",
     {{"auto", KGEN_DTYPE_NONE},
      {"bf16", KGEN_DTYPE_BF16},
      {"fp16", KGEN_DTYPE_FP16},
      {"fp8", KGEN_DTYPE_FP8},
      {"e4m3fn", KGEN_DTYPE_E4M3FN},
      {"e4m3fnuz", KGEN_DTYPE_E4M3FNUZ},
      {"e5m2", KGEN_DTYPE_E5M2},
      {"i8", KGEN_DTYPE_I8},
      {"i4", KGEN_DTYPE_I4},
      {"8bit", KGEN__KV_8BIT}}},
    {"dtype", {{"auto", KGEN_DTYPE_NONE}, {"bf16", KGEN_DTYPE_BF16}, {"fp16", KGEN_DTYPE_FP16}}},
    {"state-dtype",
     {{"auto", KGEN_DTYPE_NONE},
      {"bf16", KGEN_DTYPE_BF16},
      {"fp16", KGEN_DTYPE_FP16},
      {"f32", KGEN_DTYPE_F32}}},
    {"table", {{"i32", KGEN_DTYPE_I32}, {"i64", KGEN_DTYPE_I64}}},
    {"descale",
     {{"auto", KGEN_DESCALE_AUTO}, {"head", KGEN_DESCALE_HEAD}, {"token", KGEN_DESCALE_TOKEN}}},
    {"layout",
     {{"auto", KGEN_LAYOUT_NONE},
      {"nhd", KGEN_LAYOUT_NHD},
      {"hnd", KGEN_LAYOUT_HND},
      {"shuffle", KGEN_LAYOUT_SHUFFLE},
      {"xpacked", KGEN_LAYOUT_XPACKED}}},
    {"engine", {{"vllm", KGEN_ENGINE_VLLM}, {"sglang", KGEN_ENGINE_SGLANG}}},
    {"assume", {{"nothing", 0}, {"dense", 1}}},
    {"prompts",
     {{"engine", KGEN_PROMPTS_ENGINE},
      {"extend", KGEN_PROMPTS_EXTEND},
      {"none", KGEN_PROMPTS_NONE}}},
};

kgen_status kgen__read_choice(const kgen__option *option, const char *text, kgen_error *err) {
    size_t i = 0;
    while (strcmp(choices[i].option, option->name)) i++;
    return read_word(option, choices[i].words, text, option->out, err);
}

static kgen_status add_arch(kgen__archs *archs, const char *name, kgen_error *err) {
    const kgen_target *target;
    KGEN_TRY(kgen_target_find(&target, name, err));
    for (size_t i = 0; i < archs->count; i++)
        if (archs->list[i] == target) return KGEN_OK;
    if (archs->count == KGEN__ARCHS_MAX)
        return kgen_fail(err, KGEN_E_ARG, "--arch: at most %d", KGEN__ARCHS_MAX);
    archs->list[archs->count++] = target;
    return KGEN_OK;
}

kgen_status kgen__read_archs(const kgen__option *option, const char *text, kgen_error *err) {
    kgen__archs *archs = option->out;
    while (1) {
        char name[64];
        size_t length = strcspn(text, ",");
        snprintf(name, sizeof name, "%.*s", length < sizeof name ? (int)length : 60, text);
        KGEN_TRY(add_arch(archs, name, err));
        if (!text[length]) return KGEN_OK;
        text += length + 1;
    }
}

void kgen__archs_default(kgen__archs *archs) {
    if (archs->count) return;
    for (size_t i = 0; i < kgen_target_count(); i++)
        if (kgen_target_at(i)->by_default) add_arch(archs, kgen_target_at(i)->name, NULL);
}

/* ---- problems, times, sizes ------------------------------------------------ */

static const struct {
    const char *key;
    size_t offset;
} problem_keys[] = {{"batch", offsetof(kgen_problem, batch)},
                    {"context", offsetof(kgen_problem, context)},
                    {"heads", offsetof(kgen_problem, heads)}};
enum { PROBLEM_KEYS = sizeof problem_keys / sizeof problem_keys[0] };

static kgen_status set_problem(kgen_problem *problem, unsigned *given, const char *term,
                               kgen_error *err) {
    size_t length = strcspn(term, "=");
    char *end;
    for (size_t i = 0; i < PROBLEM_KEYS; i++) {
        const char *key = problem_keys[i].key;
        if (strlen(key) != length || strncmp(key, term, length) != 0) continue;
        if (*given >> i & 1) return kgen_fail(err, KGEN_E_ARG, "problem: %s: given twice", key);
        *given |= 1u << i;
        errno = 0;
        const char *text = term[length] ? term + length + 1 : "";
        long number = strtol(text, &end, 10);
        if (!(*text >= '0' && *text <= '9') || *end || errno || number < 1 || number > INT32_MAX)
            return kgen_fail(err, KGEN_E_ARG, "problem: %.60s: a number 1 to %d expected", term,
                             INT32_MAX);
        *(int32_t *)((char *)problem + problem_keys[i].offset) = (int32_t)number;
        return KGEN_OK;
    }
    return kgen_fail(err, KGEN_E_ARG, "problem: '%.60s': batch=N,context=N,heads=N expected", term);
}

kgen_status kgen__problem_parse(kgen_problem *problem, const char *text, kgen_error *err) {
    static const char blanks[] = " \t";
    kgen_problem read = *problem;
    unsigned given = 0;
    text += strspn(text, blanks);
    if (!text[strspn(text, ", \t")])
        return kgen_fail(err, KGEN_E_ARG, "problem: empty; batch=N,context=N,heads=N expected");
    for (int more = 1; more;) { /* a comma stands between two terms */
        char term[80];
        size_t length = strcspn(text, ", \t");
        snprintf(term, sizeof term, "%.*s", length < sizeof term ? (int)length : 79, text);
        KGEN_TRY(set_problem(&read, &given, term, err));
        text += length;
        text += strspn(text, blanks);
        more = *text != 0;
        if (*text == ',') text += 1 + strspn(text + 1, blanks);
    }
    *problem = read;
    return KGEN_OK;
}

void kgen__problem_print(char out[64], const kgen_problem *problem) {
    snprintf(out, 64, "batch=%d,context=%d,heads=%d", problem->batch, problem->context,
             problem->heads);
}

kgen_status kgen__read_problem(const kgen__option *option, const char *text, kgen_error *err) {
    return kgen__problem_parse(option->out, text, err);
}

typedef struct unit {
    const char *name;
    double factor;
} unit;

static kgen_status read_measure(const kgen__option *option, const unit *units, const char *text,
                                const char *wanted, kgen_error *err) {
    char *end;
    double number = strtod(text, &end);
    int plain = (*text >= '0' && *text <= '9') || *text == '.';
    for (const unit *u = units; plain && u->name; u++) {
        double value = number * u->factor;
        if (strcmp(u->name, end) != 0 || !(value > 0 && value < 1e18)) continue;
        *(double *)option->out = value;
        return KGEN_OK;
    }
    return kgen_fail(err, KGEN_E_ARG, "--%s %.60s: %s expected", option->name, text, wanted);
}

kgen_status kgen__read_seconds(const kgen__option *option, const char *text, kgen_error *err) {
    static const unit units[] = {{"", 1}, {"s", 1}, {"m", 60}, {"h", 3600}, {NULL, 0}};
    return read_measure(option, units, text, "a time above 0 such as 90s, 5m or 1h", err);
}

kgen_status kgen__read_shard(const kgen__option *option, const char *text, kgen_error *err) {
    kgen__shard shard;
    int end = 0;
    if (sscanf(text, "%5d/%5d%n", &shard.part, &shard.parts, &end) != 2 || text[end] ||
        shard.part < 1 || shard.part > shard.parts)
        return kgen_fail(err, KGEN_E_ARG, "--%s %.40s: I/N expected, I from 1 to N", option->name,
                         text);
    *(kgen__shard *)option->out = shard;
    return KGEN_OK;
}

kgen_status kgen__read_bytes(const kgen__option *option, const char *text, kgen_error *err) {
    static const unit units[] = {{"", 1}, {"K", 1e3}, {"M", 1e6}, {"G", 1e9}, {NULL, 0}};
    return read_measure(option, units, text, "a size above 0 such as 500000, 64M or 2G", err);
}

/* ---- parsing ------------------------------------------------------------- */

void kgen__syntax_add(kgen__syntax *syntax, kgen__option option) {
    if (syntax->count < KGEN__OPTIONS_MAX) syntax->options[syntax->count++] = option;
}

void kgen__syntax_add_cache_dir(kgen__syntax *syntax, const char **dir) {
    kgen__syntax_add(syntax, (kgen__option){"cache-dir", 0, "DIR", kgen__read_text, dir, 0, 0,
                                            "cache folder (KGEN_CACHE_DIR, else ~/.cache/kgen)"});
}

void kgen__syntax_add_json(kgen__syntax *syntax, int *json) {
    kgen__syntax_add(syntax, (kgen__option){"json", 0, NULL, NULL, json, 0, 0, "print JSON"});
}

static int lists_archs(const kgen__option *option) {
    return option->read == kgen__read_archs && option->low == KGEN__ARCHS_DEFAULT;
}

/* " (gfx942,gfx950)" */
static void list_archs(char *out, size_t size) {
    kgen__archs archs = {0};
    size_t used = 0;
    kgen__archs_default(&archs);
    for (size_t i = 0; i < archs.count && used < size; i++)
        used += (size_t)snprintf(out + used, size - used, "%s%s%s", i ? "," : " (",
                                 archs.list[i]->name, i + 1 < archs.count ? "" : ")");
}

static void print_help(const kgen__syntax *syntax) {
    char by_default[80];
    list_archs(by_default, sizeof by_default);
    printf("usage: kgen %s [options]%s%s\n%s\n\n", syntax->command, *syntax->arguments ? " " : "",
           syntax->arguments, syntax->about);
    for (size_t i = 0; i < syntax->count; i++) {
        const kgen__option *o = &syntax->options[i];
        char left[64], letter[8] = "    ";
        if (o->letter) snprintf(letter, sizeof letter, "-%c, ", o->letter);
        snprintf(left, sizeof left, "%s--%s %s", letter, o->name, o->value ? o->value : "");
        printf("  %-24s %s%s\n", left, o->help, lists_archs(o) ? by_default : "");
    }
    printf("  %-24s %s\n", "-h, --help", "this text");
}

typedef struct getopt_tables {
    struct option list[KGEN__OPTIONS_MAX + 2];
    char letters[3 * KGEN__OPTIONS_MAX + 8];
} getopt_tables;

static void make_tables(getopt_tables *t, const kgen__syntax *syntax) {
    char *letter = t->letters;
    memset(t, 0, sizeof *t);
    *letter++ = ':'; /* tells a missing value from an unknown option */
    *letter++ = FLAG_HELP;
    for (size_t i = 0; i < syntax->count; i++) {
        const kgen__option *o = &syntax->options[i];
        int wants = o->value ? required_argument : no_argument;
        t->list[i] = (struct option){o->name, wants, NULL, LONG_BASE + (int)i};
        if (!o->letter) continue;
        *letter++ = o->letter;
        if (o->value) *letter++ = ':';
    }
    t->list[syntax->count] = (struct option){"help", no_argument, NULL, FLAG_HELP};
}

static const kgen__option *option_of(const kgen__syntax *syntax, int c) {
    if (c >= LONG_BASE) return &syntax->options[c - LONG_BASE];
    for (size_t i = 0; i < syntax->count; i++)
        if (syntax->options[i].letter == c) return &syntax->options[i];
    return NULL;
}

/* Returns 0 or the exit code. */
static int apply(const kgen__syntax *syntax, const kgen__option *option, const char *text) {
    kgen_error err;
    if (!option->value) {
        *(int *)option->out = 1;
        return 0;
    }
    kgen_status status = option->read(option, text, &err);
    if (status == KGEN_E_ARG) return kgen__cli_usage(syntax->command, "%s", err.text);
    return status == KGEN_OK ? 0 : kgen__cli_fail(&err);
}

static int bad_option(const kgen__syntax *syntax, int c, const char *last) {
    char letter[4] = "-?";
    letter[1] = (char)optopt;
    return kgen__cli_usage(syntax->command, "%s: %s; see `kgen help %s`",
                           optopt > 0 && optopt < LONG_BASE ? letter : last,
                           c == ':' ? "needs a value" : "no such option, or used wrongly",
                           syntax->command);
}

kgen__parsed kgen__syntax_parse(const kgen__syntax *syntax, int argc, char **argv, int *first,
                                int *code) {
    getopt_tables tables;
    int c;
    make_tables(&tables, syntax);
    opterr = 0;
    optind = 1;
    *code = 0;
    while ((c = getopt_long(argc, argv, tables.letters, tables.list, NULL)) != -1) {
        if (c == FLAG_HELP) {
            print_help(syntax);
            return KGEN__STOP;
        }
        const kgen__option *option = c == '?' || c == ':' ? NULL : option_of(syntax, c);
        *code = option ? apply(syntax, option, optarg) : bad_option(syntax, c, argv[optind - 1]);
        if (*code) return KGEN__STOP;
    }
    int given = argc - optind;
    if (given < syntax->least || (syntax->most >= 0 && given > syntax->most)) {
        *code = kgen__cli_usage(syntax->command, "usage: kgen %s [options] %s", syntax->command,
                                syntax->arguments);
        return KGEN__STOP;
    }
    *first = optind;
    return KGEN__RUN;
}

/* kgen: the command. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"

static int command_version(int argc, char **argv);
static int command_help(int argc, char **argv);

typedef struct command_row {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *help;
} command_row;

static const command_row commands[] = {
    {"plan", kgen__command_plan, "which kernels a model needs, from its config.json"},
    {"build", kgen__command_build, "compile kernels into the cache; needs no GPU"},
    {"list", kgen__command_list, "what the cache holds, with registers and occupancy"},
    {"inspect", kgen__command_inspect, "everything known about one cached kernel"},
    {"source", kgen__command_source, "the exact text that is compiled"},
    {"report", kgen__command_report, "registers, LDS, occupancy and size of kernels"},
    {"explain", kgen__command_explain,
     "the keys of a spec line; what is chosen for a problem, and why"},
    {"tuning", kgen__command_tuning,
     "the rows of the tuning database: list, import, export, check, renew, restamp"},
    {"check", kgen__command_check, "run kernels against a double-precision reference"},
    {"bench", kgen__command_bench, "time kernels beside the bandwidth of the device"},
    {"tune", kgen__command_tune, "search the fastest tuning keys of kernels on a device"},
    {"prune", kgen__command_prune, "remove the kernels that were not used for longest"},
    {"pack", kgen__command_pack, "the cache folder as one file, signed if wanted"},
    {"merge", kgen__command_merge, "bundles and cache folders as one bundle"},
    {"unpack", kgen__command_unpack, "a bundle into a cache folder"},
    {"verify", kgen__command_verify,
     "every byte of bundles and caches; whether all planned kernels are there"},
    {"doctor", kgen__command_doctor,
     "compilers, devices, tuning rows and cache found, and what to do"},
    {"version", command_version, "print the version"},
    {"help", command_help, "this text, or the options of one command"},
};

enum { COMMANDS = sizeof commands / sizeof commands[0] };

static const command_row *find_command(const char *name) {
    for (size_t i = 0; i < COMMANDS; i++)
        if (strcmp(commands[i].name, name) == 0) return &commands[i];
    return NULL;
}

static void print_help(FILE *stream) {
    fprintf(stream, "usage: kgen COMMAND [arguments]\n\n");
    for (size_t i = 0; i < COMMANDS; i++)
        fprintf(stream, "  %-9s %s\n", commands[i].name, commands[i].help);
    fprintf(stream, "\n`kgen help COMMAND` shows the options of one command.\n"
                    "A spec line says which kernel:"
                    " attn:phase=decode,q=bf16,kv=fp8,d=128,g=8,page=16\n"
                    "`man kgen` has exit codes, variables and examples.\n");
}

static int command_version(int argc, char **argv) {
    (void)argv;
    if (argc > 1) return kgen__cli_usage("version", "takes no arguments");
    printf("kgen %s\n", KGEN_VERSION);
    return 0;
}

static int command_help(int argc, char **argv) {
    if (argc > 2) return kgen__cli_usage("help", "takes at most one command");
    const command_row *row = argc == 2 ? find_command(argv[1]) : NULL;
    if (argc == 2 && !row) return kgen__cli_usage("help", "'%s' is no command", argv[1]);
    if (!row || row->run == command_help || row->run == command_version) {
        print_help(stdout);
        return 0;
    }
    char flag[] = "--help";
    char *arguments[] = {argv[1], flag, NULL};
    return row->run(2, arguments);
}

static const char *alias(const char *name) {
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0) return "help";
    return strcmp(name, "--version") == 0 ? "version" : name;
}

/* A stream that the caller closed must not become a file of ours. These cannot be written
 * (read), so its use is an error as before. */
static void hold_streams(void) {
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0) (void)open("/dev/null", fd ? O_RDONLY : O_WRONLY);
}

int main(int argc, char **argv) {
    hold_streams();
    unsetenv("POSIXLY_CORRECT");      /* options and arguments come in any order */
    setvbuf(stdout, NULL, _IOLBF, 0); /* whoever waits for a long run sees each line */
    if (argc < 2) {
        print_help(stderr);
        return KGEN__EXIT_USAGE;
    }
    const command_row *row = find_command(alias(argv[1]));
    if (!row) return kgen__cli_usage("kgen", "'%s' is no command; see `kgen help`", argv[1]);
    int code = row->run(argc - 1, argv + 1);
    if (fflush(stdout) || ferror(stdout)) {
        kgen_error err;
        kgen_fail(&err, KGEN_E_IO, "standard output: cannot write");
        return kgen__cli_fail(&err);
    }
    return code;
}

/* What a reader of foreign bytes is given by the fuzzer. Each ends the process when what it
 * reads is not what it says. */
#ifndef KGEN_TESTS_FUZZ_FUZZ_H
#define KGEN_TESTS_FUZZ_FUZZ_H

#include <stddef.h>
#include <stdint.h>

typedef void fuzz_target(const uint8_t *data, size_t size);

/* fuzz_text.c */
fuzz_target fuzz_spec, fuzz_config, fuzz_row, fuzz_case, fuzz_journal;
/* fuzz_files.c */
fuzz_target fuzz_entry, fuzz_bundle, fuzz_capture, fuzz_object, fuzz_remote;

/* The path of a file that only this process has, with these bytes. */
const char *fuzz_file(const void *bytes, size_t size);

/* Ends the process. */
void fuzz_wrong(const char *what, const char *text) __attribute__((noreturn));

#endif

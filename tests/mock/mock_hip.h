/* What the mock driver remembers; a test finds it with dlsym. */
#ifndef KGEN_TESTS_MOCK_MOCK_HIP_H
#define KGEN_TESTS_MOCK_MOCK_HIP_H

enum { MOCK_DEVICES = 2 };

typedef struct mock_hip {
    int inits;
    int loads[MOCK_DEVICES], unloads[MOCK_DEVICES], launches[MOCK_DEVICES];
    int mach;              /* the architecture of the last code object */
    void *launched_on;     /* the stream of the last launch */
    int (*current)(void);  /* device of this thread */
    int pageable;          /* the device reads all memory of the host */
    int integrated;        /* its memory is that of the host */
    int asked, last_error; /* addresses; forgotten by hipGetLastError */
    void *capturing;       /* the one stream that captures; an engine's, if a test sets it */
    int global;            /* it was begun in global mode, by another thread */
    int (*mode)(void);     /* of this thread */
    unsigned lds;          /* that launches asked for, at most, beside what code has */
    int retain_fails;
} mock_hip;

#endif

/* Fibers: a stack and a saved stack pointer. One switch is a handful of
 * instructions (fiber_switch.S); AddressSanitizer is told about every one.
 * Floating-point control words are not switched: kernels do not change them. */
#ifndef KGEN_DEVICE_CPU_FIBER_H
#define KGEN_DEVICE_CPU_FIBER_H

#include <stddef.h>

#if defined(__SANITIZE_ADDRESS__)
#define KGEN__FIBER_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define KGEN__FIBER_ASAN 1
#endif
#endif

#if !defined(KGEN__FIBER_UCONTEXT) && !defined(__x86_64__) && !defined(__aarch64__)
#define KGEN__FIBER_UCONTEXT 1
#endif

#ifdef KGEN__FIBER_UCONTEXT
#include <ucontext.h>
#endif

typedef struct kgen__fiber {
#ifdef KGEN__FIBER_UCONTEXT
    ucontext_t context;
#else
    void *sp;
#endif
    void (*entry)(void *arg); /* never returns */
    void *arg;
    const void *stack; /* lowest byte; a thread's own stack: learnt by ASan */
    size_t stack_size;
    void *fake_stack;         /* of ASan */
    struct kgen__fiber *from; /* who switched here last, for ASan */
} kgen__fiber;

/* `stack` is usable memory of `size` bytes, 16-byte aligned at its end. A
 * fiber may be abandoned at any switch and made anew on the same stack. */
void kgen__fiber_init(kgen__fiber *fiber, void *stack, size_t size, void (*entry)(void *),
                      void *arg);
/* `from` is the running one; returns when somebody switches back to it. */
void kgen__fiber_switch(kgen__fiber *from, kgen__fiber *to);

/* `count` stacks, each above a page that faults. *stride: bytes from one to
 * the next; usable bytes of each: kgen__stack_bytes(). NULL: no memory. */
unsigned char *kgen__stacks_map(unsigned count, size_t *stride);
void kgen__stacks_unmap(unsigned char *stacks, unsigned count);
size_t kgen__stack_bytes(void);

#endif

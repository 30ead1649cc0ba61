/* Two ways to switch: fiber_switch.S on x86-64, ucontext elsewhere. */
#include "fiber.h"

#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#ifdef KGEN__FIBER_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
enum { STACK_BYTES = 256 * 1024 };
#else
enum { STACK_BYTES = 64 * 1024 };
#endif

/* The saved `from->fake_stack` is this fiber's own again after the switch. */
static void before_switch(kgen__fiber *from, kgen__fiber *to) {
    to->from = from;
#ifdef KGEN__FIBER_ASAN
    __sanitizer_start_switch_fiber(&from->fake_stack, to->stack, to->stack_size);
#endif
}

static void after_switch(kgen__fiber *self) {
#ifdef KGEN__FIBER_ASAN
    __sanitizer_finish_switch_fiber(self->fake_stack, &self->from->stack, &self->from->stack_size);
#else
    (void)self;
#endif
}

static void fiber_main(kgen__fiber *self) {
    after_switch(self);
    self->entry(self->arg);
}

#ifdef KGEN__FIBER_UCONTEXT

static void context_main(unsigned high, unsigned low) {
    fiber_main((kgen__fiber *)(uintptr_t)((uint64_t)high << 32 | low));
}

static void prepare(kgen__fiber *fiber, unsigned char *stack, size_t size) {
    uint64_t self = (uintptr_t)fiber;
    getcontext(&fiber->context);
    fiber->context.uc_stack.ss_sp = stack;
    fiber->context.uc_stack.ss_size = size;
    fiber->context.uc_link = NULL;
    makecontext(&fiber->context, (void (*)(void))context_main, 2, (unsigned)(self >> 32),
                (unsigned)self);
}

void kgen__fiber_switch(kgen__fiber *from, kgen__fiber *to) {
    before_switch(from, to);
    swapcontext(&from->context, &to->context);
    after_switch(from);
}

#else

void kgen__fiber_swap(void **save_sp, void *load_sp);
void kgen__fiber_thunk(void);

/* Index of each word in the frame that kgen__fiber_swap pops. */
#if defined(__x86_64__)
enum { FRAME_ARG = 3, FRAME_ENTRY = 2, FRAME_RETURN = 6, FRAME_WORDS = 8 };
#else
enum { FRAME_ARG = 2, FRAME_ENTRY = 3, FRAME_RETURN = 1, FRAME_WORDS = 20 };
#endif

static void prepare(kgen__fiber *fiber, unsigned char *stack, size_t size) {
    uintptr_t frame[FRAME_WORDS] = {0};
    frame[FRAME_ARG] = (uintptr_t)fiber;
    frame[FRAME_ENTRY] = (uintptr_t)fiber_main;
    frame[FRAME_RETURN] = (uintptr_t)kgen__fiber_thunk;
    unsigned char *sp = stack + size - sizeof frame;
#if defined(__x86_64__)
    sp -= 8; /* so that the thunk finds its stack 16-byte aligned */
#endif
    memcpy(sp, frame, sizeof frame);
    fiber->sp = sp;
}

void kgen__fiber_switch(kgen__fiber *from, kgen__fiber *to) {
    before_switch(from, to);
    kgen__fiber_swap(&from->sp, to->sp);
    after_switch(from);
}

#endif

void kgen__fiber_init(kgen__fiber *fiber, void *stack, size_t size, void (*entry)(void *),
                      void *arg) {
    fiber->entry = entry;
    fiber->arg = arg;
    fiber->stack = stack;
    fiber->stack_size = size;
    fiber->fake_stack = NULL;
    fiber->from = NULL;
    prepare(fiber, stack, size);
}

static size_t page_bytes(void) { return (size_t)sysconf(_SC_PAGESIZE); }

size_t kgen__stack_bytes(void) { return STACK_BYTES; }

unsigned char *kgen__stacks_map(unsigned count, size_t *stride) {
    size_t page = page_bytes();
    *stride = STACK_BYTES + page;
    unsigned char *base = mmap(NULL, *stride * count, PROT_READ | PROT_WRITE,
                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED) return NULL;
    for (unsigned i = 0; i < count; i++) {
        if (mprotect(base + *stride * i, page, PROT_NONE) == 0) continue;
        munmap(base, *stride * count);
        return NULL;
    }
    return base + page;
}

void kgen__stacks_unmap(unsigned char *stacks, unsigned count) {
    size_t page = page_bytes(), bytes = (STACK_BYTES + page) * count;
#ifdef KGEN__FIBER_ASAN
    /* A fiber that was abandoned leaves its frames poisoned. */
    for (unsigned i = 0; i < count; i++)
        __asan_unpoison_memory_region(stacks + (STACK_BYTES + page) * i, STACK_BYTES);
#endif
    munmap(stacks - page, bytes);
}

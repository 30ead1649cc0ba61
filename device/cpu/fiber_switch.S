/* void kgen__fiber_swap(void **save_sp, void *load_sp)
 * Pushes what a callee must keep, stores the stack pointer, takes the other.
 * kgen__fiber_thunk is where a new fiber's first swap "returns" to: it calls
 * the C entry, which does not come back.                                    */
#if defined(__x86_64__)

    .text
    .globl kgen__fiber_swap
    .hidden kgen__fiber_swap
    .type kgen__fiber_swap, @function
    .p2align 4
kgen__fiber_swap:
    .cfi_startproc
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
    .cfi_endproc
    .size kgen__fiber_swap, .-kgen__fiber_swap

    .globl kgen__fiber_thunk
    .hidden kgen__fiber_thunk
    .type kgen__fiber_thunk, @function
    .p2align 4
kgen__fiber_thunk:
    .cfi_startproc
    .cfi_undefined rip
    movq %r12, %rdi
    callq *%r13
    ud2
    .cfi_endproc
    .size kgen__fiber_thunk, .-kgen__fiber_thunk

#elif defined(__aarch64__)

    .text
    .globl kgen__fiber_swap
    .hidden kgen__fiber_swap
    .type kgen__fiber_swap, %function
    .p2align 4
kgen__fiber_swap:
    .cfi_startproc
    stp x29, x30, [sp, #-160]!
    stp x19, x20, [sp, #16]
    stp x21, x22, [sp, #32]
    stp x23, x24, [sp, #48]
    stp x25, x26, [sp, #64]
    stp x27, x28, [sp, #80]
    stp d8, d9, [sp, #96]
    stp d10, d11, [sp, #112]
    stp d12, d13, [sp, #128]
    stp d14, d15, [sp, #144]
    mov x9, sp
    str x9, [x0]
    mov sp, x1
    ldp x19, x20, [sp, #16]
    ldp x21, x22, [sp, #32]
    ldp x23, x24, [sp, #48]
    ldp x25, x26, [sp, #64]
    ldp x27, x28, [sp, #80]
    ldp d8, d9, [sp, #96]
    ldp d10, d11, [sp, #112]
    ldp d12, d13, [sp, #128]
    ldp d14, d15, [sp, #144]
    ldp x29, x30, [sp], #160
    ret
    .cfi_endproc
    .size kgen__fiber_swap, .-kgen__fiber_swap

    .globl kgen__fiber_thunk
    .hidden kgen__fiber_thunk
    .type kgen__fiber_thunk, %function
    .p2align 4
kgen__fiber_thunk:
    .cfi_startproc
    .cfi_undefined x30
    mov x0, x19
    blr x20
    brk #1
    .cfi_endproc
    .size kgen__fiber_thunk, .-kgen__fiber_thunk

#endif

#if defined(__linux__) && defined(__ELF__)
    .section .note.GNU-stack, "", %progbits
#endif

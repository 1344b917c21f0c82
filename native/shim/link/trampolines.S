/* Included by the generated sources: one function of the link library, and what a first call does.
 *
 *     TRAMPOLINE cuInit, 0
 *
 * jumps to link_targets[0] with 0 in a register that no argument is passed in. Its first
 * instructions are such that programs can patch it (runtime/entry.h). A target begins as
 * `link_first`, which keeps every argument, asks link_resolve() for the function and jumps there.
 */
#if defined(__x86_64__)

.macro TRAMPOLINE name, index
    .globl \name
    .type \name, %function
    .balign 16
\name:
    .rept 3
    mov $\index, %eax
    .endr
    jmp *link_targets+8*\index(%rip)
    .size \name, .-\name
.endm

    .text
    .globl link_first
    .hidden link_first
    .type link_first, %function
link_first:
    .cfi_startproc
    push %rbp
    .cfi_def_cfa_offset 16
    .cfi_offset %rbp, -16
    mov %rsp, %rbp
    .cfi_def_cfa_register %rbp
    sub $176, %rsp
    and $-16, %rsp
    mov %rdi, 0(%rsp)
    mov %rsi, 8(%rsp)
    mov %rdx, 16(%rsp)
    mov %rcx, 24(%rsp)
    mov %r8, 32(%rsp)
    mov %r9, 40(%rsp)
    movaps %xmm0, 48(%rsp)
    movaps %xmm1, 64(%rsp)
    movaps %xmm2, 80(%rsp)
    movaps %xmm3, 96(%rsp)
    movaps %xmm4, 112(%rsp)
    movaps %xmm5, 128(%rsp)
    movaps %xmm6, 144(%rsp)
    movaps %xmm7, 160(%rsp)
    mov %eax, %edi
    call link_resolve
    mov %rax, %r11
    mov 0(%rsp), %rdi
    mov 8(%rsp), %rsi
    mov 16(%rsp), %rdx
    mov 24(%rsp), %rcx
    mov 32(%rsp), %r8
    mov 40(%rsp), %r9
    movaps 48(%rsp), %xmm0
    movaps 64(%rsp), %xmm1
    movaps 80(%rsp), %xmm2
    movaps 96(%rsp), %xmm3
    movaps 112(%rsp), %xmm4
    movaps 128(%rsp), %xmm5
    movaps 144(%rsp), %xmm6
    movaps 160(%rsp), %xmm7
    leave
    .cfi_def_cfa %rsp, 8
    jmp *%r11
    .cfi_endproc
    .size link_first, .-link_first

#elif defined(__aarch64__)

.macro TRAMPOLINE name, index
    .globl \name
    .type \name, %function
    .balign 16
\name:
    .rept 2
    mov w17, #\index
    .endr
    adrp x16, link_targets+8*\index
    ldr x16, [x16, :lo12:link_targets+8*\index]
    br x16
    .size \name, .-\name
.endm

    .text
    .globl link_first
    .hidden link_first
    .type link_first, %function
link_first:
    .cfi_startproc
    hint 34 /* bti c */
    stp x29, x30, [sp, #-224]!
    .cfi_def_cfa_offset 224
    .cfi_offset x29, -224
    .cfi_offset x30, -216
    mov x29, sp
    stp x0, x1, [sp, #16]
    stp x2, x3, [sp, #32]
    stp x4, x5, [sp, #48]
    stp x6, x7, [sp, #64]
    str x8, [sp, #80]
    stp q0, q1, [sp, #96]
    stp q2, q3, [sp, #128]
    stp q4, q5, [sp, #160]
    stp q6, q7, [sp, #192]
    mov w0, w17
    bl link_resolve
    mov x16, x0
    ldp x0, x1, [sp, #16]
    ldp x2, x3, [sp, #32]
    ldp x4, x5, [sp, #48]
    ldp x6, x7, [sp, #64]
    ldr x8, [sp, #80]
    ldp q0, q1, [sp, #96]
    ldp q2, q3, [sp, #128]
    ldp q4, q5, [sp, #160]
    ldp q6, q7, [sp, #192]
    ldp x29, x30, [sp], #224
    .cfi_def_cfa_offset 0
    br x16
    .cfi_endproc
    .size link_first, .-link_first

#else
#error "the link library is built for x86-64 and aarch64"
#endif

    .section .note.GNU-stack, "", %progbits
    .text

/* The first instructions of what the shim exports.
 *
 * Some programs patch the driver's functions in memory. UCX writes a jump over the first bytes, 5
 * or 12 on x86-64 and 16 on aarch64, and moves the instructions that were there elsewhere, so that
 * the function can still be called. It can move the few that a driver's functions begin with; a
 * compiler may put others there. So each export is an entry that jumps to the hook, after as many
 * instructions as a patch covers, which all can be moved and do nothing.
 */
#ifndef SHIM_RUNTIME_ENTRY_H
#define SHIM_RUNTIME_ENTRY_H

#if defined(__x86_64__) /* no argument is passed in eax */
#define ENTRY_BEGINS ".rept 3\n mov $0, %eax\n .endr\n"
#define ENTRY_JUMP "jmp "
#elif defined(__aarch64__)
#define ENTRY_BEGINS ".rept 4\n mov x16, x16\n .endr\n"
#define ENTRY_JUMP "b "
#else
#error "the shim is built for x86-64 and aarch64"
#endif

/* The export `name` of the hook that C knows by that name. */
#define ENTRY(name)                                                                                \
    __asm__(".pushsection .text\n .balign 16\n .globl " #name "\n .type " #name                    \
            ", %function\n" #name ":\n .cfi_startproc\n" ENTRY_BEGINS ENTRY_JUMP "hook_" #name     \
            "\n .cfi_endproc\n .size " #name ", .-" #name "\n .popsection")

#endif

/* The link library: every function of a driver library by name, for ld and for who opens it.
 *
 * ld does not look through the needed libraries of the one it links with, and a shim has only what
 * it hooks. Here each function is a jump to what the shim finds under its name: a hook, or the
 * driver's own. Generated: the names, their targets and the trampolines.
 */
#ifndef SHIM_LINK_LINK_H
#define SHIM_LINK_LINK_H

extern __attribute__((visibility("hidden"))) const char *const link_names[];
extern __attribute__((visibility("hidden"))) void *_Atomic link_targets[];

/* Where every target leads at first; in assembler, never to be called from C. */
extern __attribute__((visibility("hidden"))) void link_first(void);

/* Answers for a function that the driver does not have. */
__attribute__((visibility("hidden"))) int link_absent(void);

/* The function of this index; from now on its target. Any thread, any number at once. */
__attribute__((visibility("hidden"))) void *link_resolve(unsigned index);

#endif

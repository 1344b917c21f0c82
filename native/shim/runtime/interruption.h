/* Keep a thread from being interrupted for some microseconds.
 *
 * A signal handler may leave by a jump, as interrupts of Julia do, and a cancelled thread ends:
 * what either holds then, a lock or a flight, stays held. So what a launch does while it is held
 * back is done with both off, and both are on while it sleeps, when it holds nothing. Signals of
 * faults and those of the C library itself come all the same; handlers and dispositions are never
 * touched.
 */
#ifndef SHIM_RUNTIME_INTERRUPTION_H
#define SHIM_RUNTIME_INTERRUPTION_H

#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

/* How the thread was. signals: blocked ones, as the kernel has them, from 1 on. */
struct interruption {
    uint64_t signals;
    int cancellable;
};

#define INTERRUPTION_SIGNAL(number) (UINT64_C(1) << ((number) - 1))

/* By the system call: a program may have put a function of its own in the place of the library's,
 * and the thread's is not in the C library proper before glibc 2.32. */
static inline void interruption_block(struct interruption *before)
{
    enum { CANCEL = 32, SET_ID = 33 }; /* of glibc's threads */
    uint64_t blocked = ~(
        INTERRUPTION_SIGNAL(SIGSEGV) | INTERRUPTION_SIGNAL(SIGBUS) | INTERRUPTION_SIGNAL(SIGFPE) |
        INTERRUPTION_SIGNAL(SIGILL) | INTERRUPTION_SIGNAL(SIGTRAP) | INTERRUPTION_SIGNAL(SIGABRT) |
        INTERRUPTION_SIGNAL(SIGSYS) | INTERRUPTION_SIGNAL(CANCEL) | INTERRUPTION_SIGNAL(SET_ID));
    syscall(SYS_rt_sigprocmask, SIG_BLOCK, &blocked, &before->signals, sizeof blocked);
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before->cancellable);
}

static inline void interruption_allow(const struct interruption *before)
{
    pthread_setcancelstate(before->cancellable,
                           NULL); /* first: a handler may leave from the next */
    syscall(SYS_rt_sigprocmask, SIG_SETMASK, &before->signals, NULL, sizeof before->signals);
}

#endif

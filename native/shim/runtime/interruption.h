/* Keep a thread from being interrupted for some microseconds.
 *
 * A signal handler may leave by a jump, as interrupts of Julia do, and a cancelled thread ends:
 * what either holds then, a lock or a flight, stays held. So what a launch does while it is held
 * back is done with both off, and both are on while it sleeps, when it holds nothing. Signals of
 * faults and of the C library itself come all the same.
 */
#ifndef SHIM_RUNTIME_INTERRUPTION_H
#define SHIM_RUNTIME_INTERRUPTION_H

#include <pthread.h>
#include <signal.h>

/* How the thread was. */
struct interruption {
    sigset_t signals;
    int cancellable;
};

static inline void interruption_block(struct interruption *before)
{
    static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS};
    sigset_t blocked;
    sigfillset(&blocked);
    for (unsigned index = 0; index < sizeof faults / sizeof *faults; index++)
        sigdelset(&blocked, faults[index]);
    sigprocmask(SIG_BLOCK, &blocked, &before->signals);
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before->cancellable);
}

static inline void interruption_allow(const struct interruption *before)
{
    pthread_setcancelstate(before->cancellable,
                           NULL); /* first: a handler may leave from the next */
    sigprocmask(SIG_SETMASK, &before->signals, NULL);
}

#endif

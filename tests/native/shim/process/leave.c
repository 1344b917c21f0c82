/* Leave a call by a jump, out of a function that it calls back. */
#include <setjmp.h>
#include <stddef.h>

static jmp_buf out;

static void leave(void)
{
    longjmp(out, 1);
}

/* 1 if it was left. set: told what is to be called back. */
int call_and_leave(void (*set)(void (*)(void)), int (*call)(void *, void *), void *one, void *other)
{
    if (setjmp(out) != 0)
        return 1;
    set(leave);
    call(one, other);
    return 0;
}

/* A library whose program is killed when it is loaded. */
#include <signal.h>

__attribute__((constructor)) static void begin(void)
{
    raise(SIGKILL);
}

#include "runtime/clock.h"
#include "runtime/hello.h"
#include "runtime/session.h"
#include "vcuda_protocol.h"

#include <errno.h>
#include <unistd.h>

enum { PAUSE_NS = 20 * 1000 * 1000 };

/* The regions are mapped already: what comes with the answer is not needed. */
static int ask(const struct session *session, uint64_t deadline)
{
    struct welcome welcome;
    struct refusal refusal;
    int error = hello_exchange(VCUDA_DIRECTORY "/vcuda.sock", VCUDA_HELLO_MEASURE, deadline,
                               &welcome, &refusal);
    if (error != 0)
        return error;
    close(welcome.books);
    return welcome.slot == session->books.slot ? 0 : -ESTALE;
}

int session_measure(const struct session *session, uint64_t patience_ns, bool insist)
{
    uint64_t deadline = clock_now() + patience_ns;
    int error = ask(session, deadline);
    while (insist && error == -EAGAIN && clock_now() < deadline) {
        clock_sleep_until(clock_now() + PAUSE_NS);
        error = ask(session, deadline);
    }
    return error;
}

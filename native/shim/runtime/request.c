/* What an attached process asks of its manager: one request at a time, over one connection. */
#include "runtime/clock.h"
#include "runtime/session.h"

#include <errno.h>
#include <unistd.h>

static const uint64_t pause_ns = UINT64_C(5000000);
static const uint64_t grace_ns = UINT64_C(1000000000); /* for a thread that is not given the CPU */

int session_request(struct session *session, uint32_t flags, uint64_t deadline,
                    struct welcome *welcome)
{
    struct refusal refusal;
    uint64_t now = clock_now(), until = (now > deadline ? now : deadline) + grace_ns;
    uint64_t lease = atomic_load_explicit(&session->lease, memory_order_relaxed);
    /* acquire, and release below: what one thread did with the connection is done for the next */
    if (lease > now ||
        !atomic_compare_exchange_strong_explicit(&session->lease, &lease, until,
                                                 memory_order_acquire, memory_order_relaxed))
        return -EINPROGRESS;
    uint64_t number = atomic_fetch_add(&session->requests, 1) + 1;
    int error = hello_exchange(&session->connection, flags | VCUDA_HELLO_PERSISTENT, deadline,
                               welcome, &refusal);
    if (error == 0 && welcome->slot != session->books.slot) {
        if (welcome->books >= 0)
            close(welcome->books);
        error = -ESTALE;
    }
    if ((flags & VCUDA_HELLO_MEASURE) && error != -EAGAIN)
        atomic_store(&session->measured, number << 32 | (uint32_t)-error);
    atomic_compare_exchange_strong_explicit(&session->lease, &until, 0, memory_order_release,
                                            memory_order_relaxed); /* unless it has ended */
    return error;
}

/* `begun`: requests before the caller came. What another thread asked after that is as good. */
static int measure(struct session *session, unsigned begun, uint64_t deadline)
{
    struct welcome welcome;
    uint64_t measured = atomic_load(&session->measured);
    if ((int32_t)((uint32_t)(measured >> 32) - begun) > 0)
        return -(int)(uint32_t)measured;
    return session_request(session, VCUDA_HELLO_MEASURE, deadline, &welcome);
}

int session_measure(struct session *session, uint64_t patience_ns, bool insist)
{
    unsigned begun = atomic_load(&session->requests);
    uint64_t deadline = clock_now() + patience_ns;
    int error = measure(session, begun, deadline);
    while ((error == -EINPROGRESS || (insist && error == -EAGAIN)) && clock_now() < deadline) {
        clock_sleep_until(clock_now() + pause_ns);
        error = measure(session, begun, deadline);
    }
    return error == -EINPROGRESS ? -EAGAIN : error;
}

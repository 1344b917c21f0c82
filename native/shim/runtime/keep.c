/* A session's descriptor of the books, lost and found again. */
#include "runtime/session.h"

#include "core/peers.h"
#include "runtime/clock.h"
#include "runtime/fork.h"

#include <unistd.h>

static const uint64_t look_every_ns = UINT64_C(1000000000);
static const uint64_t ask_every_ns = UINT64_C(1000000000);
static const uint64_t patience_ns = UINT64_C(200000000);

/* Some nanoseconds to ask, some milliseconds old. */
static uint64_t coarse_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* True for one caller in every so many ns. */
static bool turn(_Atomic(uint64_t) *last, uint64_t now, uint64_t every_ns)
{
    uint64_t before = atomic_load_explicit(last, memory_order_relaxed);
    return now - before >= every_ns && atomic_compare_exchange_strong(last, &before, now);
}

/* The slot's words hold what this program has: another slot, or other books, are no use to it. */
static bool same_books(const struct session *session, const struct welcome *welcome)
{
    return welcome->slot == session->books.slot &&
           file_same(file_identity(welcome->books), session->books.file);
}

static void take_over(struct session *session, int descriptor)
{
    session->books.fd = file_out_of_the_way(descriptor); /* what it had is the program's now */
    fork_close(FORK_BOOKS, session->books.fd);
    peers_join(&session->books); /* that there was no lock is said already */
    atomic_store(&session->books.lost, false);
}

static void mend(struct session *session)
{
    struct welcome welcome;
    if (session_request(session, VCUDA_HELLO_KEEP, clock_now() + patience_ns, &welcome) != 0)
        return; /* in a second again */
    bool taken = false;
    if (peers_begin(&session->books)) {
        taken = same_books(session, &welcome);
        if (taken)
            take_over(session, welcome.books);
        peers_end(&session->books);
    }
    if (!taken)
        close(welcome.books);
}

static void keep(struct session *session, uint64_t now)
{
    int cancelled;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancelled);
    bool lost = atomic_load(&session->books.lost);
    if (!lost && !peers_descriptor_kept(&session->books)) {
        books_lose(&session->books);
        lost = true;
    }
    if (lost && turn(&session->asked, now, ask_every_ns))
        mend(session);
    pthread_setcancelstate(cancelled, NULL);
}

void session_keep(struct session *session)
{
    uint64_t now = coarse_now();
    if (atomic_load_explicit(&session->books.lost, memory_order_relaxed) ||
        turn(&session->kept, now, look_every_ns))
        keep(session, now);
}

#include "runtime/session.h"

#include "core/peers.h"
#include "runtime/clock.h"
#include "runtime/fork.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
    PAUSE_FIRST_NS = 2 * 1000 * 1000,
    PAUSE_LAST_NS = 500 * 1000 * 1000,
};

#define CONFIG VCUDA_DIRECTORY "/config"

/* Map one region, or NULL if the file is not as large as the struct, or with an error noted. */
static void *map_region(struct session *session, int descriptor, size_t size, int protection)
{
    off_t length = lseek(descriptor, 0, SEEK_END);
    if (length >= 0 && length < (off_t)size)
        return NULL;
    void *mapping =
        length < 0 ? MAP_FAILED : mmap(NULL, size, protection, MAP_SHARED, descriptor, 0);
    if (mapping == MAP_FAILED) {
        refusal_of_call(&session->refusal, "mapping the container's pages");
        return NULL;
    }
    fork_unmap(mapping, size);
    return mapping;
}

/* A page is not usable: because a system call failed, or else it is another version's. */
static int unusable(const struct session *session)
{
    return session->refusal.error != 0 ? session->refusal.error : -EPROTO;
}

int session_config_open(void)
{
    /* O_NONBLOCK: whatever has that name in a container that mounts its own, nobody waits */
    return open(CONFIG, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
}

bool session_config_usable(const struct vcuda_config *config)
{
    return config->magic == VCUDA_CONFIG_MAGIC && config->abi == VCUDA_REGION_ABI &&
           config->size == sizeof *config && config->device_count <= VCUDA_DEVICES;
}

static bool books_usable(const struct vcuda_books *books)
{
    return books->magic == VCUDA_BOOKS_MAGIC && books->abi == VCUDA_REGION_ABI &&
           books->size == sizeof *books;
}

static int map_config(struct session *session)
{
    int descriptor = session_config_open();
    if (descriptor < 0)
        return refusal_of_call(&session->refusal, "open() of " CONFIG);
    session->config = map_region(session, descriptor, sizeof *session->config, PROT_READ);
    close(descriptor);
    bool usable = session->config != NULL && session_config_usable(session->config);
    return usable ? 0 : unusable(session);
}

static int map_books(struct session *session, const struct welcome *welcome)
{
    int protection = welcome->slot < 0 ? PROT_READ : PROT_READ | PROT_WRITE;
    struct vcuda_books *books = map_region(session, welcome->books, sizeof *books, protection);
    session->books.page = books;
    session->books.slot = welcome->slot;
    session->books.devices = session->config->device_count;
    return books != NULL && books_usable(books) ? 0 : unusable(session);
}

/* A program may try again for as long as it lives: nothing may pile up. */
static void unmap(struct session *session)
{
    if (session->config != NULL)
        munmap((void *)(uintptr_t)session->config, sizeof *session->config);
    if (session->books.page != NULL)
        munmap(session->books.page, sizeof *session->books.page);
    session->config = NULL;
    session->books.page = NULL;
}

/* Keep the books open for the alive lock. Before the first reservation; without the lock one is
 * still told from the dead by pid. */
static void join(struct session *session, int descriptor)
{
    session->books.fd = file_out_of_the_way(descriptor);
    session->books.file = file_identity(session->books.fd);
    fork_close(FORK_BOOKS, session->books.fd);
    if (peers_join(&session->books) != 0)
        books_degrade(&session->books, VCUDA_DEGRADED_LOCK);
}

static int enter(struct session *session, const struct welcome *welcome)
{
    int error = map_config(session);
    if (error == 0)
        error = map_books(session, welcome);
    if (error == 0 && welcome->slot >= 0) {
        join(session, welcome->books);
        turns_open(&session->turns, session->books.fd, welcome->slot);
        return 0;
    }
    close(welcome->books); /* an observer takes no lock */
    session->books.fd = -1;
    if (error != 0)
        unmap(session);
    return error;
}

/* Ask until somebody answers. Peers that start together pause for different times. */
static int ask(struct session *session, struct session_manner manner, struct welcome *welcome)
{
    struct connection *connection = &session->connection;
    struct refusal *refusal = &session->refusal;
    uint64_t begun = clock_now(), now = begun, deadline = begun + manner.patience_ns;
    uint64_t pause = PAUSE_FIRST_NS;
    int error = hello_exchange(connection, manner.flags, deadline, welcome, refusal);
    while (error == -EAGAIN && (now = clock_now()) < deadline) {
        uint64_t wake = now + pause / 2 + now % pause;
        clock_sleep_until(wake < deadline ? wake : deadline);
        pause = pause * 2 < PAUSE_LAST_NS ? pause * 2 : PAUSE_LAST_NS;
        error = hello_exchange(connection, manner.flags, deadline, welcome, refusal);
    }
    refusal->waited_ns = clock_now() - begun;
    return error;
}

static enum session_phase decide(struct session *session, struct session_manner manner)
{
    if (access(VCUDA_DIRECTORY, F_OK) != 0 && (errno == ENOENT || errno == ENOTDIR)) {
        session->refusal = (struct refusal){.error = -ENOENT};
        return session_promised() ? SESSION_FAILED : SESSION_UNMANAGED;
    }
    struct welcome welcome;
    int error = ask(session, manner, &welcome);
    if (error == 0)
        error = session->refusal.error = enter(session, &welcome);
    if (error != 0)
        connection_close(&session->connection);
    return error == 0 ? SESSION_ATTACHED : SESSION_FAILED;
}

/* Is this thread to ask? Not if another does, which has not left by a jump, as far as can be
 * told. */
static bool take_turn(struct session *session, struct session_manner manner, unsigned attempts)
{
    uint64_t now = clock_now();
    pthread_mutex_lock(&session->attaching);
    bool turn = atomic_load(&session->attempts) == attempts &&
                (now >= session->asker_until || pthread_equal(session->asker, pthread_self()));
    if (turn) {
        session->asker = pthread_self();
        session->asker_until = now + 2 * manner.patience_ns;
    }
    pthread_mutex_unlock(&session->attaching);
    return turn;
}

static void attempt(struct session *session, struct session_manner manner)
{
    int cancellable; /* a thread cancelled meanwhile would leave the others waiting for it */
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancellable);
    enum session_phase phase = decide(session, manner);
    pthread_mutex_lock(&session->attaching);
    session->asker_until = 0;
    atomic_store_explicit(&session->phase, phase, memory_order_release);
    atomic_fetch_add(&session->attempts, 1);
    pthread_mutex_unlock(&session->attaching);
    pthread_setcancelstate(cancellable, NULL);
}

/* The others wait for the thread that asks. */
static void attach(struct session *session, struct session_manner manner, unsigned attempts)
{
    uint64_t pause = PAUSE_FIRST_NS;
    while (atomic_load(&session->attempts) == attempts)
        if (take_turn(session, manner, attempts)) {
            attempt(session, manner);
        } else {
            clock_sleep_until(clock_now() + pause);
            pause = pause < PAUSE_LAST_NS / 10 ? 2 * pause : pause;
        }
}

enum session_phase session_attach(struct session *session, struct session_manner manner, bool again)
{
    unsigned attempts = atomic_load(&session->attempts); /* before the phase they lead to */
    enum session_phase phase = session_phase(session);
    if (phase != SESSION_NEW && !(again && phase == SESSION_FAILED))
        return phase;
    attach(session, manner, attempts);
    return session_phase(session);
}

int session_device(const struct session *session, const uint8_t uuid[16])
{
    const struct vcuda_config *config = session->config;
    for (uint32_t device = 0; device < config->device_count && device < VCUDA_DEVICES; device++)
        if (memcmp(config->limits[device].uuid, uuid, sizeof config->limits[device].uuid) == 0)
            return (int)device;
    return -1;
}

/* Threads of two processes of one container on the pure units, while its manager moves slots and
 * limits. Then the same books between real processes, some of which are killed.
 *
 * The first two processes are of one program, so that a sanitizer sees all that they share. Prints
 * what is wrong and returns 1, or returns 0.
 */
#include "core/life.h"
#include "core/memory/array_size.h"
#include "core/memory/books.h"
#include "core/memory/pointers.h"
#include "core/peers.h"
#include "core/region.h"
#include "core/time/event_pool.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PROCESSES = 2, THREADS = 3, ROUNDS = 3000, HELD = 8, LARGEST = 1000 };
enum { LIMIT = PROCESSES * THREADS * HELD * LARGEST / 5 };

static struct process {
    struct books books;
    struct pointers pointers;
    struct event_pools events;
} processes[PROCESSES];

static struct vcuda_config config = {.limits[0] = {.memory_bytes = LIMIT, .core_percent = 50}};
static atomic_bool managing;
static atomic_int faults;

struct worker {
    struct process *process;
    unsigned seed;
    uint64_t first; /* its addresses begin here */
};

static void expect(bool right, const char *what)
{
    if (!right && atomic_fetch_add(&faults, 1) == 0)
        fprintf(stderr, "not so: %s\n", what);
}

static bool allocate(struct process *process, uint64_t address, uint64_t bytes)
{
    if (books_reserve(&process->books, 0, bytes, LIMIT) != 0)
        return false;
    expect(pointers_add(&process->pointers, (struct pointer){.address = address, .bytes = bytes}) ==
               0,
           "added");
    return true;
}

static void release(struct process *process, uint64_t address, uint64_t bytes)
{
    struct pointer taken = {0};
    expect(pointers_take(&process->pointers, address, &taken) == 0, "an address held is known");
    expect(taken.bytes == bytes, "it has the bytes that it was given");
    books_release(&process->books, 0, taken.bytes);
}

/* Events of a few contexts, which end now and then. */
static void mark(struct process *process, unsigned *seed)
{
    uint64_t context = 1 + (uint64_t)rand_r(seed) % 3;
    void *event = event_pools_take(&process->events, context);
    if (rand_r(seed) % 64 == 0)
        event_pools_context_ended(&process->events, context);
    event_pools_give(&process->events, context, event == NULL ? seed : event);
}

static uint64_t size_of(unsigned *seed)
{
    struct array_shape shape = {.width = 1 + (uint64_t)rand_r(seed) % LARGEST, .channels = 1};
    expect(array_size(&shape) % 65536 == 0, "an array takes whole pages");
    return shape.width;
}

static void *work(void *argument)
{
    struct worker *worker = argument;
    uint64_t bytes[HELD] = {0};
    for (int round = 0; round < ROUNDS; round++) {
        int place = rand_r(&worker->seed) % HELD;
        uint64_t address = worker->first + (uint64_t)place * 512;
        uint64_t wanted = size_of(&worker->seed);
        if (bytes[place] != 0) {
            release(worker->process, address, bytes[place]);
            bytes[place] = 0;
        } else if (!allocate(worker->process, address, wanted)) {
            expect(!peers_reclaim(&worker->process->books, 0), "nobody is dead");
        } else {
            bytes[place] = wanted;
        }
        mark(worker->process, &worker->seed);
    }
    for (int place = 0; place < HELD; place++)
        if (bytes[place] != 0)
            release(worker->process, worker->first + (uint64_t)place * 512, bytes[place]);
    return NULL;
}

static struct vcuda_books *join(const char *path)
{
    struct vcuda_books *page = NULL;
    for (int slot = 0; slot < PROCESSES; slot++) {
        int file = open(path, O_RDWR | O_CREAT, 0600);
        if (file < 0 || ftruncate(file, sizeof *page) != 0)
            return NULL;
        if (page == NULL)
            page = mmap(NULL, sizeof *page, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        if (page == MAP_FAILED)
            return NULL;
        processes[slot].books.page = page;
        processes[slot].books.fd = file;
        processes[slot].books.file = file_identity(file);
        processes[slot].books.slot = slot;
    }
    page->slot_limit = PROCESSES;
    for (uint32_t slot = 0; slot < PROCESSES; slot++)
        page->slots[slot].pid = slot + 1;
    struct life own;
    expect(life_read(getpid(), &own) && !own.ended, "who asks is alive");
    for (int slot = 0; slot < PROCESSES; slot++)
        expect(peers_join(&processes[slot].books) == 0, "an alive lock is had");
    return page;
}

static void run_all(void)
{
    struct worker workers[PROCESSES * THREADS];
    pthread_t threads[PROCESSES * THREADS];
    for (unsigned index = 0; index < PROCESSES * THREADS; index++) {
        workers[index] =
            (struct worker){&processes[index % PROCESSES], index, ((uint64_t)index + 1) << 20};
        expect(pthread_create(&threads[index], NULL, work, &workers[index]) == 0, "a thread");
    }
    for (unsigned index = 0; index < PROCESSES * THREADS; index++)
        pthread_join(threads[index], NULL);
}

/* What the manager does meanwhile: other slots come and go, limits change and are as before. */
static void *manage(void *argument)
{
    struct vcuda_books *page = argument;
    for (uint32_t pid = 100; atomic_load(&managing); pid++) {
        int slot = region_slot_claim(page, pid, pid, pid);
        expect(slot >= PROCESSES, "a slot that is taken is not given");
        region_limit_store(&config, 0, LIMIT, 50, pid % 100);
        region_config_publish(&config);
        region_device_bytes(page, 0);
        expect(region_slot_release(page, (uint32_t)slot, pid, pid) == 0, "a slot is given back");
    }
    return NULL;
}

static void run_managed(struct vcuda_books *page)
{
    pthread_t manager;
    atomic_store(&managing, true);
    expect(pthread_create(&manager, NULL, manage, page) == 0, "a thread");
    run_all();
    atomic_store(&managing, false);
    pthread_join(manager, NULL);
}

enum { PEERS = 6, FIRST_PEER = PROCESSES, LAST_PEER = FIRST_PEER + PEERS };

/* What each peer holds in truth, beside the books: counted after a reservation, discounted before
 * a release, so that it is never more than what was let through. */
static atomic_ullong *truth;

static uint64_t truly_held(void)
{
    uint64_t sum = 0;
    for (int slot = FIRST_PEER; slot < LAST_PEER; slot++)
        sum += atomic_load(&truth[slot]);
    return sum;
}

static void be_peer(const char *path, int slot)
{
    unsigned seed = (unsigned)slot;
    uint64_t held = 0;
    struct books books = {.page = processes[0].books.page, .slot = slot};
    books.fd = open(path, O_RDWR);
    for (int round = 0; round < ROUNDS; round++) {
        uint64_t bytes = 1 + (uint64_t)rand_r(&seed) % (LIMIT / 4);
        if (held > 0) {
            atomic_store(&truth[slot], 0);
            books_release(&books, 0, held);
            held = 0;
        } else if (books_reserve(&books, 0, bytes, LIMIT) == 0) {
            held = bytes;
            atomic_store(&truth[slot], held);
            expect(truly_held() <= LIMIT, "processes together never hold more than the limit");
        }
    }
    books_release(&books, 0, held);
    atomic_store(&truth[slot], 0);
    _exit(atomic_load(&faults) != 0);
}

/* Half of them are killed where they happen to be; then their slots are emptied, as by a manager.
 */
static void run_peers(const char *path, struct vcuda_books *page)
{
    pid_t peers[LAST_PEER];
    page->slot_limit = LAST_PEER;
    for (int slot = FIRST_PEER; slot < LAST_PEER; slot++)
        if ((peers[slot] = fork()) == 0)
            be_peer(path, slot);
    for (int slot = FIRST_PEER; slot < LAST_PEER; slot++) {
        int status;
        if (slot % 2 == 0) {
            usleep(3000);
            kill(peers[slot], SIGKILL);
        }
        expect(waitpid(peers[slot], &status, 0) == peers[slot], "a peer ends");
        expect(status == 0 || (slot % 2 == 0 && WIFSIGNALED(status)), "as it should");
        atomic_store(&truth[slot], 0);
        region_slot_free(page, (uint32_t)slot);
    }
}

int main(int count, char **arguments)
{
    struct vcuda_books *page = count == 2 ? join(arguments[1]) : NULL;
    truth = mmap(NULL, LAST_PEER * sizeof *truth, PROT_READ | PROT_WRITE,
                 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (page == NULL || truth == MAP_FAILED)
        return 2;
    run_managed(page);
    run_peers(arguments[1], page);
    expect(books_total(&processes[0].books, 0) == 0, "nothing is held at the end");
    expect(page->meters[0].memory_peak <= LIMIT, "never over the limit");
    expect(((page->slots[0].flags | page->slots[1].flags) & VCUDA_DEGRADED_MASK) == 0,
           "the lock was always had");
    for (int slot = 0; slot < PROCESSES; slot++) {
        expect(processes[slot].pointers.count == 0, "every address was taken back");
        pointers_clear(&processes[slot].pointers);
    }
    return atomic_load(&faults) != 0;
}

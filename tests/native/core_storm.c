/* Threads of two processes of one container on the pure units: books, pointers, costs, limiter.
 *
 * Both processes are of one program, so that a sanitizer sees all that they share. Prints what is
 * wrong and returns 1, or returns 0.
 */
#include "core/books.h"
#include "core/cost.h"
#include "core/limiter.h"
#include "core/pointers.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PROCESSES = 2, THREADS = 3, ROUNDS = 3000, HELD = 8, LARGEST = 1000 };
enum { LIMIT = PROCESSES * THREADS * HELD * LARGEST / 5 };

static struct process {
    struct books books;
    struct pointers pointers;
    struct cost_table costs;
} processes[PROCESSES];

static struct vcuda_limit limit = {.memory_bytes = LIMIT, .core_percent = 50};
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

static void launch(struct process *process, unsigned *seed)
{
    struct vcuda_meter *meter = &process->books.page->meters[0];
    struct limiter_terms terms = limiter_terms(&limit);
    uint64_t key = cost_key(rand_r(seed) % 2000, 1, 32), now = 1 + (uint64_t)rand_r(seed), cost;
    cost_estimate(&process->costs, key, &cost);
    if (limiter_admit(meter, terms, now, cost) != 0)
        limiter_charge(meter, terms, now, cost);
    if (cost_due(&process->costs, key, cost))
        cost_record(&process->costs, key, now, rand_r(seed) % 100000, terms.rate_ppm);
    limiter_settle(meter, terms, (int64_t)(rand_r(seed) % 2000) - 1000);
}

static void *work(void *argument)
{
    struct worker *worker = argument;
    uint64_t bytes[HELD] = {0};
    for (int round = 0; round < ROUNDS; round++) {
        int place = rand_r(&worker->seed) % HELD;
        uint64_t address = worker->first + (uint64_t)place * 512;
        uint64_t wanted = 1 + (uint64_t)rand_r(&worker->seed) % LARGEST;
        if (bytes[place] != 0) {
            release(worker->process, address, bytes[place]);
            bytes[place] = 0;
        } else if (allocate(worker->process, address, wanted)) {
            bytes[place] = wanted;
        }
        launch(worker->process, &worker->seed);
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

int main(int count, char **arguments)
{
    struct vcuda_books *page = count == 2 ? join(arguments[1]) : NULL;
    if (page == NULL)
        return 2;
    run_all();
    expect(books_total(&processes[0].books, 0) == 0, "nothing is held at the end");
    expect(page->meters[0].memory_peak <= LIMIT, "never over the limit");
    expect(page->slots[0].flags == 0 && page->slots[1].flags == 0, "the lock was always had");
    for (int slot = 0; slot < PROCESSES; slot++) {
        expect(processes[slot].pointers.count == 0, "every address was taken back");
        pointers_clear(&processes[slot].pointers);
    }
    return atomic_load(&faults) != 0;
}

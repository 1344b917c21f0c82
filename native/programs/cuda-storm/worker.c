#include "worker.h"

#include "kinds.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
    PLACES = 6,          /* blocks that a thread has at once */
    EXEC_ONCE_IN = 3000, /* steps */
    EXIT_ONCE_IN = 6000,
    REST_NS = 2 * 1000 * 1000,
};

struct thread {
    const struct worker *worker;
    struct claim *claim;
    void *context;
    unsigned seed;
    struct block places[PLACES];
};

static struct row *row_of(const struct worker *worker)
{
    return &worker->claims->rows[worker->row];
}

static void give(struct thread *thread, struct block *block)
{
    struct claims *claims = thread->worker->claims;
    int result = block->kind->give(block);
    if (result != CUDA_SUCCESS)
        claims_fail(claims, result);
    atomic_fetch_add(&thread->claim->dropped, block->holds);
    atomic_fetch_add(&claims->given, 1);
    *block = (struct block){0};
}

/* Crumbs, fair shares, all that is left to the byte, and lumps. */
static uint64_t choose_bytes(struct thread *thread)
{
    size_t left, total;
    uint64_t limit = thread->worker->claims->limit;
    uint64_t share = limit / (unsigned)thread->worker->processes + 1;
    unsigned chance = (unsigned)rand_r(&thread->seed);
    switch (chance % 8) {
    case 0:
    case 1:
        return 1 + chance / 8 % 65536;
    case 2:
        return 1 + (uint64_t)chance * 4096 % (limit / 2);
    case 3:
        return cuMemGetInfo_v2(&left, &total) == CUDA_SUCCESS && left > 0 ? left : 1;
    default:
        return 1 + (uint64_t)chance * 4096 % share;
    }
}

static void refused(struct claims *claims, const struct block *block, uint64_t dropped_before)
{
    atomic_fetch_add(&claims->refused, 1);
    if (claims->uncounted || !claim_wrong(claims, block->holds, dropped_before))
        return;
    if (atomic_fetch_add(&claims->wrong, 1) == 0)
        fprintf(stderr, "cuda-storm: %s: %llu bytes refused although there was room\n",
                block->kind->name, (unsigned long long)block->bytes);
}

static struct block ask(struct thread *thread)
{
    uint64_t set = thread->worker->claims->kinds;
    unsigned number = (unsigned)rand_r(&thread->seed) % kinds_count(set);
    return kinds_ask(kinds_at(set, number), choose_bytes(thread));
}

static void take(struct thread *thread, struct block *place)
{
    struct claims *claims = thread->worker->claims;
    struct block block = ask(thread);
    uint64_t dropped_before = claim_begin(claims, thread->claim, block.holds);
    int result = block.kind->take(&block, block.bytes);
    claim_end(thread->claim, block.holds, result != CUDA_SUCCESS);
    if (result == CUDA_SUCCESS) {
        atomic_fetch_add(&thread->claim->dropped, kinds_settle(&block));
        atomic_fetch_add(&claims->taken, 1);
        *place = block;
    } else if (result == CUDA_ERROR_OUT_OF_MEMORY) {
        refused(claims, &block, dropped_before);
    } else {
        claims_fail(claims, result);
    }
}

void worker_exec(const struct worker *worker)
{
    char row[16], shared[16], threads[16], processes[16], seed[16];
    snprintf(row, sizeof row, "%d", worker->row);
    snprintf(shared, sizeof shared, "%d", worker->shared);
    snprintf(threads, sizeof threads, "%d", worker->threads);
    snprintf(processes, sizeof processes, "%d", worker->processes);
    snprintf(seed, sizeof seed, "%u", worker->seed + 7919);
    atomic_fetch_add(&worker->claims->execs, 1);
    execl(worker->program, worker->program, "--worker", row, shared, threads, processes, seed,
          (char *)NULL);
    _exit(3);
}

void worker_resume(char **words)
{
    struct worker worker = {
        .row = atoi(words[2]),
        .shared = atoi(words[3]),
        .threads = atoi(words[4]),
        .processes = atoi(words[5]),
        .seed = (unsigned)strtoul(words[6], NULL, 10),
        .program = words[0],
        .heir = -1,
    };
    worker.claims =
        mmap(NULL, sizeof *worker.claims, PROT_READ | PROT_WRITE, MAP_SHARED, worker.shared, 0);
    if (worker.claims == MAP_FAILED)
        _exit(3);
    worker_run(worker);
}

/* The first thread decides over the process. An exit leaves what is held to whom it concerns. */
static void end_or_go_on(struct thread *thread)
{
    if (atomic_load(&thread->worker->claims->phase) != STORM)
        return;
    if (thread->seed % EXIT_ONCE_IN == 1)
        _exit(0);
    if (thread->seed % EXEC_ONCE_IN == 2)
        worker_exec(thread->worker);
}

static void hold_still(struct thread *thread)
{
    const struct timespec rest = {.tv_nsec = REST_NS};
    struct claims *claims = thread->worker->claims;
    for (int place = 0; place < PLACES; place++)
        if (thread->places[place].kind != NULL && kinds_small_array(&thread->places[place]))
            give(thread, &thread->places[place]);
    atomic_fetch_add(&claims->quiet, 1);
    while (atomic_load(&claims->phase) == QUIET)
        nanosleep(&rest, NULL);
    for (int place = 0; place < PLACES; place++)
        if (thread->places[place].kind != NULL)
            give(thread, &thread->places[place]);
}

static void *work(void *argument)
{
    struct thread *thread = argument;
    bool first = thread->claim == row_of(thread->worker)->claims;
    int result = cuCtxSetCurrent(thread->context);
    if (result != CUDA_SUCCESS)
        claims_fail(thread->worker->claims, result);
    while (atomic_load(&thread->worker->claims->phase) == STORM) {
        struct block *block = &thread->places[rand_r(&thread->seed) % PLACES];
        if (block->kind != NULL)
            give(thread, block);
        else
            take(thread, block);
        if (first)
            end_or_go_on(thread);
    }
    hold_still(thread);
    return NULL;
}

static void begin(struct worker *worker, void **context)
{
    const struct timespec rest = {.tv_nsec = REST_NS};
    atomic_store(&row_of(worker)->pid, getpid());
    int result = driver_begin(context);
    /* No room for its context, or for the page that its code takes. */
    while (result == CUDA_ERROR_OUT_OF_MEMORY && atomic_load(&worker->claims->phase) == STORM) {
        atomic_fetch_add(&worker->claims->refused, 1);
        nanosleep(&rest, NULL);
        result = driver_begin(context);
    }
    if (result == CUDA_ERROR_OUT_OF_MEMORY)
        _exit(0);
    if (result != CUDA_SUCCESS) {
        claims_fail(worker->claims, result);
        _exit(4);
    }
    claims_void(row_of(worker)); /* of the program before an exec: gone when a new one has begun */
}

/* A child of a process that uses the GPU already begins anew. It is left to whoever started the
 * storm, as a daemon is. */
static void fork_heir(struct worker *worker, void **context)
{
    pid_t between = worker->heir < 0 ? -1 : fork();
    if (between > 0)
        waitpid(between, NULL, 0);
    if (between != 0)
        return;
    if (fork() != 0)
        _exit(0);
    worker->row = worker->heir;
    worker->seed += 104729;
    atomic_fetch_add(&worker->claims->forks, 1);
    begin(worker, context);
}

void worker_run(struct worker worker)
{
    void *context;
    struct thread threads[worker.threads];
    pthread_t handles[worker.threads];
    driver_load();
    begin(&worker, &context);
    fork_heir(&worker, &context);
    for (int index = 0; index < worker.threads; index++) {
        threads[index] = (struct thread){.worker = &worker,
                                         .claim = &row_of(&worker)->claims[index],
                                         .context = context,
                                         .seed = worker.seed + (unsigned)index};
        if (pthread_create(&handles[index], NULL, work, &threads[index]) != 0)
            _exit(5);
    }
    for (int index = 0; index < worker.threads; index++)
        pthread_join(handles[index], NULL);
    _exit(0);
}

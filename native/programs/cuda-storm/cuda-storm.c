/* Processes that race for the last bytes of one GPU, and are killed while they do.
 *
 *     cuda-storm --processes N --threads N --seconds S --limit BYTES --seed N [--kills N] [--until
 * F]
 *
 * The parent starts them: forked, exec'd, forked by one that uses the GPU already; kills one at
 * random `kills` times a second, and starts another. It loads the driver as any program does and
 * knows nothing of shims or simulators. It prints
 *
 *     dead PID NS     a process that has ended, however, by then (CLOCK_MONOTONIC)
 *     quiet           all hold still; it goes on when the file F is there
 *     a JSON object   what was done; "wrong": refusals although there was room (claims.h)
 */
#include "worker.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { TICK_NS = 1000 * 1000, QUIET_SECONDS = 10 };

static const uint64_t second = UINT64_C(1000000000);

struct storm {
    struct worker worker; /* what all of them get */
    double seconds, kills;
    const char *until;
    int alive, killed, started;
    uint64_t last_death;
    unsigned seed;
};

static uint64_t now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * second + (uint64_t)time.tv_nsec;
}

static void tick(void)
{
    const struct timespec pause = {.tv_nsec = TICK_NS};
    nanosleep(&pause, NULL);
}

static struct claims *map_claims(int shared)
{
    void *mapping =
        mmap(NULL, sizeof(struct claims), PROT_READ | PROT_WRITE, MAP_SHARED, shared, 0);
    if (mapping != MAP_FAILED)
        return mapping;
    perror("cuda-storm: no shared memory");
    exit(1);
}

/* A row that nobody has, or -1. */
static int take_row(struct claims *claims)
{
    for (int row = 0; row < CLAIM_ROWS; row++) {
        if (atomic_load(&claims->rows[row].taken))
            continue;
        claims->rows[row].heir = -1;
        atomic_store(&claims->rows[row].taken, true);
        if (row >= atomic_load(&claims->rows_used))
            atomic_store(&claims->rows_used, row + 1);
        return row;
    }
    return -1;
}

/* With the row that was kept for a child it never had. */
static void free_row(struct claims *claims, int row)
{
    int heir = claims->rows[row].heir;
    if (heir >= 0 && atomic_load(&claims->rows[heir].pid) == 0)
        atomic_store(&claims->rows[heir].taken, false);

    atomic_store(&claims->rows[row].pid, 0);
    claims->rows[row].retires = 0;
    atomic_store(&claims->rows[row].taken, false);
}

static void start_one(struct storm *storm)
{
    struct worker worker = storm->worker;
    worker.seed = (unsigned)rand_r(&storm->seed);
    worker.row = take_row(worker.claims);
    if (worker.row < 0)
        return; /* too many died within the last second */
    bool prefork = worker.seed % 4 == 0, exec = worker.seed % 4 == 1;
    worker.heir = prefork ? take_row(worker.claims) : -1;
    worker.claims->rows[worker.row].heir = worker.heir;
    pid_t pid = fork();
    if (pid == 0 && exec)
        worker_exec(&worker);
    if (pid == 0)
        worker_run(worker);
    if (pid < 0) {
        free_row(worker.claims, worker.row);
        return;
    }
    atomic_store(&worker.claims->rows[worker.row].pid, pid);
    storm->started++;
    storm->alive++;
}

static void bury(struct storm *storm, pid_t pid, int status)
{
    struct claims *claims = storm->worker.claims;
    storm->last_death = now();
    printf("dead %d %llu\n", (int)pid, (unsigned long long)storm->last_death);
    if (WIFEXITED(status) && WEXITSTATUS(status) != 0)
        claims_fail(claims, 1000 + WEXITSTATUS(status));
    if (WIFSIGNALED(status) && WTERMSIG(status) != SIGKILL)
        claims_fail(claims, 2000 + WTERMSIG(status));
    for (int row = 0; row < CLAIM_ROWS; row++)
        if (atomic_load(&claims->rows[row].pid) == pid && claims->rows[row].retires == 0)
            claims->rows[row].retires = storm->last_death + second;
}

/* Heirs too: their parents are gone at once. */
static void bury_the_dead(struct storm *storm)
{
    int status;
    pid_t pid;
    while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
        bury(storm, pid, status);
    storm->alive = 0;
    for (int row = 0; row < CLAIM_ROWS; row++) {
        struct row *one = &storm->worker.claims->rows[row];
        storm->alive += atomic_load(&one->pid) != 0 && one->retires == 0;
        if (one->retires == 0 || one->retires > now())
            continue;
        claims_void(one);
        free_row(storm->worker.claims, row);
    }
}

static void kill_one(struct storm *storm)
{
    struct row *rows = storm->worker.claims->rows;
    int first = rand_r(&storm->seed) % CLAIM_ROWS;
    for (int index = 0; index < CLAIM_ROWS; index++) {
        struct row *row = &rows[(first + index) % CLAIM_ROWS];
        int pid = atomic_load(&row->pid);
        if (pid == 0 || row->retires != 0)
            continue;
        kill(pid, SIGKILL);
        storm->killed++;
        return;
    }
}

static void rage(struct storm *storm)
{
    uint64_t end = now() + (uint64_t)(storm->seconds * 1e9);
    while (now() < end) {
        bury_the_dead(storm);
        while (storm->alive < storm->worker.processes) {
            int before = storm->started;
            start_one(storm);
            if (storm->started == before)
                break;
        }
        if ((double)rand_r(&storm->seed) / RAND_MAX < storm->kills * TICK_NS / 1e9)
            kill_one(storm);
        tick();
    }
}

/* All hold still, and what the dead had is back. */
static bool calm(struct storm *storm)
{
    struct claims *claims = storm->worker.claims;
    uint64_t end = now() + QUIET_SECONDS * second;
    atomic_store(&claims->phase, QUIET);
    while (now() < end) {
        bury_the_dead(storm);
        if (atomic_load(&claims->quiet) >= storm->alive * storm->worker.threads &&
            now() > storm->last_death + second + second / 5)
            return true;
        tick();
    }
    return false;
}

static void wait_until(const char *path)
{
    uint64_t end = now() + QUIET_SECONDS * second;
    printf("quiet\n");
    while (path != NULL && access(path, F_OK) != 0 && now() < end)
        tick();
}

static void finish(struct storm *storm)
{
    struct claims *claims = storm->worker.claims;
    uint64_t end = now() + QUIET_SECONDS * second;
    atomic_store(&claims->phase, END);
    do {
        bury_the_dead(storm);
        tick();
    } while (storm->alive > 0 && now() < end);
}

static void report(const struct storm *storm, bool calmed)
{
    const struct claims *claims = storm->worker.claims;
    printf("{\"taken\": %llu, \"given\": %llu, \"refused\": %llu, \"wrong\": %llu, "
           "\"started\": %d, \"killed\": %d, \"execs\": %llu, \"failure\": %d, \"left\": %d, "
           "\"calm\": %s}\n",
           (unsigned long long)claims->taken, (unsigned long long)claims->given,
           (unsigned long long)claims->refused, (unsigned long long)claims->wrong, storm->started,
           storm->killed, (unsigned long long)claims->execs, atomic_load(&claims->failure),
           storm->alive, calmed ? "true" : "false");
}

static int usage(void)
{
    fprintf(stderr, "usage: cuda-storm --processes N --threads N --seconds S --limit BYTES "
                    "--seed N [--kills N] [--until FILE]\n");
    return 2;
}

static bool read_option(struct storm *storm, const char *name, const char *value)
{
    if (strcmp(name, "--processes") == 0)
        storm->worker.processes = atoi(value);
    else if (strcmp(name, "--threads") == 0)
        storm->worker.threads = atoi(value);
    else if (strcmp(name, "--seconds") == 0)
        storm->seconds = atof(value);
    else if (strcmp(name, "--limit") == 0)
        storm->worker.claims->limit = strtoull(value, NULL, 10);
    else if (strcmp(name, "--seed") == 0)
        storm->seed = (unsigned)atoi(value);
    else if (strcmp(name, "--kills") == 0)
        storm->kills = atof(value);
    else if (strcmp(name, "--until") == 0)
        storm->until = value;
    else
        return false;
    return true;
}

int main(int count, char **words)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (count == 7 && strcmp(words[1], "--worker") == 0)
        worker_resume(words);
    struct storm storm = {.worker = {.program = words[0], .heir = -1, .threads = 1}};
    storm.worker.shared = (int)syscall(SYS_memfd_create, "claims", 0);
    if (storm.worker.shared < 0 || ftruncate(storm.worker.shared, sizeof(struct claims)) != 0)
        return 1;
    storm.worker.claims = map_claims(storm.worker.shared);
    for (int word = 1; word < count; word += 2)
        if (word + 1 == count || !read_option(&storm, words[word], words[word + 1]))
            return usage();
    if (storm.worker.processes < 1 || storm.worker.threads < 1 ||
        storm.worker.threads > CLAIM_THREADS || storm.worker.claims->limit == 0)
        return usage();
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    rage(&storm);
    bool calmed = calm(&storm);
    wait_until(storm.until);
    finish(&storm);
    report(&storm, calmed);
    return 0;
}

/* Processes that race for the last bytes of one GPU, and are killed while they do.
 *
 *     cuda-storm --processes N --threads N --seconds S --limit BYTES --seed N [--kills N]
 *                [--requests N] [--kinds NAMES] [--until F]
 *
 * The parent starts them: forked, exec'd, forked by one that uses the GPU already; kills one at
 * random `kills` times a second, and starts another. It loads the driver as any program does and
 * knows nothing of shims or simulators. It prints
 *
 *     dead PID NS     a process that has ended, however, by then (CLOCK_MONOTONIC)
 *     quiet           all hold still; it goes on when the file F is there
 *     a JSON object   what was done; "wrong": refusals although there was room (claims.h)
 *
 * Whatever happens it ends, and nothing of it is left: who does not end is named and killed.
 */
#include "kinds.h"
#include "rows.h"
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

enum { TICK_NS = 1000 * 1000, QUIET_SECONDS = 60 };

static const uint64_t second = UINT64_C(1000000000);

struct storm {
    struct worker worker; /* what all of them get */
    double seconds, kills;
    uint64_t requests; /* after which it ends, if that is sooner; 0: never */
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

static void start_one(struct storm *storm)
{
    struct worker worker = storm->worker;
    worker.seed = (unsigned)rand_r(&storm->seed);
    worker.row = row_take(worker.claims);
    if (worker.row < 0)
        return; /* too many died within the last second */
    bool prefork = worker.seed % 4 == 0, exec = worker.seed % 4 == 1;
    worker.heir = prefork ? row_take(worker.claims) : -1;
    worker.claims->rows[worker.row].heir = worker.heir;
    pid_t pid = fork();
    if (pid == 0 && exec)
        worker_exec(&worker);
    if (pid == 0)
        worker_run(worker);
    if (pid < 0) {
        row_free(worker.claims, worker.row);
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
        row_free(storm->worker.claims, row);
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

static bool enough(const struct storm *storm)
{
    struct claims *claims = storm->worker.claims;
    uint64_t done = atomic_load(&claims->taken) + atomic_load(&claims->refused);
    return storm->requests > 0 && done >= storm->requests;
}

static void rage(struct storm *storm)
{
    uint64_t end = now() + (uint64_t)(storm->seconds * 1e9);
    while (now() < end && !enough(storm)) {
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

/* Whoever does not end is named and killed. */
static void finish(struct storm *storm)
{
    struct claims *claims = storm->worker.claims;
    uint64_t end = now() + QUIET_SECONDS * second;
    atomic_store(&claims->phase, END);
    do {
        bury_the_dead(storm);
        tick();
    } while (storm->alive > 0 && now() < end);
    rows_name_living(claims);
    rows_kill(claims);
}

/* The storm itself has its bound, however it is stuck. */
static struct claims *claims_at_stake;

static void out_of_time(int signal)
{
    static const char words[] = "cuda-storm: stuck: all of it is killed\n";
    (void)signal;
    rows_kill(claims_at_stake);
    ssize_t written = write(STDERR_FILENO, words, sizeof words - 1);
    _exit(written < 0 ? 7 : 6);
}

static void limit_time(const struct storm *storm)
{
    claims_at_stake = storm->worker.claims;
    signal(SIGALRM, out_of_time);
    alarm((unsigned)storm->seconds + 4 * QUIET_SECONDS);
}

static void report(const struct storm *storm, bool calmed)
{
    const struct claims *claims = storm->worker.claims;
    printf("{\"taken\": %llu, \"given\": %llu, \"refused\": %llu, \"wrong\": %llu, "
           "\"started\": %d, \"killed\": %d, \"forks\": %llu, \"execs\": %llu, "
           "\"failure\": %d, \"left\": %d, "
           "\"calm\": %s}\n",
           (unsigned long long)claims->taken, (unsigned long long)claims->given,
           (unsigned long long)claims->refused, (unsigned long long)claims->wrong, storm->started,
           storm->killed, (unsigned long long)claims->forks, (unsigned long long)claims->execs,
           atomic_load(&claims->failure), storm->alive, calmed ? "true" : "false");
}

static int usage(void)
{
    fprintf(stderr, "usage: cuda-storm --processes N --threads N --seconds S --limit BYTES "
                    "--seed N [--kills N] [--requests N] [--kinds NAMES] [--until FILE]\n");
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
    else if (strcmp(name, "--requests") == 0)
        storm->requests = strtoull(value, NULL, 10);
    else if (strcmp(name, "--until") == 0)
        storm->until = value;
    else if (strcmp(name, "--kinds") == 0)
        storm->worker.claims->kinds = kinds_called(value);
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
    storm.worker.claims->kinds = kinds_countable();
    for (int word = 1; word < count; word += 2)
        if (word + 1 == count || !read_option(&storm, words[word], words[word + 1]))
            return usage();
    if (storm.worker.processes < 1 || storm.worker.threads < 1 ||
        storm.worker.threads > CLAIM_THREADS || storm.worker.claims->limit == 0 ||
        storm.worker.claims->kinds == 0)
        return usage();
    storm.worker.claims->uncounted = kinds_uncounted(storm.worker.claims->kinds);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    limit_time(&storm);
    rage(&storm);
    bool calmed = calm(&storm);
    wait_until(storm.until);
    finish(&storm);
    report(&storm, calmed);
    return 0;
}

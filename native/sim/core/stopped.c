#include "core/stopped.h"
#include "core/life.h"
#include "core/pids.h"
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { PATIENCE_NS = 5000000, SECOND_NS = 1000000000 };

/* The kernel's clock: a library before ours may have put another one under this process. */
static struct timespec deadline(void)
{
    struct timespec end = {0};
    syscall(SYS_clock_gettime, CLOCK_REALTIME, &end);
    end.tv_nsec += PATIENCE_NS;
    if (end.tv_nsec >= SECOND_NS) {
        end.tv_nsec -= SECOND_NS;
        end.tv_sec++;
    }
    return end;
}

static bool is_held(struct sim_state *state)
{
    struct timespec end = deadline();
    int result = pthread_mutex_timedlock(&state->mutex, &end);
    if (result == EOWNERDEAD)
        pthread_mutex_consistent(&state->mutex);
    if (result == 0 || result == EOWNERDEAD)
        pthread_mutex_unlock(&state->mutex);
    return result == ETIMEDOUT;
}

static bool go_on(const struct sim_state *state, struct sim_process *process)
{
    struct life life;
    char name[16];
    int pid = process->pid != 0 ? pids_here(state, process) : PID_UNSEEN;
    if (pid <= 0)
        return false;
    snprintf(name, sizeof name, "%d", pid);
    return life_read(name, &life) && life.state == 'T' && life.start_time == process->start_time &&
           kill(pid, SIGCONT) == 0;
}

unsigned stopped_continue(struct sim_state *state)
{
    unsigned count = 0;
    if (!is_held(state))
        return 0;
    for (unsigned slot = 0; slot < state->process_limit; slot++)
        count += go_on(state, &state->processes[slot]);
    return count;
}

#include "clock/life.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct stat_line {
    char state;
    long threads; /* of the process */
    uint64_t start_time;
};

/* 0, or the negated errno: of a thread that has ended -ENOENT or -ESRCH. */
static int read_stat(int32_t pid, int32_t tid, struct stat_line *out)
{
    char path[64], text[1024];
    snprintf(path, sizeof path, "/proc/%d/task/%d/stat", pid, tid != 0 ? tid : pid);
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return -errno;
    ssize_t size = read(file, text, sizeof text - 1);
    int error = size <= 0 ? -ESRCH : 0;
    close(file);
    if (error != 0)
        return error;
    text[size] = '\0';
    const char *rest = strrchr(text, ')'); /* the name before it may hold anything */
    unsigned long long start_time;
    if (rest == NULL || sscanf(rest,
                               ") %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d "
                               "%*d %ld %*d %llu",
                               &out->state, &out->threads, &start_time) != 3)
        return -EPROTO;
    out->start_time = start_time;
    return 0;
}

uint64_t life_start_time(int32_t pid, int32_t tid)
{
    struct stat_line line;
    return read_stat(pid, tid, &line) == 0 ? line.start_time : 0;
}

enum life life_of(const struct simclock_taker *taker)
{
    struct stat_line line;
    int error = read_stat(taker->pid, taker->tid, &line);
    if (error == -ENOENT || error == -ESRCH)
        return LIFE_DEAD;
    if (error != 0) /* no descriptor left, say: the next look will tell */
        return LIFE_RUNS;
    if (line.start_time != taker->start_time)
        return LIFE_DEAD;
    if (line.state == 'Z' || line.state == 'X') {
        /* A process ends with the last of its threads: until then no pidfd tells of it. Its first
         * thread is gone before, and who leaves by pthread_exit() is not LEAVING. */
        bool ending = taker->state == SIMCLOCK_LEAVING && taker->tid == taker->pid;
        return ending && line.threads > 1 ? LIFE_RUNS : LIFE_DEAD;
    }
    return line.state == 'R' ? LIFE_RUNS : LIFE_BLOCKED;
}

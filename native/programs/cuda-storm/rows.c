#include "rows.h"

#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

int row_take(struct claims *claims)
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

/* It is the child's own by now; or the child never was, or has ended. */
static void disinherit(struct claims *claims, int heir)
{
    for (int row = 0; row < CLAIM_ROWS; row++)
        if (claims->rows[row].heir == heir)
            claims->rows[row].heir = -1;
}

static void release(struct claims *claims, int row)
{
    disinherit(claims, row);
    atomic_store(&claims->rows[row].pid, 0);
    claims->rows[row].retires = 0;
    atomic_store(&claims->rows[row].taken, false);
}

void row_free(struct claims *claims, int row)
{
    int heir = claims->rows[row].heir;
    if (heir >= 0 && atomic_load(&claims->rows[heir].pid) == 0)
        release(claims, heir);
    release(claims, row);
}

static int living(const struct row *row)
{
    return row->retires == 0 ? atomic_load(&row->pid) : 0;
}

/* One word of what the kernel tells of a thread: where it sleeps, or in which call. */
static void name_file(int pid, const char *thread, const char *file)
{
    char path[300], text[100];
    snprintf(path, sizeof path, "/proc/%d/task/%s/%s", pid, thread, file);
    FILE *opened = fopen(path, "r");
    if (opened != NULL && fgets(text, sizeof text, opened) != NULL)
        fprintf(stderr, " %.*s", (int)strcspn(text, "\n"), text);
    if (opened != NULL)
        fclose(opened);
}

static void name_threads(int pid)
{
    char path[40];
    snprintf(path, sizeof path, "/proc/%d/task", pid);
    DIR *threads = opendir(path);
    for (struct dirent *one; threads != NULL && (one = readdir(threads)) != NULL;) {
        if (one->d_name[0] == '.')
            continue;
        fprintf(stderr, "cuda-storm:   thread %s:", one->d_name);
        name_file(pid, one->d_name, "wchan");
        name_file(pid, one->d_name, "syscall");
        fprintf(stderr, "\n");
    }
    if (threads != NULL)
        closedir(threads);
}

void rows_name_living(const struct claims *claims)
{
    for (int row = 0; row < CLAIM_ROWS; row++) {
        int pid = living(&claims->rows[row]);
        if (pid == 0)
            continue;
        fprintf(stderr, "cuda-storm: process %d did not end: killed\n", pid);
        name_threads(pid);
    }
}

void rows_kill(const struct claims *claims)
{
    for (int row = 0; row < CLAIM_ROWS; row++) {
        int pid = living(&claims->rows[row]);
        if (pid > 0)
            kill(pid, SIGKILL);
    }
}

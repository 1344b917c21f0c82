#include "core/pids.h"
#include "core/life.h"
#include <ctype.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { NAME_SIZE = 16 }; /* a number of /proc */

enum match { NO, YES, UNSURE };

/* What a process knows of itself; a child of a fork may be in another namespace. */
static _Thread_local struct {
    int pid;
    uint64_t pid_namespace;
    bool in_proc;
} self;

/* What a process calls itself: the last number of this line of its status. */
static int innermost(const char *process)
{
    char path[64];
    char line[256];
    int pid = 0;
    snprintf(path, sizeof path, "/proc/%s/status", process);
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return 0;
    while (pid == 0 && fgets(line, sizeof line, file) != NULL)
        if (strncmp(line, "NStgid:", strlen("NStgid:")) == 0)
            pid = atoi(strrchr(line, '\t'));
    fclose(file);
    return pid;
}

/* A filter of system calls may forbid to ask. */
int pids_own(void)
{
    int pid = getpid();
    return pid > 0 ? pid : innermost("self");
}

static void know_self(void)
{
    char name[NAME_SIZE] = "";
    if (self.pid == getpid())
        return;
    self.pid = pids_own();
    self.pid_namespace = life_namespace("pid");
    self.in_proc = readlink("/proc/self", name, sizeof name - 1) > 0 && atoi(name) == self.pid;
}

bool pids_in_proc(void)
{
    know_self();
    return self.in_proc;
}

static bool same_life(const char *entry, const struct sim_process *process)
{
    struct life life;
    return innermost(entry) == process->pid && life_read(entry, &life) &&
           life.start_time == process->start_time;
}

/* The namespace of a process that has more rights than we is not for us to see. */
static enum match matches(const char *entry, const struct sim_process *process)
{
    char path[64];
    struct stat found;
    snprintf(path, sizeof path, "/proc/%s/ns/pid", entry);
    bool seen = stat(path, &found) == 0;
    if (seen && found.st_ino != process->pid_namespace)
        return NO;
    if (!same_life(entry, process))
        return NO;
    return seen ? YES : UNSURE;
}

static int search(DIR *directory, const struct sim_process *process)
{
    int result = PID_GONE;
    for (struct dirent *entry; (entry = readdir(directory)) != NULL;) {
        if (!isdigit((unsigned char)entry->d_name[0]) || strlen(entry->d_name) >= NAME_SIZE)
            continue;
        enum match match = matches(entry->d_name, process);
        if (match == YES)
            return atoi(entry->d_name);
        if (match == UNSURE)
            result = PID_UNSEEN;
    }
    return result;
}

static int find(const struct sim_process *process)
{
    DIR *directory = self.in_proc ? opendir("/proc") : NULL;
    if (directory == NULL)
        return PID_UNSEEN;
    int found = search(directory, process);
    closedir(directory);
    return found;
}

int pids_here(const struct sim_state *state, struct sim_process *process)
{
    know_self();
    if (process->pid_namespace == self.pid_namespace)
        return process->pid;
    if (state->pid_namespace != self.pid_namespace)
        return PID_UNSEEN;
    if (process->host_pid == PID_UNSEEN)
        process->host_pid = find(process);
    return process->host_pid;
}

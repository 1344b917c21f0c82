#include "core/life.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum {
    TEXT = 1024,
    FIELD_STATE = 3, /* of /proc/<pid>/stat, counted from 1 as proc(5) does */
    FIELD_THREADS = 20,
    FIELD_START_TIME = 22,
};

static uint64_t number(const char *text)
{
    uint64_t value = 0;
    for (; *text >= '0' && *text <= '9'; text++)
        value = value * 10 + (uint64_t)(*text - '0');
    return value;
}

/* The name before the third field may hold anything, also brackets. NULL if it is not there. */
static const char *field(const char *text, int wanted)
{
    const char *at = strrchr(text, ')');
    for (int index = FIELD_STATE - 1; at != NULL && index < wanted; index++)
        at = strchr(at + 1, ' ');
    return at == NULL ? NULL : at + 1;
}

static ssize_t read_stat(int pid, char text[TEXT])
{
    char path[32];
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return -1;
    ssize_t size = read(file, text, TEXT - 1);
    close(file);
    return size;
}

bool life_read(int pid, struct life *life)
{
    char text[TEXT];
    ssize_t size = read_stat(pid, text);
    if (size <= 0)
        return false;
    text[size] = 0;
    const char *state = field(text, FIELD_STATE), *start_time = field(text, FIELD_START_TIME);
    if (start_time == NULL)
        return false;
    /* a leader that has ended while other threads run is no end of the process */
    life->ended = (*state == 'Z' || *state == 'X') && number(field(text, FIELD_THREADS)) <= 1;
    life->start_time = number(start_time);
    return true;
}

uint32_t life_pid_namespace(void)
{
    char link[64]; /* "pid:[4026531836]" */
    ssize_t size = readlink("/proc/self/ns/pid", link, sizeof link - 1);
    if (size <= 0)
        return 0;
    link[size] = 0;
    const char *bracket = strchr(link, '[');
    return bracket == NULL ? 0 : (uint32_t)(number(bracket + 1) & 0xffffff);
}

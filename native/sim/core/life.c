#include "core/life.h"
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

bool life_read(const char *process, struct life *out)
{
    char path[64];
    char text[1024];
    snprintf(path, sizeof path, "/proc/%s/stat", process);
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return false;
    ssize_t size = read(file, text, sizeof text - 1);
    close(file);
    if (size <= 0)
        return false;
    text[size] = '\0';
    const char *rest = strrchr(text, ')'); /* the name before it may hold anything */
    unsigned long long start_time, stack;
    if (rest == NULL || sscanf(rest,
                               ") %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d "
                               "%*d %*d %*d %llu %*u %*d %*u %*u %*u %llu",
                               &out->state, &start_time, &stack) != 3)
        return false;
    out->start_time = start_time;
    out->stack = stack;
    return true;
}

uint64_t life_namespace(const char *kind)
{
    char path[32];
    struct stat found;
    snprintf(path, sizeof path, "/proc/self/ns/%s", kind);
    return stat(path, &found) == 0 ? found.st_ino : 0;
}

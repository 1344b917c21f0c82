#include "cuda/ipc/ipc.h"
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

bool ipc_address(const struct driver *driver, int file, struct ipc_ticket *out)
{
    struct stat found;
    if (fstat(file, &found) != 0)
        return false;
    out->pid = driver->process->pid;
    out->file = file;
    out->inode = found.st_ino;
    return true;
}

int ipc_reach(const struct ipc_ticket *ticket)
{
    char path[48];
    struct stat found;
    snprintf(path, sizeof path, "/proc/%d/fd/%d", ticket->pid, ticket->file);
    if (stat(path, &found) != 0 || found.st_ino != ticket->inode) /* looked at before opened */
        return -1;
    return open(path, O_RDWR | O_CLOEXEC);
}

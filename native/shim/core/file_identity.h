/* Descriptors of ours in a program that has its own.
 *
 * Is one still what it was? A program may close all it has, as daemons do, and the number then
 * comes to mean a file of the program's own: never to be locked, written to or closed by us.
 */
#ifndef SHIM_CORE_FILE_IDENTITY_H
#define SHIM_CORE_FILE_IDENTITY_H

#include <fcntl.h>
#include <stdbool.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* inode 0: none, for no file has it. */
struct file_identity {
    dev_t device;
    ino_t inode;
};

/* By system call: glibc's fstat is a new symbol since 2.33. Async-signal-safe. */
static inline struct file_identity file_identity(int descriptor)
{
    struct stat found;
    if (syscall(SYS_fstat, descriptor, &found) != 0)
        return (struct file_identity){0};
    return (struct file_identity){found.st_dev, found.st_ino};
}

/* The same file under a number out of the way of programs that count on low ones; where there is
 * none, as it is. */
static inline int file_out_of_the_way(int descriptor)
{
    enum { LOWEST = 64 };
    int moved = fcntl(descriptor, F_DUPFD_CLOEXEC, LOWEST);
    if (moved < 0)
        return descriptor;
    close(descriptor);
    return moved;
}

static inline bool file_same(struct file_identity left, struct file_identity right)
{
    return left.device == right.device && left.inode == right.inode;
}

#endif

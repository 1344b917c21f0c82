/* Is a descriptor still what it was? A program may close all it has, as daemons do, and the number
 * then comes to mean a file of the program's own: never to be locked or closed by us.
 */
#ifndef SHIM_CORE_FILE_IDENTITY_H
#define SHIM_CORE_FILE_IDENTITY_H

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

static inline bool file_same(struct file_identity left, struct file_identity right)
{
    return left.device == right.device && left.inode == right.inode;
}

#endif

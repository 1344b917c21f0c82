/* One line for the user whose program gets no GPU. */
#include "runtime/session.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { LINE = 400 };

#define FORBIDDEN "a sandbox (seccomp) has to allow this system call"

/* What a system call of our own may fail with: strerror() is not for any thread, and speaks the
 * language of the program's locale. The last row is for all others. */
static const struct {
    int error;
    const char *meaning, *advice;
} causes[] = {
    {EACCES, "permission denied",
     "a sandbox (Landlock, SELinux, AppArmor) has to allow reading in " VCUDA_DIRECTORY},
    {EPERM, "operation not permitted", FORBIDDEN},
    {ENOSYS, "function not implemented", FORBIDDEN},
    {EAFNOSUPPORT, "address family not supported", "a sandbox has to allow AF_UNIX"},
    {EMFILE, "too many open files", "close descriptors, or raise RLIMIT_NOFILE (ulimit -n)"},
    {ENFILE, "too many open files in system", "raise fs.file-max of the node"},
    {ENOMEM, "out of memory", "raise the memory limit, or RLIMIT_AS (ulimit -v)"},
    {ENOBUFS, "no buffer space", "raise the memory limit of the container"},
    {EAGAIN, "locked memory", "raise RLIMIT_MEMLOCK (ulimit -l)"},
    {ENOENT, "no such file", "bind all of " VCUDA_DIRECTORY " into the sandbox"},
    {0, "unexpected", "look for a sandbox or a limit of this process that forbids it"},
};

static int words_of_call(const struct refusal *refusal, const char *call, char line[LINE])
{
    unsigned row = 0;
    while (causes[row].error != 0 && causes[row].error != -refusal->error)
        row++;
    return snprintf(line, LINE,
                    "vcuda: %s: %s failed in this process: %s (error %d); limits cannot be held "
                    "without it: %s\n",
                    call, refusal->tried, causes[row].meaning, -refusal->error, causes[row].advice);
}

static int words_of(const struct refusal *refusal, const char *call, char line[LINE])
{
    const char *path = VCUDA_SOCKET;
    if (refusal->tried != NULL)
        return words_of_call(refusal, call, line);
    if (refusal->by_manager && refusal->error != -EAGAIN)
        return snprintf(line, LINE,
                        "vcuda: %s: the GPU manager refused this process: %s (%s); end processes "
                        "that use the GPU, or ask for the GPU manager of this node to be looked "
                        "at\n",
                        call, refusal->reason[0] ? refusal->reason : "no reason given", path);
    if (refusal->error == -ENOENT)
        return snprintf(line, LINE,
                        "vcuda: %s: this container has GPUs with limits, but %s is not there; in a "
                        "sandbox of its own it has to be bound at the same path\n",
                        call, VCUDA_DIRECTORY);
    if (refusal->error != -EAGAIN)
        return snprintf(line, LINE,
                        "vcuda: %s: the GPU manager's answer on %s cannot be used (error %d): it "
                        "is of another version; restart the pod\n",
                        call, path, -refusal->error);
    return snprintf(
        line, LINE,
        "vcuda: %s: the GPU manager did not answer on %s for %.1f s%s%s; calls "
        "are refused until it does: ask for the GPU manager of this node to be started\n",
        call, path, (double)refusal->waited_ns / 1e9, refusal->reason[0] ? ": " : "",
        refusal->reason);
}

/* A pipe with room for a line, a terminal, a file. Nobody at the other end would be a signal. */
static bool writable(int descriptor)
{
    struct pollfd one = {.fd = descriptor, .events = POLLOUT};
    return poll(&one, 1, 0) == 1 && one.revents == POLLOUT;
}

void session_complain(struct session *session, const char *call)
{
    static atomic_bool told;
    char line[LINE];
    int error = errno;
    const struct refusal none = {.error = -error, .tried = "mmap() of pages of the shim's own"};
    if (!atomic_exchange(session == NULL ? &told : &session->told, true)) {
        int size = words_of(session == NULL ? &none : &session->refusal, call, line);
        size = size < LINE ? size : LINE - 1;
        if (size > 0 && writable(STDERR_FILENO) && write(STDERR_FILENO, line, (size_t)size) < 0)
            errno = 0; /* it was worth a try */
    }
    errno = error;
}

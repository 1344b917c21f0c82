/* One line for the user whose program gets no GPU. */
#include "runtime/session.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { LINE = 400 };

static int words_of(const struct session *session, const char *call, char line[LINE])
{
    const struct refusal *refusal = &session->refusal;
    const char *path = VCUDA_DIRECTORY "/vcuda.sock";
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
    return snprintf(line, LINE,
                    "vcuda: %s: the GPU manager did not answer on %s for %.1f s%s%s; CUDA is "
                    "refused until it does: ask for the GPU manager of this node to be started\n",
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
    char line[LINE];
    int error = errno;
    if (!atomic_exchange(&session->told, true)) {
        int size = words_of(session, call, line);
        size = size < LINE ? size : LINE - 1;
        if (size > 0 && writable(STDERR_FILENO) && write(STDERR_FILENO, line, (size_t)size) < 0)
            errno = 0; /* it was worth a try */
    }
    errno = error;
}

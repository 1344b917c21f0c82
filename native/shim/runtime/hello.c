#include "runtime/hello.h"

#include "runtime/clock.h"
#include "runtime/fork.h"
#include "vcuda_region.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* The books, and before them what a manager of before sends: the configuration. */
enum { DESCRIPTORS = 2, MILLISECOND = 1000000 };

enum { HUNG_UP = -EPIPE };

/* What has arrived so far: bytes of the struct, and the descriptors that came with them. */
struct answer {
    struct vcuda_welcome message;
    size_t received;
    int descriptors[DESCRIPTORS];
    int count;
    bool truncated; /* there were more than this process may have */
};

int refusal_of_call(struct refusal *refusal, const char *tried)
{
    refusal->tried = tried;
    return refusal->error = -errno;
}

static bool usable(const struct connection *connection)
{
    return connection->open && !connection->busy &&
           file_same(file_identity(connection->fd), connection->file);
}

void connection_close(struct connection *connection)
{
    fork_close(FORK_CONNECTION, -1);
    if (connection->open && file_same(file_identity(connection->fd), connection->file))
        close(connection->fd);
    *connection = (struct connection){.open = false};
}

static int connect_anew(struct connection *connection, struct refusal *refusal)
{
    static const struct sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = VCUDA_SOCKET};
    connection_close(connection);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return refusal_of_call(refusal, "socket()");
    if (connect(fd, (const struct sockaddr *)&address, sizeof address) != 0) {
        bool passes = errno == ENOENT || errno == ECONNREFUSED || errno == EAGAIN;
        int error = passes ? -EAGAIN : refusal_of_call(refusal, "connect() to " VCUDA_SOCKET);
        close(fd);
        return error; /* not there yet, not listening, or too many at once */
    }
    fd = file_out_of_the_way(fd);
    *connection = (struct connection){.open = true, .fd = fd, .file = file_identity(fd)};
    fork_close(FORK_CONNECTION, fd);
    return 0;
}

static int say_hello(struct connection *connection, uint32_t flags, struct refusal *refusal)
{
    struct vcuda_hello hello = {
        .magic = VCUDA_PROTOCOL_MAGIC,
        .version = VCUDA_PROTOCOL_VERSION,
        .kind = VCUDA_HELLO,
        .region_abi = VCUDA_REGION_ABI,
        .flags = flags | VCUDA_HELLO_OPENS_CONFIG,
        .pid = getpid(),
    };
    strncpy(hello.program, program_invocation_short_name, sizeof hello.program - 1);
    ssize_t sent = send(connection->fd, &hello, sizeof hello, MSG_NOSIGNAL);
    if (sent == sizeof hello) {
        connection->unread++;
        return 0;
    }
    if (sent >= 0 || errno == EPIPE || errno == ECONNRESET)
        return HUNG_UP;
    return errno == EAGAIN ? -EAGAIN : refusal_of_call(refusal, "send() on " VCUDA_SOCKET);
}

static void keep_descriptors(struct answer *answer, const struct cmsghdr *control)
{
    size_t count = (control->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t index = 0; index < count; index++) {
        int descriptor;
        memcpy(&descriptor, CMSG_DATA(control) + index * sizeof descriptor, sizeof descriptor);
        if (answer->count < DESCRIPTORS)
            answer->descriptors[answer->count++] = descriptor;
        else
            close(descriptor);
    }
}

static void forget(struct answer *answer)
{
    while (answer->count > 0)
        close(answer->descriptors[--answer->count]);
    *answer = (struct answer){.count = 0};
}

/* Returns bytes received, 0 when the manager hung up, or a negated errno. */
static ssize_t receive_some(int connection, struct answer *answer)
{
    union {
        struct cmsghdr header;
        char space[CMSG_SPACE(DESCRIPTORS * sizeof(int))];
    } control;
    struct iovec place = {
        .iov_base = (char *)&answer->message + answer->received,
        .iov_len = sizeof answer->message - answer->received,
    };
    struct msghdr message = {
        .msg_iov = &place,
        .msg_iovlen = 1,
        .msg_control = &control,
        .msg_controllen = sizeof control,
    };
    ssize_t received = recvmsg(connection, &message, MSG_CMSG_CLOEXEC);
    if (received < 0)
        return -errno;
    answer->truncated |= (message.msg_flags & MSG_CTRUNC) != 0;
    for (struct cmsghdr *part = CMSG_FIRSTHDR(&message); part; part = CMSG_NXTHDR(&message, part))
        if (part->cmsg_level == SOL_SOCKET && part->cmsg_type == SCM_RIGHTS)
            keep_descriptors(answer, part);
    return received;
}

/* Wait until something can be read; 0, or a negated errno. A signal only shortens one round. */
static int wait_readable(int connection, uint64_t deadline, struct refusal *refusal)
{
    for (uint64_t now = clock_now(); now < deadline; now = clock_now()) {
        struct pollfd poll_one = {.fd = connection, .events = POLLIN};
        int ready = poll(&poll_one, 1, (int)((deadline - now) / MILLISECOND) + 1);
        if (ready > 0)
            return 0;
        if (ready < 0 && errno != EINTR)
            return refusal_of_call(refusal, "poll() on " VCUDA_SOCKET);
    }
    return -EAGAIN;
}

static int receive_answer(int connection, uint64_t deadline, struct answer *answer,
                          struct refusal *refusal)
{
    while (answer->received < sizeof answer->message) {
        int error = wait_readable(connection, deadline, refusal);
        if (error != 0)
            return error == -EAGAIN && answer->received > 0 ? HUNG_UP : error;
        ssize_t received = receive_some(connection, answer);
        if (received == -EINTR || received == -EAGAIN)
            continue;
        if (received == 0 || received == -ECONNRESET)
            return HUNG_UP;
        if (received < 0)
            return refusal_of_call(refusal, "recvmsg() on " VCUDA_SOCKET);
        answer->received += (size_t)received;
    }
    return 0;
}

/* The last answer is ours: before it come those of HELLOs that were given up. */
static int converse(struct connection *connection, uint32_t flags, uint64_t deadline,
                    struct answer *answer, struct refusal *refusal)
{
    connection->busy = true;
    int error = say_hello(connection, flags, refusal);
    while (error == 0 && connection->unread > 0) {
        forget(answer);
        error = receive_answer(connection->fd, deadline, answer, refusal);
        if (error == 0)
            connection->unread--;
    }
    connection->busy = false;
    return error;
}

/* A process that asks to be measured has the books already. */
static bool wants_books(uint32_t flags)
{
    return !(flags & VCUDA_HELLO_MEASURE);
}

static int judge(const struct answer *answer, uint32_t flags, struct refusal *refusal)
{
    const struct vcuda_welcome *message = &answer->message;
    if (message->magic != VCUDA_PROTOCOL_MAGIC || message->kind != VCUDA_WELCOME ||
        message->version != VCUDA_PROTOCOL_VERSION)
        return -EPROTO;
    if (message->status != 0) {
        refusal->by_manager = true;
        memcpy(refusal->reason, message->reason, sizeof refusal->reason - 1);
        return message->status < 0 ? message->status : -EPROTO;
    }
    if (wants_books(flags) && answer->count == 0) {
        if (!answer->truncated)
            return -EPROTO;
        errno = EMFILE; /* the kernel says no more than that it could not hand it over */
        return refusal_of_call(refusal, "receiving a descriptor from " VCUDA_SOCKET);
    }
    if (message->slot >= VCUDA_SLOTS)
        return -EPROTO;
    if (message->slot < 0 && !(flags & VCUDA_HELLO_OBSERVER))
        return -EPROTO;
    return 0;
}

int hello_exchange(struct connection *connection, uint32_t flags, uint64_t deadline,
                   struct welcome *welcome, struct refusal *refusal)
{
    struct answer answer = {.count = 0};
    int error = HUNG_UP;
    *refusal = (struct refusal){.error = 0};
    if (usable(connection))
        error = converse(connection, flags, deadline, &answer, refusal);
    if (error == HUNG_UP) {
        forget(&answer);
        error = connect_anew(connection, refusal);
        if (error == 0)
            error = converse(connection, flags, deadline, &answer, refusal);
    }
    if (error == HUNG_UP || !(flags & VCUDA_HELLO_PERSISTENT))
        connection_close(connection);
    if (error == 0)
        error = judge(&answer, flags, refusal);
    else if (error == HUNG_UP)
        error = -EAGAIN; /* the manager died or was restarted: it may come back */
    if (error == 0)
        *welcome = (struct welcome){answer.message.slot,
                                    wants_books(flags) ? answer.descriptors[--answer.count] : -1};
    refusal->error = error;
    forget(&answer);
    return error;
}

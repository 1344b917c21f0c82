#include "runtime/hello.h"

#include "runtime/clock.h"
#include "vcuda_protocol.h"
#include "vcuda_region.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* The books, and before them what a manager of before sends: the configuration. */
enum { DESCRIPTORS = 2, MILLISECOND = 1000000 };

/* What has arrived so far: bytes of the struct, and the descriptors that came with them. */
struct answer {
    struct vcuda_welcome message;
    size_t received;
    int descriptors[DESCRIPTORS];
    int count;
};

static int connect_to(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof address.sun_path)
        return -ENAMETOOLONG;
    strcpy(address.sun_path, path);
    int connection = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (connection < 0)
        return -EAGAIN;
    if (connect(connection, (struct sockaddr *)&address, sizeof address) == 0)
        return connection;
    close(connection);
    return -EAGAIN; /* not there yet, or too many at once */
}

static int say_hello(int connection, uint32_t flags)
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
    ssize_t sent = send(connection, &hello, sizeof hello, MSG_NOSIGNAL);
    return sent == sizeof hello ? 0 : -EAGAIN;
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

/* Returns bytes received, 0 when the manager hung up, or -EAGAIN. */
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
    for (struct cmsghdr *part = CMSG_FIRSTHDR(&message); part; part = CMSG_NXTHDR(&message, part))
        if (part->cmsg_level == SOL_SOCKET && part->cmsg_type == SCM_RIGHTS)
            keep_descriptors(answer, part);
    return received;
}

/* Wait until something can be read; 0 or -ETIMEDOUT. A signal only shortens one round. */
static int wait_readable(int connection, uint64_t deadline)
{
    for (uint64_t now = clock_now(); now < deadline; now = clock_now()) {
        struct pollfd poll_one = {.fd = connection, .events = POLLIN};
        if (poll(&poll_one, 1, (int)((deadline - now) / MILLISECOND) + 1) > 0)
            return 0;
    }
    return -ETIMEDOUT;
}

static int receive_answer(int connection, uint64_t deadline, struct answer *answer)
{
    while (answer->received < sizeof answer->message) {
        if (wait_readable(connection, deadline) != 0)
            return -EAGAIN;
        ssize_t received = receive_some(connection, answer);
        if (received == -EINTR || received == -EAGAIN)
            continue;
        if (received <= 0)
            return -EAGAIN; /* the manager died or was restarted: it may come back */
        answer->received += (size_t)received;
    }
    return 0;
}

static int judge(const struct answer *answer, uint32_t flags)
{
    const struct vcuda_welcome *message = &answer->message;
    if (message->magic != VCUDA_PROTOCOL_MAGIC || message->kind != VCUDA_WELCOME ||
        message->version != VCUDA_PROTOCOL_VERSION)
        return -EPROTO;
    if (message->status != 0)
        return message->status < 0 ? message->status : -EPROTO;
    if (answer->count == 0 || message->slot >= VCUDA_SLOTS)
        return -EPROTO;
    if (message->slot < 0 && !(flags & VCUDA_HELLO_OBSERVER))
        return -EPROTO;
    return 0;
}

/* What to tell the user; the connection's own errors count where the manager said nothing. */
static struct refusal explain(const struct answer *answer, int error)
{
    struct refusal refusal = {.error = error};
    refusal.by_manager = answer->received == sizeof answer->message;
    if (refusal.by_manager)
        memcpy(refusal.reason, answer->message.reason, sizeof refusal.reason - 1);
    return refusal;
}

static int converse(int connection, uint32_t flags, uint64_t deadline, struct answer *answer)
{
    int error = say_hello(connection, flags);
    if (error == 0)
        error = receive_answer(connection, deadline, answer);
    return error != 0 ? error : judge(answer, flags);
}

int hello_exchange(const char *path, uint32_t flags, uint64_t deadline, struct welcome *welcome,
                   struct refusal *refusal)
{
    struct answer answer = {.count = 0};
    int connection = connect_to(path);
    int error = connection < 0 ? connection : converse(connection, flags, deadline, &answer);
    if (connection >= 0)
        close(connection);
    if (error == 0)
        *welcome = (struct welcome){answer.message.slot, answer.descriptors[--answer.count]};
    else
        *refusal = explain(&answer, error);
    while (answer.count > 0)
        close(answer.descriptors[--answer.count]);
    return error;
}

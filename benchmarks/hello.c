/* So many processes that say HELLO at one moment, with nothing of their own in the figures.
 *
 *     hello SOCKET PROCESSES ROUNDS
 *
 * Each connects, says HELLO, receives the descriptor of the books, opens the configuration beside
 * the socket and leaves its connection open, as the shim does. They wait for each other before each
 * round, and for the last to be answered before they end: programs go on when they have begun, and
 * the end of a process costs more than its HELLO. Prints the nanoseconds from connect() to the
 * descriptors, and the round, one caller a line. */
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "vcuda_protocol.h"
#include "vcuda_region.h"

struct shared {
    pthread_barrier_t start, answered;
    long nanoseconds[];
};

static char config_path[sizeof(struct sockaddr_un)];

static long now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000L + time.tv_nsec;
}

/* Exits where the manager refuses: there is nothing to measure then. */
static long exchange(const struct sockaddr_un *address)
{
    struct vcuda_hello hello = {.magic = VCUDA_PROTOCOL_MAGIC,
                                .version = VCUDA_PROTOCOL_VERSION,
                                .kind = VCUDA_HELLO,
                                .region_abi = VCUDA_REGION_ABI,
                                .flags = VCUDA_HELLO_OPENS_CONFIG | VCUDA_HELLO_PERSISTENT,
                                .pid = getpid()};
    struct vcuda_welcome welcome;
    union {
        char bytes[CMSG_SPACE(sizeof(int))];
        struct cmsghdr header;
    } control;
    struct iovec part = {&welcome, sizeof(welcome)};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = sizeof(control.bytes)};
    int books, config;
    long begin = now();
    int connection = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connect(connection, (const struct sockaddr *)address, sizeof(*address)) ||
        send(connection, &hello, sizeof(hello), 0) != sizeof(hello) ||
        recvmsg(connection, &message, MSG_CMSG_CLOEXEC) != sizeof(welcome) || welcome.status != 0 ||
        message.msg_controllen < sizeof(control.bytes)) {
        perror("the manager refused");
        _exit(1);
    }
    config = open(config_path, O_RDONLY | O_CLOEXEC);
    long took = now() - begin;
    memcpy(&books, CMSG_DATA(&control.header), sizeof(books));
    close(books);
    if (config >= 0) /* the floor has none */
        close(config);
    return took;
}

int main(int argc, char **argv)
{
    if (argc != 4)
        return 2;
    int processes = atoi(argv[2]), rounds = atoi(argv[3]), failed = 0;
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    strncpy(address.sun_path, argv[1], sizeof(address.sun_path) - 1);
    int folder = (int)(strrchr(argv[1], '/') - argv[1]);
    snprintf(config_path, sizeof(config_path), "%.*s/config", folder, argv[1]);
    size_t size = sizeof(struct shared) + sizeof(long) * (size_t)processes;
    struct shared *shared =
        mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pthread_barrierattr_t attributes;
    pthread_barrierattr_init(&attributes);
    pthread_barrierattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    for (int round = 0; round < rounds && !failed; round++) {
        pthread_barrier_init(&shared->start, &attributes, (unsigned)processes);
        pthread_barrier_init(&shared->answered, &attributes, (unsigned)processes);
        for (int process = 0; process < processes; process++)
            if (fork() == 0) {
                pthread_barrier_wait(&shared->start);
                shared->nanoseconds[process] = exchange(&address);
                pthread_barrier_wait(&shared->answered);
                _exit(0);
            }
        for (int process = 0, status; process < processes; process++)
            failed |= wait(&status) < 0 || status != 0;
        for (int process = 0; process < processes && !failed; process++)
            printf("%ld %d\n", shared->nanoseconds[process], round);
    }
    return failed;
}

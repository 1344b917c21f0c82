/* The least that anybody can do for who says HELLO: accept, read, open a file, hand it over.
 *
 *     hello_floor SOCKET
 *
 * Knows nothing of who calls. Serves until it is killed. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "vcuda_protocol.h"

static void answer(int connection)
{
    struct vcuda_hello hello;
    struct vcuda_welcome welcome = {.magic = VCUDA_PROTOCOL_MAGIC, .kind = VCUDA_WELCOME};
    int file = open("/dev/zero", O_RDWR | O_CLOEXEC);
    union {
        char bytes[CMSG_SPACE(sizeof(file))];
        struct cmsghdr header;
    } control = {.header = {.cmsg_len = CMSG_LEN(sizeof(file)),
                            .cmsg_level = SOL_SOCKET,
                            .cmsg_type = SCM_RIGHTS}};
    struct iovec part = {&welcome, sizeof(welcome)};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = sizeof(control.bytes)};
    memcpy(CMSG_DATA(&control.header), &file, sizeof(file));
    if (recv(connection, &hello, sizeof(hello), 0) == sizeof(hello))
        sendmsg(connection, &message, MSG_NOSIGNAL);
    close(file);
}

int main(int argc, char **argv)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int listening = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (argc != 2)
        return 2;
    strncpy(address.sun_path, argv[1], sizeof(address.sun_path) - 1);
    if (bind(listening, (const struct sockaddr *)&address, sizeof(address)) ||
        listen(listening, 1024)) {
        perror(argv[1]);
        return 1;
    }
    puts("ready");
    fflush(stdout);
    for (int connection; (connection = accept4(listening, NULL, NULL, SOCK_CLOEXEC)) >= 0;) {
        answer(connection);
        close(connection);
    }
    return 1;
}

/* A whole attachment to a manager that may be anything: bytes in any pieces, descriptors of any
 * files in any number, pages of any length and contents, the configuration beside its socket, a
 * connection that ends at any time.
 *
 * Input: how to answer; the WELCOME; the configuration; words for places in the books; what is
 * asked for once attached. Built with VCUDA_DIRECTORY a folder of its own.
 */
#include "pages.h"
#include "vcuda_protocol.h"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#define CONFIG_PATH VCUDA_DIRECTORY "/config"

enum { DESCRIPTORS = 4, PATIENCE_NS = 1000 * 1000 };

/* What kind of file a descriptor is of: two bits each. */
enum file_kind { CONFIG, BOOKS, NOTHING_TO_MAP, SHORT };

struct plan {
    uint8_t flags;     /* of the HELLO */
    uint8_t count;     /* descriptors */
    uint8_t kinds;     /* of them */
    uint8_t sent_with; /* the piece they come with: the first, the second, or each */
    uint8_t piece;     /* bytes */
    uint8_t cut;       /* bytes missing at the end */
    uint8_t linger;    /* odd: the connection stays open; 4: and nothing is answered */
    uint8_t lengths;   /* odd: of the files, too */
    struct vcuda_welcome welcome;
};

static struct plan plan;
static int files[DESCRIPTORS], listening;
static size_t descriptors_before;

static size_t pages_mapped(void)
{
    char line[512];
    size_t count = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    FUZZ_CHECK(maps != NULL);
    while (fgets(line, sizeof line, maps) != NULL)
        count += strstr(line, "memfd:page") != NULL || strstr(line, CONFIG_PATH) != NULL;
    fclose(maps);
    return count;
}

static size_t open_descriptors(void)
{
    size_t count = 0;
    DIR *folder = opendir("/proc/self/fd");
    FUZZ_CHECK(folder != NULL);
    while (readdir(folder) != NULL)
        count++;
    closedir(folder);
    return count;
}

/* One piece, with all descriptors if it is their turn. A peer that has gone is no error. */
static bool send_piece(int connection, const char *bytes, size_t size, bool with)
{
    union {
        struct cmsghdr header;
        char space[CMSG_SPACE(DESCRIPTORS * sizeof(int))];
    } control = {0};
    int given[DESCRIPTORS], count = plan.count % (DESCRIPTORS + 1);
    struct iovec place = {(void *)(uintptr_t)bytes, size};
    struct msghdr message = {.msg_iov = &place, .msg_iovlen = 1};
    for (int index = 0; index < count; index++)
        given[index] = files[plan.kinds >> 2 * index & 3];
    if (with && count > 0) {
        message.msg_control = &control;
        message.msg_controllen = CMSG_SPACE((size_t)count * sizeof(int));
        control.header = (struct cmsghdr){.cmsg_len = CMSG_LEN((size_t)count * sizeof(int)),
                                          .cmsg_level = SOL_SOCKET,
                                          .cmsg_type = SCM_RIGHTS};
        memcpy(CMSG_DATA(&control.header), given, (size_t)count * sizeof(int));
    }
    return sendmsg(connection, &message, MSG_NOSIGNAL) == (ssize_t)size;
}

static void answer(int connection)
{
    const char *bytes = (const char *)&plan.welcome;
    size_t left = sizeof plan.welcome - plan.cut % sizeof plan.welcome;
    size_t step = plan.piece % 8 == 0 ? 1u + plan.piece / 8u : sizeof plan.welcome;
    for (unsigned index = 0; left > 0; index++) {
        size_t size = step < left ? step : left;
        if (!send_piece(connection, bytes, size,
                        plan.sent_with % 3 == 2 || index == plan.sent_with % 3u))
            return;
        bytes += size;
        left -= size;
    }
}

static void *serve(void *unused)
{
    struct vcuda_hello hello;
    for (;;) {
        int connection = accept(listening, NULL, NULL);
        if (connection < 0)
            return unused;
        ssize_t received = 0;
        do {
            received = recv(connection, &hello, sizeof hello, MSG_WAITALL);
            FUZZ_CHECK(received <= 0 || hello.magic == VCUDA_PROTOCOL_MAGIC);
            if (received == sizeof hello && !(plan.linger & 4))
                answer(connection);
        } while ((plan.linger & 1) != 0 && received > 0);
        close(connection);
    }
}

void fuzz_begin(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = VCUDA_DIRECTORY "/vcuda.sock"};
    pthread_t thread;
    mkdir(VCUDA_DIRECTORY, 0700);
    for (int index = 0; index < DESCRIPTORS; index++)
        files[index] = index == CONFIG ? open(CONFIG_PATH, O_RDWR | O_CREAT | O_CLOEXEC, 0600)
                                       : memfd_create("page", MFD_CLOEXEC);
    FUZZ_CHECK(files[CONFIG] >= 0);
    unlink(address.sun_path);
    listening = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    FUZZ_CHECK(bind(listening, (struct sockaddr *)&address, sizeof address) == 0);
    FUZZ_CHECK(listen(listening, 64) == 0);
    FUZZ_CHECK(pthread_create(&thread, NULL, serve, NULL) == 0);
    descriptors_before = open_descriptors();
}

void fuzz_end(void)
{
    FUZZ_CHECK(pages_mapped() == 0);
    FUZZ_CHECK(open_descriptors() <= descriptors_before + 2); /* one connection in the thread */
}

size_t fuzz_example(unsigned number, uint8_t *out, size_t capacity)
{
    struct plan good = {.count = number == 3 ? 2 : 1, /* a manager of before sends both */
                        .kinds = number == 3 ? CONFIG | BOOKS << 2 : BOOKS,
                        .piece = number == 3 ? 240 : 1, /* 31 bytes, or all */
                        .sent_with = number == 3 ? 2 : 0,
                        .flags = number == 1 ? VCUDA_HELLO_OBSERVER
                                             : VCUDA_HELLO_PERSISTENT | VCUDA_HELLO_MEASURE,
                        .linger = 1,
                        .welcome = {.magic = VCUDA_PROTOCOL_MAGIC,
                                    .version = VCUDA_PROTOCOL_VERSION,
                                    .kind = VCUDA_WELCOME,
                                    .slot = number == 1 ? VCUDA_NO_SLOT : 5}};
    struct vcuda_config config = {.magic = VCUDA_CONFIG_MAGIC,
                                  .abi = VCUDA_REGION_ABI,
                                  .size = sizeof config,
                                  .device_count = 2};
    (void)capacity;
    if (number > 3)
        return 0;
    if (number == 2)
        good.welcome.status = -28;
    config.limits[0].memory_bytes = config.limits[1].memory_bytes = 1u << 20;
    memcpy(out, &good, sizeof good);
    memcpy(out + sizeof good, &config, sizeof config);
    memset(out + sizeof good + sizeof config, 0, 128);
    return sizeof good + sizeof config + 128;
}

static void write_file(int file, const void *bytes, size_t size)
{
    size_t length = plan.lengths % 4 == 3 ? size * plan.lengths / 256 : size;
    FUZZ_CHECK(ftruncate(file, (off_t)length) == 0);
    FUZZ_CHECK(pwrite(file, bytes, length, 0) == (ssize_t)length);
}

static void write_pages(struct fuzz_reader *reader)
{
    static struct vcuda_config config;
    static struct vcuda_books books;
    memset(&books, 0, sizeof books);
    books.magic = VCUDA_BOOKS_MAGIC;
    books.abi = VCUDA_REGION_ABI;
    books.size = sizeof books;
    fuzz_take(reader, &config, sizeof config);
    pages_patch(reader, &books, sizeof books);
    write_file(files[CONFIG], &config, sizeof config);
    write_file(files[BOOKS], &books, sizeof books);
    FUZZ_CHECK(ftruncate(files[SHORT], 100) == 0);
}

static void detach(struct session *session)
{
    connection_close(&session->connection);
    if (session->books.slot >= 0)
        close(session->books.fd);
    munmap((void *)(uintptr_t)session->config, sizeof *session->config);
    munmap(session->books.page, sizeof *session->books.page);
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size)
{
    static struct session session;
    struct fuzz_reader reader = {input, size};
    fuzz_take(&reader, &plan, sizeof plan); /* the thread reads it after the next connection */
    write_pages(&reader);
    memset(&session, 0, sizeof session);
    uint32_t flags = plan.flags & (VCUDA_HELLO_OBSERVER | VCUDA_HELLO_PERSISTENT);
    enum session_phase phase = session_attach(
        &session, (struct session_manner){.flags = flags, .patience_ns = PATIENCE_NS}, false);
    FUZZ_CHECK(phase == SESSION_ATTACHED || phase == SESSION_FAILED);
    if (phase == SESSION_ATTACHED) {
        FUZZ_CHECK(plan.welcome.status == 0 && session.books.slot < VCUDA_SLOTS);
        pages_use(&session, &reader);
        if (plan.flags & VCUDA_HELLO_MEASURE)
            session_measure(&session, PATIENCE_NS, true);
        detach(&session);
    }
    return 0;
}

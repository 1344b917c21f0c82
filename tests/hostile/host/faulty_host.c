/* LD_PRELOAD: another time of day, and calls on files that fail. The file that FAULTY_HOST names is
 * `struct faults`, which the test changes as it likes: faulty_host.py. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define OVERRIDE __attribute__((visibility("default")))
#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

struct faults {
    _Atomic int64_t ahead_s;    /* of CLOCK_REALTIME */
    _Atomic int32_t error;      /* 0: all is well */
    _Atomic int32_t until;      /* calls that succeed before; then one fails, or each */
    _Atomic int32_t each;       /* nonzero: all calls fail from then on */
    _Atomic int32_t seen;       /* calls so far that could have failed */
    char below[2][240];         /* directories whose files are meant */
};

static struct faults *faults(void)
{
    static struct faults *_Atomic mapped;
    struct faults *found = atomic_load(&mapped);
    const char *name = getenv("FAULTY_HOST");
    if (found == NULL && name != NULL) {
        int file = REAL(open)(name, O_RDWR | O_CLOEXEC);
        void *place = REAL(mmap)(NULL, sizeof *found, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        found = place == MAP_FAILED ? NULL : place;
        close(file);
        atomic_store(&mapped, found);
    }
    return found;
}

static bool meant(const struct faults *now, const char *path)
{
    for (int one = 0; one < 2; one++)
        if (now->below[one][0] && !strncmp(path, now->below[one], strlen(now->below[one])))
            return true;
    return false;
}

/* Sets errno where a call on `path` shall fail. */
static bool fails(const char *path)
{
    struct faults *now = faults();
    if (now == NULL || atomic_load(&now->error) == 0 || !meant(now, path))
        return false;
    int32_t before = atomic_fetch_add(&now->seen, 1), until = atomic_load(&now->until);
    if (before < until || (before > until && !atomic_load(&now->each)))
        return false;
    errno = atomic_load(&now->error);
    return true;
}

static bool file_fails(int file)
{
    char link[64], path[512];
    struct faults *now = faults();
    if (file < 0 || now == NULL || atomic_load(&now->error) == 0)
        return false;
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t size = readlink(link, path, sizeof path - 1);
    path[size < 0 ? 0 : size] = 0;
    return fails(path);
}

static struct timespec ahead(struct timespec time)
{
    struct faults *now = faults();
    time.tv_sec += now != NULL ? atomic_load(&now->ahead_s) : 0;
    return time;
}

OVERRIDE int clock_gettime(clockid_t clock, struct timespec *out)
{
    int result = REAL(clock_gettime)(clock, out);
    if (result == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        *out = ahead(*out);
    return result;
}

OVERRIDE int gettimeofday(struct timeval *restrict out, void *restrict zone)
{
    (void)zone;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    *out = (struct timeval){now.tv_sec, now.tv_nsec / 1000};
    return 0;
}

OVERRIDE time_t time(time_t *out)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (out != NULL)
        *out = now.tv_sec;
    return now.tv_sec;
}

#define OPEN(name)                                                                                 \
    OVERRIDE int name(const char *path, int flags, ...)                                            \
    {                                                                                              \
        va_list rest;                                                                              \
        va_start(rest, flags);                                                                     \
        mode_t mode = va_arg(rest, mode_t);                                                        \
        va_end(rest);                                                                              \
        return fails(path) ? -1 : REAL(name)(path, flags, mode);                                   \
    }

#define ON_FILE(type, failed, name, declared, given)                                               \
    OVERRIDE type name declared                                                                    \
    {                                                                                              \
        return file_fails(file) ? failed : REAL(name) given;                                       \
    }

#define ON_PATH(name, declared, given)                                                             \
    OVERRIDE int name declared                                                                     \
    {                                                                                              \
        return fails(path) ? -1 : REAL(name) given;                                                \
    }

OPEN(open)
OPEN(open64)
ON_FILE(ssize_t, -1, read, (int file, void *to, size_t size), (file, to, size))
ON_FILE(ssize_t, -1, write, (int file, const void *from, size_t size), (file, from, size))
ON_FILE(ssize_t, -1, pread, (int file, void *to, size_t size, off_t at), (file, to, size, at))
ON_FILE(ssize_t, -1, pread64, (int file, void *to, size_t size, off64_t at), (file, to, size, at))
ON_FILE(ssize_t, -1, pwrite, (int file, const void *from, size_t size, off_t at),
        (file, from, size, at))
ON_FILE(ssize_t, -1, pwrite64, (int file, const void *from, size_t size, off64_t at),
        (file, from, size, at))
ON_FILE(ssize_t, -1, writev, (int file, const struct iovec *from, int count), (file, from, count))
ON_FILE(int, -1, fsync, (int file), (file))
ON_FILE(int, -1, fdatasync, (int file), (file))
ON_FILE(int, -1, ftruncate, (int file, off_t size), (file, size))
ON_FILE(int, -1, ftruncate64, (int file, off64_t size), (file, size))
ON_FILE(void *, MAP_FAILED, mmap, (void *at, size_t size, int how, int flags, int file, off_t from),
        (at, size, how, flags, file, from))
ON_FILE(void *, MAP_FAILED, mmap64,
        (void *at, size_t size, int how, int flags, int file, off64_t from),
        (at, size, how, flags, file, from))
ON_PATH(mkdir, (const char *path, mode_t mode), (path, mode))
ON_PATH(rmdir, (const char *path), (path))
ON_PATH(unlink, (const char *path), (path))
ON_PATH(rename, (const char *path, const char *to), (path, to))

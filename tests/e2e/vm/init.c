/* The first process of the virtual machine.
 *
 * The host's root, read only, lies below a tmpfs that takes every write; the folder `out` of the
 * host is at /mnt. /mnt/run.sh runs to its end, its status goes to /mnt/status, and the machine is
 * switched off. Modules come with this program, as /modules/00.ko and so on, in order.
 *
 * In qemu the host's files come over 9p. In User-Mode Linux, which is told the path of `out` as
 * files=PATH, they are those that the kernel's own process sees.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static const char over_virtio[] = "trans=virtio,version=9p2000.L,msize=512000,cache=loose";
static const char written_through[] = "trans=virtio,version=9p2000.L,msize=512000,cache=none";

struct mount_point {
    const char *source, *target, *type;
    unsigned long flags;
    const char *options;
};

static struct mount_point mounts[] = {
    {"root", "/lower", "9p", MS_RDONLY, over_virtio},
    {"rw", "/rw", "tmpfs", 0, ""},
    {"overlay", "/new", "overlay", 0, "lowerdir=/lower,upperdir=/rw/upper,workdir=/rw/work"},
    {"proc", "/new/proc", "proc", 0, ""},
    {"sys", "/new/sys", "sysfs", 0, ""},
    {"cgroup", "/new/sys/fs/cgroup", "cgroup2", 0, ""},
    {"dev", "/new/dev", "devtmpfs", 0, ""},
    {"devpts", "/new/dev/pts", "devpts", 0, "ptmxmode=0666"},
    {"shm", "/new/dev/shm", "tmpfs", 0, ""},
    {"tmp", "/new/tmp", "tmpfs", 0, "mode=1777"},
    {"run", "/new/run", "tmpfs", 0, "mode=755"},
    {"out", "/new/mnt", "9p", 0, written_through},
};

static void off(void)
{
    sync();
    reboot(RB_POWER_OFF);
}

static void must(int result, const char *what)
{
    if (result >= 0)
        return;
    printf("init: %s: %s\n", what, strerror(errno));
    off();
}

static void load_modules(void)
{
    char path[32];
    for (int i = 0;; i++) {
        snprintf(path, sizeof path, "/modules/%02d.ko", i);
        int file = open(path, O_RDONLY | O_CLOEXEC);
        if (file < 0)
            return;
        must((int)syscall(SYS_finit_module, file, "", 0), path);
        close(file);
    }
}

static void use_hostfs(const char *out)
{
    for (size_t i = 0; i < sizeof mounts / sizeof *mounts; i++) {
        struct mount_point *one = &mounts[i];
        if (strcmp(one->type, "9p") == 0) {
            one->options = strcmp(one->source, "out") == 0 ? out : "/";
            one->type = "hostfs";
        }
    }
}

static void mount_all(void)
{
    for (size_t i = 0; i < sizeof mounts / sizeof *mounts; i++) {
        const struct mount_point *one = &mounts[i];
        mkdir(one->target, 0755);
        must(mount(one->source, one->target, one->type, one->flags, one->options), one->target);
        if (strcmp(one->target, "/rw") == 0) {
            must(mkdir("/rw/upper", 0755), "upper");
            must(mkdir("/rw/work", 0755), "work");
        }
    }
    must(chdir("/new"), "root");
    must(mount(".", "/", NULL, MS_MOVE, NULL), "moving the root");
    must(chroot("."), "chroot");
}

/* The script's status; orphans are taken as the first process has to. */
static int run_script(void)
{
    pid_t child = fork();
    must(child, "fork");
    if (child == 0) {
        execl("/bin/sh", "sh", "/mnt/run.sh", (char *)NULL);
        _exit(127);
    }
    int status;
    pid_t ended;
    while ((ended = wait(&status)) != child)
        must(ended, "waiting for the script");
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

int main(void)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    load_modules();
    const char *hostfs = getenv("files"); /* of the kernel's command line */
    if (hostfs)
        use_hostfs(hostfs);
    mount_all();
    int status = run_script();
    FILE *said = fopen("/mnt/status", "w");
    if (said) {
        fprintf(said, "%d\n", status);
        fclose(said);
    }
    off();
    return 1;
}

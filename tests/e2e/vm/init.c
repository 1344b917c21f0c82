/* The first process of the virtual machine, which becomes systemd.
 *
 * The host's root, read only, lies below a tmpfs that takes every write; /tmp is a disk, whose
 * files containers with user namespaces of their own can be shown as theirs (a tmpfs's from
 * Linux 6.3 on). The folder of the host that the kernel is told as files=PATH is at /mnt. systemd
 * starts /mnt/e2e.service and nothing else; that ends with the machine switched off.
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
#include <unistd.h>

static const struct mount_point {
    const char *source, *target, *type;
    unsigned long flags;
    const char *options;
} mounts[] = {
    {"root", "/lower", "hostfs", MS_RDONLY, "/"},
    {"rw", "/rw", "tmpfs", 0, ""},
    {"overlay", "/new", "overlay", 0, "lowerdir=/lower,upperdir=/rw/upper,workdir=/rw/work"},
    {"proc", "/new/proc", "proc", 0, ""},
    {"sys", "/new/sys", "sysfs", 0, ""},
    {"cgroup", "/new/sys/fs/cgroup", "cgroup2", 0, ""},
    {"dev", "/new/dev", "devtmpfs", 0, ""},
    {"devpts", "/new/dev/pts", "devpts", 0, "ptmxmode=0666"},
    {"shm", "/new/dev/shm", "tmpfs", 0, ""},
    {"/new/dev/ubda", "/new/tmp", "ext4", 0, ""},
    {"run", "/new/run", "tmpfs", 0, "mode=755"},
    {"out", "/new/mnt", "hostfs", 0, NULL /* files= */},
};

static void must(int result, const char *what)
{
    if (result >= 0)
        return;
    printf("init: %s: %s\n", what, strerror(errno));
    fflush(stdout);
    reboot(RB_POWER_OFF);
}

static void load_module(const char *path)
{
    int file = open(path, O_RDONLY | O_CLOEXEC);
    must(file, path);
    must((int)syscall(SYS_finit_module, file, "", 0), path);
    close(file);
}

static void mount_all(const char *files)
{
    for (size_t i = 0; i < sizeof mounts / sizeof *mounts; i++) {
        const struct mount_point *one = &mounts[i];
        const char *options = one->options ? one->options : files;
        mkdir(one->target, 0755);
        must(mount(one->source, one->target, one->type, one->flags, options), one->target);
        if (strcmp(one->target, "/rw") == 0) {
            must(mkdir("/rw/upper", 0755), "upper");
            must(mkdir("/rw/work", 0755), "work");
        }
    }
    must(chmod("/new/tmp", 01777), "/tmp");
    must(chdir("/new"), "root");
    must(mount(".", "/", NULL, MS_MOVE, NULL), "moving the root");
    must(chroot("."), "chroot");
}

int main(void)
{
    const char *files = getenv("files"); /* the kernel hands on what it does not know */
    load_module("/overlay.ko");
    mount_all(files ? files : "");
    setenv("SYSTEMD_UNIT_PATH", "/mnt:", 1); /* and the usual ones */
    must(execl("/lib/systemd/systemd", "systemd", "--unit=e2e.service", "--show-status=no",
               "--log-target=kmsg", (char *)NULL),
         "systemd");
    return 1;
}

/* What vcuda-controller does before it limits a program: runs gpu-client, then reads its two files.
 *
 *     original_reader DIRECTORY POD_UID CONTAINER_ID GPU_CLIENT…
 *
 * Written after the original's description. Prints one line of words; fails where it would. */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

struct version {
    int major;
    int minor;
};

struct resource_data {
    char pod_uid[48];
    int limit;
    char occupied[4044];
    char container_name[FILENAME_MAX];
    char bus_id[16];
    uint64_t gpu_memory;
    int utilization;
    int hard_limit;
    struct version driver_version;
    int enable;
} __attribute__((aligned(8)));

static int register_to_manager(char **client, const char *uid, const char *container)
{
    char socket[FILENAME_MAX];
    char *words[24];
    int count = 0, status = 0;
    while (client[count + 1] && count < 8) {
        words[count] = client[count + 1];
        count++;
    }
    snprintf(socket, sizeof(socket), "%s/vcuda.sock", client[0]);
    const char *flags[] = {"--addr", socket,      "--bus-id",  "",
                           "--pod-uid", uid, "--cont-id", container};
    for (size_t i = 0; i < sizeof(flags) / sizeof(*flags); i++)
        words[count++] = (char *)flags[i];
    words[count] = NULL;
    pid_t child = fork();
    if (child == 0) {
        execvp(words[0], words);
        _exit(127);
    }
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

int main(int argc, char **argv)
{
    if (argc < 5)
        return 2;
    char *directory = argv[1], path[2 * FILENAME_MAX];
    char *client[16] = {directory};
    for (int i = 4; i < argc && i < 15; i++)
        client[i - 3] = argv[i];
    int code = register_to_manager(client, argv[2], argv[3]);
    if (code != 0) {
        fprintf(stderr, "rpc client exit with %d\n", code);
        return 1;
    }
    struct resource_data data;
    snprintf(path, sizeof(path), "%s/%s/vcuda.config", directory, argv[3]);
    int file = open(path, O_RDONLY);
    if (file < 0 || read(file, &data, sizeof(data)) != sizeof(data) || read(file, path, 1) != 0)
        return 3;
    close(file);
    printf("%s %s [%s] %llu %d %d %d %d.%d %d", data.pod_uid, data.container_name, data.bus_id,
           (unsigned long long)data.gpu_memory, data.utilization, data.hard_limit, data.limit,
           data.driver_version.major, data.driver_version.minor, data.enable);
    snprintf(path, sizeof(path), "%s/%s/pids.config", directory, argv[3]);
    file = open(path, O_RDONLY);
    int pid, own = 0;
    while (file >= 0 && read(file, &pid, sizeof(pid)) == sizeof(pid))
        own |= pid == getpid();
    printf(" %s\n", own ? "listed" : "missing");
    return 0;
}

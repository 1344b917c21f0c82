/* A program that does nothing with the GPU but begin.
 *
 *     starts one LIBRARY           load it and cuInit; then ask for the memory: prints ns of both
 *     starts all LIBRARY NUMBER    begin so many of these at once, wait for all; prints ns
 *
 * The shim says HELLO in cuInit. Its first answer about memory needs what the driver holds itself,
 * for which it asks the manager. */
#include <dlfcn.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

static long now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000L + time.tv_nsec;
}

static int one(const char *library)
{
    size_t free_bytes, total_bytes;
    long begin = now();
    void *driver = dlopen(library, RTLD_NOW);
    if (!driver)
        return 2;
    int (*initialise)(unsigned) = (int (*)(unsigned))dlsym(driver, "cuInit");
    int (*look)(size_t *, size_t *) = (int (*)(size_t *, size_t *))dlsym(driver, "cuMemGetInfo_v2");
    if (!initialise || !look || initialise(0))
        return 3;
    long begun = now();
    if (look(&free_bytes, &total_bytes))
        return 4;
    printf("%ld %ld %zu\n", begun - begin, now() - begun, total_bytes);
    return 0;
}

/* Their words are not heard: what counts is that all have ended, and well. */
static int all(char *self, char *library, int number)
{
    char *words[] = {self, "one", library, NULL};
    posix_spawn_file_actions_t quiet;
    int wrong = 0, status;
    pid_t child;
    posix_spawn_file_actions_init(&quiet);
    posix_spawn_file_actions_addclose(&quiet, STDOUT_FILENO);
    long begin = now();
    for (int begun = 0; begun < number; begun++)
        wrong |= posix_spawn(&child, self, &quiet, NULL, words, environ);
    while (wait(&status) > 0)
        wrong |= status;
    printf("%ld\n", now() - begin);
    return wrong ? 5 : 0;
}

int main(int count, char **words)
{
    if (count == 3 && !strcmp(words[1], "one"))
        return one(words[2]);
    if (count == 4 && !strcmp(words[1], "all"))
        return all(words[0], words[2], atoi(words[3]));
    return 1;
}

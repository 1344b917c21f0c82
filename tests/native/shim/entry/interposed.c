/* How a program may get at the driver, and what it gets: for test_interposition.py.
 *
 *     interposed HOW [LIBRARY]      prints {"refused": …, "granted": …, "reached": …}
 *
 * Asks once for more than the container may have and once for less; `reached` is how often the
 * driver itself was asked.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#ifdef LINKED
int cuInit(unsigned flags);
int cuMemAlloc_v2(unsigned long long *address, size_t bytes);
int cuCtxGetDevice(int *device);
#endif

static void *library;
static const char *version;

static void *find(const char *name)
{
    void *found = version ? dlvsym(library, name, version) : dlsym(library, name);
    if (found == NULL) {
        fprintf(stderr, "%s: %s\n", name, dlerror());
        exit(1);
    }
    return found;
}

static int allocate(size_t bytes)
{
    unsigned long long address;
    int (*function)(unsigned long long *, size_t) = find("cuMemAlloc_v2");
    return function(&address, bytes);
}

static int reached(void)
{
    int (*calls)(const char *) = dlsym(library, "stand_in_calls");
    return calls == NULL ? -1 : calls("cuMemAlloc_v2");
}

static void ask(void)
{
    int (*begin)(unsigned) = find("cuInit");
    begin(0);
    int refused = allocate((size_t)65 << 20), granted = allocate(2 << 20);
    printf("{\"refused\": %d, \"granted\": %d, \"reached\": %d}\n", refused, granted, reached());
    fflush(stdout);
}

static void open_with(const char *name, int flags)
{
    library = dlopen(name, RTLD_NOW | flags);
    if (library == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        exit(1);
    }
}

/* One copy of the shim in each of two namespaces: both count in one slot. */
static void two_namespaces(const char *name)
{
    open_with(name, 0);
    ask();
    library = dlmopen(LM_ID_NEWLM, name, RTLD_NOW);
    ((int (*)(unsigned))find("cuInit"))(0);
    int over = allocate((size_t)63 << 20), within = allocate((size_t)62 << 20);
    int full = allocate(1);
    printf("{\"over\": %d, \"within\": %d, \"full\": %d}\n", over, within, full);
}

#ifdef LINKED
static void linked(void)
{
    int device = -1;
    unsigned long long address;
    cuInit(0);
    int refused = cuMemAlloc_v2(&address, (size_t)65 << 20);
    int granted = cuMemAlloc_v2(&address, 2 << 20);
    int result = cuCtxGetDevice(&device);
    library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    printf("{\"refused\": %d, \"granted\": %d, \"reached\": %d, \"device\": [%d, %d]}\n", refused,
           granted, reached(), result, device);
}
#endif

static void spawned(char *self, const char *name)
{
    int status;
    char *words[] = {self, "open", (char *)name, NULL};
    open_with(name, 0);
    ask();
    pid_t child = vfork();
    if (child == 0) {
        execv(self, words);
        _exit(127);
    }
    waitpid(child, &status, 0);
    exit(WEXITSTATUS(status));
}

int main(int count, char **words)
{
    const char *how = words[1], *name = count > 2 ? words[2] : "libcuda.so.1";
#ifdef LINKED
    if (strcmp(how, "linked") == 0) {
        linked();
        return 0;
    }
#endif
    if (strcmp(how, "namespaces") == 0) {
        two_namespaces(name);
        return 0;
    }
    if (strcmp(how, "vfork") == 0)
        spawned(words[0], name);
    int flags = strcmp(how, "deepbind") == 0 ? RTLD_DEEPBIND
                : strcmp(how, "global") == 0 ? RTLD_GLOBAL
                                             : 0;
    open_with(name, flags);
    if (strcmp(how, "version") == 0)
        version = "libcuda.so.1";
    if (strcmp(how, "default") == 0)
        library = RTLD_DEFAULT;
    ask();
    return 0;
}

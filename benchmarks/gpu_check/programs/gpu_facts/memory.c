/* What contexts, allocations, pools and stacks take. */
#include "facts.h"

#include <stdlib.h>

enum {
    RESERVED = 5, /* CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT */
    STACK = 0,    /* CU_LIMIT_STACK_SIZE */
};

struct held print_held(const char *after, struct held before)
{
    struct held now = held();
    printf("{\"fact\":\"memory, %s\",\"process_mib\":%.3f,\"gpu_mib\":%.3f,"
           "\"free_mib\":%.3f,\"process_more_mib\":%.3f,\"gpu_more_mib\":%.3f",
           after, now.process / MIB, now.gpu / MIB, now.left / MIB,
           (now.process - before.process) / MIB, (now.gpu - before.gpu) / MIB);
    end_fact();
    return now;
}

static void print_granularity(void)
{
    static const size_t sizes[] = {1,       512,     4096,    65536,   262144,  524288,  786432,
                                   1048576, 1048577, 1572864, 2097152, 2097153, 3145728, 4194304};
    enum { MANY = 64 };
    for (unsigned s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        u64 at[MANY] = {0};
        struct held before = held();
        double begun = now_us();
        for (int i = 0; i < MANY; i++)
            CU(cuMemAlloc_v2, &at[i], sizes[s]);
        double alloc_us = (now_us() - begun) / MANY;
        struct held after = held();
        begun = now_us();
        for (int i = 0; i < MANY; i++)
            if (at[i] != 0)
                CU(cuMemFree_v2, at[i]);
        printf("{\"fact\":\"cuMemAlloc, %zu B\",\"each_process\":%.0f,\"each_free\":%.0f,"
               "\"alloc_us\":%.2f,\"free_us\":%.2f",
               sizes[s], (after.process - before.process) / MANY, (before.left - after.left) / MANY,
               alloc_us, (now_us() - begun) / MANY);
        end_fact();
    }
}

static void print_managed_and_pinned(void)
{
    static const size_t size = (size_t)256 << 20;
    u64 managed = 0;
    void *pinned = NULL;
    struct held before = held();
    CU(cuMemAllocManaged, &managed, size, 1);
    before = print_held("256 MiB managed, untouched", before);
    if (managed != 0)
        CU(cuMemsetD8_v2, managed, 1, size);
    synchronize();
    before = print_held("256 MiB managed, touched by the GPU", before);
    if (managed != 0)
        CU(cuMemFree_v2, managed);
    before = print_held("managed freed", before);
    CU(cuMemHostAlloc, &pinned, size, 0);
    print_held("256 MiB pinned host memory", before);
    if (pinned != NULL)
        CU(cuMemFreeHost, pinned);
}

static void print_pool(void)
{
    static const size_t sizes[] = {1, 1 << 20, 31 << 20, 33 << 20, 64 << 20, 100 << 20};
    enum { MANY = sizeof sizes / sizeof *sizes };
    void *pool = NULL, *stream = NULL;
    u64 got[MANY] = {0}, reserved = 0, last = 0;
    struct held before = held();
    CU(cuStreamCreate, &stream, NON_BLOCKING);
    CU(cuDeviceGetDefaultMemPool, &pool, device);
    for (int i = 0; i < MANY; i++) {
        CU(cuMemAllocAsync, &got[i], sizes[i], stream);
        CU(cuMemPoolGetAttribute, pool, RESERVED, &reserved);
        printf("{\"fact\":\"pool, %zu B\",\"grew\":%lld", sizes[i], (long long)(reserved - last));
        end_fact();
        last = reserved;
    }
    before = print_held("pool", before);
    for (int i = 0; i < MANY; i++)
        if (got[i] != 0)
            CU(cuMemFreeAsync, got[i], stream);
    CU(cuStreamSynchronize, stream);
    CU(cuMemPoolGetAttribute, pool, RESERVED, &reserved);
    print_value("pool keeps after all is freed and waited for", (double)reserved, "B");
    CU(cuMemPoolTrimTo, pool, (size_t)0);
    print_held("pool trimmed", before);
    CU(cuStreamDestroy_v2, stream);
}

static void print_stack(void)
{
    size_t stack = 0;
    struct held before = held();
    CU(cuCtxGetLimit, &stack, STACK);
    print_value("stack limit", (double)stack, "B");
    CU(cuCtxSetLimit, STACK, (size_t)16384);
    before = print_held("stack limit 16 KiB", before);
    run(empty, 1, 1, NULL, NULL);
    synchronize();
    before = print_held("a launch after that", before);
    CU(cuCtxSetLimit, STACK, stack);
    print_held("stack limit as before", before);
}

void print_memory(struct held before)
{
    void *streams[8];
    run(empty, 1, 1, NULL, NULL);
    synchronize();
    before = print_held("first launch", before);
    for (int i = 0; i < 8; i++)
        if (CU(cuStreamCreate, &streams[i], NON_BLOCKING) == 0)
            run(empty, 1, 1, streams[i], NULL);
    synchronize();
    print_held("8 streams used", before);
    print_granularity();
    print_managed_and_pinned();
    print_pool();
    print_stack();
}

#include "kinds.h"

enum { ROW = 512, ATTACH_GLOBAL = 1, PAGE = 2 << 20, PINNED = 1, ON_DEVICE = 1 };

static bool plain_there(void)
{
    return cuMemAlloc_v2 != NULL;
}

static int plain_take(struct block *block, uint64_t bytes)
{
    return cuMemAlloc_v2(&block->address, bytes);
}

static int give_address(struct block *block)
{
    return cuMemFree_v2(block->address);
}

static bool managed_there(void)
{
    return cuMemAllocManaged != NULL;
}

static int managed_take(struct block *block, uint64_t bytes)
{
    return cuMemAllocManaged(&block->address, bytes, ATTACH_GLOBAL);
}

static bool pitch_there(void)
{
    return cuMemAllocPitch_v2 != NULL;
}

/* Rows of as many bytes as drivers make them, so that nothing is added. */
static int pitch_take(struct block *block, uint64_t bytes)
{
    size_t pitch;
    return cuMemAllocPitch_v2(&block->address, &pitch, ROW, bytes / ROW, 4);
}

static bool virtual_there(void)
{
    return cuMemCreate != NULL && cuMemMap != NULL;
}

static int map(struct block *block, memory_handle handle, uint64_t bytes)
{
    int result = cuMemAddressReserve(&block->address, bytes, 0, 0, 0);
    if (result != CUDA_SUCCESS)
        return result;
    result = cuMemMap(block->address, bytes, 0, handle, 0);
    if (result != CUDA_SUCCESS)
        cuMemAddressFree(block->address, bytes);
    return result;
}

/* Created, mapped, released: as is usual, the mapping alone keeps it. */
static int virtual_take(struct block *block, uint64_t bytes)
{
    struct memory_properties properties = {.type = PINNED, .location_type = ON_DEVICE};
    memory_handle handle;
    int result = cuMemCreate(&handle, bytes, &properties, 0);
    if (result != CUDA_SUCCESS)
        return result;
    result = map(block, handle, bytes);
    int released = cuMemRelease(handle);
    return result != CUDA_SUCCESS ? result : released;
}

static int virtual_give(struct block *block)
{
    int result = cuMemUnmap(block->address, block->bytes);
    int freed = cuMemAddressFree(block->address, block->bytes);
    return result != CUDA_SUCCESS ? result : freed;
}

const struct kind kinds[] = {
    {"plain", 1, plain_there, plain_take, give_address},
    {"managed", 1, managed_there, managed_take, give_address},
    {"pitch", ROW, pitch_there, pitch_take, give_address},
    {"virtual", PAGE, virtual_there, virtual_take, virtual_give},
};

enum { KINDS = sizeof kinds / sizeof *kinds };

unsigned kinds_count(void)
{
    unsigned count = 0;
    for (unsigned index = 0; index < KINDS; index++)
        count += kinds[index].there();
    return count;
}

const struct kind *kinds_at(unsigned number)
{
    unsigned index = 0;
    while (!kinds[index].there() || number-- > 0)
        index++;
    return &kinds[index];
}

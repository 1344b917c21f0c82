/* Memory that is known by its address, in the forms of either width. */
#include "kinds.h"

enum { ROW = 512, ATTACH_GLOBAL = 1, PINNED = 1, ON_DEVICE = 1, ELEMENT = 4 };

static bool plain_there(void)
{
    return cuMemAlloc_v2 != NULL;
}

static int plain_take(struct block *block, uint64_t bytes)
{
    return cuMemAlloc_v2(&block->address, bytes);
}

static int give(struct block *block)
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
    return cuMemAllocPitch_v2(&block->address, &pitch, ROW, bytes / ROW, ELEMENT);
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

static bool legacy_there(void)
{
    return cuMemAlloc != NULL && cuMemAllocPitch != NULL && cuMemFree != NULL;
}

static int plain32_take(struct block *block, uint64_t bytes)
{
    unsigned address = 0;
    int result = cuMemAlloc(&address, (unsigned)bytes);
    block->address = address;
    return result;
}

static int pitch32_take(struct block *block, uint64_t bytes)
{
    unsigned address = 0, pitch;
    int result = cuMemAllocPitch(&address, &pitch, ROW, (unsigned)(bytes / ROW), ELEMENT);
    block->address = address;
    return result;
}

static int give32(struct block *block)
{
    return cuMemFree((unsigned)block->address);
}

const struct kind kind_plain = {"plain", plain_there, plain_take,  give, 1,
                                0,       DEVICE_PAGE, DEVICE_PAGE, false};
const struct kind kind_managed = {"managed", managed_there, managed_take, give, 1,
                                  0,         DEVICE_PAGE,   DEVICE_PAGE,  false};
const struct kind kind_pitch = {"pitch", pitch_there, pitch_take,  give, ROW,
                                0,       DEVICE_PAGE, DEVICE_PAGE, false};
const struct kind kind_virtual = {
    "virtual", virtual_there, virtual_take, virtual_give, DEVICE_PAGE, 0, 1, 1, false};
const struct kind kind_plain32 = {"plain32",  legacy_there, plain32_take, give32, 1,
                                  UINT32_MAX, DEVICE_PAGE,  DEVICE_PAGE,  false};
const struct kind kind_pitch32 = {"pitch32",  legacy_there, pitch32_take, give32, ROW,
                                  UINT32_MAX, DEVICE_PAGE,  DEVICE_PAGE,  false};

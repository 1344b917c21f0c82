/* Memory in the order of streams: of a device's own pool, of one made for it, of a graph.
 *
 * All of it comes in pieces, and freed memory stays with the pool or the graphs until they are
 * trimmed. A piece of the device's own pool holds one request at least for as long as it is there:
 * so no request is larger than a piece, and what the pool holds is no more than a piece for each.
 */
#include "kinds.h"

#define CHUNK (UINT64_C(32) << 20) /* of a pool; of graphs, on some drivers */
#define PIECE (UINT64_C(2) << 20)  /* of graphs */

enum { PINNED = 1, ON_DEVICE = 1 };

static const struct pool_properties on_device = {.type = PINNED, .location_type = ON_DEVICE};

static int first_failure(int earlier, int later)
{
    return earlier != CUDA_SUCCESS ? earlier : later;
}

/* In the order of the default stream, and done. */
static int free_now(device_address address)
{
    int result = cuMemFreeAsync(address, NULL);
    return first_failure(result, cuStreamSynchronize(NULL));
}

static bool async_there(void)
{
    return cuMemAllocAsync != NULL && cuDeviceGetDefaultMemPool != NULL;
}

static int async_take(struct block *block, uint64_t bytes)
{
    int result = cuDeviceGetDefaultMemPool(&block->object, 0);
    return result != CUDA_SUCCESS ? result : cuMemAllocAsync(&block->address, bytes, NULL);
}

static int async_give(struct block *block)
{
    int result = free_now(block->address);
    return first_failure(result, cuMemPoolTrimTo(block->object, 0));
}

static bool pool_there(void)
{
    return cuMemPoolCreate != NULL && cuMemAllocFromPoolAsync != NULL;
}

static int pool_take(struct block *block, uint64_t bytes)
{
    int result = cuMemPoolCreate(&block->object, &on_device);
    if (result != CUDA_SUCCESS)
        return result;
    result = cuMemAllocFromPoolAsync(&block->address, bytes, block->object, NULL);
    if (result != CUDA_SUCCESS)
        cuMemPoolDestroy(block->object);
    return result;
}

static int pool_give(struct block *block)
{
    int result = free_now(block->address);
    return first_failure(result, cuMemPoolDestroy(block->object));
}

static bool graph_there(void)
{
    return cuGraphAddMemAllocNode != NULL && cuGraphInstantiateWithFlags != NULL;
}

static int launch(struct block *block, struct allocation_node *parameters)
{
    void *node;
    int result = cuGraphAddMemAllocNode(&node, block->maker, NULL, 0, parameters);
    if (result == CUDA_SUCCESS)
        result = cuGraphInstantiateWithFlags(&block->object, block->maker, 0);
    if (result != CUDA_SUCCESS)
        return result;
    result = cuGraphLaunch(block->object, NULL);
    if (result != CUDA_SUCCESS)
        cuGraphExecDestroy(block->object);
    return result;
}

/* A graph that allocates and leaves it to the program to free. */
static int graph_take(struct block *block, uint64_t bytes)
{
    struct allocation_node parameters = {.properties = on_device, .bytes = bytes};
    int result = cuGraphCreate(&block->maker, 0);
    if (result != CUDA_SUCCESS)
        return result;
    result = launch(block, &parameters);
    block->address = parameters.address;
    if (result != CUDA_SUCCESS)
        cuGraphDestroy(block->maker);
    return result;
}

static int graph_give(struct block *block)
{
    int result = free_now(block->address);
    result = first_failure(result, cuGraphExecDestroy(block->object));
    result = first_failure(result, cuGraphDestroy(block->maker));
    return first_failure(result, cuDeviceGraphMemTrim(0));
}

const struct kind kind_async = {"async", async_there, async_take, async_give, 1,
                                CHUNK,   CHUNK,       CHUNK,      false};
const struct kind kind_pool = {"pool", pool_there, pool_take, pool_give, 1, 0, CHUNK, CHUNK, false};
const struct kind kind_graph = {"graph", graph_there, graph_take, graph_give, 1,
                                0,       CHUNK,       PIECE,      false};

#include "nvml/listing.h"

#include <stdlib.h>
#include <string.h>

enum {
    ROOM_FIRST = 128, /* entries; as many as a driver lists, as a rule */
    ROOM_LATER = 64,  /* beyond what it said it needs: processes start meanwhile */
    TURNS = 8,
};

/* Twice the size: drivers 530 to 535.54 list entries longer than those of all others. They are not
 * recognised then, and so not shown, but they must not end up beside the array. */
static void *make_room(const struct listing *listing, unsigned room)
{
    return calloc(((size_t)room + VCUDA_SLOTS) * 2, listing->layout->size);
}

static nvmlReturn_t try_room(const struct listing *listing, unsigned room, unsigned *count,
                             void **list)
{
    *count = room;
    *list = make_room(listing, room);
    nvmlReturn_t result = *list == NULL ? NVML_ERROR_MEMORY : listing->ask(listing, count, *list);
    if (result == NVML_SUCCESS && *count <= room)
        return NVML_SUCCESS;
    free(*list);
    return result == NVML_SUCCESS ? NVML_ERROR_INSUFFICIENT_SIZE : result;
}

nvmlReturn_t listing_fetch(const struct listing *listing, const struct observation *seen,
                           struct residents *residents)
{
    unsigned room = ROOM_FIRST;
    nvmlReturn_t result = NVML_ERROR_INSUFFICIENT_SIZE;
    *residents = (struct residents){
        .books = seen->session->books.page, .device = seen->device, .layout = listing->layout};
    for (int turn = 0; turn < TURNS && result == NVML_ERROR_INSUFFICIENT_SIZE; turn++) {
        result = try_room(listing, room, &residents->count, &residents->list);
        room = residents->count + ROOM_LATER;
    }
    return result;
}

static nvmlReturn_t deliver(const struct residents *residents, unsigned int *count, void *list)
{
    unsigned room = list == NULL ? 0 : *count;
    *count = residents->count;
    if (residents->count > room)
        return NVML_ERROR_INSUFFICIENT_SIZE;
    if (residents->count > 0)
        memcpy(list, residents->list, residents->count * residents->layout->size);
    return NVML_SUCCESS;
}

nvmlReturn_t listing_answer(const struct listing *listing, const struct observation *seen,
                            unsigned int *count, void *list)
{
    struct residents residents;
    nvmlReturn_t result = listing_fetch(listing, seen, &residents);
    if (result != NVML_SUCCESS)
        return result;
    residents_keep(&residents);
    if (listing->add_hidden)
        residents_add_hidden(&residents);
    result = residents.count == 0 && listing->if_none != NVML_SUCCESS
                 ? listing->if_none
                 : deliver(&residents, count, list);
    free(residents.list);
    return result;
}

#include "kinds.h"

#include <string.h>

#define ROW(name) &kind_##name,
static const struct kind *const kinds[] = {KINDS_ADDRESS(ROW) KINDS_LEGACY(ROW) KINDS_ARRAY(ROW)
                                               KINDS_POOL(ROW) KINDS_DRIVER(ROW)};

enum { KINDS = sizeof kinds / sizeof *kinds };

uint64_t kinds_countable(void)
{
    uint64_t set = 0;
    for (unsigned index = 0; index < KINDS; index++)
        set |= kinds[index]->uncounted ? 0 : UINT64_C(1) << index;
    return set;
}

static uint64_t called(const char *name, size_t length)
{
    for (unsigned index = 0; index < KINDS; index++)
        if (strlen(kinds[index]->name) == length && strncmp(kinds[index]->name, name, length) == 0)
            return UINT64_C(1) << index;
    return 0;
}

uint64_t kinds_called(const char *names)
{
    uint64_t set = 0;
    for (const char *name = names;; name++) {
        size_t length = strcspn(name, ",");
        uint64_t one = called(name, length);
        set |= one;
        name += length;
        if (one == 0 || *name == 0)
            return one == 0 ? 0 : set;
    }
}

bool kinds_uncounted(uint64_t set)
{
    return (set & ~kinds_countable()) != 0;
}

static bool meant(unsigned index, uint64_t set)
{
    return (set >> index & 1) != 0 && kinds[index]->there();
}

unsigned kinds_count(uint64_t set)
{
    unsigned count = 0;
    for (unsigned index = 0; index < KINDS; index++)
        count += meant(index, set);
    return count;
}

const struct kind *kinds_at(uint64_t set, unsigned number)
{
    unsigned index = 0;
    while (!meant(index, set) || number-- > 0)
        index++;
    return kinds[index];
}

bool kinds_small_array(const struct block *block)
{
    const struct kind *kind = block->kind;
    bool array = kind == &kind_array || kind == &kind_array3d || kind == &kind_mipmap;
    return array && block->bytes <= DEVICE_PAGE / 2;
}

static uint64_t round_up(uint64_t bytes, uint64_t piece)
{
    return (bytes + piece - 1) / piece * piece;
}

struct block kinds_ask(const struct kind *kind, uint64_t bytes)
{
    if (kind->most > 0 && bytes > kind->most)
        bytes = kind->most;
    if (bytes >= kind->granule)
        bytes = bytes / kind->granule * kind->granule;
    else
        bytes = kind->granule;
    return (struct block){.kind = kind, .bytes = bytes, .holds = round_up(bytes, kind->rough)};
}

uint64_t kinds_settle(struct block *block)
{
    uint64_t before = block->holds;
    block->holds = round_up(block->bytes, block->kind->fine);
    return before - block->holds;
}

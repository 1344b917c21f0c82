#include "pages.h"

#include "core/region.h"
#include "runtime/real.h"

#include <string.h>

/* There is no driver to ask for its world. */
void *real_symbol(const char *name)
{
    (void)name;
    return NULL;
}

enum { PATCHES = 16, HEADER_WORDS = 16 };

void pages_patch(struct fuzz_reader *reader, void *page, size_t size)
{
    uint8_t count;
    fuzz_take(reader, &count, sizeof count);
    for (int left = count % PATCHES; left > 0; left--) {
        uint32_t place;
        uint64_t value;
        fuzz_take(reader, &place, sizeof place);
        fuzz_take(reader, &value, sizeof value);
        size_t words = (place & 1) != 0 ? HEADER_WORDS : size / sizeof value;
        memcpy((char *)page + place / 2 % words * sizeof value, &value, sizeof value);
    }
}

/* Alone on the pages, a reservation that was let through fits, and goes back as it came. */
static void reserve(struct books *books, unsigned device, uint64_t bytes, uint64_t limit)
{
    uint64_t before = atomic_load(&books->page->used[device][books->slot]);
    if (books_reserve(books, device, bytes, limit) != 0) {
        FUZZ_CHECK(atomic_load(&books->page->used[device][books->slot]) == before);
        books_deny(books, device);
        return;
    }
    FUZZ_CHECK(books_total(books, device) <= limit);
    books_release(books, device, bytes);
    FUZZ_CHECK(atomic_load(&books->page->used[device][books->slot]) == before);
}

static void account(struct session *session, unsigned device, uint64_t bytes)
{
    struct books *books = &session->books;
    uint64_t limit = atomic_load(&session->config->limits[device].memory_bytes);
    books_total(books, device);
    if (books->slot < 0)
        return;
    reserve(books, device, bytes, limit);
    if (books_take(books, BOOKS_CONTEXT, device, bytes, limit) == 0)
        books_give_back(books, BOOKS_CONTEXT, device, bytes);
    books_admit(books, device, bytes);
    books_degrade(books, (uint32_t)bytes);
}

void pages_use(struct session *session, struct fuzz_reader *reader)
{
    uint8_t uuid[16];
    uint64_t words[3];
    fuzz_take(reader, uuid, sizeof uuid);
    fuzz_take(reader, words, sizeof words);
    int found = session_device(session, uuid);
    FUZZ_CHECK(found >= -1 && found < VCUDA_DEVICES);
    unsigned device = found >= 0 ? (unsigned)found : (unsigned)(words[0] % VCUDA_DEVICES);
    account(session, device, words[0]);
}

static void move_slot(struct vcuda_books *books, uint32_t pid, uint64_t start)
{
    int slot = region_slot_claim(books, pid, start, pid);
    if (slot < 0)
        return;
    FUZZ_CHECK(slot < VCUDA_SLOTS);
    for (uint32_t device = 0; device < VCUDA_DEVICES; device++)
        FUZZ_CHECK(region_slot_bytes(books, device, (uint32_t)slot) == 0);
    FUZZ_CHECK(region_slot_release(books, (uint32_t)slot, pid, start + 1) != 0);
    FUZZ_CHECK(region_slot_release(books, (uint32_t)slot, pid, start) == 0);
}

void pages_manage(struct vcuda_config *config, struct vcuda_books *books,
                  struct fuzz_reader *reader)
{
    uint8_t uuid[16];
    uint64_t words[4];
    fuzz_take(reader, uuid, sizeof uuid);
    fuzz_take(reader, words, sizeof words);
    for (uint32_t device = 0; device < VCUDA_DEVICES; device++)
        region_device_bytes(books, device);
    region_limit_store(config, words[0] % VCUDA_DEVICES, words[1], (uint32_t)words[2],
                       (uint32_t)words[3]);
    region_device_add(config, uuid);
    region_config_publish(config);
    move_slot(books, (uint32_t)words[0] | 1, words[1]);
}

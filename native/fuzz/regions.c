/* The two pages with any contents at all, on the heap, where a step beyond their ends is found.
 *
 * Input: the configuration; words for places in the books; what is then asked for.
 */
#include "pages.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static int file; /* to lock */

void fuzz_begin(void)
{
    file = memfd_create("books", MFD_CLOEXEC);
}

void fuzz_end(void)
{
    close(file);
}

size_t fuzz_example(unsigned number, uint8_t *out, size_t capacity)
{
    struct vcuda_config config = {.device_count = number * 8, .generation = 7};
    (void)capacity;
    if (number > 2)
        return 0;
    for (int device = 0; device < VCUDA_DEVICES; device++) {
        config.limits[device].memory_bytes = 1u << 20;
        config.limits[device].core_percent = 30;
    }
    memcpy(out, &config, sizeof config);
    memset(out + sizeof config, 4 * (int)number, 256);
    return sizeof config + 256;
}

/* What the reader of a session checks before it lets anybody use the pages. */
static void make_usable(struct vcuda_config *config, struct vcuda_books *books)
{
    config->magic = VCUDA_CONFIG_MAGIC;
    books->magic = VCUDA_BOOKS_MAGIC;
    config->abi = books->abi = VCUDA_REGION_ABI;
    config->size = sizeof *config;
    books->size = sizeof *books;
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size)
{
    struct fuzz_reader reader = {input, size};
    struct vcuda_config *config = calloc(1, sizeof *config);
    struct vcuda_books *books = calloc(1, sizeof *books);
    static struct session session;
    uint16_t slot;
    FUZZ_CHECK(config != NULL && books != NULL);
    fuzz_take(&reader, config, sizeof *config);
    pages_patch(&reader, books, sizeof *books);
    fuzz_take(&reader, &slot, sizeof slot);
    make_usable(config, books);
    session = (struct session){.config = config};
    session.books.page = books;
    session.books.fd = file;
    session.books.slot = slot % VCUDA_SLOTS;
    pages_use(&session, &reader);
    pages_manage(config, books, &reader);
    free(config);
    free(books);
    return 0;
}

#include "cuda/memory/charge.h"

#include "core/memory/slot.h"
#include "cuda/graph/memory.h"
#include "cuda/memory/overhead.h"
#include "cuda/memory/reclaim.h"
#include "cuda/memory/streams.h"
#include "cuda/pool/pool.h"

#include <errno.h>
#include <time.h>

enum { RECLAIMS = 8 };

static struct books *books_of(const struct charge *charge)
{
    return &charge->process->session.books;
}

/* What is kept in reserve goes before anything is refused. Another thread may be about to give back
 * what it reserved for a pool's growth, or what it has trimmed: look again, but not for long. */
static int reserve_more(struct charge *charge, uint64_t bytes)
{
    const struct timespec pause = {.tv_nsec = 50 * 1000};
    struct process *process = charge->process;
    int error = books_reserve(books_of(charge), charge->device, bytes,
                              process_memory_limit(charge->process, charge->device));
    for (int turn = 0; error != 0 && turn < RECLAIMS; turn++) {
        bool given = reclaim(process, charge->device);
        bool busy = pools_known(&process->pools) && pools_busy(&process->pools);
        if (!given && !busy)
            return error;
        error = books_reserve(books_of(charge), charge->device, bytes,
                              process_memory_limit(charge->process, charge->device));
        if (error != 0 && !busy)
            return error;
        if (error != 0)
            nanosleep(&pause, NULL);
    }
    return error;
}

static uint32_t devices_of(const struct process *process)
{
    return process->session.config->device_count;
}

static struct slab_key key_of(const struct charge *charge)
{
    return (struct slab_key){charge->device, charge->kind, charge->small};
}

/* Pages of slabs are charged, if they are not reserved already, or given back. */
static void note_pages(struct process *process, struct slab_key key, int pages)
{
    if (key.kind == POINTER_MANAGED)
        books_manage(&process->session.books, key.device, pages * (int64_t)SLAB_PAGE,
                     devices_of(process));
}

static void give_back_pages(struct process *process, struct slab_key key, int pages)
{
    if (pages == 0)
        return;
    books_release(&process->session.books, key.device, (uint64_t)pages * SLAB_PAGE);
    note_pages(process, key, -pages);
}

/* A page is reserved, and charged if it is needed yet. */
static void pay_page(struct process *process, struct slab_key key)
{
    note_pages(process, key, 1);
    give_back_pages(process, key, slabs_pay(&process->slabs, key));
}

/* A place in a page that is charged, or a page more. From here on it is the slabs'. */
static int reserve_small(struct charge *charge)
{
    charge->claimed = true;
    if (slabs_claim(&charge->process->slabs, key_of(charge)))
        return 0;
    int error = reserve_more(charge, SLAB_PAGE);
    charge->claimed = error == 0;
    if (error == 0)
        pay_page(charge->process, key_of(charge));
    return error;
}

/* Until the charge ends, its bytes are moving: the manager must not measure meanwhile. */
static int try_to_reserve(struct charge *charge)
{
    struct books *books = books_of(charge);
    slot_move_begin(books->page, books->slot);
    int error = charge->small > 0 ? reserve_small(charge) : reserve_more(charge, charge->bytes);
    if (error != 0)
        slot_move_end(books->page, books->slot);
    return error;
}

/* Before a refusal it is measured what may be less than the books say. */
static CUresult reserve(struct charge *charge, int device)
{
    if (device < 0) /* not granted: as if it had no memory */
        return CUDA_ERROR_OUT_OF_MEMORY;
    charge->device = (unsigned)device;
    uint64_t bytes = charge->small > 0 ? SLAB_PAGE : charge->bytes;
    overhead_refresh_for(charge->process, charge->device, bytes);
    struct retry retry = {0};
    while (try_to_reserve(charge) != 0)
        if (!overhead_reconsider(charge->process, charge->device, bytes, &retry)) {
            books_deny(books_of(charge), charge->device);
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
    return CUDA_SUCCESS;
}

static CUresult reserve_current(struct charge *charge)
{
    int device;
    CUcontext context = NULL;
    CUresult result = process_current(charge->process, &device);
    if (result == CUDA_SUCCESS)
        result = REAL(cuCtxGetCurrent)(&context);
    charge->context = (uintptr_t)context;
    return result == CUDA_SUCCESS ? reserve(charge, device) : result;
}

static CUresult begin(struct charge *charge, uint64_t bytes)
{
    *charge = (struct charge){.bytes = bytes};
    return process_enter_limited(&charge->process);
}

CUresult charge_begin(struct charge *charge, uint64_t bytes, enum pointer_kind kind)
{
    CUresult result = begin(charge, bytes > SLAB_MOST ? slab_whole(bytes) : 0);
    charge->kind = kind;
    charge->small = bytes <= SLAB_MOST ? bytes : 0;
    if (charge->process == NULL || result != CUDA_SUCCESS)
        return result;
    result = reserve_current(charge);
    if (result != CUDA_SUCCESS)
        process_leave();
    return result;
}

/* There is no such device, or no driver yet: it answers. */
static CUresult stand_aside(struct charge *charge)
{
    process_leave();
    charge->process = NULL;
    return CUDA_SUCCESS;
}

CUresult charge_begin_on(struct charge *charge, CUdevice ordinal, uint64_t bytes)
{
    CUresult result = begin(charge, bytes);
    if (charge->process == NULL || result != CUDA_SUCCESS)
        return result;
    int device = process_device(charge->process, ordinal);
    if (device < 0 && !process_ordinal(ordinal))
        return stand_aside(charge);
    result = reserve(charge, device);
    if (result != CUDA_SUCCESS)
        process_leave();
    return result;
}

/* The place that was claimed is not needed. */
static void give_up(struct charge *charge)
{
    if (charge->claimed)
        give_back_pages(charge->process, key_of(charge),
                        slabs_give_up(&charge->process->slabs, key_of(charge)));
    charge->claimed = false;
}

int charge_correct(struct charge *charge, uint64_t bytes)
{
    if (charge->process == NULL)
        return 0;
    bool small = bytes <= SLAB_MOST;
    uint64_t pages = small ? 0 : slab_whole(bytes);
    if (small && charge->small > 0) /* its place is of another size, perhaps: a page is one page */
        return 0;
    if (pages > charge->bytes) {
        int error = reserve_more(charge, pages - charge->bytes);
        if (error != 0)
            return error;
    }
    if (small) {
        charge->small = bytes;
        charge->claimed = true;
        pay_page(charge->process, key_of(charge)); /* of those reserved */
        books_release(books_of(charge), charge->device, charge->bytes - SLAB_PAGE);
    } else {
        give_up(charge);
        charge->small = 0;
        if (pages < charge->bytes)
            books_release(books_of(charge), charge->device, charge->bytes - pages);
    }
    charge->bytes = pages;
    return 0;
}

/* It is to be freed: its page, which is not paid for, goes with it, unless others have come to
 * share it meanwhile. Then it is charged, whatever the limit. */
static void leave_page(struct charge *charge, uint64_t address)
{
    if (slabs_leave(&charge->process->slabs, key_of(charge), address) > 0)
        return;
    books_admit(books_of(charge), charge->device, SLAB_PAGE);
    note_pages(charge->process, key_of(charge), 1);
}

/* In which page it lies shows only now. One that was not expected to be a new one is paid for. */
static int enter_page(struct charge *charge, uint64_t address)
{
    int pages, error = slabs_enter(&charge->process->slabs, key_of(charge), address, &pages);
    if (error != 0)
        return error;
    charge->claimed = false;
    if (pages <= 0) {
        give_back_pages(charge->process, key_of(charge), -pages);
        return 0;
    }
    error = reserve_more(charge, SLAB_PAGE);
    if (error == 0) {
        note_pages(charge->process, key_of(charge), 1);
    } else {
        books_deny(books_of(charge), charge->device);
        leave_page(charge, address);
    }
    return error;
}

/* The driver gives out an address again only when what was there is gone, however that was. */
static int remember(struct charge *charge, enum holding kind, uint64_t address)
{
    struct process *process = charge->process;
    struct pointer earlier, pointer = {.address = address,
                                       .bytes = charge->small > 0 ? charge->small : charge->bytes,
                                       .context = charge->context,
                                       .device = charge->device,
                                       .kind = charge->kind};
    if (pointers_replace(&process->holdings[kind], pointer, &earlier) != 0)
        return -ENOMEM;
    if (earlier.address != 0)
        release_stale(process, &earlier);
    return 0;
}

int charge_record(struct charge *charge, enum holding kind, uint64_t address)
{
    if (charge->process == NULL)
        return 0;
    int error = charge->small > 0 ? enter_page(charge, address) : 0;
    if (error == 0 && (error = remember(charge, kind, address)) != 0 && charge->small > 0)
        give_back_pages(charge->process, key_of(charge),
                        slabs_leave(&charge->process->slabs, key_of(charge), address));
    if (error == 0 && charge->kind == POINTER_MANAGED)
        books_manage(books_of(charge), charge->device, (int64_t)charge->bytes,
                     devices_of(charge->process));
    return error;
}

CUresult charge_end(struct charge *charge, CUresult result)
{
    if (charge->process == NULL)
        return result;
    if (result != CUDA_SUCCESS) {
        give_up(charge);
        books_release(books_of(charge), charge->device, charge->bytes);
    }
    process_move_end(charge->process);
    return result;
}

CUresult charge_settle(struct charge *charge, CUresult result, CUdeviceptr address)
{
    if (result == CUDA_SUCCESS && address != 0 &&
        charge_record(charge, HOLDING_MEMORY, address) != 0) {
        OWN_CALL(REAL(cuMemFree_v2)(address)); /* what we could not give back must not be */
        result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    return charge_end(charge, result);
}

static struct slab_key key_of_pointer(const struct pointer *known)
{
    return (struct slab_key){known->device, known->kind, known->bytes};
}

/* Does it share a page, that is charged for what is in it? */
static bool in_slab(const struct pointer *known)
{
    return known->owner == 0 && known->kind != POINTER_IMPORTED && known->bytes > 0 &&
           known->bytes <= SLAB_MOST;
}

void release_begin(struct release *release, enum holding kind, uint64_t address)
{
    struct process *process = process_limited();
    release->process = NULL;
    release->kind = kind;
    release->stream = GAP_ANY;
    if (process == NULL)
        return;
    process_move_begin(process);
    if (pointers_take(&process->holdings[kind], address, &release->pointer) != 0) {
        process_move_end(process);
        return;
    }
    release->process = process;
    if (in_slab(&release->pointer))
        release->slab =
            slabs_leave_begin(&process->slabs, key_of_pointer(&release->pointer), address);
    if (release->pointer.owner != 0)
        pools_return(&process->pools, release->pointer.owner, address, release->pointer.bytes);
}

/* As if it had been freed and allocated again, whatever the limit. */
static void stay_in_slab(struct process *process, const struct pointer *kept, int slab)
{
    struct slab_key key = key_of_pointer(kept);
    int pages = 0;
    books_admit(&process->session.books, key.device, SLAB_PAGE);
    pay_page(process, key);
    give_back_pages(process, key, slabs_leave_end(&process->slabs, key, slab));
    slabs_enter(&process->slabs, key, kept->address, &pages);
    give_back_pages(process, key, -pages);
}

/* Still allocated, still charged; without memory to say so it stays charged. */
static void keep(const struct release *release)
{
    struct process *process = release->process;
    const struct pointer *kept = &release->pointer;
    if (in_slab(kept))
        stay_in_slab(process, kept, release->slab);
    if (kept->owner != 0)
        pools_kept(&process->pools, kept->owner, kept->address, kept->bytes);
    pointers_add(&process->holdings[release->kind], *kept);
}

/* What is small gives its page back only if it was the last in it. Arrays may have been charged
 * more pages than they lay in: what was measured then lacks as much of the driver's own. */
static void give_back_small(struct process *process, const struct pointer *gone, int slab)
{
    struct slab_key key = key_of_pointer(gone);
    bool unsure = false;
    int pages = key.kind == POINTER_ARRAY ? slabs_leave_array(&process->slabs, key, &unsure)
                                          : slabs_leave_end(&process->slabs, key, slab);
    if (unsure && books_looks(&process->session.books) > 0)
        overhead_presume(process, key.device, (uint64_t)pages * SLAB_PAGE);
    give_back_pages(process, key, pages);
    overhead_freed(process, gone->device);
}

CUresult release_settle(struct release *release, CUresult result)
{
    struct process *process = release->process;
    if (process == NULL)
        return result;
    if (result == CUDA_SUCCESS && in_slab(&release->pointer))
        give_back_small(process, &release->pointer, release->slab);
    else if (result == CUDA_SUCCESS)
        release_gone(process, &release->pointer, release->stream);
    else
        keep(release);
    process_move_end(process);
    return result;
}

static void give_back(struct process *process, const struct pointer *gone)
{
    struct books *books = &process->session.books;
    books_release(books, gone->device, gone->bytes);
    if (gone->kind == POINTER_MANAGED)
        books_manage(books, gone->device, -(int64_t)gone->bytes, devices_of(process));
    overhead_freed(process, gone->device);
}

/* Of what a pool is charged for, it is the pool that has it back. */
void release_gone(struct process *process, const struct pointer *gone, uint64_t stream)
{
    if (gone->kind == POINTER_IMPORTED)
        books_import(&process->session.books, gone->device, -(int64_t)gone->bytes,
                     devices_of(process));
    else if (gone->owner != 0)
        pool_given_back(process, gone, stream);
    else if (in_slab(gone))
        give_back_small(process, gone,
                        slabs_leave_begin(&process->slabs, key_of_pointer(gone), gone->address));
    else if (gone->bytes > 0)
        give_back(process, gone);
}

/* The page of what is small is still there: what has the address now lies in it. */
void release_stale(struct process *process, const struct pointer *gone)
{
    bool measured = books_looks(&process->session.books) > 0;
    if (gone->owner == 0 && gone->bytes > SLAB_MOST && measured)
        overhead_presume(process, gone->device, gone->bytes);
    release_gone(process, gone, GAP_ANY);
}

static void move_all(struct process *process, uint64_t from, uint64_t to)
{
    for (int kind = 0; kind < HOLDINGS; kind++)
        pointers_move(&process->holdings[kind], from, to);
}

struct ending release_context_begin(struct process *process, CUcontext context)
{
    uint64_t apart = 2 * atomic_fetch_add(&process->endings, 1) + 1;
    if (context != NULL) /* what belongs to none does not end with one */
        move_all(process, (uintptr_t)context, apart);
    return (struct ending){process, context, apart};
}

void release_context_end(const struct ending *ending, bool gone)
{
    struct process *process = ending->process;
    struct pointer pointer;
    if (!gone)
        move_all(process, ending->apart, (uintptr_t)ending->context);
    for (int kind = 0; gone && kind < HOLDINGS; kind++)
        while (pointers_take_of(&process->holdings[kind], ending->apart, &pointer) == 0)
            release_gone(process, &pointer, GAP_ANY);
    if (gone) {
        streams_forget(process);
        pool_settle_all(process);
        graph_memory_settle_all(process);
    }
}

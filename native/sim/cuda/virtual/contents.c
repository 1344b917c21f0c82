/* What mapped memory has in it: a memory file, made when it is first needed. */
#include "cuda/virtual/virtual.h"
#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

int physical_back(struct physical *physical)
{
    if (physical->file != NO_FILE)
        return 0;
    int file = memfd_create("simulated device memory", MFD_CLOEXEC);
    if (file < 0)
        return -errno;
    if (ftruncate(file, (off_t)physical->bytes) != 0) {
        close(file);
        return -ENOMEM;
    }
    physical->file = file;
    return 0;
}

bool mapping_accessible(const struct mapping *mapping)
{
    for (unsigned device = 0; device < SIM_GPUS; device++)
        if (mapping->access[device] != NO_ACCESS)
            return true;
    return false;
}

int mapping_commit(struct allocation *item)
{
    struct physical *physical = item->mapping->physical;
    if (physical->multicast || !mapping_accessible(item->mapping))
        return -EACCES;
    int error = physical_back(physical);
    if (error != 0)
        return error;
    void *start = (void *)(uintptr_t)item->start;
    if (mmap(start, item->bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, physical->file,
             (off_t)item->mapping->offset) == MAP_FAILED)
        return -errno;
    item->committed = true;
    return 0;
}

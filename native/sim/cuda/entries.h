/* What cuGetProcAddress knows: one row per export, generated from table/cuda.txt. */
#ifndef SIM_CUDA_ENTRIES_H
#define SIM_CUDA_ENTRIES_H

/* since: the first CUDA version for which the base name means this export; 0 for never.
 * since_per_thread: the same when per-thread default streams are asked for. */
struct entry {
    const char *base;
    int since;
    int since_per_thread;
    void *address;
};

extern const struct entry entries[];
extern const unsigned entry_count;

#endif

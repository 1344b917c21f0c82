/* What /proc says of a process. System calls only; any thread. */
#ifndef SHIM_CORE_LIFE_H
#define SHIM_CORE_LIFE_H

#include <stdbool.h>
#include <stdint.h>

struct life {
    bool ended;          /* a zombie, all of it: its memory and its descriptors are gone */
    uint64_t start_time; /* clock ticks, as this process's time namespace has them */
};

/* False if there is nothing to read: no such process, hidden, or no /proc. */
bool life_read(int pid, struct life *life);

/* A number of this process's pid namespace, of 24 bits; 0 if it cannot be told. */
uint32_t life_pid_namespace(void);

#endif

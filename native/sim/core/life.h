/* What /proc tells of a process's life. */
#ifndef SIM_CORE_LIFE_H
#define SIM_CORE_LIFE_H

#include <stdbool.h>
#include <stdint.h>

/* Of /proc/<pid>/stat: the state letter, the start time and where the stack begins, the 3rd, the
 * 22nd and the 28th field. The last differs from one exec to the next; 0 if it is not for us to
 * see. */
struct life {
    char state;
    uint64_t start_time;
    uint64_t stack;
};

/* process: a number, or "self". False where there is no such process to be seen. */
bool life_read(const char *process, struct life *out);

/* The inode of a namespace of this process ("mnt", "pid"); 0 if it cannot be told. */
uint64_t life_namespace(const char *kind);

#endif

/* User objects: a pointer of the program's with a destructor, which runs when the last reference
 * goes. Graphs hold references; a clone or an executable copy holds as many as what it was made
 * from. The destructor runs at once, in the thread that drops the last reference; a real driver
 * calls it from a thread of its own, and not before launches that were under way have ended. */
#ifndef SIM_CUDA_GRAPH_USER_OBJECT_H
#define SIM_CUDA_GRAPH_USER_OBJECT_H

#include "cuda/driver.h"

typedef struct user_object *CUuserObject;

/* A graph's references to one object. */
struct held_object {
    struct held_object *next;
    struct user_object *object;
    unsigned count;
};

/* The same references for another holder. 0, or -1 without memory. */
int held_copy(const struct held_object *held, struct held_object **out);

/* Drop all of them. */
void held_release(struct held_object **held);

#endif

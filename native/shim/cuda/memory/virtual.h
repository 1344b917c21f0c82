/* Physical memory, charged when it is made and given back when the last that keeps it is gone.
 *
 * A reference (core/memory/physical.h) is taken before the driver is asked to keep the memory in
 * one more way, and dropped when it would not, or does no longer: so whatever other threads do
 * meanwhile, what the driver holds is charged.
 *
 * Memory from another process costs nothing here: the process that made it pays until, after it let
 * go of it, all processes of the container are measured. Every import is measured, too.
 */
#ifndef SHIM_CUDA_MEMORY_VIRTUAL_H
#define SHIM_CUDA_MEMORY_VIRTUAL_H

#include "cuda/process.h"

/* Begin a call of the driver that makes or ends a reference; calls that come in on this thread
 * until virtual_leave() are the driver's own. NULL if nothing is to be done but the call. */
struct process *virtual_enter(void);

/* End it. Returns `result`. */
CUresult virtual_leave(struct process *process, CUresult result);

/* Drop a reference, which may be NULL, and give back what is gone with it. */
void virtual_drop(struct process *process, struct physical *physical);

/* The driver made an object that costs no memory here, or not: name it. importer: the device on
 * which it may, if it is from elsewhere, after all; else -1. Returns what the program gets. */
CUresult virtual_adopt(struct process *process, CUresult result,
                       const CUmemGenericAllocationHandle *handle, int importer);

#endif

/* What other processes may know: memory and events, by handles of plain bytes.
 *
 * Behind each is a memory file, which another process reaches through /proc as long as the exporter
 * lives and both see the same processes.
 */
#ifndef SIM_CUDA_IPC_IPC_H
#define SIM_CUDA_IPC_IPC_H

#include "cuda/stream/queue.h"

#define IPC_MEMORY UINT64_C(0x6d656d6f72794950)
#define IPC_EVENT UINT64_C(0x6576656e74204950)

/* What is in a handle. inode: of the memory file, against a number that was used again. */
struct ipc_ticket {
    uint64_t magic;
    int32_t pid;
    int32_t file;
    uint64_t inode;
    uint64_t bytes;
};

_Static_assert(sizeof(struct ipc_ticket) <= sizeof(CUipcMemHandle), "fits");

/* Where others find the file. False if it is none. */
bool ipc_address(const struct driver *driver, int file, struct ipc_ticket *out);

/* Memory of another process is not open here any more; `gone` is out of the address map already. */
void ipc_closed(struct driver *driver, struct allocation *gone);

/* The exporter's file; below 0 if it, or the exporter, is gone. */
int ipc_reach(const struct ipc_ticket *ticket);

/* An event is made, recorded and destroyed: those for other processes have a page they share.
 * CUDA_ERROR_INVALID_VALUE if its flags do not fit together. */
CUresult ipc_event_begin(struct event *event);
void ipc_event_recorded(struct driver *driver, struct event *event);
void ipc_event_end(struct event *event);

/* Whether an event with a page has happened, whoever recorded it last; or wait until it has. */
bool ipc_event_happened(struct driver *driver, const struct event *event);
void ipc_event_wait(struct driver *driver, const struct event *event);

/* Can the allocation be reached by a handle of its own? Pools and physical memory have other ways.
 */
bool ipc_capable(const struct allocation *item);

#endif

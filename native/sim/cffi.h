/* What Python sees of the simulated GPUs. */
#include "clock/simclock.h"
#include "core/faults.h"
#include "core/image.h"
#include "core/machine.h"
#include "core/task.h"
#include "manager/world.h"
#ifdef VCUDA_CDEF
struct sim_state;
struct sim_process;
int sim_create(const char *path, const struct sim_machine *machine);
int sim_open(const char *path, struct sim_state **out);
void sim_close(struct sim_state *state);
const struct sim_machine *account_machine(const struct sim_state *state);
unsigned account_tenants(struct sim_state *state, struct sim_tenant *out, unsigned capacity);
unsigned account_occupants(struct sim_state *state, struct sim_occupant *out, unsigned capacity);
unsigned account_busy_percent(struct sim_state *state, unsigned gpu);
int account_retire(struct sim_state *state, uint64_t mount_namespace, struct sim_tenant *out);
uint64_t account_used(struct sim_state *state, unsigned gpu);
uint64_t account_lost_ns(struct sim_state *state, unsigned gpu);
int account_utilization(struct sim_state *state, unsigned gpu, uint64_t after_ns,
                        struct sim_utilization *out);

/* The simulator's time here: of this page from now on; NULL: real. */
void sim_use_clock(const uint64_t *word);
unsigned account_sample(const struct sim_state *state, const struct sim_process *process,
                        unsigned gpu, uint64_t *ended_ns);
uint64_t account_busy_ns(const struct sim_process *process, unsigned gpu);

/* Of processes that were stopped while they held the lock. */
unsigned stopped_continue(struct sim_state *state);

/* The timeline, for tests that bring their own clock. */
uint64_t sim_lock(struct sim_state *state);
void sim_unlock(struct sim_state *state);
int process_attach(struct sim_state *state, uint64_t now, struct sim_process **out);
void timeline_advance(struct sim_state *state, unsigned gpu, uint64_t now);
int timeline_submit(struct sim_state *state, struct sim_process *process, unsigned gpu,
                    const struct sim_task *task, uint64_t *position);
bool timeline_reached(const struct sim_state *state, const struct sim_process *process,
                      unsigned gpu, struct sim_reach reach);
uint64_t timeline_predict(const struct sim_state *state, const struct sim_process *process,
                          unsigned gpu, struct sim_reach reach);
uint64_t timeline_end(const struct sim_state *state, const struct sim_process *process,
                      unsigned gpu, uint64_t position);
void process_clear(struct sim_state *state, struct sim_process *process);
#else
#include "core/account.h"
#include "core/process.h"
#include "core/stopped.h"
#include "core/timeline.h"
#endif

#include "allreduce.h"
#include "kernel.h"
#include "moment.h"

/* So many rounds after the one in which the time is over: nobody is as far ahead of the first
 * process, since each waits for the end of the round before the last. */
enum { ROUNDS_TO_END = 4 };

static const char image[] =
    ".version 6.0\n"
    ".target sm_60\n"
    ".address_size 64\n"
    ".visible .entry ncclDevKernel_AllReduce_Sum_f32_RING_LL(.param .u64 length,\n"
    "    .param .u64 counter, .param .u64 group, .param .u64 members)\n"
    "{\n"
    "    .reg .pred %more;\n"
    "    .reg .u64 %length, %counter, %wanted, %members, %start, %now;\n"
    "    ld.param.u64 %length, [length];\n"
    "    ld.param.u64 %counter, [counter];\n"
    "    ld.param.u64 %wanted, [group];\n"
    "    ld.param.u64 %members, [members];\n"
    "    and.b64 %wanted, %wanted, 0xffffffff;\n"
    "    add.u64 %wanted, %wanted, 1;\n"
    "    mul.lo.u64 %wanted, %wanted, %members;\n"
    "    atom.sys.global.add.u64 %now, [%counter], 1;\n"
    "others:\n"
    "    ld.volatile.global.u64 %now, [%counter];\n"
    "    setp.lt.u64 %more, %now, %wanted;\n"
    "    @%more bra others;\n"
    "    mov.u64 %start, %globaltimer;\n"
    "exchange:\n"
    "    mov.u64 %now, %globaltimer;\n"
    "    sub.u64 %now, %now, %start;\n"
    "    setp.lt.u64 %more, %now, %length;\n"
    "    @%more bra exchange;\n"
    "    ret;\n"
    "}\n";

static void use(const struct driver *cuda, void *context)
{
    driver_check(cuda->cuCtxSetCurrent(context), "using a context");
}

/* The context for what else the program does. */
static void *used(const struct driver *cuda)
{
    void *context;
    driver_check(cuda->cuCtxGetCurrent(&context), "asking for the context");
    return context;
}

static void prepare_rank(const struct driver *cuda, struct rank *rank, int ordinal)
{
    void *module;
    int device;
    driver_check(cuda->cuDeviceGet(&device, ordinal), "choosing a device");
    driver_check(cuda->cuDevicePrimaryCtxRetain(&rank->context, device), "making a context");
    use(cuda, rank->context);
    rank->compute = kernel_load(cuda);
    driver_check(cuda->cuModuleLoadData(&module, image), "loading the kernel of the all-reduce");
    driver_check(
        cuda->cuModuleGetFunction(&rank->reduce, module, "ncclDevKernel_AllReduce_Sum_f32_RING_LL"),
        "finding the kernel of the all-reduce");
    driver_check(cuda->cuStreamCreate(&rank->stream, STREAM_NON_BLOCKING), "making a stream");
    for (unsigned i = 0; i < 2; i++)
        driver_check(cuda->cuEventCreate(&rank->marks[i], 0), "making an event");
}

void allreduce_prepare(struct allreduce *self, struct crew *crew, unsigned member, uint64_t device,
                       const struct workload *workload, unsigned phase)
{
    int count;
    const struct phase *described = &workload->phases[phase];
    *self = (struct allreduce){.phase = described,
                               .cuda = driver_functions(false),
                               .meeting = &crew->meetings[phase],
                               .member = member,
                               .members = described->gpus * described->processes};
    void *before = used(self->cuda);
    driver_check(self->cuda->cuDeviceGetCount(&count), "counting the devices");
    for (uint64_t i = 0; i < described->gpus; i++)
        prepare_rank(self->cuda, &self->ranks[i],
                     (int)((device + member * described->gpus + i) % (uint64_t)count));
    driver_check(self->cuda->cuMemHostRegister(&self->meeting->begun, sizeof self->meeting->begun,
                                               HOST_PORTABLE | HOST_MAPPED),
                 "registering host memory");
    driver_check(self->cuda->cuMemHostGetDevicePointer(&self->counter, &self->meeting->begun, 0),
                 "finding host memory on the device");
    use(self->cuda, before);
}

/* Is there no round of that number? */
static bool over(struct allreduce *self, uint64_t round, uint64_t end)
{
    /* Relaxed: nothing else is read by it. */
    uint64_t rounds = atomic_load_explicit(&self->meeting->rounds, memory_order_relaxed);
    if (self->member == 0 && rounds == 0 && moment_now() >= end) {
        rounds = round + ROUNDS_TO_END;
        atomic_store_explicit(&self->meeting->rounds, rounds, memory_order_relaxed);
    }
    return rounds != 0 && round >= rounds;
}

static void launched(struct tally *tally, int code, uint64_t length, uint64_t *last)
{
    driver_check(code, "launching");
    uint64_t now = moment_now();
    spread_add(&tally->gaps, now - *last);
    *last = now;
    tally->launches++;
    load_add(&tally->load, (struct load){.kernels = 1, .gpu_ns = length});
}

/* The kernels of all GPUs first, then their parts of the all-reduce. */
static void launch(struct allreduce *self, struct tally *tally, uint64_t round, uint64_t *last)
{
    uint64_t length = self->phase->kernels[round % self->phase->kernel_count];
    uint64_t exchange = self->phase->reduce, members = self->members;
    uint64_t group = (uint64_t)self->meeting->communicator << 32 | round;
    void *parameters[] = {&exchange, &self->counter, &group, &members};
    for (uint64_t i = 0; i < self->phase->gpus; i++) {
        use(self->cuda, self->ranks[i].context);
        launched(tally,
                 kernel_launch(self->cuda, self->phase, self->ranks[i].compute, length,
                               self->ranks[i].stream),
                 length, last);
    }
    for (uint64_t i = 0; i < self->phase->gpus; i++) {
        const struct rank *rank = &self->ranks[i];
        use(self->cuda, rank->context);
        launched(tally,
                 self->cuda->cuLaunchKernel(rank->reduce, 1, 1, 1, 1, 1, 1, 0, rank->stream,
                                            parameters, NULL),
                 exchange, last);
        driver_check(self->cuda->cuEventRecord(rank->marks[round % 2], rank->stream),
                     "recording an event");
    }
}

static void wait_for(const struct allreduce *self, uint64_t round)
{
    for (uint64_t i = 0; i < self->phase->gpus; i++)
        driver_check(self->cuda->cuEventSynchronize(self->ranks[i].marks[round % 2]),
                     "waiting for an event");
}

void allreduce_run(struct allreduce *self, struct tally *tally, uint64_t begin, uint64_t end)
{
    uint64_t began[2] = {0}, round = 0;
    void *before = used(self->cuda);
    moment_sleep_until(begin);
    uint64_t last = tally->begin = moment_now();
    for (; !over(self, round, end); round++) {
        began[round % 2] = moment_now();
        launch(self, tally, round, &last);
        if (round == 0)
            continue;
        wait_for(self, round - 1);
        spread_add(&tally->delays, moment_now() - began[(round - 1) % 2]);
    }
    wait_for(self, round - 1);
    use(self->cuda, before);
    tally->end = moment_now();
}

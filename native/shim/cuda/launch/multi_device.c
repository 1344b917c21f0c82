/* One launch on several devices at once: each pays for its part, in its own context. */
#include "cuda/time/throttle.h"

/* What is launched on one of them. */
struct part {
    struct launch launch;
    CUcontext context; /* its stream's; NULL: as it is */
};

static bool enter_context(CUcontext context)
{
    return context != NULL && REAL(cuCtxPushCurrent_v2)(context) == CUDA_SUCCESS;
}

static void leave_context(bool entered)
{
    CUcontext context;
    if (entered)
        REAL(cuCtxPopCurrent_v2)(&context);
}

static void describe(struct part *part, const CUDA_LAUNCH_PARAMS *params)
{
    *part = (struct part){.launch = {.function = params->function, .stream = params->hStream}};
    if (REAL(cuStreamGetCtx)(params->hStream, &part->context) != CUDA_SUCCESS)
        part->context = NULL; /* no stream: the driver will say so */
}

static CUresult begin_part(struct part *part)
{
    bool entered = enter_context(part->context);
    CUresult result = throttle_begin(&part->launch);
    leave_context(entered);
    return result;
}

static void end_part(struct part *part, CUresult result)
{
    bool entered = enter_context(part->context);
    throttle_end(&part->launch, result);
    leave_context(entered);
}

static CUresult limited(CUDA_LAUNCH_PARAMS *list, unsigned int count, unsigned int flags)
{
    struct part parts[PROCESS_ORDINALS];
    CUresult result = CUDA_SUCCESS;
    unsigned int begun = 0;
    while (begun < count && result == CUDA_SUCCESS) {
        describe(&parts[begun], &list[begun]);
        result = begin_part(&parts[begun++]);
    }
    if (result == CUDA_SUCCESS)
        result = REAL(cuLaunchCooperativeKernelMultiDevice)(list, count, flags);
    while (begun > 0)
        end_part(&parts[--begun], result);
    return result;
}

CUresult cuLaunchCooperativeKernelMultiDevice(CUDA_LAUNCH_PARAMS *list, unsigned int count,
                                              unsigned int flags)
{
    if (list == NULL || count > PROCESS_ORDINALS || throttle_idle())
        return REAL(cuLaunchCooperativeKernelMultiDevice)(list, count, flags);
    return limited(list, count, flags);
}

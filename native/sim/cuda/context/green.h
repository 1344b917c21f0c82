/* Green contexts: parts of a GPU's SMs, as contexts. What a stream of one runs has no more SMs than
 * the part; memory and modules are the primary context's. Which SMs are in a part is not told
 * apart: parts that overlap, as two made from one descriptor, do not slow each other down. */
#ifndef SIM_CUDA_CONTEXT_GREEN_H
#define SIM_CUDA_CONTEXT_GREEN_H

#include "cuda/context/context.h"
#include "cuda/stream/queue.h"

typedef struct green *CUgreenCtx;

/* context: what cuCtxFromGreenCtx answers with. lanes: of its streams, a bit each. */
struct green {
    uint32_t kind;
    int device;
    unsigned sms;
    uint64_t lanes;
    struct context context;
    struct stream standard; /* for the default streams, while it is current */
};

#endif

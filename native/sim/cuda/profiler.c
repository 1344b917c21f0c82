/* Marks for a profiler, which is not there. */
#include "cuda/driver.h"

API CUresult cuProfilerStart(void)
{
    struct driver *driver;
    struct context *context;
    return driver_context(&driver, &context);
}
ALSO(cuProfilerStart, cuProfilerStop);

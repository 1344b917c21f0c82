#include "cuda/stream/host_call.h"
#include "cuda/capture/capture.h"
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>

/* Between two looks whether one of them may begin, unless it is known when. */
#define LONGEST_LOOK_NS UINT64_C(100000)
#define LONGEST_WAIT_NS UINT64_C(1000000000)

struct host_call {
    struct host_call *next;
    int device;
    struct sim_reach reach;
    void (*call)(void *);
    void *data;
};

/* The first that may begin is taken out of the list; NULL, and when to look again. */
static struct host_call *take(struct driver *driver, uint64_t *again)
{
    *again = sim_now() + LONGEST_LOOK_NS;
    for (struct host_call **place = &driver->host_calls; *place != NULL; place = &(*place)->next) {
        struct host_call *found = *place;
        uint64_t look = queue_host_look(driver, found->device, found->reach);
        if (look == 0) {
            *place = found->next;
            return found;
        }
        *again = look < *again ? look : *again;
    }
    return NULL;
}

static void run(struct driver *driver, struct host_call *call)
{
    driver_forbid(true);
    call->call(call->data);
    driver_forbid(false);
    queue_host_ended(driver, call->device, call->reach);
    free(call);
}

/* What is submitted is counted before it is in the list. */
static bool is_last(struct driver *driver, struct host_call **call, uint64_t *again)
{
    pthread_mutex_lock(&driver->host_mutex);
    *call = take(driver, again);
    bool last = *call == NULL && driver->host_pending == 0;
    if (last)
        driver->host_thread = false;
    pthread_mutex_unlock(&driver->host_mutex);
    return last;
}

static void *work(void *argument)
{
    struct driver *driver = argument;
    struct host_call *call;
    uint64_t again;
    while (!is_last(driver, &call, &again)) {
        if (call == NULL) {
            queue_sleep(again);
            continue;
        }
        run(driver, call);
        pthread_mutex_lock(&driver->host_mutex);
        driver->host_pending--;
        pthread_mutex_unlock(&driver->host_mutex);
    }
    return NULL;
}

/* Signals are the program's own threads'. */
static int start_thread(struct driver *driver)
{
    pthread_t thread;
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&thread, NULL, work, driver);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error == 0)
        pthread_detach(thread);
    return error;
}

static bool announce(struct driver *driver)
{
    pthread_mutex_lock(&driver->host_mutex);
    if (!driver->host_thread)
        driver->host_thread = start_thread(driver) == 0;
    bool there = driver->host_thread;
    driver->host_pending += there;
    pthread_mutex_unlock(&driver->host_mutex);
    return there;
}

CUresult host_call_submit(struct driver *driver, struct stream *stream, int device,
                          void (*function)(void *), void *data)
{
    struct host_call *call = malloc(sizeof *call);
    if (call == NULL || !announce(driver)) {
        free(call);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    struct sim_task task = {.kind = SIM_HOST};
    *call = (struct host_call){.device = device, .call = function, .data = data};
    call->reach = queue_submit(driver, stream, device, task, NULL);
    pthread_mutex_lock(&driver->host_mutex);
    struct host_call **end = &driver->host_calls;
    while (*end != NULL)
        end = &(*end)->next;
    *end = call;
    pthread_mutex_unlock(&driver->host_mutex);
    return CUDA_SUCCESS;
}

static bool any(struct driver *driver)
{
    pthread_mutex_lock(&driver->host_mutex);
    bool pending = driver->host_pending > 0;
    pthread_mutex_unlock(&driver->host_mutex);
    return pending;
}

void host_calls_wait(struct driver *driver, const struct stream *stream, int device)
{
    if (!any(driver))
        return;
    struct sim_reach reach = queue_reach(driver, stream, device);
    uint64_t latest = sim_now() + LONGEST_WAIT_NS;
    while (any(driver) && sim_now() < latest && !queue_reached(driver, device, reach))
        queue_sleep(sim_now() + LONGEST_LOOK_NS);
}

static CUresult launch(CUstream handle, CUhostFn call, void *data)
{
    struct driver *driver;
    struct stream *stream;
    int device;
    CUresult result = queue_find(handle, &driver, &stream, &device);
    if (result != CUDA_SUCCESS)
        return result;
    if (call == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (capture_has(stream))
        return capture_node(driver, stream,
                            &(struct node){.type = NODE_HOST, .host = {call, data}});
    return host_call_submit(driver, stream, device, call, data);
}

API CUresult cuLaunchHostFunc(CUstream handle, CUhostFn call, void *data)
{
    return launch(handle, call, data);
}
ALSO(cuLaunchHostFunc, cuLaunchHostFunc_ptsz);

/* How the thread waits for more is its own matter. */
API CUresult cuLaunchHostFunc_v2(CUstream handle, CUhostFn call, void *data, unsigned mode)
{
    enum { SPIN = 1 };
    return mode <= SPIN ? launch(handle, call, data) : CUDA_ERROR_INVALID_VALUE;
}
ALSO(cuLaunchHostFunc_v2, cuLaunchHostFunc_v2_ptsz);

typedef void stream_callback(CUstream stream, CUresult status, void *data);

struct callback {
    stream_callback *call;
    CUstream stream;
    void *data;
};

static void call_back(void *argument)
{
    struct callback callback = *(struct callback *)argument;
    free(argument);
    callback.call(callback.stream, CUDA_SUCCESS, callback.data);
}

API CUresult cuStreamAddCallback(CUstream handle, stream_callback *call, void *data, unsigned flags)
{
    struct driver *driver;
    struct stream *stream;
    int device;
    CUresult result = queue_find(handle, &driver, &stream, &device);
    if (result == CUDA_SUCCESS)
        result = capture_asked(driver, stream, device); /* no capture can have it */
    if (result != CUDA_SUCCESS)
        return result;
    if (call == NULL || flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    struct callback *callback = malloc(sizeof *callback);
    if (callback == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *callback = (struct callback){call, handle, data};
    result = host_call_submit(driver, stream, device, call_back, callback);
    if (result != CUDA_SUCCESS)
        free(callback);
    return result;
}
ALSO(cuStreamAddCallback, cuStreamAddCallback_ptsz);

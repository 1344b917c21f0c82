/* What processes do beside each other, and a thread beside a capture. */
#include "facts.h"

#include <pthread.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

enum {
    COPIED = 16 << 20,
    GLOBAL = 0, /* CU_STREAM_CAPTURE_MODE_GLOBAL, _RELAXED */
    RELAXED = 2,
};

void print_slices(double seconds)
{
    enum { MOST = 20000 };
    static u64 got[2 * (MOST + 1)];
    u64 out = 0, length = (u64)(seconds * 1e9), least = 3000, most = MOST;
    void *parameters[] = {&out, &length, &least, &most};
    CU(cuMemAlloc_v2, &out, sizeof got);
    CU(cuMemsetD8_v2, out, 0, sizeof got);
    run(jumps, 1, 1, NULL, parameters);
    synchronize();
    CU(cuMemcpyDtoH_v2, got, out, sizeof got);
    printf("{\"fact\":\"slices\",\"pid\":%d,\"begin\":%llu,\"end\":%llu,\"away\":[", getpid(),
           got[0], got[1]);
    for (u64 i = 1; i <= MOST && got[2 * i] != 0; i++)
        printf("%s[%llu,%llu]", i > 1 ? "," : "", got[2 * i], got[2 * i + 1]);
    printf("]");
    end_fact();
}

static void launch_empty(void *nothing)
{
    (void)nothing;
    run(empty, 1, 1, NULL, NULL);
    synchronize();
}

/* What takes how long, from the call until the host knows its end, with a pause before each: never
 * the same one, so that others' slices are met at any point. */
static void repeat(double seconds, const char *fact, const char *spread, void (*once)(void *),
                   void *parameters)
{
    enum { MOST = 100000 };
    static double values[MOST];
    double begun = now_us();
    int count = 0;
    for (double now = begun; count < MOST && now - begun < seconds * 1e6; count++) {
        usleep(200 + (unsigned)count * 997 % 4000);
        now = now_us();
        once(parameters);
        values[count] = now_us() - now;
    }
    printf("{\"fact\":\"%s\",\"pid\":%d,\"begun_us\":%.0f,\"ended_us\":%.0f}\n", fact, getpid(),
           begun, now_us());
    print_spread(spread, values, count, "us");
}

void run_ping(double seconds)
{
    repeat(seconds, "ping", "empty kernel, launch to done", launch_empty, NULL);
}

/* From pinned memory of the host to the GPU. */
struct copy {
    u64 to;
    void *from, *stream;
};

static void copy_once(void *parameters)
{
    struct copy *copy = parameters;
    CU(cuMemcpyHtoDAsync_v2, copy->to, copy->from, (size_t)COPIED, copy->stream);
    CU(cuStreamSynchronize, copy->stream);
}

void run_copies(double seconds)
{
    struct copy copy = {0};
    CU(cuStreamCreate, &copy.stream, NON_BLOCKING);
    CU(cuMemHostAlloc, &copy.from, (size_t)COPIED, 0);
    CU(cuMemAlloc_v2, &copy.to, (size_t)COPIED);
    if (failed == 0)
        copy_once(&copy); /* the first one makes what later ones use */
    repeat(failed == 0 ? seconds : 0, "copies", "16 MiB copied to the GPU", copy_once, &copy);
}

/* A thread that asks for an event's state while another one captures a stream. */
struct query {
    void *event;
    bool relaxed;
    int answer;
};

static void *ask(void *parameter)
{
    struct query *query = parameter;
    int mode = RELAXED;
    CU(cuCtxSetCurrent, context);
    if (query->relaxed)
        CU(cuThreadExchangeStreamCaptureMode, &mode);
    query->answer = CU(cuEventQuery, query->event);
    return NULL;
}

/* status: 1, the capture goes on; 2, it is broken. end: what its end answers. Refusals of these
 * are what the fact is about. */
static void print_capture(void *captured, void *event, bool relaxed)
{
    struct query query = {event, relaxed, UNSEEN};
    void *graph = NULL;
    int status = 0;
    pthread_t thread;
    CU(cuStreamBeginCapture_v2, captured, GLOBAL);
    run(empty, 1, 1, captured, NULL);
    int before = failed;
    if (pthread_create(&thread, NULL, ask, &query) == 0)
        pthread_join(thread, NULL);
    CU(cuStreamIsCapturing, captured, &status);
    int end = CU(cuStreamEndCapture, captured, &graph);
    if (graph != NULL)
        CU(cuGraphDestroy, graph);
    failed = before;
    printf("{\"fact\":\"capture, query of a %s thread\",\"query\":%d,\"status\":%d,\"end\":%d",
           relaxed ? "relaxed" : "plain", query.answer, status, end);
    end_fact();
}

void print_captures(void)
{
    void *captured = NULL, *other = NULL, *event = new_event(NO_TIMING);
    CU(cuStreamCreate, &captured, NON_BLOCKING);
    CU(cuStreamCreate, &other, NON_BLOCKING);
    CU(cuEventRecord, event, other);
    CU(cuStreamSynchronize, other);
    print_capture(captured, event, false);
    print_capture(captured, event, true);
}

/* percent 0: one kernel, and then a context that does nothing. 100: no pause but one in ten
 * kernels, for the host to learn how far they are. */
void run_load(double ms, double percent, double seconds)
{
    u64 rounds = rounds_for(ms * 1000, SMS, 128);
    void *parameters[] = {&rounds};
    printf("{\"fact\":\"ready\",\"pid\":%d,\"process_mib\":%.3f}\n", getpid(),
           held().process / MIB);
    double begun = now_us();
    int done = 0;
    while (now_us() - begun < seconds * 1e6) {
        double before = now_us();
        for (int i = 0; i < (percent < 100 ? 1 : 10); i++, done++)
            run(spin, SMS, 128, NULL, parameters);
        synchronize();
        if (percent <= 0)
            usleep((unsigned)(seconds * 1e6));
        else if (percent < 100)
            usleep((unsigned)((now_us() - before) * (100 / percent - 1)));
    }
    printf("{\"fact\":\"load\",\"pid\":%d,\"ms\":%.3f,\"percent\":%.0f,\"kernels\":%d,"
           "\"begun_us\":%.0f,\"ended_us\":%.0f",
           getpid(), ms, percent, done, begun, now_us());
    end_fact();
}

static u64 wall_us(void)
{
    struct timeval time;
    gettimeofday(&time, NULL);
    return (u64)time.tv_sec * 1000000 + (u64)time.tv_usec;
}

/* Rows as [pid, stamp, SM percent]; asked each time for what is newer than the newest stamp. */
void watch(double seconds)
{
    static struct utilization rows[ROWS];
    u64 since = wall_us() - 1000000, until = wall_us() + (u64)(seconds * 1e6);
    held(); /* finds the GPU's handle */
    for (u64 wall = wall_us(); wall < until; wall = wall_us()) {
        struct rates rates = {0};
        unsigned count = ROWS;
        memset(rows, 0, sizeof rows);
        int answer = ML(nvmlDeviceGetProcessUtilization, handle, rows, &count, since);
        ML(nvmlDeviceGetUtilizationRates, handle, &rates);
        printf("{\"fact\":\"utilisation\",\"at\":%llu,\"answer\":%d,\"gpu\":%u,\"since\":%llu,"
               "\"rows\":[",
               wall, answer, rates.gpu, since);
        const char *separator = "";
        for (unsigned i = 0; answer == 0 && i < count && i < ROWS; i++) {
            if (rows[i].pid == 0) /* a row that the driver left empty */
                continue;
            printf("%s[%u,%llu,%u]", separator, rows[i].pid, rows[i].stamp, rows[i].sm);
            separator = ",";
            if (rows[i].stamp > since && rows[i].stamp < wall + 1000000)
                since = rows[i].stamp;
        }
        printf("]}\n");
        usleep(50000);
    }
}

/* A CUDA program whose load a short text describes: kernels of what length, launched in what
 * pattern, on how many streams, by how many processes, for how long.
 *
 * It loads the driver as any program does and knows nothing of limits, simulators or shims.
 */
#include "allreduce.h"
#include "crew.h"
#include "driver.h"
#include "job.h"
#include "moment.h"
#include "phase.h"
#include "report.h"
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char usage[] =
    "usage: cuda-work [--device N] [--start NS] [--json] 'TEXT'\n"
    "\n"
    "TEXT, or the file of @FILE, says what to do: phases separated by `;`, each of words\n"
    "key=value. After `#` a line is a comment.\n"
    "\n"
    "    cuda-work 'kernel=2ms for=5s'\n"
    "    cuda-work 'kernel=3ms pattern=burst count=5 every=100ms for=10s'\n"
    "    cuda-work 'kernel=50us pattern=graph count=40 for=5s; rest=1s; kernel=9ms for=5s'\n"
    "\n"
    "What is launched, each in turn:\n"
    "    kernel=TIME[,TIME...]   a kernel that runs that long; several: one after another\n"
    "    memset=SIZE             a fill of so many bytes\n"
    "    copy=SIZE:h2d|d2h|d2d   a copy from pinned host memory, to it, or on the device\n"
    "When:\n"
    "    pattern=async           ahead of the GPU by two batches (usual; ahead=40ms: both)\n"
    "    pattern=sync            wait for the end of each\n"
    "    pattern=burst           count=N at once, wait for them, again every=TIME\n"
    "    pattern=poisson         count=N for each request; requests arrive at random (seed=N), in\n"
    "                            the mean one every=TIME; sync=1: wait for each kernel\n"
    "    pattern=graph           a graph of count=N as async does; sync=1: wait for each;\n"
    "                            every=TIME: one each\n"
    "    pattern=allreduce       a kernel on each GPU, then an all-reduce of all of them, again\n"
    "                            and again: gpus=N of each process, reduce=TIME (usual: 100us)\n"
    "    host=TIME               the program's own time after each wait, or each batch of async\n"
    "    for=TIME                so long; rest=TIME: a phase of sleep\n"
    "Where and how:\n"
    "    streams=N               on N streams in turn, which do not wait for one another\n"
    "    processes=N             by N processes\n"
    "    blocks=N threads=N      the shape of a kernel (usual: one thread)\n"
    "    cooperative=1, ex=1     by cuLaunchCooperativeKernel, by cuLaunchKernelEx\n"
    "    ptsz=1                  on the thread's own default stream\n"
    "\n"
    "Times: 5s, 2ms, 500us. Sizes: 64MiB, 1.5GiB. --start: when to launch first, in nanoseconds\n"
    "of CLOCK_MONOTONIC; all is loaded before.\n";

enum { BAD_USAGE = 2 };

struct options {
    uint64_t device, start;
    bool json;
    const char *text;
};

static int complain(const char *word, const char *why)
{
    fprintf(stderr, "cuda-work: %s: %s\n", word, why);
    return BAD_USAGE;
}

static int read_number(const char *name, const char *value, uint64_t *out)
{
    char *rest;
    *out = value != NULL ? strtoull(value, &rest, 10) : 0;
    if (value == NULL || *value < '0' || *value > '9' || *rest != '\0')
        return complain(name, "needs a whole number");
    return 0;
}

/* The words into `options`; 0, or the exit status. */
static int read_options(char **words, struct options *options)
{
    for (; *words != NULL; words++) {
        int status = 0;
        if (strcmp(*words, "--json") == 0)
            options->json = true;
        else if (strcmp(*words, "--device") == 0)
            status = read_number("--device", *++words, &options->device);
        else if (strcmp(*words, "--start") == 0)
            status = read_number("--start", *++words, &options->start);
        else if (strncmp(*words, "--", 2) == 0)
            return complain(*words, "unknown option, try --help");
        else if (options->text != NULL)
            return complain(*words, "a second text; put the whole text in quotes");
        else
            options->text = *words;
        if (status != 0)
            return status;
    }
    return options->text != NULL ? 0 : complain("no text", "write for example 'kernel=2ms for=5s'");
}

/* This process's part: all phases prepared, then run at times fixed from the start. */
static void work(const struct workload *workload, struct crew *crew, unsigned member,
                 const struct options *options)
{
    static struct job jobs[PHASES_AT_MOST];
    static struct allreduce allreduces[PHASES_AT_MOST];
    for (unsigned i = 0; i < workload->count; i++) {
        if (member >= workload->phases[i].processes)
            continue;
        if (workload->phases[i].pattern == ALLREDUCE)
            allreduce_prepare(&allreduces[i], crew, member, options->device, workload, i);
        else
            job_prepare(&jobs[i], &workload->phases[i]);
    }
    uint64_t begin = crew_meet(crew, member, options->start);
    for (unsigned i = 0; i < workload->count; i++) {
        uint64_t end = begin + workload->phases[i].lasts;
        if (member < workload->phases[i].processes) {
            if (workload->phases[i].pattern == ALLREDUCE)
                allreduce_run(&allreduces[i], &crew->tallies[member][i], begin, end);
            else
                job_run(&jobs[i], &crew->tallies[member][i], begin, end);
        }
        begin = end;
    }
    moment_sleep_until(begin);
}

static int run(const struct workload *workload, const struct options *options)
{
    struct crew *crew;
    unsigned member = crew_start(&crew, workload_processes(workload));
    driver_use((int)options->device);
    work(workload, crew, member, options);
    if (member > 0)
        return 0;
    crew_finish(crew);
    (options->json ? report_json : report_text)(workload, crew);
    return 0;
}

int main(int count, char **words)
{
    static struct workload workload;
    struct options options = {0};
    if (count == 2 && strcmp(words[1], "--help") == 0) {
        fputs(usage, stdout);
        return 0;
    }
    int status = read_options(words + 1, &options);
    if (status == 0)
        status = workload_read(&workload, options.text);
    return status != 0 ? status : run(&workload, &options);
}

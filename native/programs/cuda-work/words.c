#include "words.h"
#include "amount.h"
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define BATCHES_AHEAD_NS UINT64_C(40000000) /* two of 20 ms */
#define EXCHANGE_NS UINT64_C(100000)

enum kind { AMOUNT, KERNELS, PATTERN, COPY };
enum key { KERNEL, PATTERN_KEY, COUNT_KEY, EVERY, AHEAD, STREAMS, PROCESSES, BLOCKS, THREADS };
enum more_keys { MEMSET = THREADS + 1, COPY_KEY, FOR, REST, SYNC_KEY, COOPERATIVE, EX, PTSZ };
enum allreduce_keys { GPUS = PTSZ + 1, REDUCE };
enum arrival_keys { HOST = REDUCE + 1, SEED };

struct key_kind {
    const char *name;
    enum kind kind;
    enum unit unit;
    uint64_t least, most;
    size_t offset;
    const char *right; /* what would be */
};

#define FIELD(name) offsetof(struct phase, name)

static const struct key_kind keys[] = {
    [KERNEL] = {"kernel", KERNELS, TIME, 1, UINT64_C(1) << 40, 0, "kernel=2ms or kernel=1ms,9ms"},
    [PATTERN_KEY] = {"pattern", PATTERN, 0, 0, 0, FIELD(pattern),
                     "pattern=async, sync, burst, poisson, graph or allreduce"},
    [COUNT_KEY] = {"count", AMOUNT, COUNT, 1, 4096, FIELD(count), "count=1 to count=4096"},
    [EVERY] = {"every", AMOUNT, TIME, 1, UINT64_C(1) << 40, FIELD(every), "every=100ms"},
    [AHEAD] = {"ahead", AMOUNT, TIME, 0, UINT64_C(1) << 40, FIELD(ahead), "ahead=40ms"},
    [STREAMS] = {"streams", AMOUNT, COUNT, 1, STREAMS_AT_MOST, FIELD(streams),
                 "streams=1 to streams=128"},
    [PROCESSES] = {"processes", AMOUNT, COUNT, 1, PROCESSES_AT_MOST, FIELD(processes),
                   "processes=1 to processes=64"},
    [BLOCKS] = {"blocks", AMOUNT, COUNT, 1, INT32_MAX, FIELD(blocks), "blocks=40"},
    [THREADS] = {"threads", AMOUNT, COUNT, 1, 1024, FIELD(threads), "threads=1 to threads=1024"},
    [MEMSET] = {"memset", AMOUNT, SIZE, 1, UINT64_C(1) << 40, FIELD(fill), "memset=64MiB"},
    [COPY_KEY] = {"copy", COPY, SIZE, 1, UINT64_C(1) << 40, FIELD(copy),
                  "copy=64MiB:h2d, :d2h or :d2d"},
    [FOR] = {"for", AMOUNT, TIME, 1, UINT64_C(1) << 50, FIELD(lasts), "for=5s"},
    [REST] = {"rest", AMOUNT, TIME, 1, UINT64_C(1) << 50, FIELD(rest), "rest=1s"},
    [SYNC_KEY] = {"sync", AMOUNT, COUNT, 0, 1, FIELD(sync), "sync=0 or sync=1"},
    [COOPERATIVE] = {"cooperative", AMOUNT, COUNT, 0, 1, FIELD(cooperative),
                     "cooperative=0 or cooperative=1"},
    [EX] = {"ex", AMOUNT, COUNT, 0, 1, FIELD(extended), "ex=0 or ex=1"},
    [PTSZ] = {"ptsz", AMOUNT, COUNT, 0, 1, FIELD(per_thread), "ptsz=0 or ptsz=1"},
    [GPUS] = {"gpus", AMOUNT, COUNT, 1, GPUS_AT_MOST, FIELD(gpus), "gpus=1 to gpus=16"},
    [REDUCE] = {"reduce", AMOUNT, TIME, 0, UINT64_C(1) << 40, FIELD(reduce), "reduce=100us"},
    [HOST] = {"host", AMOUNT, TIME, 0, UINT64_C(1) << 40, FIELD(host), "host=5ms"},
    [SEED] = {"seed", AMOUNT, COUNT, 0, INT32_MAX, FIELD(seed), "seed=7"},
};

enum { KEYS = sizeof keys / sizeof keys[0] };

static const char *const patterns[] = {[ASYNC] = "async", [SYNC] = "sync",
                                       [BURST] = "burst", [POISSON] = "poisson",
                                       [GRAPH] = "graph", [ALLREDUCE] = "allreduce"};
static const char *const directions[] = {
    [TO_DEVICE] = "h2d", [TO_HOST] = "d2h", [ON_DEVICE] = "d2d"};

static uint64_t *field(struct phase *phase, const struct key_kind *key)
{
    return (uint64_t *)((char *)phase + key->offset);
}

static bool choose(const char *text, const char *const *names, size_t count, uint64_t *out)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(names[i], text) == 0) {
            *out = i;
            return true;
        }
    return false;
}

static bool read_amount(const struct key_kind *key, const char *text, uint64_t *out)
{
    uint64_t amount;
    if (!amount_read(text, key->unit, &amount) || amount < key->least || amount > key->most)
        return false;
    *out = amount;
    return true;
}

/* Parts separated by `separator`, cut out of a copy. */
static bool read_kernels(struct phase *phase, const struct key_kind *key, const char *text)
{
    char copy[COMPLAINT];
    phase->kernel_count = 0;
    if (strlen(text) >= sizeof copy)
        return false;
    for (char *rest = strcpy(copy, text), *part; (part = strsep(&rest, ",")) != NULL;) {
        if (phase->kernel_count == KERNELS_AT_MOST ||
            !read_amount(key, part, &phase->kernels[phase->kernel_count]))
            return false;
        phase->kernel_count++;
    }
    return true;
}

static bool read_copy(struct phase *phase, const struct key_kind *key, const char *text)
{
    char size[COMPLAINT];
    const char *colon = strchr(text, ':');
    if (colon == NULL || (size_t)(colon - text) >= sizeof size)
        return false;
    memcpy(size, text, (size_t)(colon - text));
    size[colon - text] = '\0';
    return read_amount(key, size, &phase->copy) &&
           choose(colon + 1, directions, 3, &phase->direction);
}

static bool read_value(struct phase *phase, const struct key_kind *key, const char *text)
{
    switch (key->kind) {
    case KERNELS:
        return read_kernels(phase, key, text);
    case PATTERN:
        return choose(text, patterns, sizeof patterns / sizeof *patterns, &phase->pattern);
    case COPY:
        return read_copy(phase, key, text);
    default:
        return read_amount(key, text, field(phase, key));
    }
}

static int find(const char *word)
{
    size_t size = strcspn(word, "=");
    for (int i = 0; i < KEYS; i++)
        if (strlen(keys[i].name) == size && memcmp(keys[i].name, word, size) == 0)
            return i;
    return -1;
}

static int unknown(const char *word, char complaint[COMPLAINT])
{
    int used = snprintf(complaint, COMPLAINT, "%.40s: unknown; the words are", word);
    for (int i = 0; i < KEYS; i++)
        used += snprintf(complaint + used, (size_t)(COMPLAINT - used), "%s %s=", i > 0 ? "," : "",
                         keys[i].name);
    return -1;
}

int words_enter(struct phase *phase, const char *word, char complaint[COMPLAINT])
{
    int key = find(word);
    if (key < 0)
        return unknown(word, complaint);
    const char *value = strchr(word, '=');
    if ((phase->given & 1U << key) != 0) {
        snprintf(complaint, COMPLAINT, "%.60s: given twice", word);
        return -1;
    }
    if (value == NULL || !read_value(phase, &keys[key], value + 1)) {
        snprintf(complaint, COMPLAINT, "%.60s: write %s", word, keys[key].right);
        return -1;
    }
    phase->given |= 1U << key;
    return 0;
}

/* Keys that make no sense beside others, and what would be right. */
struct rule {
    bool broken;
    const char *complaint;
};

static bool has(const struct phase *phase, unsigned key)
{
    return (phase->given & 1U << key) != 0;
}

static void fill_in(struct phase *phase)
{
    if (!has(phase, AHEAD))
        phase->ahead = BATCHES_AHEAD_NS;
    if (phase->count == 0)
        phase->count = 1;
    if (phase->processes == 0)
        phase->processes = 1;
    if (phase->blocks == 0)
        phase->blocks = 1;
    if (phase->threads == 0)
        phase->threads = 1;
    if (phase->gpus == 0)
        phase->gpus = 1;
    if (!has(phase, REDUCE))
        phase->reduce = EXCHANGE_NS;
    phase->lasts += phase->rest;
}

int words_finish(struct phase *phase, char complaint[COMPLAINT])
{
    bool rests = has(phase, REST), graph = phase->pattern == GRAPH;
    bool allreduce = phase->pattern == ALLREDUCE;
    const unsigned of_allreduce = 1U << KERNEL | 1U << PATTERN_KEY | 1U << GPUS | 1U << REDUCE |
                                  1U << PROCESSES | 1U << BLOCKS | 1U << THREADS | 1U << FOR;
    bool poisson = phase->pattern == POISSON;
    bool many = graph || poisson || phase->pattern == BURST;
    bool works = has(phase, KERNEL) || has(phase, MEMSET) || has(phase, COPY_KEY);
    const struct rule rules[] = {
        {rests && phase->given != 1U << REST, "rest=: stands alone in its phase"},
        {!rests && !works, "nothing to launch; write for example kernel=2ms"},
        {!rests && !has(phase, FOR), "no end; write for example for=5s"},
        {phase->pattern == BURST && !has(phase, EVERY),
         "pattern=burst: needs a period; write for example every=100ms"},
        {poisson && !has(phase, EVERY),
         "pattern=poisson: needs a mean period; write for example every=100ms"},
        {has(phase, EVERY) && !many, "every=: only with pattern=burst, poisson or graph"},
        {has(phase, COUNT_KEY) && !many, "count=: only with pattern=burst, poisson or graph"},
        {phase->sync && !graph && !poisson,
         "sync=1: only with pattern=graph or poisson; else write pattern=sync"},
        {poisson && phase->processes > 1, "pattern=poisson: by one process"},
        {has(phase, SEED) && !poisson, "seed=: only with pattern=poisson"},
        {has(phase, HOST) && has(phase, EVERY) && !(poisson && phase->sync),
         "host=: with every= only where pattern=poisson has sync=1"},
        {has(phase, AHEAD) && (phase->pattern == SYNC || phase->sync || has(phase, EVERY)),
         "ahead=: only with pattern=async or pattern=graph, without every= and sync=1"},
        {phase->per_thread && has(phase, STREAMS), "ptsz=1: is one stream, without streams="},
        {phase->cooperative && phase->extended, "cooperative=1: not together with ex=1"},
        {!allreduce && (has(phase, GPUS) || has(phase, REDUCE)),
         "gpus= and reduce=: only with pattern=allreduce"},
        {allreduce && (!has(phase, KERNEL) || (phase->given & ~of_allreduce) != 0),
         "pattern=allreduce: of the others only kernel=, processes=, blocks=, threads="},
    };
    for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++)
        if (rules[i].broken) {
            snprintf(complaint, COMPLAINT, "%s", rules[i].complaint);
            return -1;
        }
    fill_in(phase);
    return 0;
}

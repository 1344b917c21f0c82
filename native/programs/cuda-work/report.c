#include "report.h"
#include <stdio.h>

/* One phase of all processes. */
static struct tally phase_tally(const struct crew *crew, unsigned phase)
{
    struct tally sum = {0};
    for (unsigned member = 0; member < crew->size; member++)
        tally_merge(&sum, &crew->tallies[member][phase]);
    return sum;
}

static struct tally whole_tally(const struct workload *workload, const struct crew *crew)
{
    struct tally sum = {0};
    for (unsigned i = 0; i < workload->count; i++) {
        struct tally one = phase_tally(crew, i);
        tally_merge(&sum, &one);
    }
    return sum;
}

static double seconds_of(const struct tally *tally)
{
    return (double)(tally->end - tally->begin) / 1e9;
}

static void text_spread(const char *name, const struct spread *spread)
{
    if (spread->count == 0)
        return;
    printf("  %s p50 %.3f ms, p99 %.3f ms, longest %.3f ms\n", name,
           (double)spread_percentile(spread, 50) / 1e6, (double)spread_percentile(spread, 99) / 1e6,
           (double)spread->most / 1e6);
}

static void text_tally(const char *what, const struct tally *tally)
{
    double spent = seconds_of(tally), asked = (double)tally->load.gpu_ns / 1e9;
    printf("%s: %llu launches in %.2f s\n", what, (unsigned long long)tally->launches, spent);
    if (tally->load.kernels > 0)
        printf("  %llu kernels, %.2f s of GPU time, %.1f %% of the time\n",
               (unsigned long long)tally->load.kernels, asked,
               spent > 0 ? 100 * asked / spent : 0.0);
    if (tally->load.bytes > 0)
        printf("  %.1f MiB filled or copied\n", (double)tally->load.bytes / 0x1p20);
    text_spread("between launches", &tally->gaps);
    text_spread("until ended", &tally->delays);
}

void report_text(const struct workload *workload, const struct crew *crew)
{
    for (unsigned i = 0; i < workload->count; i++) {
        struct tally tally = phase_tally(crew, i);
        text_tally(workload->phases[i].text, &tally);
    }
    if (workload->count == 1)
        return;
    struct tally whole = whole_tally(workload, crew);
    text_tally("in all", &whole);
}

static void json_spread(const char *name, const struct spread *spread)
{
    if (spread->count == 0) {
        printf(", \"%s_p50_us\": null, \"%s_p90_us\": null", name, name);
        printf(", \"%s_p99_us\": null, \"%s_max_us\": null", name, name);
        return;
    }
    printf(", \"%s_p50_us\": %.3f", name, (double)spread_percentile(spread, 50) / 1e3);
    printf(", \"%s_p90_us\": %.3f", name, (double)spread_percentile(spread, 90) / 1e3);
    printf(", \"%s_p99_us\": %.3f", name, (double)spread_percentile(spread, 99) / 1e3);
    printf(", \"%s_max_us\": %.3f", name, (double)spread->most / 1e3);
}

static void json_tally(const struct tally *tally)
{
    printf("\"launches\": %llu, \"kernels\": %llu, \"bytes\": %llu",
           (unsigned long long)tally->launches, (unsigned long long)tally->load.kernels,
           (unsigned long long)tally->load.bytes);
    printf(", \"gpu_seconds\": %.9f, \"begin_ns\": %llu, \"seconds\": %.9f",
           (double)tally->load.gpu_ns / 1e9, (unsigned long long)tally->begin, seconds_of(tally));
    json_spread("gap", &tally->gaps);
    json_spread("delay", &tally->delays);
}

/* The words of a phase hold nothing that JSON would want escaped: they have been understood. */
void report_json(const struct workload *workload, const struct crew *crew)
{
    struct tally whole = whole_tally(workload, crew);
    printf("{");
    json_tally(&whole);
    printf(", \"processes\": %u, \"phases\": [", crew->size);
    for (unsigned i = 0; i < workload->count; i++) {
        struct tally tally = phase_tally(crew, i);
        printf("%s{\"text\": \"%s\", ", i > 0 ? ", " : "", workload->phases[i].text);
        json_tally(&tally);
        printf("}");
    }
    printf("]}\n");
}

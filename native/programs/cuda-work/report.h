/* What a workload did, in a few lines or as JSON. */
#ifndef PROGRAMS_CUDA_WORK_REPORT_H
#define PROGRAMS_CUDA_WORK_REPORT_H

#include "crew.h"
#include "phase.h"

void report_text(const struct workload *workload, const struct crew *crew);
void report_json(const struct workload *workload, const struct crew *crew);

#endif

#include "amount.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct factor {
    const char *name;
    double by;
};

static const struct factor sizes[] = {{"", 1},         {"KiB", 0x1p10}, {"MiB", 0x1p20},
                                      {"GiB", 0x1p30}, {"TiB", 0x1p40}, {NULL, 0}};
static const struct factor times[] = {{"s", 1e9}, {"ms", 1e6}, {"us", 1e3}, {"ns", 1}, {NULL, 0}};
static const struct factor counts[] = {{"", 1}, {NULL, 0}};

static const struct factor *const factors[] = {[SIZE] = sizes, [TIME] = times, [COUNT] = counts};

bool amount_read(const char *text, enum unit unit, uint64_t *out)
{
    char *rest;
    double number = strtod(text, &rest);
    if (rest == text || !isfinite(number) || number < 0)
        return false;
    if (unit == COUNT && number != floor(number))
        return false;
    for (const struct factor *factor = factors[unit]; factor->name != NULL; factor++) {
        if (strcmp(rest, factor->name) != 0 || number * factor->by > 0x1p62)
            continue;
        *out = (uint64_t)(number * factor->by + 0.5);
        return true;
    }
    return false;
}

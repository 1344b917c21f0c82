/* A library that prints the limit it is told when it is loaded. */
#include <stdio.h>
#include <stdlib.h>

__attribute__((constructor)) static void begin(void)
{
    printf("{\"percent\": %s}\n", getenv("BASELINE_PERCENT"));
}

/* `hold`: some memory, for some time. */
#include "driver.h"
#include "memory.h"
#include "verbs.h"
#include <stdio.h>

int hold(const struct options *options)
{
    char text[SIZE_TEXT];
    device_address address;
    if (options->memory == 0 || options->seconds == 0) {
        fprintf(stderr, "cuda-play: hold: --memory and --seconds are needed\n");
        return 2;
    }
    driver_load();
    driver_use((int)options->device);
    driver_check(cuMemAlloc(&address, options->memory), "allocating");
    printf("holding %s\n", memory_text(options->memory, text));
    rest(options->seconds);
    driver_check(cuMemFree(address), "freeing");
    printf("freed %s\n", memory_text(options->memory, text));
    return 0;
}

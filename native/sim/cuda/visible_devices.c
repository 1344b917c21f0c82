#include "cuda/visible_devices.h"
#include "core/device_nodes.h"
#include "core/uuid.h"
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

static int by_index(const char *word, unsigned count)
{
    char *end;
    if (!isdigit((unsigned char)*word))
        return -1;
    unsigned long index = strtoul(word, &end, 10);
    return *end == '\0' && index < count ? (int)index : -1;
}

static int by_uuid(const struct sim_state *state, const char *word, const unsigned *present,
                   unsigned count)
{
    for (unsigned index = 0; index < count; index++) {
        char text[UUID_TEXT_SIZE];
        uuid_text(state->machine.gpus[present[index]].uuid, text);
        if (strncasecmp(text, word, strlen(word)) == 0)
            return (int)index;
    }
    return -1;
}

static bool listed(const unsigned *gpus, unsigned count, unsigned gpu)
{
    for (unsigned i = 0; i < count; i++)
        if (gpus[i] == gpu)
            return true;
    return false;
}

unsigned visible_devices(const struct sim_state *state, unsigned gpus[SIM_GPUS])
{
    unsigned present[SIM_GPUS];
    unsigned count = device_nodes_list(state, present);
    const char *variable = getenv("CUDA_VISIBLE_DEVICES");
    char words[1024];
    char *rest = words;
    if (variable == NULL || strlen(variable) >= sizeof words) {
        memcpy(gpus, present, sizeof present);
        return count;
    }
    strcpy(words, variable);
    unsigned chosen = 0;
    for (char *word; (word = strsep(&rest, ",")) != NULL && chosen < count;) {
        word += strspn(word, " ");
        int index = strncmp(word, "GPU-", 4) == 0 ? by_uuid(state, word, present, count)
                                                  : by_index(word, count);
        if (index < 0 || listed(gpus, chosen, present[index]))
            break;
        gpus[chosen++] = present[index];
    }
    return chosen;
}

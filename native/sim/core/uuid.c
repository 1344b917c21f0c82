#include "core/uuid.h"
#include <stdio.h>
#include <string.h>

void uuid_text(const uint8_t uuid[16], char text[UUID_TEXT_SIZE])
{
    strcpy(text, "GPU-");
    char *end = text + 4;
    for (int i = 0; i < 16; i++) {
        if (i == 4 || i == 6 || i == 8 || i == 10)
            *end++ = '-';
        end += snprintf(end, 3, "%02x", uuid[i]);
    }
}

/* GPU UUIDs and bus ids as text, the way the drivers write them. */
#ifndef SIM_CORE_UUID_H
#define SIM_CORE_UUID_H

#include <stdint.h>

enum { UUID_TEXT_SIZE = 41 }; /* `GPU-`, 36 characters, the terminating 0 */

void uuid_text(const uint8_t uuid[16], char text[UUID_TEXT_SIZE]);

#endif

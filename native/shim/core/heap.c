#include "core/heap.h"

heap_listener _Atomic heap_told;

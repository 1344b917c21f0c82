/* What Python sees of the native code: layouts, the pure units, the simulator's state. */
#include "vcuda_protocol.h"
#include "vcuda_region.h"

/* What Python sees of the shim: the layouts and the pure units. */
#include "vcuda_protocol.h"
#include "vcuda_region.h"

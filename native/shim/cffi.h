/* What Python sees of the shim: the layouts and the pure units. */
#include "vcuda_protocol.h"
#include "vcuda_region.h"

#include "core/array_size.h"
#include "core/books.h"
#include "core/cost.h"
#include "core/gaps.h"
#include "core/limiter.h"
#include "core/physical.h"
#include "core/pointers.h"
#include "core/pools.h"
#include "core/region.h"
#include "core/residents.h"

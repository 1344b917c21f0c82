/* What Python sees of the scheduler's native part. */
#include "core/names.h"
#include "core/rows.h"

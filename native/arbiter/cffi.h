/* What Python sees of the arbiter: the words, the decisions, and the thread. */
#include "vcuda_turns.h"

#include "core/turns.h"
#include "manager/arbiter.h"

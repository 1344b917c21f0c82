/* What Python sees of the arbiter: the words, the decisions, and the thread. */
#include "vcuda_turns.h"

#include "core/gang.h"
#include "manager/arbiter.h"

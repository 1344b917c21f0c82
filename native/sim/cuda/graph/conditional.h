/* Conditional nodes: IF, WHILE and SWITCH, with the graphs that they choose from.
 *
 * On a real GPU kernels set the condition. Here they compute nothing, so the value that the handle
 * has at launch decides: its default if it was made with that, else 0. The body of a WHILE runs
 * once, as if a kernel in it ended the loop.
 */
#ifndef SIM_CUDA_GRAPH_CONDITIONAL_H
#define SIM_CUDA_GRAPH_CONDITIONAL_H

#include "cuda/graph/graph.h"

CUresult conditional_add(CUgraphNode *out, CUgraph graph, CUgraphNode const *needs, size_t count,
                         struct conditional_params *params);

/* Copies of the bodies, for a copy of the node. */
CUresult conditional_copy(struct driver *driver, const struct conditional_work *from,
                          struct conditional_work *out);
void conditional_release(struct driver *driver, struct conditional_work *work);

/* The body that runs, or NULL. */
const struct graph *conditional_chosen(const struct conditional_work *work);

/* Has it only nodes that bodies may have, at any depth? */
bool conditional_bodies_valid(const struct graph *graph);

/* The graph is gone, and its handles with it. */
void conditional_forget(struct driver *driver, uint64_t graph);

#endif

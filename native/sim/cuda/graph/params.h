/* Changing what a node does; a node of another kind, or NULL, is CUDA_ERROR_INVALID_VALUE. */
#ifndef SIM_CUDA_GRAPH_PARAMS_H
#define SIM_CUDA_GRAPH_PARAMS_H

#include "cuda/graph/graph.h"

CUresult node_change_kernel(struct node *node, const struct kernel_params *params);
CUresult node_change_kernel_v1(struct node *node, const struct kernel_params_v1 *params);
CUresult node_change_copy(struct node *node, const struct copy_params *params);
CUresult node_change_fill(struct node *node, const struct fill_params *params);
CUresult node_change_host(struct node *node, const struct host_params *params);
CUresult node_change_event(struct node *node, enum node_type type, CUevent event);
CUresult node_change_memory(struct node *node, const struct memory_batch *params);
CUresult node_change_any(struct node *node, const struct node_params *params);

#endif

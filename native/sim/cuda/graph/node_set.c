/* Sets of nodes, in the order in which they were added. */
#include "cuda/graph/graph.h"
#include <stdlib.h>

int node_set_add(struct node_set *set, struct node *node)
{
    if (set->count == set->capacity) {
        size_t capacity = set->capacity > 0 ? 2 * set->capacity : 4;
        struct node **items = realloc(set->items, capacity * sizeof *items);
        if (items == NULL)
            return -1;
        set->items = items;
        set->capacity = capacity;
    }
    set->items[set->count++] = node;
    return 0;
}

bool node_set_has(const struct node_set *set, const struct node *node)
{
    for (size_t i = 0; i < set->count; i++)
        if (set->items[i] == node)
            return true;
    return false;
}

void node_set_clear(struct node_set *set)
{
    free(set->items);
    *set = (struct node_set){0};
}

/* In the order of creation nodes mostly follow what they need: marks make each visited once. */
static bool search(const struct node_set *set, const struct node *earlier)
{
    for (size_t i = 0; i < set->count; i++) {
        struct node *node = set->items[i];
        if (node == earlier)
            return true;
        if (node->placed)
            continue;
        node->placed = true;
        if (search(&node->needs, earlier))
            return true;
    }
    return false;
}

bool node_set_follows(const struct node_set *set, const struct node *earlier)
{
    for (size_t i = 0; i < earlier->graph->nodes.count; i++)
        earlier->graph->nodes.items[i]->placed = false;
    return search(set, earlier);
}

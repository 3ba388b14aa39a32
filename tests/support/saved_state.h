/* saved_state.h - what a checkpoint of a job holds, whatever number of ranks
 * has saved it: its arrays, each put together from the shards. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

struct saved_array {
    char *name;    /* "m/NAME" */
    char type[12]; /* as in the file: "F32" */
    char *bytes;
    size_t used, room;
};
struct saved_state {
    struct saved_array *arrays;
    int count;
};

/* Of DIR/out/checkpoint-STEP, which `world` ranks have saved; empty if there is
 * none. The caller's, who ends with saved_state_free. */
struct saved_state saved_state_of(const char *dir, int world, int step);
void saved_state_free(struct saved_state *state);
/* The array of this name (its first `length` characters), which is added empty
 * where there is none. */
struct saved_array *saved_array_of(
        struct saved_state *state, const char *name, size_t length);
/* Have two runs saved the same bits? */
bool same_saved_state(
        const char *a, int a_world, const char *b, int b_world, int step);

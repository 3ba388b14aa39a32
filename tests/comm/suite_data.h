/* suite_data.h - arrays whose values tell who gave them and in which order they
 * were added, and their way to the memory that collectives work on. */
#pragma once

#include "comm/comm.h"

enum { DATA_TYPES = 3 };
extern const enum dtype data_types[DATA_TYPES];

/* Element of a rank's array. */
float data_value(int rank, size_t i);
/* out: (count) elements of a rank's array, from `first` on. */
void data_fill(
        void *out, enum dtype type, int rank, size_t first, size_t count);
/* The rank of place p of a group, whose arrays it has, is first + p * stride.
 */
struct data_row {
    int first, stride;
};
int data_rank(struct data_row row, int place);
/* What a reduce_scatter must give of elements `first` on: ranks in order, in
 * fp32, rounded once; with nodes, each node's sum rounded, and the nodes in
 * order. added_to: (count) or NULL. */
void data_expect_sum(
        void *out, enum dtype type, const struct comm *comm,
        struct data_row row, size_t first, size_t count, const float *added_to);

/* A copy of `bytes` of the host in the memory that collectives of this comm
 * work on; on the CPU that is the host's, as it is. */
void *data_up(void *host, size_t bytes);
/* The device's values, where the host can look at them. */
void data_look(void *host, const void *device, size_t bytes);
void data_drop(void *host, void *device, size_t bytes);

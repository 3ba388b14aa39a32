/* What a seat says of collectives. */
#include "comm/nccl/hosts.h"

const char *seat_kind_name(enum comm_op_kind kind)
{
    return kind == OP_ALL_GATHER ? "all_gather" : "reduce_scatter";
}

static const int TYPE_BIT = 48, KIND_BIT = 56;

uint64_t seat_word(enum comm_op_kind kind, enum dtype type, size_t bytes)
{
    return ((uint64_t)kind + 1) << KIND_BIT | (uint64_t)type << TYPE_BIT |
           bytes;
}

bool seat_word_is_known(uint64_t word)
{
    uint64_t kind = word >> KIND_BIT, type = word >> TYPE_BIT & 0xff;
    return kind >= 1 && kind <= OP_REDUCE_SCATTER + 1 && type <= DTYPE_FP16;
}

void seat_word_text(uint64_t word, char *out, size_t out_bytes)
{
    enum comm_op_kind kind = (enum comm_op_kind)((word >> KIND_BIT) - 1);
    enum dtype type = (enum dtype)(word >> TYPE_BIT & 0xff);
    uint64_t bytes = word & (((uint64_t)1 << TYPE_BIT) - 1);
    snprintf(
            out, out_bytes, "%s %s %llu bytes", seat_kind_name(kind),
            dtype_name(type), (unsigned long long)bytes);
}

uint64_t seat_what(const struct seat *seat, uint64_t number)
{
    uint64_t begun = atomic_load(&seat->begun);
    if (number == 0 || begun < number || begun - number >= SEAT_RECORD)
        return 0;
    return atomic_load(&seat->what[number % SEAT_RECORD]);
}

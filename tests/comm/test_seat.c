#include "comm/nccl/hosts.h"

#include <criterion/criterion.h>

Test(seat, words_say_what_was_put_into_them)
{
    char text[64];
    for (int type = DTYPE_FP32; type <= DTYPE_FP16; type++) {
        uint64_t word = seat_word(OP_ALL_GATHER, (enum dtype)type, 120000);
        cr_expect(seat_word_is_known(word));
        word = seat_word(OP_REDUCE_SCATTER, (enum dtype)type, 0);
        cr_expect(seat_word_is_known(word));
    }
    seat_word_text(
            seat_word(OP_REDUCE_SCATTER, DTYPE_BF16, 77), text, sizeof text);
    cr_expect_str_eq(text, "reduce_scatter bf16 77 bytes");
}

/* A datagram may hold any: none may be taken for the number of a name. */
Test(seat, words_of_no_kind_or_type_are_not_known)
{
    for (uint64_t kind = 0; kind < 256; kind++)
        for (uint64_t type = 0; type < 256; type++) {
            bool is_known = seat_word_is_known(kind << 56 | type << 48 | 5);
            cr_expect_eq(
                    is_known, (kind == 1 || kind == 2) && type < 3,
                    "kind %d type %d", (int)kind, (int)type);
        }
}

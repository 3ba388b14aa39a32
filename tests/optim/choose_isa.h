/* choose_isa.h - the instruction set that the program takes for the best, for
 * programs that are linked with --wrap=isa_best. */
#pragma once

#include "optim/isa.h"
#include "tests/support/wrap.h"

static enum isa chosen_isa = ISA_COUNT; /* which is its own choice */

WRAP(enum isa, isa_best, void)
{
    return chosen_isa < ISA_COUNT ? chosen_isa : __real_isa_best();
}
